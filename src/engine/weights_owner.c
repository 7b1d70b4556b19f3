/* The weights owner (see weights_owner.h). */
#include "engine/weights_owner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/plan.h"
#include "model/weights_socket.h"

enum { MODELS = 2 };

struct pi__weights_owner {
    pi__weights_offer offer[MODELS]; /* the model, and its draft model */
    int n;                           /* entries in offer; their descriptors are owned */
    pi__weights_listener *listener;
};
_Static_assert(PI__WEIGHTS_FDS == 1 + PI__WEIGHTS_PARTS, "the host's memory, and the devices'");

/* Moves the descriptors from the model to the owner. */
static void take_weights(pi__weights_owner *w, pi__model *m)
{
    pi__weights_image *im = &m->image;
    pi__weights_offer *o = &w->offer[w->n++];
    *o = (pi__weights_offer) {.key = im->key, .target = pi__hash(PI__HASH_TARGET, im->target, strlen(im->target)),
                             .size = im->size};
    o->fd[o->n_fd++] = im->fd;
    im->fd = -1;
    for (int32_t i = 0; i < im->n_parts; i++) {
        o->fd[o->n_fd++] = im->part[i];
        im->part[i] = -1;
    }
}

static int load_shared_weights(pi__weights_owner *w, pi__setup *s, const pi__config *c, pi_error *err)
{
    pi__config own = *c;
    own.params.cuda.exports = true;
    int rc = pi__setup_open(s, &own, err);
    if (!rc) rc = pi__setup_size(s, err);
    if (!rc) rc = pi__plan_check_weights(s, err);
    if (!rc) rc = pi__setup_load(s, true, err);
    if (rc) return rc;
    take_weights(w, s->m);
    if (pi__setup_second_model(s)) take_weights(w, pi__setup_second_model(s));
    return PI_OK;
}

int pi__weights_owner_open(pi__weights_owner **out, const pi__config *c, const char *socket, pi_error *err)
{
    char what[232];
    pi__setup s = {0};
    pi__weights_owner *w = pi__calloc(1, sizeof *w);
    if (!w) return pi__fail_mem(err, "the owner of weights");
    int rc = load_shared_weights(w, &s, c, err);
    if (!rc) snprintf(what, sizeof what, "%.60s for %.160s", s.m->desc, s.m->image.target);
    pi__setup_free(&s);
    if (!rc) rc = pi__weights_listen(&w->listener, socket, w->offer, w->n, what, err);
    if (rc) pi__weights_owner_close(w);
    else *out = w;
    return rc;
}

void pi__weights_owner_close(pi__weights_owner *w)
{
    if (!w) return;
    pi__weights_unlisten(w->listener);
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->offer[i].n_fd; k++) (void) close(w->offer[i].fd[k]);
    pi__free(w);
}
