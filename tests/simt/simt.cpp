/* The emulator's scheduler: fibers, barriers, warp collectives, launches.
 *
 * A thread of a block is a fiber with its own stack; a switch takes a dozen instructions. The scheduler runs a warp
 * until all of its lanes wait, then the next warp. The configuration sets the order, since a single order easily
 * hides a missing barrier. If a whole round makes no progress, the block can never end; the error then reports where
 * each thread waits.
 *
 * Blocks that run at the same time are residents: each has its own fibers and shared memory, and they run
 * round-robin. A thread that polls memory yields until another thread has made progress, in its block or in another.
 * If all residents only poll, they wait for a block that is not resident, which is an error.
 *
 * Memory: stacks and the blocks' arenas are mapped once and kept. Threads: run() takes a lock. */
#include "counters.h"
#include "simt_impl.h"
#include "slots.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SIMT_ASAN 1
#endif

/* simt_switch saves the registers on the stack and the stack pointer in *save, and continues at load. set_entry writes
 * the frame of a new fiber, frame_words at sp. */
#if defined(__x86_64__)
/* Inlined, and without a call or a return: the processor then predicts the returns behind a switch, because fibers run
 * the same functions. The red zone (128 bytes) belongs to the function around it. */
static inline __attribute__((always_inline)) void simt_switch(void **save, void *load)
{
    asm volatile("leaq -128(%%rsp),%%rsp\n\t"
                 "pushq %%rbp\n\t"
                 "leaq 1f(%%rip),%%rax\n\t"
                 "pushq %%rax\n\t"
                 "movq %%rsp,(%0)\n\t"
                 "movq %1,%%rsp\n\t"
                 "popq %%rax\n\t"
                 "jmpq *%%rax\n"
                 "1:\n\t"
                 "popq %%rbp\n\t"
                 "leaq 128(%%rsp),%%rsp"
                 : "+D"(save), "+S"(load)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                   "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                   "xmm14", "xmm15", "memory", "cc");
}
/* A new fiber begins here: its call chain ends, and it jumps to the entry on its stack. */
extern "C" void simt_begin(void);
asm(R"(.text
.type simt_begin,@function
simt_begin:
    xorl %ebp,%ebp
    popq %rax
    jmpq *%rax
.size simt_begin,.-simt_begin)");
static const int frame_words = 3; /* with the end of the call chain */
static void set_entry(void **sp, void (*entry)())
{
    sp[0] = reinterpret_cast<void *>(simt_begin);
    sp[1] = reinterpret_cast<void *>(entry);
}
#elif defined(__aarch64__)
extern "C" void simt_switch(void **save, void *load);
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
static const int frame_words = 20;
static void set_entry(void **sp, void (*entry)()) { sp[11] = reinterpret_cast<void *>(entry); }
#else
#error "the emulator's fiber switch is written for x86-64 and aarch64"
#endif

namespace simt {

/* PAGE: a multiple of every system's page size */
enum { STACK = 384 << 10, PAGE = 64 << 10, MAX_THREADS = 1024 };

config options;
unsigned long n_launches, n_switches;
thread_view *self;
block_view here;

std::mutex launch_lock;

/* Storage of one resident block. */
struct place {
    fiber threads[MAX_THREADS];
    block_view view;       /* the block's indices and sizes */
    bool live;             /* a block is running here */
    uint32_t number;       /* of the block in the grid */
    unsigned char *arena;  /* shared memory ends at its end, where an inaccessible page begins */
    size_t arena_size;
};
static place places[MOST_PLACES];
static place *busy = places;   /* the running one */
static fiber *threads = places[0].threads;
static unsigned n_threads;     /* threads per block of the launch; 0 = no launch */
static unsigned n_residents = 1; /* blocks of the launch that run at the same time */
static unsigned n_slots;       /* blocks that the modelled device runs at the same time; 0 = not modelled */
static void *scheduler_sp;     /* stack pointer of the scheduler while a fiber runs */
static bool failed;            /* the launch is aborted */
static char error_text[4096];
static const void *kernel_code;
static void (*thread_main)(void *);
static void *thread_arg;
static uint64_t rng;

void use_mode(int i)
{
    options.threads = options.blocks = static_cast<order>(i % 3);
    options.eager = i >= 3;
    options.seed = (uint64_t) i + 1;
    const bool several = i == N_MODES - 1;
    options.between = i == 0 || several;
    options.resident = several ? 3 : 1;
}

const char *last_error() { return error_text; }
void clear_error() { error_text[0] = 0; }
fiber *current() { return static_cast<fiber *>(self); }
fiber *thread_of(unsigned lin) { return &threads[lin]; }
unsigned block_threads() { return n_threads; }
unsigned lane() { return self->lin & 31; }
unsigned resident() { return (unsigned) (busy - places); }
uint32_t block_number() { return busy->number; }
const void *kernel() { return kernel_code; }

static void select(place *p)
{
    busy = p;
    threads = p->threads;
    here = p->view;
    shadow_select(resident());
    bulk_select(resident());
    wgmma_select(resident());
}

/* ---------------------------------------------------------------------------------------------------------- errors */

static size_t append(size_t at, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static size_t append(size_t at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = at < sizeof error_text ? vsnprintf(error_text + at, sizeof error_text - at, fmt, ap) : 0;
    va_end(ap);
    return at + (n > 0 ? (size_t) n : 0);
}

void fail(const char *file, int line, const char *fmt, ...)
{
    char text[1600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!failed || !n_threads) { /* outside of a launch, an earlier error is no longer of interest */
        size_t at = append(0, "%s", text);
        if (self) at = append(at, ", thread %u of block (%u,%u,%u)", self->lin, here.idx.x, here.idx.y, here.idx.z);
        if (file) append(at, ", %s:%d", file, line);
        else if (self && current()->pc) append(at, ", %s", source_of(current()->pc));
    }
    failed = true;
    if (self) simt_switch(&current()->sp, scheduler_sp);
}

static void fail_stuck(uint64_t not_begun)
{
    static const char *const names[] = {"could run", "a warp collective", "a barrier", "a barrier of the first threads",
                                        "an mbarrier", "could run", "what another block has not done", "has ended"};
    failed = true;
    size_t at = 0;
    if (n_slots && n_slots <= n_residents && not_begun)
        at = append(at, "too many waiting blocks: %u blocks wait for other blocks of their launch, in all slots of the "
                    "device, and %llu blocks cannot begin; ", n_slots, (unsigned long long) not_begun);
    at = append(at, "deadlock in block (%u,%u,%u): no thread can go on;", here.idx.x, here.idx.y, here.idx.z);
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

/* --------------------------------------------------------------------------------------------------------- waiting */

void wait() { simt_switch(&current()->sp, scheduler_sp); }

void step_aside(bool polls)
{
    fiber *me = current();
    if (!me || (!polls && n_residents < 2)) return;
    me->st = polls ? state::polls : state::aside;
    wait();
}

void report_stuck(uint32_t *stuck)
{
    if (stuck) *stuck = 1;
}

/* Called by the last lane of the mask to arrive: runs the operation for all. */
static __attribute__((noinline)) void warp_op_together(fiber *warp, unsigned mask, warp_fn fn, const char *file,
                                                       int line)
{
    void *args[32];
    for (unsigned i = 0; i < 32; i++) args[i] = mask >> i & 1 ? warp[i].arg : nullptr;
    if (counting()) count_meet(warp->lin / 32, mask);
    fn(args, file, line);
    for (unsigned i = 0; i < 32; i++) {
        if (mask >> i & 1) warp[i].st = state::runs;
    }
}

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
    /* lanes mostly arrive in order: checking the next lane first is the fastest way to find a missing one */
    for (unsigned n = 1; n < 32; n++) {
        const unsigned i = (lane() + n) & 31;
        if (!(mask >> i & 1)) continue;
        const fiber &f = warp[i];
        if (f.lin >= n_threads || f.st != state::in_warp_op || f.fn != fn || f.line != line || f.mask != mask) {
            wait();
            return;
        }
    }
    warp_op_together(warp, mask, fn, file, line);
}

void barrier(const char *file, int line)
{
    fiber *me = current();
    me->st = state::at_barrier;
    me->file = file;
    me->line = line;
    wait();
}

/* The last thread to arrive opens the barrier. */
void first_barrier(unsigned n, const char *file, int line)
{
    fiber *me = current();
    unsigned waiting = 1;
    if (me->lin >= n || n > n_threads || n % 32)
        fail(file, line, "a barrier of the first %u of %u threads", n, n_threads);
    for (unsigned i = 0; i < n; i++) waiting += threads[i].st == state::at_first_barrier;
    if (waiting < n) {
        me->st = state::at_first_barrier;
        me->file = file;
        me->line = line;
        wait();
        return;
    }
    for (unsigned i = 0; i < n; i++)
        if (threads[i].st == state::at_first_barrier) threads[i].st = state::runs;
    for (unsigned w = 0; w < n / 32 && counting(); w++) {
        count_op(DO_BARRIER);
        count_meet(w, ~0u);
    }
    shadow_block_barrier();
    between_barrier();
}

static void do_sync_warp(void **, const char *, int)
{
    count_op(DO_SYNC_WARP);
    shadow_warp_barrier(self->lin / 32);
}
void sync_warp(unsigned mask, const char *file, int line) { warp_op(mask, do_sync_warp, nullptr, file, line); }

static void do_shuffle(void **arg, const char *file, int line)
{
    count_op(DO_SHUFFLE);
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
    count_op(DO_VOTE);
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
    count_op(DO_VOTE);
    for (int i = 0; i < 32; i++)
        if (arg[i]) out += static_cast<sum_arg *>(arg[i])->in;
    for (int i = 0; i < 32; i++)
        if (arg[i]) static_cast<sum_arg *>(arg[i])->out = out;
}
void sum(unsigned mask, sum_arg *a, const char *file, int line) { warp_op(mask, do_sum, a, file, line); }

static void do_most(void **arg, const char *, int)
{
    unsigned out = 0;
    count_op(DO_VOTE);
    for (int i = 0; i < 32; i++)
        if (arg[i]) out = std::max(out, static_cast<sum_arg *>(arg[i])->in);
    for (int i = 0; i < 32; i++)
        if (arg[i]) static_cast<sum_arg *>(arg[i])->out = out;
}
void most(unsigned mask, sum_arg *a, const char *file, int line) { warp_op(mask, do_most, a, file, line); }

/* --------------------------------------------------------------------------------------------------- shared memory */

/* Addresses start above 0, so that a missing conversion does not look like the first byte. */
static const uint32_t shared_base = 0x400;

uint32_t shared_address(const void *p)
{
    return (uint32_t) (static_cast<const unsigned char *>(p) - here.shared) + shared_base;
}
unsigned char *shared_pointer(uint32_t address) { return here.shared + (int64_t) address - shared_base; }

/* Maps an arena whose first byte has the alignment of the device. Its end is as close as possible to the page that
 * faults. */
static bool map_arena(place *w, size_t size)
{
    size_t need = (size + PAGE - 1) / PAGE * PAGE;
    if (need > w->arena_size) {
        if (w->arena) munmap(w->arena, w->arena_size + PAGE);
        void *p = mmap(nullptr, need + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        w->arena = p == MAP_FAILED ? nullptr : static_cast<unsigned char *>(p);
        w->arena_size = w->arena ? need : 0;
        if (!w->arena) return false;
        mprotect(w->arena + need, PAGE, PROT_NONE);
    }
    w->view.shared = size ? w->arena + (w->arena_size - size) / 128 * 128 : nullptr;
    w->view.shared_size = size;
    return true;
}

static bool map_arenas(size_t size)
{
    bool all = true;
    for (unsigned i = 0; i < n_residents; i++)
        all = all && map_arena(&places[i], size);
    return all;
}

/* ---------------------------------------------------------------------------------------------------------- blocks */

static unsigned random_below(unsigned n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (unsigned) ((rng >> 33) % n);
}

static void fiber_entry()
{
    thread_main(thread_arg);
    overlap_thread_end();
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
    /* The same frame of different threads begins in different sets of the caches: 17 lines apart. */
    char *const top = f.stack + STACK - 64 - i % 128 * (17 * 64);
#ifdef SIMT_ASAN
    /* Frames left by the previous thread: the outermost ones if it ended, any if it was abandoned. */
    if (f.st == state::done) __asan_unpoison_memory_region(top - 4096, 4096);
    else __asan_unpoison_memory_region(f.stack, STACK);
#endif
    void **sp = reinterpret_cast<void **>(top) - frame_words;
    std::memset(sp, 0, frame_words * sizeof *sp);
    set_entry(sp, fiber_entry);
    f.sp = sp;
    f.st = state::runs;
    f.lin = i;
    f.tid = dim3(i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y);
    f.pc = nullptr;
    f.group = 0;
    f.async.clear();
    f.async_fences = 0;
    f.seen.clear();
    f.knows.clear();
    f.order = between_thread();
    overlap_thread(&f);
    return true;
}

/* Runs a warp until none of its lanes can run. Returns true if a lane did anything other than poll. */
static bool run_warp(unsigned warp)
{
    bool any = false, again = true;
    for (unsigned t = warp * 32; t < warp * 32 + 32 && t < n_threads; t++)
        if (threads[t].st == state::aside) threads[t].st = state::runs;
    for (bool first = true; again && !failed; first = false) {
        again = false;
        unsigned turn = options.threads == order::random ? random_below(32) : 0;
        for (unsigned i = 0; i < 32 && !failed; i++) {
            unsigned t = warp * 32 + (options.threads == order::reverse ? 31 - i : (i + turn) % 32);
            if (t >= n_threads || !(threads[t].st == state::runs || (first && threads[t].st == state::polls))) continue;
            const bool polled = threads[t].st == state::polls;
            threads[t].st = state::runs;
            self = &threads[t];
            n_switches++;
            simt_switch(&scheduler_sp, threads[t].sp);
            self = nullptr;
            again = any |= !polled || threads[t].st != state::polls;
        }
    }
    return any;
}

/* Opens the barrier when every live thread waits at it. */
static bool open_barrier(unsigned live)
{
    unsigned waiting = 0;
    for (unsigned i = 0; i < n_threads; i++) waiting += threads[i].st == state::at_barrier;
    if (!live || waiting != live) return false;
    for (unsigned i = 0; i < n_threads; i++) {
        if (threads[i].st == state::at_barrier) threads[i].st = state::runs;
    }
    if (counting()) {
        for (unsigned w = 0; w * 32 < n_threads; w++) {
            count_op(DO_BARRIER);
            count_meet(w, ~0u);
        }
    }
    shadow_block_barrier();
    between_barrier();
    return true;
}

static dim3 index_of(uint64_t b)
{
    return dim3((unsigned) (b % here.grid.x), (unsigned) (b / here.grid.x % here.grid.y),
                (unsigned) (b / here.grid.x / here.grid.y));
}

/* Starts block b in the selected place. */
static bool start_block(uint64_t b)
{
    here.idx = busy->view.idx = index_of(b);
    busy->live = true;
    busy->number = (uint32_t) b;
    if (here.shared_size) std::memset(here.shared, 0xff, here.shared_size);
    shadow_begin(here.shared_size);
    bulk_begin();
    wgmma_begin();
    between_block();
    if (counting()) count_block(here.idx);
    for (unsigned i = 0; i < n_threads; i++) {
        if (!start_thread(i, here.dim)) {
            fail(nullptr, 0, "no memory for the stacks of %u threads", n_threads);
            return false;
        }
    }
    return true;
}

/* Runs each warp once. Returns true if a thread made progress or ended. */
static bool run_round()
{
    unsigned n_warps = (n_threads + 31) / 32, live = 0;
    bool progress = false;
    unsigned turn = options.threads == order::random ? random_below(n_warps) : 0;
    for (unsigned i = 0; i < n_warps && !failed; i++) {
        unsigned w = options.threads == order::reverse ? n_warps - 1 - i : (i + turn) % n_warps;
        progress |= run_warp(w);
    }
    if (failed) return true;
    for (unsigned i = 0; i < n_threads; i++) live += threads[i].st != state::done;
    if (live) return open_barrier(live) || progress;
    bulk_end();
    wgmma_end();
    if (counting()) count_block_end();
    busy->live = false;
    return true;
}

static bool arrived; /* set by the probed block's thread */
void arrives() { arrived = true; }

/* Runs thread 0 of a block until it waits (returns true), or until it ends or arrives: then returns true if it had
 * any effect. */
static bool would_work(dim3 idx)
{
    bool ended = false;
    arrived = false;
    select(places);
    const size_t shared = here.shared_size;
    here.idx = idx;
    if (shared) std::memset(here.shared, 0xff, shared);
    shadow_begin(shared);
    bulk_begin();
    wgmma_begin();
    between_block();
    count_block(idx);
    if (start_thread(0, here.dim)) {
        self = &threads[0];
        simt_switch(&scheduler_sp, threads[0].sp);
        self = nullptr;
        ended = threads[0].st == state::done;
    }
    return !(ended || arrived) || count_trial();
}

static std::vector<uint64_t> block_order(uint64_t total)
{
    std::vector<uint64_t> some = counting() ? count_blocks(would_work) : std::vector<uint64_t>();
    if (!some.empty() || failed) return some;
    if (options.blocks == order::forward) return some;
    for (uint64_t i = 0; i < total; i++) some.push_back(options.blocks == order::reverse ? total - 1 - i : i);
    for (uint64_t i = total; i > 1 && options.blocks == order::random; i--)
        std::swap(some[i - 1], some[random_below((unsigned) i)]);
    return some;
}

static void run_blocks(uint64_t total)
{
    const std::vector<uint64_t> which = block_order(total); /* block numbers; empty = all, in order */
    const unsigned n = n_residents;
    uint64_t next = 0, live = 0, end = which.empty() ? total : which.size();
    unsigned idle = 0; /* consecutive rounds without progress */
    for (unsigned turn = 0; !failed && (next < end || live); turn = n > 1 ? random_below(n) : 0) {
        select(&places[turn]);
        if (!busy->live && next == end) continue;
        if (!busy->live) {
            if (!start_block(which.empty() ? next : which[next])) return;
            next++;
            live++;
        }
        idle = run_round() ? 0 : idle + 1;
        live -= !busy->live;
        if (failed || !idle) continue;
        if (n == 1 || idle > 64 * n) fail_stuck(end - next);
    }
}

static size_t most_shared()
{
    return options.arch == 90 ? max(options.max_shared, (size_t) 232448) : options.max_shared;
}

/* Sets how many blocks of the next launch run at the same time, at most MOST_PLACES. Returns false if none can
 * begin. */
static bool set_residents(dim3 block, size_t shared, uint64_t total)
{
    const bool modelled = slots.multiprocessors && !options.count;
    n_slots = modelled ? slots_of_launch(block.x * block.y * block.z, shared) : 0;
    if (modelled && !n_slots)
        fail(nullptr, 0, "too many waiting blocks: blocks of other queues wait in all %u multiprocessors, and no block "
             "of %s can begin", slots.multiprocessors, source_of(kernel_code));
    const uint64_t few = options.count ? 1 : max(1u, min(options.resident, (unsigned) MOST_RESIDENT));
    const uint64_t n = modelled ? n_slots : few;
    n_residents = (unsigned) min(min(n, (uint64_t) MOST_PLACES), total);
    return n_residents > 0;
}

int run(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*thread)(void *), void *arg)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    uint64_t n = (uint64_t) block.x * block.y * block.z, total = (uint64_t) grid.x * grid.y * grid.z;
    failed = false;
    n_launches++;
    overlap_begin();
    if (!n || n > MAX_THREADS || block.z > 64 || !total || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
        fail(nullptr, 0, "no such launch: grid (%u,%u,%u), block (%u,%u,%u)", grid.x, grid.y, grid.z, block.x, block.y,
             block.z);
    } else if (shared > most_shared()) {
        fail(nullptr, 0, "%zu bytes of shared memory, where a block may have %zu", shared, most_shared());
    } else if (kernel_code = kernel; !set_residents(block, shared, total)) {
        /* fail() has the reason */
    } else if (!map_arenas(shared)) {
        fail(nullptr, 0, "no memory for %zu bytes of shared memory", shared);
    } else {
        for (place &p : places) {
            p.view.grid = grid;
            p.view.dim = block;
            p.live = false;
        }
        select(places);
        n_threads = (unsigned) n;
        thread_main = thread;
        const bool exact = options.exact_places;
        options.exact_places |= n_slots > 0;
        thread_arg = arg;
        rng = options.seed;
        visible all;
        if (options.on_launch) options.on_launch(true);
        between_begin(total);
        if (options.count) count_launch(kernel, grid, block, shared);
        run_blocks(total);
        if (counting()) count_end();
        if (options.on_launch) options.on_launch(false);
        options.exact_places = exact;
        n_threads = 0;
    }
    return failed ? 1 : 0;
}

} // namespace simt
