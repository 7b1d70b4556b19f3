/* pi_weights: serves packed weights over a socket (engine/weights_owner.h). */
#include "api/config.h"
#include "base/alloc.h"
#include "base/error.h"
#include "engine/weights_owner.h"

struct pi_weights {
    pi__weights_owner *owner;
};

int pi_weights_open(pi_weights **out, const pi_options *o, const char *socket, pi_error *err)
{
    if (!out) return pi__fail(err, PI_EINVAL, "pi_weights_open: out must not be NULL");
    *out = NULL;
    if (!o || !socket) return pi__fail(err, PI_EINVAL, "pi_weights_open: options and the path of a socket are needed");
    pi__config c;
    int rc = pi__config_of(o, &c, err);
    if (rc) return rc;
    /* direct I/O: the file is read once, so do not fill the page cache with it */
    if (pi__opt_is(&o->set, PI__OPT_LOAD_MODE, "auto")) c.load_mode = PI__LOAD_DIO;
    pi_weights *w = pi__calloc(1, sizeof *w);
    if (!w) return pi__fail_mem(err, "the owner of weights");
    rc = pi__weights_owner_open(&w->owner, &c, socket, err);
    if (rc) pi__free(w);
    else *out = w;
    return rc;
}

void pi_weights_close(pi_weights *w)
{
    if (!w) return;
    pi__weights_owner_close(w->owner);
    pi__free(w);
}
