/* A discrete device (memory not visible to the host) for engine tests: the CPU backend under the name "far". Its
 * asynchronous copies are as adverse as possible. Half of the bytes move when the copy is queued. The other half moves
 * when the copy is reported as ended, which takes several polls.
 *
 * Replaces the library's device table: include this header in one file of a program. Supports one engine at a time. */
#ifndef DISCRETE_DEVICE_H
#define DISCRETE_DEVICE_H

#include <stdatomic.h>
#include <string.h>

#include "backend/devices.h"
#include "backend/stages.h"
#include "backend/tensor.h"
#include "base/error.h"

enum { DISCRETE_MOST = 4096 };

typedef struct discrete_copy {
    char *dst;
    const char *src;
    size_t n;      /* size of the second half in bytes */
    unsigned left; /* polls that still report the copy as running */
} discrete_copy;

static struct {
    pi__device_opt opt;       /* the CPU's functions, with other copy functions */
    discrete_copy copy[DISCRETE_MOST]; /* ring of running copies */
    uint64_t n_copies, n_ended;
    uint64_t rng;
    long refuse;               /* copies to accept before one is refused; negative = refuse none */
    bool dead;                 /* true = no copy ends any more */
    atomic_int pins;           /* chunks that can still be pinned */
} discrete_device = {.refuse = -1, .pins = 1 << 20};

static void discrete_end(void)
{
    const discrete_copy *c = &discrete_device.copy[discrete_device.n_ended++ % DISCRETE_MOST];
    memcpy(c->dst, c->src, c->n);
}

static uint64_t discrete_copy_beside(pi__backend *be, void *dst, const void *src, size_t n)
{
    (void) be;
    if (discrete_device.dead || discrete_device.refuse == 0) {
        discrete_device.refuse = -1;
        return 0;
    }
    if (discrete_device.refuse > 0) discrete_device.refuse--;
    if (discrete_device.n_copies - discrete_device.n_ended == DISCRETE_MOST) discrete_end();
    discrete_device.rng = discrete_device.rng * 6364136223846793005u + 1442695040888963407u;
    memcpy(dst, src, n / 2);
    unsigned left = discrete_device.rng >> 62 ? 0 : 1 + (unsigned) (discrete_device.rng >> 60 & 1);
    discrete_device.copy[discrete_device.n_copies++ % DISCRETE_MOST] =
        (discrete_copy) {(char *) dst + n / 2, (const char *) src + n / 2, n - n / 2, left};
    return discrete_device.n_copies;
}

static uint64_t discrete_copy_out(pi__backend *be, void *host, const void *src, size_t n)
{
    return discrete_copy_beside(be, host, src, n);
}

static bool discrete_copies(pi__backend *be, bool wait, uint64_t *ended)
{
    (void) be;
    while (!discrete_device.dead && discrete_device.n_ended < discrete_device.n_copies &&
           (wait || discrete_device.copy[discrete_device.n_ended % DISCRETE_MOST].left-- == 0)) discrete_end();
    *ended = discrete_device.n_ended;
    return !discrete_device.dead;
}

static bool discrete_pin(pi__backend *be, void *host, size_t n)
{
    (void) be;
    (void) host;
    (void) n;
    return atomic_fetch_sub(&discrete_device.pins, 1) > 0;
}

static void discrete_unpin(pi__backend *be, void *host, size_t n)
{
    (void) be;
    (void) host;
    (void) n;
}

/* Returns `opt` with its copy functions replaced. */
static pi__device_opt discrete_opt(pi__device_opt opt)
{
    opt.copy_out = discrete_copy_out;
    opt.copy_in = discrete_copy_beside;
    opt.copies = discrete_copies;
    opt.pin = discrete_pin;
    opt.unpin = discrete_unpin;
    discrete_device.n_copies = discrete_device.n_ended = 0;
    return opt;
}

static int near_create(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log,
                           pi_error *err)
{
    (void) index;
    return pi__cpu_create(out, &p->cpu, log, err);
}

static int discrete_create(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log,
                           pi_error *err)
{
    (void) index;
    int rc = pi__cpu_create(out, &p->cpu, log, err);
    if (rc) return rc;
    discrete_device.opt = discrete_opt(*(*out)->opt);
    (*out)->opt = &discrete_device.opt;
    (*out)->discrete = true;
    return PI_OK;
}

const pi__device pi__devices[] = {{.name = "far", .create = discrete_create, .tell = pi__cpu_tell},
                                  {.name = "cpu", .create = near_create, .tell = pi__cpu_tell}};
const int pi__n_devices = 2;

int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES])
{
    dev[0] = &pi__devices[!names || strncmp(names, "far", 3)];
    index[0] = 0;
    return 1;
}

int pi__device_create(pi__backend **out, const char *names, int split, const pi__device_params *p, const pi__log *log,
                      pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES], n = 1;
    pi__backend *rank[PI__MAX_DEVICES];
    pi__devices_named(names, dev, index);
    if (!split) return dev[0]->create(out, 0, p, log, err);
    for (const char *c = names; *c; c++) n += *c == ','; /* "cpu,cpu": that number of devices of the first one's kind */
    for (int32_t i = 0; i < n; i++) {
        int rc = dev[0]->create(&rank[i], 0, p, log, err);
        if (!rc) continue;
        while (i-- > 0) rank[i]->dev->destroy(rank[i]);
        return rc;
    }
    return split == PI__SPLIT_LAYER ? pi__stages_create(out, rank, n, 16, err) : pi__tensor_create(out, rank, n, err);
}

/* Ranks are not supported here. */
int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__device_params *p,
                           const pi__log *log, pi_error *err)
{
    (void) out, (void) ranks, (void) p, (void) log;
    return pi__fail(err, PI_EUNSUPPORTED, "no ranks of %s", names);
}
const pi__device *pi__device_kind(const char *name)
{
    (void) name;
    return NULL;
}

#endif
