/* Passes weights images (weights_image.h) to other processes through a Unix socket.
 *
 * One request per connection, fixed sizes, native byte order:
 *
 *     request   magic "PIweight", version, 0, key, target              80 bytes; target: hash of the description
 *     answer    magic "PIweight", version, status, size, text[232]     256 bytes; status 0: with descriptors attached
 *                                                                      (SCM_RIGHTS): the host's, then each device's
 *
 * Both ends check the peer's user (SO_PEERCRED): it must be their own user or root. Memory: none. */
#ifndef PI__WEIGHTS_SOCKET_H
#define PI__WEIGHTS_SOCKET_H

#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

enum { PI__WEIGHTS_FDS = 17 /* max descriptors of an image */ };

typedef struct pi__weights_question {
    pi__digest key;
    const char *target; /* target description, as text */
    int n_fd;           /* number of descriptors of the image */
} pi__weights_question;

/* Gets the descriptors of the image with this key; the caller closes them. Waits for the owner for at most a few
 * seconds. */
int pi__weights_ask(const char *path, const pi__weights_question *q, int fd[PI__WEIGHTS_FDS], pi_error *err);

/* An image that the listener provides. */
typedef struct pi__weights_offer {
    pi__digest key;
    pi__digest target; /* hash of the target description */
    int fd[PI__WEIGHTS_FDS], n_fd; /* borrowed */
    size_t size;        /* bytes, reported in the answer */
} pi__weights_offer;

typedef struct pi__weights_listener pi__weights_listener;
/* Answers requests on its own thread until pi__weights_unlisten. Creates the socket at path with access for the
 * current user only; replaces a socket without a listener. what: name of the model, for the errors of other
 * requests. */
int pi__weights_listen(pi__weights_listener **out, const char *path, const pi__weights_offer *offer, int n,
                       const char *what, pi_error *err);
void pi__weights_unlisten(pi__weights_listener *l); /* NULL is a no-op */

#endif
