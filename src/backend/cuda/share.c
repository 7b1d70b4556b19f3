/* Weights that processes share: exporting arena memory as descriptors, and mapping another process's memory
 * (arena_share and arena_adopt of device.h).
 *
 *     owner    map_shared -> [weights ......... |mark]  <- upload        passes its descriptor to others
 *     others   map_import -> [weights ......... |mark]  -> download      refuses memory with another mark
 *
 * A descriptor does not tell which memory it refers to. The runtime refuses descriptors of anything except device
 * memory of this size. The mark, a digest that contains the key of the weights, detects other weights of equal size.
 * Memory: the caller's. Threads: as device.h says. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/impl.h"
#include "base/error.h"

/* Returns the address of the mark: the last sizeof(pi__digest) bytes of the memory, after the weights. */
static char *mark_at(void *p, size_t size) { return (char *) p + size - sizeof(pi__digest); }

int pi__cuda_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    bool done = false;
    int code = pi__rt_map_shared(c->rt, p, size, fd, &done);
    if (!code && !done) return pi__fail(err, PI_ENOMEM, "%s: no memory for %zu MiB of weights", c->desc, size >> 20);
    if (!code) code = pi__rt_upload(c->rt, mark_at(p, size), mark, sizeof *mark);
    if (!code) return PI_OK;
    if (done) pi__rt_unmap(c->rt, p, size);
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
    return pi__fail(err, PI_EDEVICE, "%s: cannot share weights: %.200s", c->desc, pi__rt_text(code));
}

int pi__cuda_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__digest found = {{0}};
    int code = pi__rt_map_import(c->rt, p, size, *fd);
    if (code) return pi__fail(err, PI_EIO, "%s cannot map the memory: %.200s", c->desc, pi__rt_text(code));
    code = pi__rt_download(c->rt, &found, mark_at(p, size), sizeof found);
    if (!code) code = pi__rt_wait(c->rt);
    const bool same = !code && pi__digest_equal(&found, mark);
    if (!same) pi__rt_unmap(c->rt, p, size); /* unmapping waits for copies in the stream */
    return code ? pi__fail(err, PI_EDEVICE, "%s: %.200s", c->desc, pi__rt_text(code)) :
           same ? PI_OK : pi__fail(err, PI_EIO, "%s: the shared memory does not hold these weights: restart the owner",
                                   c->desc);
}

void pi__cuda_identify(const pi__backend *be, char *out, size_t size)
{
    const uint8_t *u = ((const pi__cuda *) be)->info.uuid;
    snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}