/* Creation of backends for the devices that the options name: one device, several that act as one, or the device of a
 * rank. Allocates only the backends; any thread. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend/devices.h"
#include "backend/stages.h"
#include "backend/tensor.h"
#include "base/error.h"

static const pi__device *cpu(void) { return &pi__devices[pi__n_devices - 1]; }
static bool is_auto(const char *name) { return !name || !*name || !strcasecmp(name, "auto"); }

/* Creates device `index` of a kind. */
static int create_one(pi__backend **out, const pi__device *d, int32_t index, const pi__device_params *p,
                      const pi__log *log, pi_error *err)
{
    *out = NULL;
    int rc = d->create(out, index, p, log, err);
    if (!rc) rc = pi__device_check(*out, err);
    if (!rc || !*out) return rc;
    if ((*out)->dev && (*out)->dev->destroy) (*out)->dev->destroy(*out);
    *out = NULL;
    return rc;
}

static int create_all(pi__backend **be, const pi__device *const *dev, const int32_t *index, int n,
                      const pi__device_params *p, const pi__log *log, pi_error *err)
{
    for (int i = 0; i < n; i++) {
        const int rc = create_one(&be[i], dev[i], index[i], p, log, err);
        while (rc && i > 0) be[i - 1]->dev->destroy(be[i - 1]), i--;
        if (rc) return rc;
    }
    return PI_OK;
}

/* Returns true if all or none of the devices multiply MXFP4 matrices by 8-bit activations. Each value is computed by
 * only one of the devices, and its bits must not depend on the choice of that device. */
static bool alike(pi__backend *const *be, int n)
{
    int some = 0;
    for (int i = 0; i < n; i++) some += be[i]->rounds_mxfp4;
    return some == 0 || some == n;
}

/* Creates one backend of n devices. CPU devices get equal parts of the threads. If the devices do not multiply alike,
 * they are created again with fixed modes. */
static int create_several(pi__backend **out, int split, const pi__device *const *dev, const int32_t *index, int n,
                         const pi__device_params *p, const pi__log *log, pi_error *err)
{
    pi__backend *be[PI__MAX_DEVICES];
    pi__device_params share = *p;
    if (dev[0] == cpu()) {
        share.cpu.n_threads = p->cpu.n_threads > n ? p->cpu.n_threads / n : 1;
        share.cpu.n_batch = p->cpu.n_batch > n ? p->cpu.n_batch / n : p->cpu.n_batch > 0;
    }
    int rc = create_all(be, dev, index, n, &share, log, err);
    if (!rc && !alike(be, n) && dev[0]->fix_modes && dev[0]->fix_modes(&share)) {
        for (int i = 0; i < n; i++) be[i]->dev->destroy(be[i]);
        rc = create_all(be, dev, index, n, &share, log, err);
    }
    if (rc) return rc;
    return split == PI__SPLIT_LAYER ? pi__stages_create(out, be, n, 0, err) : pi__tensor_create(out, be, n, err);
}

/* Appends to dev and index all other usable devices of the kind of dev[0]; returns the total number of devices. */
static int all_of(const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES])
{
    pi__device_info info;
    int n = 1;
    for (int32_t i = 1; n < PI__MAX_DEVICES && dev[0]->tell(i, &info); i++)
        if (info.usable) dev[n] = dev[0], index[n++] = i;
    return n;
}

int pi__device_create(pi__backend **out, const char *names, int split, const pi__device_params *p, const pi__log *log,
                      pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    int n = pi__devices_named(names, dev, index);
    *out = NULL;
    if (!n) return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", names);
    if (n > 1 && !split)
        return pi__fail(err, PI_EINVAL, "device '%.60s' names %d devices: give split-mode tensor or layer, "
                        "or name one device", names, n);
    if (split && n == 1 && dev[0] != cpu() && (is_auto(names) || !strcasecmp(names, dev[0]->name)))
        n = all_of(dev, index);
    int rc = n > 1 ? create_several(out, split, dev, index, n, p, log, err)
                   : create_one(out, dev[0], index[0], p, log, err);
    if (rc && is_auto(names) && dev[0] != cpu()) {
        pi__logf(log, PI_LOG_INFO, "%s; running on the CPU", err ? err->msg : dev[0]->name);
        rc = create_one(out, cpu(), 0, p, log, err);
    }
    return rc;
}

/* Returns this process's part of its machine's cores, if it may use all cores and shares the machine with other ranks;
 * 0 = the process has its own cores. */
static int32_t share_of_cores(const pi__ranks *r)
{
    cpu_set_t allowed;
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    /* the only rank on its machine, or limited to some cores */
    if (r->n_local < 2 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < all) return 0;
    return all > r->n_local ? (int32_t) (all / r->n_local) : 1;
}

/* Returns the device index of this process: that of the local-th named device, or the number of this rank on its
 * machine if that device exists, or the first named device (for example if the process can see only one). */
static int32_t index_of_rank(const pi__device *d, const int32_t *named, int n, int32_t local)
{
    pi__device_info info;
    if (local < n) return named[local];
    return d == cpu() || d->tell(local, &info) ? local : named[0];
}

int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__device_params *p,
                           const pi__log *log, pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    const int n = pi__devices_named(names, dev, index);
    pi__device_params own = *p;
    pi__rank_device as = {0};
    pi__backend *be = NULL;
    *out = NULL;
    if (!n) return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", names);
    if (dev[0]->fix_modes) (void) dev[0]->fix_modes(&own); /* other ranks' devices are not known yet */
    as.params = own;
    pi__ranks_build(as.build);
    snprintf(as.name, sizeof as.name, "%s", dev[0]->name);
    snprintf(as.isa, sizeof as.isa, "%s", p->cpu.isa ? p->cpu.isa : "");
    as.params.cpu.isa = NULL;
    if (!own.cpu.n_threads) own.cpu.n_threads = share_of_cores(ranks);
    int rc = create_one(&be, dev[0], index_of_rank(dev[0], index, n, ranks->local), &own, log, err);
    return rc ? rc : pi__tensor_create_rank(out, be, ranks, &as, err);
}
