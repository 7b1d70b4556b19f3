/* Passing on images of packed weights (weights_image.h) through a Unix socket.
 *
 * One request a connection, fixed sizes, numbers in the machine's byte order:
 *
 *     request   magic "PIweight", version, 0, key, target                 80 bytes; target: hash of what they are packed for
 *     answer    magic "PIweight", version, status, size, text[232]        256 bytes; with status 0 the memory's descriptors
 *                                                                         come along (SCM_RIGHTS): the host's, then those
 *                                                                         of each device
 *
 * Both ends look at the other's user (SO_PEERCRED): it must be their own, or root. Memory: none. */
#ifndef PI__WEIGHTS_SOCKET_H
#define PI__WEIGHTS_SOCKET_H

#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

enum { PI__WEIGHTS_FDS = 17 /* most descriptors of an image */ };

typedef struct pi__weights_question {
    pi__digest key;
    const char *target; /* what they are to be packed for, in words */
    int n_fd;           /* descriptors that the image has */
} pi__weights_question;

/* The descriptors of the image with this key, the caller's to close. It waits for the owner for some seconds at most. */
int pi__weights_ask(const char *path, const pi__weights_question *q, int fd[PI__WEIGHTS_FDS], pi_error *err);

/* An image that is passed on. */
typedef struct pi__weights_offer {
    pi__digest key;
    pi__digest target; /* hash of the words */
    int fd[PI__WEIGHTS_FDS], n_fd; /* borrowed */
    size_t size;        /* bytes, for the answer */
} pi__weights_offer;

typedef struct pi__weights_listener pi__weights_listener;
/* Answers requests on a thread of its own until close. The socket appears at path, readable by its user alone; one that
 * nobody answers is replaced. what: of which model, for the errors of those who ask for something else. */
int pi__weights_listen(pi__weights_listener **out, const char *path, const pi__weights_offer *offer, int n, const char *what,
                       pi_error *err);
void pi__weights_unlisten(pi__weights_listener *l); /* NULL is fine */

#endif
