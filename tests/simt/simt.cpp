/* The emulator's scheduler: fibers, barriers, warp collectives, launches, device memory.
 *
 * A thread of a block is a fiber with a stack of its own; switching is a dozen instructions. The scheduler lets a warp
 * run until all of its lanes wait, then goes to the next warp; in which order is the configuration's choice, because an
 * order that hides a missing barrier is easily found by accident. When a whole round makes no progress, the block can
 * never end, and the error says where each thread waits.
 *
 * Memory: stacks and the block's arena are mapped once and kept. Threads: run() takes a lock. */
#include "simt_impl.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SIMT_ASAN 1
#endif

/* Saves the callee-saved registers on the stack, the stack pointer in *save, and continues at load. */
extern "C" void simt_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simt_switch,.-simt_switch)");
static const int saved_words = 6, entry_word = 6, frame_words = 8; /* registers, return address, end of the chain */
#elif defined(__aarch64__)
asm(R"(.text
.globl simt_switch
.type simt_switch,%function
simt_switch:
    sub sp,sp,#160
    stp x19,x20,[sp,#0]
    stp x21,x22,[sp,#16]
    stp x23,x24,[sp,#32]
    stp x25,x26,[sp,#48]
    stp x27,x28,[sp,#64]
    stp x29,x30,[sp,#80]
    stp d8,d9,[sp,#96]
    stp d10,d11,[sp,#112]
    stp d12,d13,[sp,#128]
    stp d14,d15,[sp,#144]
    mov x9,sp
    str x9,[x0]
    mov sp,x1
    ldp x19,x20,[sp,#0]
    ldp x21,x22,[sp,#16]
    ldp x23,x24,[sp,#32]
    ldp x25,x26,[sp,#48]
    ldp x27,x28,[sp,#64]
    ldp x29,x30,[sp,#80]
    ldp d8,d9,[sp,#96]
    ldp d10,d11,[sp,#112]
    ldp d12,d13,[sp,#128]
    ldp d14,d15,[sp,#144]
    add sp,sp,#160
    ret
.size simt_switch,.-simt_switch)");
static const int saved_words = 20, entry_word = 11, frame_words = 20;
#else
#error "the emulator's fiber switch is written for x86-64 and aarch64"
#endif

namespace simt {

enum { STACK = 256 << 10, PAGE = 64 << 10 /* of any kernel */, MAX_THREADS = 1024 };
enum : uint64_t { DEVICE_REGION = UINT64_C(1) << 35 };

config options;
unsigned long n_launches, n_switches;
thread_view *self;
block_view here;

static fiber threads[MAX_THREADS];
static unsigned n_threads;     /* of the block that runs; 0: none */
static void *scheduler_sp;     /* while a fiber runs */
static bool failed;            /* the block is given up */
static char error_text[4096];
static void (*thread_main)(void *);
static void *thread_arg;
static uint64_t rng;
static std::mutex lock;
static unsigned char *arena;   /* shared memory ends at its end, where an inaccessible page begins */
static size_t arena_size;

const char *last_error() { return error_text; }
void clear_error() { error_text[0] = 0; }
fiber *current() { return static_cast<fiber *>(self); }
fiber *thread_of(unsigned lin) { return &threads[lin]; }
unsigned block_threads() { return n_threads; }
unsigned lane() { return self->lin & 31; }

/* --------------------------------------------------------------------------------------------------------------- errors */

static size_t append(size_t at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static size_t append(size_t at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = at < sizeof error_text ? vsnprintf(error_text + at, sizeof error_text - at, fmt, ap) : 0;
    va_end(ap);
    return at + (n > 0 ? (size_t) n : 0);
}

/* What addr2line understands: the offset in the program's file. */
static const void *program_counter(const void *pc)
{
    Dl_info info;
    if (!dladdr(pc, &info)) return pc;
    return reinterpret_cast<const void *>(static_cast<const char *>(pc) - static_cast<const char *>(info.dli_fbase));
}

void fail(const char *file, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!failed) {
        size_t at = append(0, "%s", text);
        if (self) at = append(at, ", thread %u of block (%u,%u,%u)", self->lin, here.idx.x, here.idx.y, here.idx.z);
        if (file) append(at, ", %s:%d", file, line);
        else if (self && current()->pc) append(at, ", code at %p", program_counter(current()->pc));
    }
    failed = true;
    if (self) simt_switch(&current()->sp, scheduler_sp);
}

static void fail_stuck()
{
    static const char *const names[] = {"could run", "a warp collective", "a barrier", "an mbarrier", "has ended"};
    failed = true;
    size_t at = append(0, "deadlock in block (%u,%u,%u): no thread can go on;", here.idx.x, here.idx.y, here.idx.z);
    for (unsigned i = 0; i < n_threads; i++) {
        const fiber &f = threads[i];
        const fiber &last = threads[i ? i - 1 : 0];
        if (i && f.st == last.st && f.line == last.line && f.mask == last.mask) continue;
        at = append(at, " from thread %u on: %s", i, names[(int) f.st]);
        if (f.st == state::in_warp_op) at = append(at, " of mask %08x", f.mask);
        if (f.st != state::runs && f.st != state::done) at = append(at, " at %s:%d", f.file, f.line);
        at = append(at, ";");
    }
}

/* ------------------------------------------------------------------------------------------------------------- waiting */

void wait() { simt_switch(&current()->sp, scheduler_sp); }

void warp_op(unsigned mask, warp_fn fn, void *arg, const char *file, int line)
{
    fiber *me = current(), *warp = &threads[me->lin & ~31u];
    if (!(mask >> lane() & 1)) fail(file, line, "a lane calls a collective whose mask %08x it is not in", mask);
    me->st = state::in_warp_op;
    me->mask = mask;
    me->fn = fn;
    me->arg = arg;
    me->file = file;
    me->line = line;
    void *args[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        const fiber &f = warp[i];
        if (f.lin >= n_threads || f.st != state::in_warp_op || f.fn != fn || f.line != line || f.mask != mask) {
            wait();
            return;
        }
        args[i] = f.arg;
    }
    fn(args, file, line);
    for (unsigned i = 0; i < 32; i++) {
        if (mask >> i & 1) warp[i].st = state::runs;
    }
}

void barrier(const char *file, int line)
{
    fiber *me = current();
    me->st = state::at_barrier;
    me->file = file;
    me->line = line;
    wait();
}

static void do_sync_warp(void **, const char *, int) { shadow_warp_barrier(self->lin / 32); }
void sync_warp(unsigned mask, const char *file, int line) { warp_op(mask, do_sync_warp, nullptr, file, line); }

static void do_shuffle(void **arg, const char *file, int line)
{
    for (int i = 0; i < 32; i++) {
        shuffle_arg *a = static_cast<shuffle_arg *>(arg[i]);
        if (!a) continue;
        const shuffle_arg *from = static_cast<shuffle_arg *>(arg[a->src & 31]);
        if (!from) fail(file, line, "lane %d shuffles from lane %u, which takes no part", i, a->src & 31);
        else a->out = from->in;
    }
}
void shuffle(unsigned mask, shuffle_arg *a, const char *file, int line) { warp_op(mask, do_shuffle, a, file, line); }

static void do_vote(void **arg, const char *, int)
{
    unsigned out = 0;
    for (unsigned i = 0; i < 32; i++) {
        if (arg[i] && static_cast<vote_arg *>(arg[i])->in) out |= 1u << i;
    }
    for (int i = 0; i < 32; i++) {
        if (arg[i]) static_cast<vote_arg *>(arg[i])->out = out;
    }
}
void vote(unsigned mask, vote_arg *a, const char *file, int line) { warp_op(mask, do_vote, a, file, line); }

static void do_sum(void **arg, const char *, int)
{
    unsigned out = 0;
    for (int i = 0; i < 32; i++)
        if (arg[i]) out += static_cast<sum_arg *>(arg[i])->in;
    for (int i = 0; i < 32; i++)
        if (arg[i]) static_cast<sum_arg *>(arg[i])->out = out;
}
void sum(unsigned mask, sum_arg *a, const char *file, int line) { warp_op(mask, do_sum, a, file, line); }

/* ------------------------------------------------------------------------------------------------------- shared memory */

/* Addresses begin above 0, so that a forgotten conversion is not mistaken for the first byte. */
static const uint32_t shared_base = 0x400;

uint32_t shared_address(const void *p)
{
    return (uint32_t) (static_cast<const unsigned char *>(p) - here.shared) + shared_base;
}
unsigned char *shared_pointer(uint32_t address) { return here.shared + (int64_t) address - shared_base; }

/* An arena whose first byte is as aligned as on the device, with as little as possible between its end and the page
 * that faults. */
static bool map_arena(size_t size)
{
    size_t need = (size + PAGE - 1) / PAGE * PAGE;
    if (need > arena_size) {
        if (arena) munmap(arena, arena_size + PAGE);
        void *p = mmap(nullptr, need + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        arena = p == MAP_FAILED ? nullptr : static_cast<unsigned char *>(p);
        arena_size = arena ? need : 0;
        if (!arena) return false;
        mprotect(arena + need, PAGE, PROT_NONE);
    }
    here.shared = size ? arena + (arena_size - size) / 128 * 128 : nullptr;
    here.shared_size = size;
    return true;
}

/* -------------------------------------------------------------------------------------------------------------- blocks */

static unsigned random_below(unsigned n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned) ((rng >> 33) % n);
}

static void fiber_entry()
{
    thread_main(thread_arg);
    current()->st = state::done;
    wait();
}

static bool start_thread(unsigned i, dim3 dim)
{
    fiber &f = threads[i];
    if (!f.stack) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return false;
        f.stack = static_cast<char *>(p);
    }
#ifdef SIMT_ASAN
    __asan_unpoison_memory_region(f.stack, STACK); /* what an abandoned thread left behind */
#endif
    void **sp = reinterpret_cast<void **>(f.stack + STACK - 64) - frame_words;
    std::memset(sp, 0, frame_words * sizeof *sp);
    static_assert(saved_words <= frame_words && entry_word < frame_words, "the return address is in the frame");
    sp[entry_word] = reinterpret_cast<void *>(fiber_entry);
    f.sp = sp;
    f.st = state::runs;
    f.lin = i;
    f.tid = dim3(i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y);
    f.pc = nullptr;
    f.group = 0;
    f.async.clear();
    f.seen.clear();
    return true;
}

/* Runs a warp until none of its lanes can. Returns whether any did. */
static bool run_warp(unsigned warp)
{
    bool any = false, again = true;
    while (again && !failed) {
        again = false;
        unsigned turn = options.threads == order::random ? random_below(32) : 0;
        for (unsigned i = 0; i < 32 && !failed; i++) {
            unsigned t = warp * 32 + (options.threads == order::reverse ? 31 - i : (i + turn) % 32);
            if (t >= n_threads || threads[t].st != state::runs) continue;
            self = &threads[t];
            n_switches++;
            simt_switch(&scheduler_sp, threads[t].sp);
            self = nullptr;
            again = any = true;
        }
    }
    return any;
}

/* Opens the barrier when every thread that has not ended waits at it. */
static bool open_barrier(unsigned live)
{
    unsigned waiting = 0;
    for (unsigned i = 0; i < n_threads; i++) waiting += threads[i].st == state::at_barrier;
    if (!live || waiting != live) return false;
    for (unsigned i = 0; i < n_threads; i++) {
        if (threads[i].st == state::at_barrier) threads[i].st = state::runs;
    }
    shadow_block_barrier();
    return true;
}

static void run_block()
{
    if (here.shared_size) std::memset(here.shared, 0xff, here.shared_size);
    shadow_begin(here.shared_size);
    bulk_begin();
    for (unsigned i = 0; i < n_threads; i++) {
        if (!start_thread(i, here.dim)) {
            fail(nullptr, 0, "no memory for the stacks of %u threads", n_threads);
            return;
        }
    }
    unsigned n_warps = (n_threads + 31) / 32;
    for (;;) {
        bool progress = false;
        unsigned turn = options.threads == order::random ? random_below(n_warps) : 0, live = 0;
        for (unsigned i = 0; i < n_warps && !failed; i++) {
            unsigned w = options.threads == order::reverse ? n_warps - 1 - i : (i + turn) % n_warps;
            progress |= run_warp(w);
        }
        if (failed) return;
        for (unsigned i = 0; i < n_threads; i++) live += threads[i].st != state::done;
        if (!live) {
            bulk_end();
            return;
        }
        progress |= open_barrier(live);
        if (!progress) {
            fail_stuck();
            return;
        }
    }
}

static void run_blocks(uint64_t total)
{
    std::vector<uint64_t> random;
    if (options.blocks == order::random) {
        for (uint64_t i = 0; i < total; i++) random.push_back(i);
        for (uint64_t i = total; i > 1; i--) std::swap(random[i - 1], random[random_below((unsigned) i)]);
    }
    for (uint64_t i = 0; i < total && !failed; i++) {
        uint64_t b = options.blocks == order::reverse ? total - 1 - i : random.empty() ? i : random[i];
        here.idx = dim3((unsigned) (b % here.grid.x), (unsigned) (b / here.grid.x % here.grid.y),
                        (unsigned) (b / here.grid.x / here.grid.y));
        run_block();
    }
}

int run(dim3 grid, dim3 block, size_t shared, void (*thread)(void *), void *arg)
{
    std::lock_guard<std::mutex> guard(lock);
    uint64_t n = (uint64_t) block.x * block.y * block.z, total = (uint64_t) grid.x * grid.y * grid.z;
    failed = false;
    n_launches++;
    if (!n || n > MAX_THREADS || block.z > 64 || !total || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
        fail(nullptr, 0, "no such launch: grid (%u,%u,%u), block (%u,%u,%u)", grid.x, grid.y, grid.z, block.x, block.y,
             block.z);
    } else if (shared > options.max_shared) {
        fail(nullptr, 0, "%zu bytes of shared memory, where a block may have %zu", shared, options.max_shared);
    } else if (!map_arena(shared)) {
        fail(nullptr, 0, "no memory for %zu bytes of shared memory", shared);
    } else {
        here.grid = grid;
        here.dim = block;
        n_threads = (unsigned) n;
        thread_main = thread;
        thread_arg = arg;
        rng = options.seed;
        visible all;
        if (options.on_launch) options.on_launch(true);
        run_blocks(total);
        if (options.on_launch) options.on_launch(false);
        n_threads = 0;
    }
    return failed ? 1 : 0;
}

/* ------------------------------------------------------------------------------------------------------- device memory */

struct allocation {
    size_t size;  /* bytes asked for */
    char *map;    /* first page */
    size_t pages; /* bytes mapped */
    bool mapped;  /* by device_map */
};
static std::map<char *, allocation> allocations; /* by first byte */
static std::map<char *, size_t> reservations; /* bytes, by first one */
static char *region;        /* reserved address space */
static size_t region_used;  /* bytes of it handed out; from the start again when nothing is allocated or reserved */

static bool have_region()
{
    if (region) return true;
    void *p = mmap(nullptr, DEVICE_REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    region = static_cast<char *>(p);
    return true;
}

void *device_alloc(size_t size)
{
    std::lock_guard<std::mutex> guard(lock);
    if (!have_region()) return nullptr;
    if (!size || size > DEVICE_REGION || (options.fail_alloc >= 0 && options.fail_alloc-- == 0)) return nullptr;
    size_t used = (size + 255) / 256 * 256, pages = (used + PAGE - 1) / PAGE * PAGE;
    if (region_used + pages + PAGE > DEVICE_REGION) return nullptr;
    char *map = region + region_used;
    if (mprotect(map, pages, PROT_READ | PROT_WRITE)) return nullptr;
    region_used += pages + PAGE;
    char *p = map + pages - used;
    std::memset(p, 0xff, used);
    allocations[p] = {size, map, pages, false};
    return p;
}

static void give_back(std::map<char *, allocation>::iterator it)
{
    madvise(it->second.map, it->second.pages, MADV_DONTNEED);
    mprotect(it->second.map, it->second.pages, PROT_NONE);
    allocations.erase(it);
    if (allocations.empty() && reservations.empty()) region_used = 0;
}

void device_free(void *p)
{
    std::lock_guard<std::mutex> guard(lock);
    auto it = allocations.find(static_cast<char *>(p));
    if (it != allocations.end() && !it->second.mapped) give_back(it);
}

void *device_reserve(size_t size)
{
    std::lock_guard<std::mutex> guard(lock);
    const size_t page = options.page;
    if (!page || !size || size % page || size > DEVICE_REGION || !have_region()) return nullptr;
    char *p = region + region_used;
    p += (page - (uintptr_t) p % page) % page;
    size_t end = (size_t) (p - region) + size + PAGE;
    if (end > DEVICE_REGION) return nullptr;
    region_used = end;
    reservations[p] = size;
    return p;
}

/* The first allocation that reaches into the bytes from p on, or the end. */
static std::map<char *, allocation>::iterator first_in(char *p, size_t size)
{
    auto it = allocations.upper_bound(p);
    if (it != allocations.begin() && std::prev(it)->first + std::prev(it)->second.size > p) return std::prev(it);
    return it != allocations.end() && it->first < p + size ? it : allocations.end();
}

bool device_unreserve(void *p)
{
    std::lock_guard<std::mutex> guard(lock);
    auto it = reservations.find(static_cast<char *>(p));
    if (it == reservations.end() || first_in(it->first, it->second) != allocations.end()) return false;
    reservations.erase(it);
    if (allocations.empty() && reservations.empty()) region_used = 0;
    return true;
}

bool device_map(void *p, size_t size)
{
    std::lock_guard<std::mutex> guard(lock);
    char *c = static_cast<char *>(p);
    auto it = reservations.upper_bound(c);
    if (it == reservations.begin() || !size || (uintptr_t) p % options.page || size % options.page) return false;
    --it;
    size_t at = (size_t) (c - it->first);
    if (at > it->second || size > it->second - at || first_in(c, size) != allocations.end()) return false;
    if (options.fail_alloc >= 0 && options.fail_alloc-- == 0) return false;
    if (mprotect(c, size, PROT_READ | PROT_WRITE)) return false;
    allocations[c] = {size, c, size, true};
    return true;
}

bool device_unmap(void *p, size_t size)
{
    std::lock_guard<std::mutex> guard(lock);
    auto it = allocations.find(static_cast<char *>(p));
    if (it == allocations.end() || !it->second.mapped || it->second.size != size) return false;
    give_back(it);
    return true;
}

size_t device_bytes()
{
    std::lock_guard<std::mutex> guard(lock);
    size_t n = 0;
    for (const auto &a : allocations) n += a.second.size;
    return n;
}

static void device_protect(int prot)
{
    for (const auto &a : allocations) mprotect(a.second.map, a.second.pages, prot);
}
visible::visible()
{
    if (options.hide) device_protect(PROT_READ | PROT_WRITE);
}
visible::~visible()
{
    if (options.hide) device_protect(PROT_NONE);
}

bool in_device_region(const void *p)
{
    const char *c = static_cast<const char *>(p);
    return region && c >= region && c < region + DEVICE_REGION;
}

bool in_device_memory(const void *p, size_t size)
{
    char *c = const_cast<char *>(static_cast<const char *>(p));
    auto it = allocations.upper_bound(c);
    if (it == allocations.begin()) return false;
    --it;
    size_t at = (size_t) (c - it->first);
    return at <= it->second.size && size <= it->second.size - at;
}

} // namespace simt
