/* The table of device kinds, and the selection by name (see devices.h). No memory, any thread.
 *
 * PI_HAVE_CUDA: the CUDA backend is linked in. PI_HAVE_EMU: so is the CUDA backend over the tests' emulator, which
 * "auto" never selects. */
#include <string.h>
#include <strings.h>

#include "backend/devices.h"
#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
#include "backend/cuda/cuda.h"
#endif
#include "backend/tensor_check.h"

enum { MAX_THREADS = 1024 /* limit of the option threads */ };

/* ------------------------------------------------------------------------------------------------------------- CPU */

/* index is ignored: every call creates another CPU backend. */
static int cpu_create(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log, pi_error *err)
{
    (void) index;
    return pi__cpu_create(out, &p->cpu, log, err);
}

/* Ranks of CPUs use the processes' transport and need no id. */
static int cpu_rank_id(char id[PI__RANK_ID_BYTES], pi_error *err)
{
    (void) err;
    memset(id, 0, PI__RANK_ID_BYTES);
    return PI_OK;
}

static int cpu_join_rank(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err)
{
    (void) be;
    return pi__link_ranks(out, seat, err);
}

static bool cpu_check_params(pi__device_params *p)
{
    const pi__cpu_params *c = &p->cpu;
    pi__fix_flag(&p->cpu.act8);
    return c->n_threads >= 0 && c->n_threads <= MAX_THREADS && c->n_batch >= 0 && c->n_batch <= MAX_THREADS &&
           c->prio >= -1 && c->prio <= 3;
}

/* ------------------------------------------------------------------------------------------------------------ CUDA */

#if defined(PI_HAVE_CUDA) || defined(PI_HAVE_EMU)
static int cuda_create(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log, pi_error *err)
{
    pi__cuda_params own = p->cuda;
    own.n_threads = p->cpu.n_threads;
    return pi__cuda_create(out, index, &own, log, err);
}

static bool cuda_fix_modes(pi__device_params *p)
{
    if (p->cuda.fp4 != PI__FP4_AUTO) return false;
    p->cuda.fp4 = PI__FP4_OFF;
    return true;
}

static bool cuda_check_params(pi__device_params *p)
{
    bool *const flags[] = {&p->cuda.blas, &p->cuda.no_graphs, &p->cuda.no_fuse, &p->cuda.no_dependent,
                           &p->cuda.exports};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) pi__fix_flag(flags[i]);
    return p->cuda.waiting_blocks >= 0;
}
#endif

/* ----------------------------------------------------------------------------------------------------------- table */

#define CUDA(name)                                                                                                     \
    {name, cuda_create, pi__cuda_tell, pi__cuda_rank_id, pi__cuda_join_rank, cuda_fix_modes, cuda_check_params}
const pi__device pi__devices[] = {
#ifdef PI_HAVE_CUDA
    CUDA("cuda"),
#endif
#ifdef PI_HAVE_EMU
    CUDA("emu"),
#endif
    {"cpu", cpu_create, pi__cpu_tell, cpu_rank_id, cpu_join_rank, NULL, cpu_check_params},
};
#undef CUDA
const int pi__n_devices = sizeof pi__devices / sizeof *pi__devices;

static const pi__device *cpu(void) { return &pi__devices[pi__n_devices - 1]; }
static bool is_auto(const char *name) { return !name || !*name || !strcasecmp(name, "auto"); }

/* Returns the kind of device that the n characters at `name` stand for, for example "cuda1". *index receives the number
 * after the name; -1 = no number. Returns NULL if this build has no kind with that name. */
static const pi__device *find(const char *name, size_t n, int32_t *index)
{
    size_t digits = 0;
    *index = -1;
    if (n == 4 && !strncasecmp(name, "none", n)) return cpu();
    while (digits < n && digits < 3 && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9') digits++;
    for (size_t i = n - digits; i < n; i++) *index = (*index < 0 ? 0 : *index * 10) + name[i] - '0';
    for (int i = 0; i < pi__n_devices; i++) {
        const pi__device *d = &pi__devices[i];
        if (strlen(d->name) == n - digits && !strncasecmp(name, d->name, n - digits))
            return digits && d == cpu() ? NULL : d;
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

const pi__device *pi__device_kind(const char *name)
{
    for (int i = 0; i < pi__n_devices; i++)
        if (!strcmp(pi__devices[i].name, name)) return &pi__devices[i];
    return NULL;
}
