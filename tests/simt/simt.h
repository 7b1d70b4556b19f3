/* CUDA's device language for the host compiler: what kernels see when they are built against the emulator.
 *
 * A kernel file compiles unchanged with a C++17 host compiler when kernels/device.cuh includes this header instead of
 * CUDA's. A launch runs its blocks one after the other, or a few at a time (config::resident); the threads of a block are
 * fibers of one OS thread, so a kernel can be stepped through with a debugger and every run with the same simt::config is
 * the same to the last bit.
 *
 * What is modelled: barriers, warp collectives (they wait for every lane of their mask), one dynamic shared memory a
 * block, asynchronous copies at the earliest or the latest moment the program allows, tensor-core arithmetic to the bit
 * (mma.cpp). What is found: a collective that some lane never reaches, shuffles from lanes that take no part, misaligned
 * addresses, shared memory past its end; and in builds whose kernels are instrumented (shadow.cpp) races between
 * threads, of a block in shared and of different blocks in global memory (between.cpp), reads of shared memory nobody
 * wrote, global accesses outside of any allocation, and what kernels launched as
 * dependent ones do too early (overlap.cpp). What is counted, when it is asked for: counters.h.
 * What is not modelled: speed, registers, values that stay unseen by other blocks for want of a fence (the missing fence
 * is found all the same).
 *
 * Threads: one launch at a time in the process; launches from several threads take turns. Errors never end the process:
 * the launch stops at the first one and returns it. */
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
/* Where a collective stands in the source: lanes meet only at the same place. */
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

/* ------------------------------------------------------------------------------------------------ for those who launch */

/* Tensor-core instructions whose results may be made wrong; bits. */
enum spoiled { SPOIL_NONE, SPOIL_S8 = 1, SPOIL_MMA16 = 2, SPOIL_FP4 = 4, SPOIL_WGMMA = 8 };

enum class order { forward, reverse, random };

struct counter;

/* How launches run from now on. */
struct config {
    order threads = order::forward; /* order in which a block's warps and lanes run while they may */
    order blocks = order::forward;  /* order of the grid's blocks */
    unsigned resident = 1;          /* blocks that run at the same time, at most MOST_RESIDENT, in turns by the seed */
    bool check = true;              /* what instrumented kernels access is checked */
    bool between = true;            /* and for races between blocks, which takes longest */
    counter *count = nullptr;       /* where launches are counted (counters.h) */
    bool no_mma = false;            /* tensor-core instructions give nothing: they are only counted */
    bool untouched = false;         /* device memory is not filled: pages nobody writes take no memory, and are zeros */
    bool eager = false;             /* asynchronous copies: at once, not when they are waited for */
    uint64_t seed = 1;              /* of the random orders */
    long fail_alloc = -1;           /* device_alloc and device_map: after so many, one fails */
    size_t page = 2 << 20;          /* of device_map, a power of two from 4 KiB on; 0: devices cannot */
    long fail_copy = -1;            /* asynchronous copies: after so many, one is refused */
    bool fail_pin = false;          /* host memory cannot be pinned */
    size_t max_shared = 101376;     /* bytes a block may have; the smallest of the targets (sm_120); of sm_90 232448 */
    int spoil = SPOIL_NONE;         /* what gives wrong results, as broken hardware would */
    int arch = 120;                 /* 80, 90 or 120: what the device has, for kernels that go more than one way */
    bool hide = false;              /* device memory can be reached by kernels and the runtime's copies only */
    void (*on_launch)(bool begins) = nullptr; /* called around each launch */
    void (*list)(const void *kernel, unsigned threads, size_t shared) = nullptr; /* called instead of launching */
};
extern config options;
enum { MOST_RESIDENT = 4 };
/* The modes that kernels are tested in: every order of threads and blocks, with late and with early copies. Races between
 * blocks, which are found in any order, are looked for in the first; in the last three blocks run at a time. */
enum { N_MODES = 6 };
void use_mode(int i);

/* The error that the last failed launch stopped at, with the source line where it is known; "" when there was none. */
const char *last_error();
void clear_error();
/* Launches, and fiber switches, so far: for measuring. */
extern unsigned long n_launches, n_switches;

/* Device memory: what instrumented kernels may access. Ends at an inaccessible page; filled with 0xFF. NULL: too much. */
void *device_alloc(size_t size);
void device_free(void *p);
size_t device_bytes(); /* allocated, or mapped */
/* Addresses of device memory, a multiple of the page, and memory for whole pages of them, filled with zeros, which ends as
 * an allocation does: what is mapped behind it is another. NULL, false: none left, or misuse. */
void *device_reserve(size_t size);
bool device_unreserve(void *p);
bool device_map(void *p, size_t size);
bool device_unmap(void *p, size_t size);

/* While one exists, device memory can be reached by everybody. */
struct visible {
    visible();
    ~visible();
};

/* ------------------------------------------------------------------------------------ behind the names that kernels use */

struct thread_view {
    dim3 tid;          /* threadIdx */
    unsigned lin;      /* number in the block */
};
struct block_view {
    dim3 idx, dim, grid;
    unsigned char *shared; /* dynamic shared memory */
    size_t shared_size;    /* bytes */
};
extern thread_view *self; /* the running thread; NULL outside of kernels */
extern block_view here;   /* its block */

/* Programmatic dependent launches of a queue: what a launch may overlap with, and how the next one of the calling thread
 * is launched. Work that is no launch of a kernel waits for all before it, and all after it waits for it: it makes the
 * chain fresh. */
struct launch_chain {
    bool fresh = true;       /* nothing before the next launch can still run */
    unsigned long first = 0; /* number of the first launch that can */
};
struct launch_kind {
    bool dependent = false;        /* it may begin before those before it have ended */
    launch_chain *chain = nullptr; /* of its queue, or NULL */
};
extern thread_local launch_kind next_launch;
/* griddepcontrol.wait, by the thread that runs. */
void wait_grids();

/* 0, or 1 after an error (last_error()). thread(arg) runs once for each thread of that kernel. */
int run(const void *kernel, dim3 grid, dim3 block, size_t shared, void (*thread)(void *), void *arg);

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
    return run(reinterpret_cast<const void *>(kernel), grid, block, shared, [](void *p) {
        call *c = static_cast<call *>(p);
        std::apply(c->kernel, c->args);
    }, &c);
}

/* Where a kernel was compiled, and the mark by which it is loaded: see device.cuh. */
struct kernel_file {
    const char *name;
    const void *mark;
};

/* The device that the calling thread's launches go to, as the runtime's current one. */
extern thread_local int current_device;

/* The queue of launches that are not run at once: see runtime_emu.cpp. */
struct stream {
    virtual int device() const = 0; /* number of its device */
    virtual int take(std::function<int()> work, bool dependent = false) = 0; /* dependent: it is a launch of that kind */
    virtual int need(kernel_file from) = 0; /* 0, or a code: its kernels are not loaded */
    virtual ~stream() = default;
};
template <class... P, class... A>
int queue(stream *to, kernel_file from, bool dependent, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... args)
{
    std::tuple<P...> copied(static_cast<P>(args)...);
    int code = to->need(from);
    if (code) return code;
    return to->take([=] {
        return std::apply([=](auto... a) { return launch(kernel, grid, block, shared, a...); }, copied);
    }, dependent);
}

/* Warp collectives: the last lane of the mask to arrive runs the operation for all. arg[i] is lane i's, NULL for lanes
 * outside of the mask. */
typedef void (*warp_fn)(void **arg, const char *file, int line);
void warp_op(unsigned mask, warp_fn fn, void *arg, const char *file, int line);
void barrier(const char *file, int line);
/* Of the first n threads of the block alone. What the others have done is as much before it as what these have: they may be seen
 * as ordered where they are not. */
void first_barrier(unsigned n, const char *file, int line);
void sync_warp(unsigned mask, const char *file, int line);

struct shuffle_arg {
    uint64_t in, out; /* value of this lane, value it gets */
    unsigned src;     /* lane it reads */
};
void shuffle(unsigned mask, shuffle_arg *a, const char *file, int line);
struct vote_arg {
    bool in;      /* predicate */
    unsigned out; /* lanes whose predicate holds */
};
void vote(unsigned mask, vote_arg *a, const char *file, int line);
struct sum_arg {
    unsigned in, out; /* of this lane, of all */
};
void sum(unsigned mask, sum_arg *a, const char *file, int line);
void most(unsigned mask, sum_arg *a, const char *file, int line); /* the largest instead of the sum */

unsigned lane();
/* Shared memory by its 32-bit address, as PTX has it. */
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

/* Atomics run whole. They are no race with each other; where blocks run at the same time, another may go on before one.
 * polls: it only asks, as long as the answer is the same: its thread can go on when another has. */
void atomic_access(const void *p, size_t size, bool polls, const char *file, int line);
/* Of all memory: what this thread and those ordered before it wrote is to be seen by who sees its next atomic, and
 * what others wrote before the atomics that it saw is seen by it. */
void fence();

/* Of the launch only some blocks run, and stand for all (counters.h). */
bool sampling();
/* A thread has done its share: a block that has nothing else to do is one that ends at once. */
void arrives();
/* The block has done its share, and waits for the others: true for one of a sample, which is then taken to be the last, and
 * goes on for all. By one thread between two barriers. */
bool ends_sample();

} // namespace simt

#define threadIdx (simt::self->tid)
#define blockIdx (simt::here.idx)
#define blockDim (simt::here.dim)
#define gridDim (simt::here.grid)

/* --------------------------------------------------------------------------------------------------- CUDA's own names */

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
