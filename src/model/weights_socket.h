/* Passes weights images (weights_image.h) to other processes through a Unix socket.
 *
 * One request per connection, fixed sizes, native byte order:
 *
 *     request   magic "PIweight", version, 0, key, target              80 bytes; target: hash of the target description
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

/* A request for an image. */
typedef struct pi__weights_question {
    pi__digest key;
    const char *target; /* description of the backends and devices, as text (pi__weights_image.target) */
    int n_fd;           /* number of descriptors that the image must have */
} pi__weights_question;

/* Requests the image q from the owner process that listens at path, and stores its descriptors in fd; the caller closes
 * them. Waits for the owner for at most a few seconds. Returns an error if the owner does not have the image. */
int pi__weights_ask(const char *path, const pi__weights_question *q, int fd[PI__WEIGHTS_FDS], pi_error *err);

/* An image that the listener provides. */
typedef struct pi__weights_offer {
    pi__digest key;
    pi__digest target; /* hash of the target description */
    int fd[PI__WEIGHTS_FDS], n_fd; /* [n_fd] descriptors of the image; the listener does not close them */
    size_t size;        /* bytes of the image in host memory, sent in the answer */
} pi__weights_offer;

typedef struct pi__weights_listener pi__weights_listener;
/* Creates a socket at path and answers requests for the n offered images on its own thread, until
 * pi__weights_unlisten. Only the current user can access the socket. Replaces a socket that nothing listens on.
 * what: name of the model, for the errors of requests for other images. */
int pi__weights_listen(pi__weights_listener **out, const char *path, const pi__weights_offer *offer, int n,
                       const char *what, pi_error *err);
void pi__weights_unlisten(pi__weights_listener *l); /* NULL is a no-op */

#endif
