/* Faults in the memory accesses of instrumented kernels: races, uninitialized reads, accesses out of bounds.
 *
 * Kernels of the race build are compiled with -fsanitize=thread: the compiler calls a function before each load and
 * store. These functions are here, instead of the sanitizer's library. Every byte of shared memory has a record of
 * its last writer and readers. Two accesses to a byte by two threads, at least one of them a write, are ordered in
 * one of three ways:
 *   - a __syncthreads() is between them;
 *   - a __syncwarp() is between them, and both threads are lanes of one warp;
 *   - the later thread has waited for an mbarrier, and the other warp, or the warps of all readers, have arrived at
 * it.
 * Otherwise they are a race, in any actual order. Shuffles and tensor-core instructions order registers, not memory.
 *
 * Memory: the records of one block. Threads: the threads of simt::run, one at a time. */
#include "counters.h"
#include "simt_impl.h"

#include <cstring>
#include <type_traits>

namespace simt {

struct cell {
    uint16_t writer, reader;         /* thread + 1; 0 = none in this block */
    bool many_lanes, many_warps;     /* other readers: lanes of the reader's warp, other warps */
    bool atomic;                     /* the last write was atomic */
    bool in_flight;                  /* an asynchronous copy to it was issued and not waited for */
    uint32_t written;                /* the byte is initialized */
    uint32_t bulk;                   /* index + 1 of the bulk copy that wrote it; 0 = none */
    uint32_t w_block, w_warp;        /* barriers before the last write: of the block, of the writer's warp */
    uint32_t r_block, r_warp;        /* barriers before the last read */
    uint32_t w_time;                 /* mbarrier arrivals before the last write */
    uint32_t w_fences;               /* the writer's wgmma fences before the last write */
    uint32_t block;                  /* the block that all this is about: older records mean nothing */
};
static_assert(std::has_unique_object_representations<cell>::value, "cells are compared as bytes");

/* A warp's last read of 16 bytes: mbarrier arrivals before it (0 = no read), the warp's barriers before it, lanes
 * since then, the block that it belongs to. */
struct last_read {
    uint32_t time, epoch, lanes, block;
};
/* Per resident. Records are not cleared when a block begins, because they are many times the size of shared memory. */
struct shadow_state {
    std::vector<cell> cells;
    std::vector<last_read> reads; /* [32 warps] for each 16 bytes */
    uint32_t block;               /* number of blocks begun so far */
    uint32_t block_epoch, warp_epoch[32];
};
static shadow_state states[MOST_PLACES], *sh = states;

extern "C" __attribute__((weak)) void __tsan_init();
bool instrumented() { return __tsan_init != nullptr; }
static bool checks() { return instrumented() && options.check; }

void shadow_select(unsigned resident) { sh = &states[resident]; }

void shadow_begin(size_t shared_size)
{
    if (!checks()) return;
    if (sh->cells.size() < shared_size) {
        sh->cells.resize(shared_size);
        sh->reads.resize((shared_size + 15) / 16 * 32);
    }
    sh->block++;
    sh->block_epoch = 1;
    for (uint32_t &e : sh->warp_epoch) e = 1;
}
void shadow_block_barrier() { sh->block_epoch++; }
void shadow_warp_barrier(unsigned warp) { sh->warp_epoch[warp]++; }
uint32_t shadow_epoch() { return sh->block_epoch; }
uint32_t shadow_warp_epoch(unsigned warp) { return sh->warp_epoch[warp]; }

void shadow_arrival(const void *p, size_t size, size_t copy)
{
    if (!checks()) return;
    size_t at = (size_t) (static_cast<const unsigned char *>(p) - here.shared);
    for (size_t i = at; i < at + size; i++) {
        sh->cells[i] = cell();
        sh->cells[i].block = sh->block;
        sh->cells[i].written = true;
        sh->cells[i].bulk = (uint32_t) copy + 1;
    }
}

static bool unordered(unsigned lin, unsigned other, uint32_t block, uint32_t warp)
{
    if (!other || other - 1 == lin || block != sh->block_epoch) return false;
    return (other - 1) / 32 != lin / 32 || warp == sh->warp_epoch[lin / 32];
}

static bool unordered_reader(unsigned lin, const cell &c)
{
    if (!c.reader || c.r_block != sh->block_epoch) return false;
    if (c.many_warps) return true;
    bool same_warp = (unsigned) (c.reader - 1) / 32 == lin / 32;
    if (same_warp && c.many_lanes) return c.r_warp == sh->warp_epoch[lin / 32];
    return unordered(lin, c.reader, c.r_block, c.r_warp);
}

/* True if every warp that has read byte i has since arrived at an mbarrier that this thread has waited for; true
 * without readers. In this thread's own warp, no other lane may have read the byte since the last warp barrier. */
static bool readers_let_go(unsigned lin, size_t i)
{
    for (unsigned w = 0; w < 32; w++) {
        const last_read &r = sh->reads[i / 16 * 32 + w];
        const bool met = r.epoch < sh->warp_epoch[w] || r.lanes == 1u << lin % 32;
        if (r.block == sh->block && r.time && !(w == lin / 32 ? met : bulk_knows(lin, w, r.time))) return false;
    }
    return true;
}

static void note_read(unsigned lin, size_t i, cell &c)
{
    last_read &last = sh->reads[i / 16 * 32 + lin / 32];
    const bool again = last.block == sh->block && last.time && last.epoch == sh->warp_epoch[lin / 32];
    last = {(uint32_t) bulk_time(), sh->warp_epoch[lin / 32], (again ? last.lanes : 0) | 1u << lin % 32, sh->block};
    bool fresh = !c.reader || c.r_block != sh->block_epoch;
    bool same_warp = !fresh && (unsigned) (c.reader - 1) / 32 == lin / 32;
    if (fresh) c.many_lanes = c.many_warps = false;
    else if (!same_warp) c.many_warps = true;
    else if (c.r_warp != sh->warp_epoch[lin / 32]) c.many_lanes = false;
    else if (c.reader != lin + 1) c.many_lanes = true;
    c.reader = (uint16_t) (lin + 1);
    c.r_block = sh->block_epoch;
    c.r_warp = sh->warp_epoch[lin / 32];
}

static void note_write(unsigned lin, cell &c, access kind)
{
    c.writer = (uint16_t) (lin + 1);
    c.w_block = sh->block_epoch;
    c.w_warp = sh->warp_epoch[lin / 32];
    c.w_time = (uint32_t) bulk_time();
    c.w_fences = thread_of(lin)->async_fences;
    c.atomic = kind == access::atomic;
    c.in_flight = kind == access::copy_issued;
    c.written = true;
    c.bulk = 0;
}

/* Checks and records an access to byte i. */
static void access_cell(unsigned lin, size_t i, access kind, const char *file, int line)
{
    cell &c = sh->cells[i];
    if (c.block != sh->block) {
        c = cell();
        c.block = sh->block;
    }
    const bool reads = kind == access::read || kind == access::wgmma_read;
    if (c.in_flight && kind != access::copy_done) {
        fail(file, line, "race: access to shared memory + %zu while an asynchronous copy to it is under way", i);
    } else if (kind == access::copy_issued && c.bulk && bulk_let_go(lin, c.bulk - 1)) {
        /* the readers have arrived at a barrier, and this thread has waited for it */
    } else if (c.bulk && !bulk_visible(lin, c.bulk - 1, sh->block_epoch)) {
        fail(file, line, "race: access to shared memory + %zu, which a bulk copy brought, without a wait for it", i);
    } else if (reads && !c.written) {
        fail(file, line, "uninitialised: nobody has written shared memory + %zu", i);
    } else if (unordered(lin, c.writer, c.w_block, c.w_warp) && !(kind == access::atomic && c.atomic) &&
               !bulk_knows(lin, (c.writer - 1u) / 32, c.w_time)) {
        fail(file, line, "race: %s shared memory + %zu, which thread %u wrote with no barrier between",
             reads ? "reads" : "writes", i, c.writer - 1u);
    } else if (kind == access::wgmma_read && c.writer && thread_of(c.writer - 1u)->async_fences == c.w_fences) {
        fail(file, line, "race: a wgmma reads shared memory + %zu, which thread %u wrote and did not fence", i,
             c.writer - 1u);
    } else if (!reads && kind != access::copy_done && unordered_reader(lin, c) && !readers_let_go(lin, i)) {
        fail(file, line, "race: writes shared memory + %zu, which thread %u read with no barrier between", i,
             c.reader - 1u);
    }
    if (reads && c.bulk) bulk_read(lin, c.bulk - 1);
    if (reads) note_read(lin, i, c);
    else note_write(lin, c, kind);
}

void shadow_access(unsigned lin, const void *p, size_t size, access kind, const char *file, int line)
{
    size_t at = (size_t) (static_cast<const unsigned char *>(p) - here.shared);
    if (at + size > here.shared_size || at + size < at) {
        fail(file, line, "out of bounds: %zu bytes at shared memory + %zd, of which there are %zu", size,
             (ptrdiff_t) at, here.shared_size);
        return;
    }
    if (!checks() || !size) return;
    cell before = sh->cells[at];
    access_cell(lin, at, kind, file, line);
    for (size_t i = at + 1; i < at + size; i++) { /* the bytes of a word mostly have the same history */
        cell &c = sh->cells[i];
        if (!std::memcmp(&c, &before, sizeof c)) {
            c = sh->cells[i - 1];
        } else {
            before = c;
            access_cell(lin, i, kind, file, line);
        }
    }
}

void atomic_access(const void *p, size_t size, bool polls, const char *file, int line, semantics order)
{
    const unsigned char *c = static_cast<const unsigned char *>(p);
    fiber *me = current();
    count_op(DO_ATOMIC);
    me->file = file;
    me->line = line;
    if (here.shared && c >= here.shared && c < here.shared + here.shared_size) {
        if (polls) step_aside(true);
        shadow_access(self->lin, p, size, access::atomic, file, line);
        return;
    }
    if (in_device_region(p) && !in_device_memory(p, size)) {
        fail(file, line, "out of bounds: %zu bytes at %p, in no allocation", size, p);
    }
    step_aside(polls);
    between_access(p, size, access::atomic, nullptr, file, line);
    between_atomic(p, order);
}

/* With bounds checks, the page after the arena and a few bytes before it belong to shared memory. */
static bool near_shared(const unsigned char *p)
{
    return here.shared_size && p + 64 >= here.shared && p < here.shared + here.shared_size + (64 << 10);
}

void compiled_access(const void *p, size_t size, bool write, bool aligned, const void *pc)
{
    if (!self) return;
    const unsigned char *c = static_cast<const unsigned char *>(p);
    bool shared = near_shared(c);
    if (!shared && !in_device_region(p)) return;
    current()->pc = pc;
    if (aligned && (uintptr_t) p % size) {
        fail(nullptr, 0, "misaligned: %zu bytes at %s %p", size, shared ? "shared" : "global", p);
    }
    if (counting()) count_access(self->lin, p, size, shared ? write ? DO_STS : DO_LDS : write ? DO_STG : DO_LDG, pc);
    if (shared) {
        shadow_access(self->lin, p, size, write ? access::write : access::read, nullptr, 0);
    } else if (!in_device_memory(p, size)) {
        fail(nullptr, 0, "out of bounds: %zu bytes at %p, in no allocation", size, p);
    } else {
        between_access(p, size, write ? access::write : access::read, pc, nullptr, 0);
    }
}

} // namespace simt
