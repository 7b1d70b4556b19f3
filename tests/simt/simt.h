/* CUDA's device language for the host compiler: the environment of kernels that are built for the emulator.
 *
 * A kernel file compiles unchanged with a C++17 host compiler if kernels/device.cuh includes this header instead of
 * CUDA's. A launch runs its blocks one after the other, or a few at a time (config::resident). The threads of a block
 * are fibers of one OS thread. So a debugger can step through a kernel, and runs with the same simt::config are
 * bitwise identical.
 *
 * - Modelled: barriers, warp collectives (they wait for every lane of their mask), one dynamic shared memory per
 *   block, asynchronous copies at the earliest or the latest legal moment, bit-exact tensor-core arithmetic (mma.cpp).
 * - Detected: collectives that a lane never reaches, shuffles from lanes that do not take part, misaligned addresses,
 *   accesses past the end of shared memory.
 * - Detected in instrumented kernels (shadow.cpp): races in shared memory, races between blocks in global memory
 *   (between.cpp), reads of uninitialized shared memory, global accesses outside of allocations, premature accesses
 *   of dependent launches (overlap.cpp).
 * - Counted on request: see counters.h.
 * - Not modelled: speed, registers, values that other blocks do not see for lack of a fence (the missing fence itself
 *   is detected).
 *
 * Threads: one launch at a time in the process; launches from several threads take turns. Errors never end the
 * process: the launch stops at the first error and returns it. */
#ifndef SIMT_H
#define SIMT_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

/* Functions of the emulator itself are never instrumented. */
#define SIMT_PLAIN __attribute__((no_sanitize("thread")))
/* Source location of a collective: lanes meet only at the same location. */
#define SIMT_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };

namespace simt {

/* ----------------------------------------------------------------------------------------- for callers of launches */

/* Tensor-core instructions to corrupt; bits. */
enum spoiled { SPOIL_NONE, SPOIL_S8 = 1, SPOIL_MMA16 = 2, SPOIL_FP4 = 4, SPOIL_WGMMA = 8 };

enum class order { forward, reverse, random };

struct counter;

/* An argument of a kernel: its value in memory, its size and its alignment. */
struct argument {
    const void *p;
    size_t size, align;
};
/* A launch of a kernel that the host compiler built. */
struct kernel_call {
    const void *kernel;
    dim3 grid, block;
    size_t shared;           /* bytes of dynamic shared memory */
    void (*thread)(void *);  /* called with `arg` once in each thread */
    void *arg;
    const argument *args;    /* n_args arguments, in order */
    int n_args;
};

/* Settings for the following launches. */
struct config {
    order threads = order::forward; /* order of a block's runnable warps and lanes */
    order blocks = order::forward;  /* order of the grid's blocks */
    /* blocks that run at the same time, at most MOST_RESIDENT; `seed` sets their order */
    unsigned resident = 1;
    /* launches have the number of waiting blocks that they would have on a device: `resident` must be the number of
     * blocks that the device has places for (slots.h sets both). false = at most `resident` blocks wait */
    bool exact_places = false;
    /* a block that waits for others reports an error after polling this many times (pi__k_waits.stuck); 0 = never, the
     * launch fails with a deadlock */
    unsigned long max_polls = 0;
    bool check = true;              /* check the accesses of instrumented kernels */
    bool between = true;            /* also check for races between blocks, the slowest check */
    counter *count = nullptr;       /* receives the counts of launches (counters.h); NULL = do not count */
    bool no_mma = false;            /* tensor-core instructions compute nothing: they are only counted */
    bool untouched = false;         /* do not fill device memory: unwritten pages take no memory, and are zeros */
    bool eager = false;             /* perform asynchronous copies immediately, not at the wait */
    uint64_t seed = 1;              /* of the random orders */
    long fail_alloc = -1;           /* device_alloc and device_map: fail after this many calls; -1 = never */
    /* page size of device_map, a power of two from 4 KiB; 0 = devices cannot map pages */
    size_t page = 2 << 20;
    long fail_copy = -1;            /* asynchronous copies: fail after this many; -1 = never */
    bool fail_pin = false;          /* host memory cannot be pinned */
    /* max shared memory per block in bytes: the minimum of the targets (sm_120); sm_90: 232448 */
    size_t max_shared = 101376;
    int spoil = SPOIL_NONE;         /* instructions with wrong results, to emulate broken hardware */
    int arch = 120;                 /* 80, 90 or 120: the emulated architecture, for kernels with several variants */
    bool hide = false;              /* only kernels and the runtime's copies can access device memory */
    void (*on_launch)(bool begins) = nullptr; /* called around each launch */
    void (*list)(const void *kernel, unsigned threads, size_t shared) = nullptr; /* called instead of launching */
    int (*replace)(const kernel_call &) = nullptr; /* called instead of run(), which it may call; NULL = run() */
};
extern config options;
enum { MOST_RESIDENT = 8 };
/* The test modes for kernels: every order of threads and blocks, with late and with early copies. The first and the
 * last mode look for races between blocks, which are found in any order. In the last mode, several blocks run at the
 * same time. */
enum { N_MODES = 6 };
void use_mode(int i);

/* The error that stopped the last failed launch, with its source line if known; "" = no error. */
const char *last_error();
void clear_error();
/* Number of launches and of fiber switches so far, for measurements. */
extern unsigned long n_launches, n_switches;

/* Allocates device memory, which instrumented kernels may access. It ends at an inaccessible page and is filled with
 * 0xFF. NULL = out of memory. */
void *device_alloc(size_t size);
void device_free(void *p);
size_t device_bytes(); /* allocated or mapped bytes, without mapped host memory */
size_t device_host_bytes(); /* bytes of mapped host memory */
/* device_reserve reserves addresses, a multiple of the page size. device_map maps zeroed memory for full pages of
 * them; accesses past its end fault, unless another mapping follows. NULL or false = out of memory, or misuse. */
void *device_reserve(size_t size);
bool device_unreserve(void *p);
bool device_map(void *p, size_t size, bool host = false);
bool device_unmap(void *p, size_t size);

/* While an object exists, the host can access device memory despite config::hide. */
struct visible {
    visible();
    ~visible();
};

/* ---------------------------------------------------------------------------------- implementation of CUDA's names */

struct thread_view {
    dim3 tid;          /* threadIdx */
    unsigned lin;      /* thread number in the block */
};
struct block_view {
    dim3 idx, dim, grid;
    unsigned char *shared; /* dynamic shared memory */
    size_t shared_size;    /* bytes */
};
extern thread_view *self; /* the running thread; NULL outside of kernels */
extern block_view here;   /* its block */

/* State of programmatic dependent launches in a queue: the launches that may still run, and the kind of the calling
 * thread's next launch. Work other than a kernel launch waits for all earlier work, and all later work waits for it:
 * it resets the chain. */
struct launch_chain {
    bool fresh = true;       /* no earlier launch can still run when the next one begins */
    unsigned long first = 0; /* number of the first launch that can still run */
};
struct launch_kind {
    bool dependent = false;        /* the launch may begin before earlier ones have ended */
    launch_chain *chain = nullptr; /* chain of its queue; NULL = none */
};
extern thread_local launch_kind next_launch;
/* griddepcontrol.wait of the running thread. */
void wait_grids();

/* Runs a kernel: thread(arg) is called once in each thread. Returns 0, or 1 after an error (last_error()). */
int run(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*thread)(void *), void *arg);
/* run(), or config::replace. */
inline int run_call(const kernel_call &c)
{
    return options.replace ? options.replace(c) : run(c.kernel, c.grid, c.block, c.shared, c.thread, c.arg);
}

template <class... P, class... A>
int launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    if (options.list) {
        options.list(reinterpret_cast<const void *>(kernel), block.x * block.y * block.z, shared);
        return 0;
    }
    struct call {
        void (*kernel)(P...);
        std::tuple<P...> args;
    } c{kernel, std::tuple<P...>(static_cast<P>(args)...)};
    return std::apply([&](const P &...a) {
        const argument list[] = {{&a, sizeof a, alignof(P)}..., {nullptr, 0, 1}};
        return run_call({reinterpret_cast<const void *>(kernel), grid, block, shared, [](void *p) {
            call *c = static_cast<call *>(p);
            std::apply(c->kernel, c->args);
        }, &c, list, sizeof...(P)});
    }, c.args);
}

/* Source file of a kernel, and the mark that identifies it for loading: see device.cuh. */
struct kernel_file {
    const char *name;
    const void *mark;
};

/* Device for the calling thread's launches: the runtime's current device. */
extern thread_local int current_device;

/* A queue of deferred launches: see runtime_emu.cpp. */
struct stream {
    virtual int device() const = 0; /* device number */
    /* queues work; dependent: a dependent launch */
    virtual int take(std::function<int()> work, bool dependent = false) = 0;
    /* Called before each launch. Returns an error code if the file's kernels are not loaded, or if the launch has more
     * shared memory than its kernel may have (set_attribute() in runtime_emu.h). */
    virtual int need(kernel_file from, const void *kernel, size_t shared) = 0;
    virtual ~stream() = default;
};
template <class... P, class... A>
int queue(stream *to, kernel_file from, bool dependent, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
          A... args)
{
    std::tuple<P...> copied(static_cast<P>(args)...);
    int code = to->need(from, reinterpret_cast<const void *>(kernel), shared);
    if (code) return code;
    return to->take([=] {
        return std::apply([=](auto... a) { return launch(kernel, grid, block, shared, a...); }, copied);
    }, dependent);
}

/* Warp collectives: the last lane of the mask to arrive runs the operation for all. arg[i] is lane i's operand, NULL
 * for lanes outside of the mask. */
typedef void (*warp_fn)(void **arg, const char *file, int line);
void warp_op(unsigned mask, warp_fn fn, void *arg, const char *file, int line);
void barrier(const char *file, int line);
/* A barrier of the first n threads of the block. Race checks treat it as a barrier of all threads, so that they may
 * miss races with the other threads. */
void first_barrier(unsigned n, const char *file, int line);
void sync_warp(unsigned mask, const char *file, int line);

struct shuffle_arg {
    uint64_t in, out; /* value of this lane; received value */
    unsigned src;     /* source lane */
};
void shuffle(unsigned mask, shuffle_arg *a, const char *file, int line);
struct vote_arg {
    bool in;      /* predicate */
    unsigned out; /* mask of lanes with a true predicate */
};
void vote(unsigned mask, vote_arg *a, const char *file, int line);
struct sum_arg {
    unsigned in, out; /* this lane's value; the result */
};
void sum(unsigned mask, sum_arg *a, const char *file, int line);
void most(unsigned mask, sum_arg *a, const char *file, int line); /* the maximum instead of the sum */

unsigned lane();
/* Converts between pointers and 32-bit shared memory addresses, as PTX uses them. */
uint32_t shared_address(const void *p);
unsigned char *shared_pointer(uint32_t address);

template <class T> T shuffled(unsigned mask, T v, unsigned src, const char *file, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    shuffle_arg a = {0, 0, src};
    std::memcpy(&a.in, &v, sizeof v);
    shuffle(mask, &a, file, line);
    std::memcpy(&v, &a.out, sizeof v);
    return v;
}

/* Memory order of an atomic, as between.cpp models it. */
enum class semantics { relaxed, acquire, acq_rel };
/* Called before an atomic. Atomics are never interrupted and do not race with each other; another resident block may
 * run before one. polls: the atomic only polls for a change, so that its thread may wait until another thread has
 * made progress. */
void atomic_access(const void *p, size_t size, bool polls, const char *file, int line,
                   semantics order = semantics::relaxed);
/* __threadfence(). Releases the writes of this thread, and of threads ordered before it, to readers of its next
 * atomic. Acquires writes that other threads made before the atomics that this thread has read. */
void fence();

/* Writes 1 to host memory, which kernels may not access otherwise. NULL = does nothing. */
void report_stuck(uint32_t *stuck);

/* True if only some blocks of the launch run, as a sample for all (counters.h). */
bool sampling();
/* Called when a thread has done its part. A block without other work counts as a block that ends immediately. */
void arrives();
/* Called by one thread between two barriers, when the block has done its part and waits for the others. True for one
 * block of a sample: it is treated as the last block and does the work that follows for all. */
bool ends_sample();

} // namespace simt

#define threadIdx (simt::self->tid)
#define blockIdx (simt::here.idx)
#define blockDim (simt::here.dim)
#define gridDim (simt::here.grid)

/* --------------------------------------------------------------------------------------------------- CUDA's names */

inline void __syncthreads(SIMT_AT) { simt::barrier(file, line); }
inline void __syncwarp(unsigned mask = ~0u, SIMT_AT) { simt::sync_warp(mask, file, line); }
inline void __threadfence() { simt::fence(); }

template <class T> T __shfl_sync(unsigned mask, T v, int src, int width = 32, SIMT_AT)
{
    unsigned l = simt::lane(), w = (unsigned) width;
    return simt::shuffled(mask, v, (l & ~(w - 1)) | ((unsigned) src & (w - 1)), file, line);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, SIMT_AT)
{
    unsigned l = simt::lane(), s = l ^ (unsigned) x, w = (unsigned) width;
    return simt::shuffled(mask, v, (s & ~(w - 1)) > (l & ~(w - 1)) ? l : s, file, line);
}
template <class T> T __shfl_up_sync(unsigned mask, T v, unsigned n, int width = 32, SIMT_AT)
{
    unsigned l = simt::lane(), w = (unsigned) width;
    return simt::shuffled(mask, v, (l & (w - 1)) < n ? l : l - n, file, line);
}
template <class T> T __shfl_down_sync(unsigned mask, T v, unsigned n, int width = 32, SIMT_AT)
{
    unsigned l = simt::lane(), w = (unsigned) width;
    return simt::shuffled(mask, v, (l & (w - 1)) + n >= w ? l : l + n, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int pred, SIMT_AT)
{
    simt::vote_arg a = {pred != 0, 0};
    simt::vote(mask, &a, file, line);
    return a.out;
}
inline int __any_sync(unsigned mask, int pred, SIMT_AT) { return __ballot_sync(mask, pred, file, line) != 0; }
inline int __all_sync(unsigned mask, int pred, SIMT_AT) { return __ballot_sync(mask, pred, file, line) == mask; }

inline unsigned __reduce_add_sync(unsigned mask, unsigned v, SIMT_AT)
{
    simt::sum_arg a = {v, 0};
    simt::sum(mask, &a, file, line);
    return a.out;
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, SIMT_AT)
{
    simt::sum_arg a = {v, 0};
    simt::most(mask, &a, file, line);
    return a.out;
}

template <class T> SIMT_PLAIN T atomicAdd(T *p, T v, SIMT_AT)
{
    simt::atomic_access(p, sizeof *p, v == 0, file, line);
    T old;
    std::memcpy(&old, p, sizeof old);
    v = old + v;
    std::memcpy(p, &v, sizeof v);
    return old;
}
template <class T> SIMT_PLAIN T atomicOr(T *p, T v, SIMT_AT)
{
    simt::atomic_access(p, sizeof *p, v == 0, file, line);
    T old;
    std::memcpy(&old, p, sizeof old);
    v |= old;
    std::memcpy(p, &v, sizeof v);
    return old;
}
template <class T> SIMT_PLAIN T atomicMax(T *p, T v, SIMT_AT)
{
    T old;
    std::memcpy(&old, p, sizeof old);
    simt::atomic_access(p, sizeof *p, v <= old, file, line);
    std::memcpy(&old, p, sizeof old);
    if (v > old) std::memcpy(p, &v, sizeof v);
    return old;
}
template <class T> SIMT_PLAIN T atomicExch(T *p, T v, SIMT_AT)
{
    simt::atomic_access(p, sizeof *p, false, file, line);
    T old;
    std::memcpy(&old, p, sizeof old);
    std::memcpy(p, &v, sizeof v);
    return old;
}
SIMT_PLAIN inline unsigned atomicCAS(unsigned *p, unsigned expected, unsigned v, SIMT_AT)
{
    unsigned old;
    std::memcpy(&old, p, sizeof old);
    simt::atomic_access(p, sizeof *p, old != expected || v == expected, file, line);
    std::memcpy(&old, p, sizeof old);
    if (old == expected) std::memcpy(p, &v, sizeof v);
    return old;
}

namespace simt {

/* atom.add.acq_rel of 1, and ld.acquire, with the scope of the device. */
SIMT_PLAIN inline uint32_t arrive(uint32_t *p, const char *file, int line)
{
    atomic_access(p, sizeof *p, false, file, line, semantics::acq_rel);
    return (*p)++;
}
SIMT_PLAIN inline uint32_t load_acquire(const uint32_t *p, const char *file, int line)
{
    atomic_access(p, sizeof *p, true, file, line, semantics::acquire);
    return *p;
}

} // namespace simt

inline float __uint_as_float(unsigned u)
{
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
}
inline unsigned __float_as_uint(float f)
{
    unsigned u;
    std::memcpy(&u, &f, sizeof u);
    return u;
}
template <class T> T __ldg(const T *p) { return *p; }
inline int __float2int_rn(float f) { return (int) std::nearbyintf(f); }
/* Byte i of the result is byte (s >> 4 i & 7) of b:a. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    uint64_t all = (uint64_t) b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) r |= (unsigned) (all >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
inline int __popc(unsigned u) { return __builtin_popcount(u); }
inline int __clz(int u) { return u ? __builtin_clz((unsigned) u) : 32; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

#endif
