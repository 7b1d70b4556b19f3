/* The weights owner: loads and packs models once per machine, as an engine with the same options would. The memory is
 * passed through a socket to engines with weights-from. The owner keeps only descriptors once the model is loaded: it
 * maps nothing and runs no engine. It may exit while engines use the memory. */
#ifndef PI__WEIGHTS_OWNER_H
#define PI__WEIGHTS_OWNER_H

#include "engine/config.h"

typedef struct pi__weights_owner pi__weights_owner;

int pi__weights_owner_open(pi__weights_owner **out, const pi__config *c, const char *socket, pi_error *err);
void pi__weights_owner_close(pi__weights_owner *w); /* w may be NULL */

#endif
