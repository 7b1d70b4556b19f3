/* The devices of this build, and the selection among them. No memory, any thread.
 *
 * PI_HAVE_CUDA: the CUDA backend is linked in. PI_HAVE_EMU: so is the CUDA backend over the tests' emulator, which
 * "auto" never selects. */
#include <string.h>
#include <strings.h>

#include "backend/device.h"
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
