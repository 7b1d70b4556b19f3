/* Dependent launches (programmatic dependent launch): finds faults that show only if a kernel begins before earlier
 * ones end.
 *
 * The emulator runs launches one after the other. Every launch of the chain may still run when a dependent launch
 * begins. A chain starts at the last launch that is not dependent, at a copy, or when the host has waited for the
 * queue. Before its wait, a thread must not read the output of a launch in the chain, and must not write at all. A
 * thread must wait before it ends. Otherwise a launch that waits for this one could continue while an earlier one
 * still runs. Writes are known in instrumented kernels (shadow.cpp); a thread that ends without waiting is found in
 * all builds.
 *
 * Memory: address space for the last writer of each word, with pages only where device memory is in use. Threads: the
 * threads of simt::run, one at a time; next_launch is thread-local. */
#include "runtime_emu.h"
#include "simt_impl.h"

#include <cstdio>
#include <sys/mman.h>

namespace simt {

thread_local launch_kind next_launch;
unsigned long n_dependent;

enum { WORD = 4 };

/* per word of the region: number of the launch that wrote it last; NULL = no records yet */
static uint32_t *writer;
static bool dependent;      /* the current launch is dependent */
static unsigned long first; /* number of the first launch that may still run */

static bool have_writers()
{
    if (writer) return true;
    void *p = mmap(nullptr, DEVICE_REGION / WORD * sizeof *writer, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    writer = static_cast<uint32_t *>(p);
    return true;
}

void overlap_begin()
{
    launch_chain *c = next_launch.chain;
    dependent = next_launch.dependent;
    n_dependent += dependent;
    first = n_launches;
    if (!c) return;
    if (c->fresh) c->first = n_launches;
    c->fresh = false;
    first = c->first;
}

void overlap_thread(fiber *f) { f->waited = !dependent; }

void wait_grids()
{
    if (self) current()->waited = true;
}

void overlap_thread_end()
{
    if (!current()->waited)
        fail(nullptr, 0, "a thread of %s, a dependent launch, ends and has not waited for the launches before",
             source_of(kernel()));
}

/* Reports a premature access of the running thread. */
static void tell(const char *what, const void *p, const char *why, const void *code, const char *file, int line)
{
    char name[300];
    snprintf(name, sizeof name, "%s", source_of(kernel()));
    fail(file, line, "%s, a dependent launch, %s global memory %p%s before it has waited for the launches before, %s",
         name, what, p, why, code ? source_of(code) : "");
}

void overlap_access(const void *p, size_t size, bool write, const void *code, const char *file, int line)
{
    if (!self || !options.check) return;
    const bool early = !current()->waited;
    if (!(write || early) || !instrumented() || !have_writers()) return;
    const size_t begin = device_offset(p) / WORD, end = (device_offset(p) + size + WORD - 1) / WORD;
    if (early && write) tell("writes", p, "", code, file, line);
    for (size_t w = begin; w < end; w++) {
        if (write) writer[w] = (uint32_t) n_launches;
        else if (early && writer[w] >= first && writer[w] < n_launches)
            tell("reads", p, ", which one of them wrote,", code, file, line);
    }
}

} // namespace simt
