/* The CPU backend: creation, memory allocation, and the op table.
 *
 * Memory: one small allocation for the backend; device memory and scratch from pi__map. Threads: one caller at a time
 * (device.h); ops fork and join the pool inside. Invariant: scratch is large enough for every op within the limits of
 * the last reserve(). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/places.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/link.h"
#include "base/alloc.h"
#include "base/error.h"

enum { HUGE_PAGE = 2 << 20 };

/* --------------------------------------------------------------------------------------------------------- memory */

/* Requests huge pages for large regions: a matrix is read completely for each token, and small pages would cost a TLB
 * miss every 4 KiB. It is a hint; failure has no effect. */
static void *cpu_alloc(pi__backend *be, size_t size)
{
    (void) be;
    void *p = pi__map(size);
#ifdef MADV_HUGEPAGE
    if (p && size >= HUGE_PAGE) madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

static void cpu_free(pi__backend *be, void *p, size_t size)
{
    (void) be;
    pi__unmap(p, size);
}

static size_t page_size(void) { return (size_t) sysconf(_SC_PAGESIZE); }

static void cpu_commit(pi__backend *be, void *p, size_t size)
{
    (void) be;
    /* writes each page once, so that the system assigns memory to it; the region is still all zeros, so data is
     * unchanged */
    for (size_t i = 0; i < size; i += page_size()) ((volatile char *) p)[i] = 0;
}

/* Returns the complete pages of [p, p + size) to the system; later reads of them give zeros. Partial pages at both ends
 * keep their data. If madvise fails, nothing changes. */
static void cpu_trim(pi__backend *be, void *p, size_t size)
{
    (void) be;
    uintptr_t page = page_size(), a = ((uintptr_t) p + page - 1) / page * page,
              b = ((uintptr_t) p + size) / page * page;
    if (b > a) madvise((void *) a, b - a, MADV_DONTNEED);
}

static void cpu_copy(pi__backend *be, void *dst, const void *src, size_t n)
{
    (void) be;
    memcpy(dst, src, n);
}

/* Returns the largest scratch size of all ops: ops run one after the other, and each uses the scratch from its
 * start. */
static size_t cpu_scratch_bytes(const pi__backend *be, const pi__limits *lim)
{
    const pi__cpu *cpu = (const pi__cpu *) be;
    size_t of[] = {
        pi__cpu_linear_scratch(cpu, lim),      pi__cpu_attn_scratch(cpu, lim),   pi__cpu_moe_scratch(cpu, lim),
        pi__cpu_gdn_scratch(cpu, lim),         pi__cpu_sparse_scratch(cpu, lim), pi__cpu_indexer_scratch(cpu, lim),
        pi__cpu_head_linear_scratch(cpu, lim), pi__cpu_lora_scratch(cpu, lim),   pi__cpu_topk_scratch(cpu, lim)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) most = of[i] > most ? of[i] : most;
    return most;
}

static int cpu_reserve(pi__backend *be, const pi__limits *lim, pi_error *err)
{
    pi__cpu *cpu = (pi__cpu *) be;
    size_t size = cpu_scratch_bytes(be, lim);
    char *p = pi__map(size);
    if (!p) return pi__fail_mem(err, "scratch");
    pi__unmap(cpu->scratch, cpu->scratch_size);
    cpu->scratch = p;
    cpu->scratch_size = size;
    cpu->lim = *lim;
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------------- steps */

/* Sets the number of threads for the step: n_decode if every token has a logits row, else n_prefill. The calling (step)
 * thread is thread 0 of every pool job. In its first step it receives the cores and priority of thread 0. */
static const pi__batch *cpu_begin(pi__backend *be, const pi__batch *b, int kind)
{
    (void) kind;
    pi__cpu *cpu = (pi__cpu *) be;
    pi__pool_use(cpu->pool, b->n_rows == b->n_tokens ? cpu->n_decode : cpu->n_prefill);
    if (!pi__pool_has_places(cpu->pool) || (cpu->has_placed && pthread_equal(cpu->placed, pthread_self()))) return b;
    pi__pool_place_thread(cpu->pool, 0);
    cpu->placed = pthread_self();
    cpu->has_placed = true;
    return b;
}

static int cpu_finish(pi__backend *be, pi_error *err)
{
    (void) be;
    (void) err;
    return PI_OK;
}

static int cpu_join(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err)
{
    (void) be;
    return pi__link_local(out, n, err);
}

static const char *cpu_describe(const pi__backend *be) { return ((const pi__cpu *) be)->desc; }
static int32_t cpu_n_threads(const pi__backend *be) { return ((const pi__cpu *) be)->n_decode; }

/* ------------------------------------------------------------------------------------------------ create, destroy */

static void cpu_destroy(pi__backend *be)
{
    pi__cpu *cpu = (pi__cpu *) be;
    if (!cpu) return;
    pi__pool_destroy(cpu->pool);
    pi__unmap(cpu->scratch, cpu->scratch_size);
    pi__free(cpu->norms.tile);
    pi__free(cpu);
}

static const pi__device_fns cpu_device = {
    .destroy = cpu_destroy,
    .describe = cpu_describe,
    .n_threads = cpu_n_threads,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .commit = cpu_commit,
    .trim = cpu_trim,
    .upload = cpu_copy,
    .download = cpu_copy,
    .host_alloc = cpu_alloc,
    .host_free = cpu_free,
    .weight_size = pi__cpu_weight_size,
    .weight_load = pi__cpu_weight_load,
    .kv_bytes = pi__cpu_kv_bytes,
    .state_bytes = pi__cpu_state_bytes,
    .snapshot_bytes = pi__cpu_snapshot_bytes,
    .scratch_bytes = cpu_scratch_bytes,
    .reserve = cpu_reserve,
    .begin = cpu_begin,
    .finish = cpu_finish,
};
static const pi__device_opt cpu_opt = {
    .row_bytes = pi__cpu_row_bytes,
    .join = cpu_join,
    .topk_here = pi__cpu_topk_here,
    .best_rows = true,
    .moe_shards = true,
};

#define FN(name, type) .name = pi__cpu_##name,
static const pi__op_fns cpu_fns = {PI__OPS_ALL(FN) .topk = pi__cpu_topk};
#undef FN

bool pi__cpu_tell(int32_t index, pi__device_info *out)
{
    int isa = PI__ISA_GENERIC;
    const long pages = sysconf(_SC_PHYS_PAGES), cores = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (pi__device_info) {.usable = true};
    if (index) return false;
    pi__isa_choose("auto", &isa, NULL);
    snprintf(out->desc, sizeof out->desc, "%s, %ld processors", pi__isa_names[isa].desc, cores);
    if (pages > 0) out->memory = (uint64_t) pages * page_size();
    return true;
}

/* Logs the options for thread placement in p that have no effect on this machine. */
static void tell_of_places(const pi__cpu_params *p, const pi__log *log)
{
    cpu_set_t node[PI__MAX_NODES];
    if (p->numa && p->affinity)
        pi__logf(log, PI_LOG_INFO, "numa: has no effect, cpu-mask or cpu-range sets the CPUs of threads");
    else if (p->numa && pi__numa_nodes(PI__NUMA_ROOT, node, PI__MAX_NODES) < 2)
        pi__logf(log, PI_LOG_INFO, "numa: has no effect, this process may use one NUMA node only");
    if (!pi__prio_allowed(p->prio))
        pi__logf(log, PI_LOG_WARN, "prio %d: not permitted for this process: raise its limit (ulimit -%s, Limit%s of "
                 "a service), or give CAP_SYS_NICE",
                 p->prio, p->prio >= 3 ? "r" : "e", p->prio >= 3 ? "RTPRIO=" : "NICE=");
}

/* Creates the pool and sets n_decode and n_prefill. n_threads > 0: max(n_threads, n_batch) pool threads. n_threads 0 =
 * the pool's default number; n_batch 0 = the same number as n_decode. */
static int make_pool(pi__cpu *cpu, const pi__cpu_params *p, pi_error *err)
{
    const int32_t t = p->n_threads, tb = p->n_batch;
    const pi__pool_config config = {.n_threads = t > 0 && tb > t ? tb : t, .affinity = p->affinity, .poll = p->poll,
                                    .strict = p->strict, .numa = p->numa, .prio = p->prio};
    int rc = pi__pool_create_with(&cpu->pool, &config, err);
    if (rc) return rc;
    const int32_t all = pi__pool_size(cpu->pool);
    cpu->n_decode = t > 0 ? t : all;
    cpu->n_prefill = tb > 0 ? tb : cpu->n_decode;
    return PI_OK;
}

int pi__cpu_create(pi__backend **out, const pi__cpu_params *p, const pi__log *log, pi_error *err)
{
    *out = NULL;
    int isa = PI__ISA_GENERIC, rc = pi__isa_choose(p->isa, &isa, err);
    if (rc) return rc;
    pi__cpu *cpu = pi__calloc(1, sizeof *cpu);
    if (!cpu) return pi__fail_mem(err, "the CPU backend");
    cpu->be.dev = &cpu_device;
    cpu->be.opt = &cpu_opt;
    cpu->be.ops = &cpu_fns;
    cpu->isa = isa;
    cpu->lin = pi__cpu_linear_kernels_of(isa, p->act8 ? 8 : 15);
    cpu->attn = pi__cpu_attn_kernels_of(isa);
    cpu->gdn = pi__cpu_gdn_kernels_of(isa);
    cpu->sparse = pi__cpu_sparse_kernels_of(isa);
    cpu->lora = pi__cpu_lora_kernels_of(isa);
    cpu->top = pi__cpu_top_kernels_of(isa);
    snprintf(cpu->desc, sizeof cpu->desc, "cpu (%s)", pi__isa_names[isa].desc);
    rc = make_pool(cpu, p, err);
    if (rc) {
        cpu_destroy(&cpu->be);
        return rc;
    }
    pi__logf(log, PI_LOG_DEBUG, "%s, %d threads", cpu->desc, (int) pi__pool_size(cpu->pool));
    tell_of_places(p, log);
    *out = &cpu->be;
    return PI_OK;
}
