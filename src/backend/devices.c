/* The devices of this build, and the selection among them. No memory, any thread.
 *
 * PI_HAVE_CUDA: the CUDA backend is linked in. PI_HAVE_EMU: so is the CUDA backend over the tests' emulator, which
 * "auto" never selects. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend/device.h"
#include "backend/stages.h"
#include "backend/tensor.h"
#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
#include "backend/cuda/cuda.h"
#endif
#include "base/error.h"

/* There is no limit on the number of CPU backends. */
static int cpu_create(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    (void) index;
    return pi__cpu_create(out, p, log, err);
}

const pi__device pi__devices[] = {
#ifdef PI_HAVE_CUDA
    {"cuda", pi__cuda_create, pi__cuda_tell},
#endif
#ifdef PI_HAVE_EMU
    {"emu", pi__cuda_create, pi__cuda_tell},
#endif
    {"cpu", cpu_create, pi__cpu_tell},
};
const int pi__n_devices = sizeof pi__devices / sizeof *pi__devices;

static const pi__device *cpu(void) { return &pi__devices[pi__n_devices - 1]; }
static bool is_auto(const char *name) { return !name || !*name || !strcasecmp(name, "auto"); }

/* Parses the n characters at name as a device and an optional number. *index: the number, -1 = none. Returns NULL
 * if this build does not have it. */
static const pi__device *find(const char *name, size_t n, int32_t *index)
{
    size_t digits = 0;
    *index = -1;
    if (n == 4 && !strncasecmp(name, "none", n)) return cpu();
    while (digits < n && digits < 3 && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9') digits++;
    for (size_t i = n - digits; i < n; i++) *index = (*index < 0 ? 0 : *index * 10) + name[i] - '0';
    for (int i = 0; i < pi__n_devices; i++) {
        const pi__device *d = &pi__devices[i];
        if (strlen(d->name) == n - digits && !strncasecmp(name, d->name, n - digits)) return digits && d == cpu() ? NULL : d;
    }
    return NULL;
}

int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES])
{
    int n = 0;
    index[0] = 0;
    dev[0] = strcmp(pi__devices[0].name, "emu") ? &pi__devices[0] : cpu();
    if (is_auto(names)) return 1;
    for (const char *p = names;; p++) {
        const size_t len = strcspn(p, ",");
        if (n == PI__MAX_DEVICES || !(dev[n] = find(p, len, &index[n]))) return 0;
        if (index[n] < 0) {
            index[n] = 0;
            for (int i = 0; i < n; i++)
                if (dev[i] == dev[n] && index[i] >= index[n]) index[n] = index[i] + 1;
        }
        n++;
        p += len;
        if (!*p) return n;
    }
}

static int create_all(pi__backend **be, const pi__device *const *dev, const int32_t *index, int n, const pi__cpu_params *p,
                      const pi__log *log, pi_error *err)
{
    for (int i = 0; i < n; i++) {
        const int rc = dev[i]->create(&be[i], index[i], p, log, err);
        while (rc && i > 0) be[i - 1]->dev->destroy(be[i - 1]), i--;
        if (rc) return rc;
    }
    return PI_OK;
}

/* Returns true if all devices multiply alike. Results that one device computes alone must be bitwise identical on
 * any other. */
static bool alike(pi__backend *const *be, int n)
{
    int some = 0;
    for (int i = 0; i < n; i++) some += be[i]->rounds_mxfp4;
    return some == 0 || some == n;
}

/* Creates n devices as one. CPU devices split the threads. */
static int create_several(pi__backend **out, int split, const pi__device *const *dev, const int32_t *index, int n,
                         const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    pi__backend *be[PI__MAX_DEVICES];
    pi__cpu_params share = *p;
    if (dev[0] == cpu()) {
        share.n_threads = p->n_threads > n ? p->n_threads / n : 1;
        share.n_batch = p->n_batch > n ? p->n_batch / n : p->n_batch > 0;
    }
    int rc = create_all(be, dev, index, n, &share, log, err);
    if (!rc && share.fp4 == PI__FP4_AUTO && !alike(be, n)) {
        for (int i = 0; i < n; i++) be[i]->dev->destroy(be[i]);
        share.fp4 = PI__FP4_OFF;
        rc = create_all(be, dev, index, n, &share, log, err);
    }
    if (rc) return rc;
    return split == PI__SPLIT_LAYER ? pi__stages_create(out, be, n, 0, err) : pi__tensor_create(out, be, n, err);
}

/* Appends all usable devices of the kind of dev[0]; returns the number of devices. */
static int all_of(const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES])
{
    pi__device_info info;
    int n = 1;
    for (int32_t i = 1; n < PI__MAX_DEVICES && dev[0]->tell(i, &info); i++)
        if (info.usable) dev[n] = dev[0], index[n++] = i;
    return n;
}

int pi__device_create(pi__backend **out, const char *names, int split, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    int n = pi__devices_named(names, dev, index);
    *out = NULL;
    if (!n) return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", names);
    if (n > 1 && !split)
        return pi__fail(err, PI_EINVAL, "device '%.60s' names %d devices: give split-mode tensor or layer, "
                        "or name one device", names, n);
    if (split && n == 1 && dev[0] != cpu() && (is_auto(names) || !strcasecmp(names, dev[0]->name))) n = all_of(dev, index);
    int rc = n > 1 ? create_several(out, split, dev, index, n, p, log, err) : dev[0]->create(out, index[0], p, log, err);
    if (rc && is_auto(names) && dev[0] != cpu()) {
        pi__logf(log, PI_LOG_INFO, "%s; running on the CPU", err ? err->msg : dev[0]->name);
        rc = cpu()->create(out, 0, p, log, err);
    }
    return rc;
}

/* Returns the number of threads for a process that shares all cores of its machine with other ranks; 0 = it has
 * its own cores. */
static int32_t share_of_cores(const pi__ranks *r)
{
    cpu_set_t allowed;
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    /* the process has its own cores */
    if (r->n_local < 2 || sched_getaffinity(0, sizeof allowed, &allowed) || CPU_COUNT(&allowed) < all) return 0;
    return all > r->n_local ? (int32_t) (all / r->n_local) : 1;
}

/* Returns the device index of this process: its number among the machine's ranks, or the only device that it can
 * see. */
static int32_t index_of_rank(const pi__device *d, const int32_t *named, int n, int32_t local)
{
    pi__device_info info;
    if (local < n) return named[local];
    return d == cpu() || d->tell(local, &info) ? local : named[0];
}

int pi__device_rank_id(const char *name, char id[PI__RANK_ID_BYTES], pi_error *err)
{
#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
    if (strcmp(name, "cpu")) return pi__cuda_rank_id(id, err);
#endif
    (void) name, (void) err;
    memset(id, 0, PI__RANK_ID_BYTES);
    return PI_OK;
}

int pi__device_join_rank(pi__link **out, pi__backend *be, const char *name, const pi__seat *seat, pi_error *err)
{
#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
    if (strcmp(name, "cpu")) return pi__cuda_join_rank(out, be, seat, err);
#endif
    (void) be, (void) name;
    return pi__link_ranks(out, seat, err);
}

int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__cpu_params *p, const pi__log *log,
                           pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    const int n = pi__devices_named(names, dev, index);
    pi__cpu_params own = *p;
    pi__rank_device as = {.params = *p};
    pi__backend *be = NULL;
    *out = NULL;
    if (!n) return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", names);
    if (own.fp4 == PI__FP4_AUTO) own.fp4 = PI__FP4_OFF; /* other ranks' devices are not known yet */
    as.params.fp4 = own.fp4;
    pi__ranks_build(as.build);
    snprintf(as.name, sizeof as.name, "%s", dev[0]->name);
    snprintf(as.isa, sizeof as.isa, "%s", p->isa ? p->isa : "");
    as.params.isa = NULL;
    if (!own.n_threads) own.n_threads = share_of_cores(ranks);
    int rc = dev[0]->create(&be, index_of_rank(dev[0], index, n, ranks->local), &own, log, err);
    return rc ? rc : pi__tensor_create_rank(out, be, ranks, &as, err);
}
