/* Dependent launches (programmatic dependent launch): faults that would show only where a kernel begins before those
 * before it have ended.
 *
 * The emulator runs launches one after the other. What may still run when a dependent one begins is every launch of its
 * chain: since the last that was none, or since a copy, or since the host has waited for the queue. Until a thread of it has
 * waited it must not read what one of these wrote, nor write at all; and it must have waited when it ends, or those who wait
 * for its launch could go on while an earlier one still runs. Writes are known where kernels are instrumented (shadow.cpp);
 * that a thread ends without waiting is found everywhere.
 *
 * Memory: address space for the last writer of each word, of which pages are used where memory is. Threads: those of
 * simt::run, one at a time; next_launch is each thread's own. */
#include "runtime_emu.h"
#include "simt_impl.h"

#include <cstdio>
#include <sys/mman.h>

namespace simt {

thread_local launch_kind next_launch;
unsigned long n_dependent;

enum { WORD = 4 };

static uint32_t *writer;    /* of each word of the region, the number of the launch that wrote it last; NULL: none is known */
static bool dependent;      /* the launch is one */
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
        fail(nullptr, 0, "a thread of %s, a dependent launch, ends and has not waited for the launches before", source_of(kernel()));
}

/* What the thread that runs does too early. */
static void tell(const char *what, const void *p, const char *why, const void *code, const char *file, int line)
{
    char name[300];
    snprintf(name, sizeof name, "%s", source_of(kernel()));
    fail(file, line, "%s, a dependent launch, %s global memory %p%s before it has waited for the launches before, %s", name, what, p,
         why, code ? source_of(code) : "");
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
        else if (early && writer[w] >= first && writer[w] < n_launches) tell("reads", p, ", which one of them wrote,", code, file, line);
    }
}

} // namespace simt
