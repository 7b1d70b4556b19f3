/* A device whose memory the host cannot reach, for tests of what the engine does then: the CPU backend under the name
 * "far", with copies beside the queue that are as bad as they may be: one half of the bytes moves when the copy is queued,
 * the other when it is said to have ended, some questions later.
 *
 * Replaces the library's table of devices: include it in one file of a program. One engine at a time. */
#ifndef FAR_DEVICE_H
#define FAR_DEVICE_H

#include <stdatomic.h>
#include <string.h>

#include "backend/device.h"
#include "backend/tensor.h"

enum { FAR_MOST = 4096 };

typedef struct far_copy {
    char *dst;
    const char *src;
    size_t n;      /* bytes of the second half */
    unsigned left; /* questions that find it under way */
} far_copy;

static struct {
    pi__device_fns ops;       /* the CPU's, but for copies */
    far_copy copy[FAR_MOST];   /* a ring: those under way */
    uint64_t n_copies, n_ended;
    uint64_t rng;
    long refuse;               /* copies that are queued before one is refused; negative: none is */
    bool dead;                 /* no copy ends any more */
    atomic_int pins;           /* chunks that can still be pinned */
} far_device = {.refuse = -1, .pins = 1 << 20};

static void far_end(void)
{
    const far_copy *c = &far_device.copy[far_device.n_ended++ % FAR_MOST];
    memcpy(c->dst, c->src, c->n);
}

static uint64_t far_copy_beside(pi__backend *be, void *dst, const void *src, size_t n)
{
    (void) be;
    if (far_device.dead || far_device.refuse == 0) {
        far_device.refuse = -1;
        return 0;
    }
    if (far_device.refuse > 0) far_device.refuse--;
    if (far_device.n_copies - far_device.n_ended == FAR_MOST) far_end();
    far_device.rng = far_device.rng * 6364136223846793005u + 1442695040888963407u;
    memcpy(dst, src, n / 2);
    unsigned left = far_device.rng >> 62 ? 0 : 1 + (unsigned) (far_device.rng >> 60 & 1);
    far_device.copy[far_device.n_copies++ % FAR_MOST] =
        (far_copy) {(char *) dst + n / 2, (const char *) src + n / 2, n - n / 2, left};
    return far_device.n_copies;
}

static uint64_t far_copy_out(pi__backend *be, void *host, const void *src, size_t n)
{
    return far_copy_beside(be, host, src, n);
}

static bool far_copies(pi__backend *be, bool wait, uint64_t *ended)
{
    (void) be;
    while (!far_device.dead && far_device.n_ended < far_device.n_copies &&
           (wait || far_device.copy[far_device.n_ended % FAR_MOST].left-- == 0)) far_end();
    *ended = far_device.n_ended;
    return !far_device.dead;
}

static bool far_pin(pi__backend *be, void *host, size_t n)
{
    (void) be;
    (void) host;
    (void) n;
    return atomic_fetch_sub(&far_device.pins, 1) > 0;
}

static void far_unpin(pi__backend *be, void *host, size_t n)
{
    (void) be;
    (void) host;
    (void) n;
}

/* The copies of a backend whose other ops are given. */
static pi__device_fns far_ops(pi__device_fns ops)
{
    ops.copy_out = far_copy_out;
    ops.copy_in = far_copy_beside;
    ops.copies = far_copies;
    ops.pin = far_pin;
    ops.unpin = far_unpin;
    far_device.n_copies = far_device.n_ended = 0;
    return ops;
}

static int near_create(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    (void) index;
    return pi__cpu_create(out, p, log, err);
}

static int far_create(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    (void) index;
    int rc = pi__cpu_create(out, p, log, err);
    if (rc) return rc;
    far_device.ops = far_ops(*(*out)->dev);
    (*out)->dev = &far_device.ops;
    (*out)->far = true;
    return PI_OK;
}

const pi__device pi__devices[] = {{"far", far_create, pi__cpu_tell}, {"cpu", near_create, pi__cpu_tell}};
const int pi__n_devices = 2;

int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES])
{
    dev[0] = &pi__devices[!names || strcmp(names, "far")];
    index[0] = 0;
    return 1;
}

int pi__device_create(pi__backend **out, const char *names, bool tensor, const pi__cpu_params *p, const pi__log *log,
                      pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES], n = 1;
    pi__backend *rank[PI__MAX_DEVICES];
    pi__devices_named(names, dev, index);
    if (!tensor) return dev[0]->create(out, 0, p, log, err);
    for (const char *c = names; *c; c++) n += *c == ','; /* "cpu,cpu": as many of the first one's kind */
    for (int32_t i = 0; i < n; i++) {
        int rc = dev[0]->create(&rank[i], 0, p, log, err);
        if (!rc) continue;
        while (i-- > 0) rank[i]->dev->destroy(rank[i]);
        return rc;
    }
    return pi__tensor_create(out, rank, n, err);
}

#endif
