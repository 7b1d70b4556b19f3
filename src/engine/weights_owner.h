/* The owner of a machine's weights: models are loaded and packed once, as an engine with the same options would, into memory
 * that is passed on through a socket to engines with weights-from. The owner keeps descriptors alone: nothing is mapped, and
 * no engine runs. It may end while engines use what it gave them. */
#ifndef PI__WEIGHTS_OWNER_H
#define PI__WEIGHTS_OWNER_H

#include "engine/config.h"

typedef struct pi__weights_owner pi__weights_owner;

int pi__weights_owner_open(pi__weights_owner **out, const pi__config *c, const char *socket, pi_error *err);
void pi__weights_owner_close(pi__weights_owner *w); /* NULL is fine */

#endif
