/* The devices of this build, and the choice among them. No memory, any thread.
 *
 * PI_HAVE_CUDA: the CUDA backend is linked in. PI_HAVE_EMU: so is its twin over the emulator of the tests, which nothing
 * chooses by itself. */
#include <string.h>
#include <strings.h>

#include "backend/backend.h"
#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
#include "backend/cuda/cuda.h"
#endif
#include "base/error.h"

const pi__device pi__devices[] = {
#ifdef PI_HAVE_CUDA
    {"cuda", pi__cuda_create, pi__cuda_tell},
#endif
#ifdef PI_HAVE_EMU
    {"emu", pi__cuda_create, pi__cuda_tell},
#endif
    {"cpu", pi__cpu_create, pi__cpu_tell},
};
const int pi__n_devices = sizeof pi__devices / sizeof *pi__devices;

static bool is_auto(const char *name) { return !name || !*name || !strcasecmp(name, "auto"); }

const pi__device *pi__device_find(const char *name)
{
    const pi__device *cpu = &pi__devices[pi__n_devices - 1];
    if (is_auto(name)) return strcmp(pi__devices[0].name, "emu") ? &pi__devices[0] : cpu;
    if (!strcasecmp(name, "none")) return cpu;
    for (int i = 0; i < pi__n_devices; i++)
        if (!strcasecmp(name, pi__devices[i].name)) return &pi__devices[i];
    return NULL;
}

int pi__device_create(pi__backend **out, const char *name, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    const pi__device *d = pi__device_find(name), *cpu = &pi__devices[pi__n_devices - 1];
    *out = NULL;
    if (!d) return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build", name);
    int rc = d->create(out, p, log, err);
    if (rc && is_auto(name) && d != cpu) {
        pi__logf(log, PI_LOG_INFO, "%s; running on the CPU", err ? err->msg : d->name);
        rc = cpu->create(out, p, log, err);
    }
    return rc;
}
