/* Internals of the emulator: a block and its threads, shared by the scheduler (simt.cpp), the access checks
 * (shadow.cpp) and the tensor-core and copy instructions (ptx.cpp, mma.cpp, wgmma.cpp).
 *
 * Memory: everything belongs to the emulator and lives as long as the process. A thread that is abandoned after an
 * error owns nothing that must be freed. Threads: under the lock of simt::run. */
#ifndef SIMT_IMPL_H
#define SIMT_IMPL_H

#include <mutex>
#include <vector>

#include "simt.h"

namespace simt {

/* Max blocks that run at the same time; with config::resident, at most MOST_RESIDENT. */
enum { MOST_PLACES = 32 };

/* aside: yields to other blocks; polls: waits until another thread has made progress, then polls again. */
enum class state : uint8_t { runs, in_warp_op, at_barrier, at_first_barrier, at_mbarrier, aside, polls, done };

/* An asynchronous copy that was issued and not yet waited for. */
struct async_copy {
    unsigned char *dst; /* shared memory */
    const void *src;    /* global memory */
    unsigned size, n;   /* bytes at dst; the first n come from src, the rest are zeros */
    unsigned group;     /* number of its group in the thread */
};

/* A release: it covers the block's writes before barrier `block`, the warp's writes before warp barrier `warp`, and
 * the thread's writes before its fence number `fence`. */
struct released {
    uint32_t block_id;
    uint16_t block, warp, fence, lin;
};
struct between_thread {
    uint16_t fences;                /* number of fences and releasing atomics so far */
    uint16_t fence;                 /* `fences` after the last fence; 0 = no fence yet */
    uint16_t block, warp;           /* barriers before the last fence */
    std::vector<released> heard;    /* releases read by atomics, not yet ordered by a fence */
    std::vector<released> acquired; /* releases of other blocks */
};

struct fiber : thread_view {
    void *sp;                      /* stack pointer while it does not run */
    char *stack;                   /* lowest byte */
    state st;
    unsigned mask;                 /* mask of the warp operation that it waits in */
    warp_fn fn;                    /* that operation */
    void *arg;                     /* this lane's operand */
    const char *file;              /* source location of its wait */
    int line;
    const void *pc;                /* code address of its last access, in instrumented kernels */
    unsigned group;                /* number of the open group of asynchronous copies */
    std::vector<async_copy> async; /* pending copies, in issue order */
    uint32_t async_fences;         /* number of fence_async() calls */
    size_t waits_for;              /* index of the mbarrier that it waits for */
    std::vector<uint64_t> seen;    /* by mbarrier: number of ended phases that this thread has waited for */
    std::vector<uint64_t> knows;   /* by warp: its last mbarrier arrival that this thread has waited for */
    between_thread order;          /* ordering against other blocks */
    bool waited;                   /* has waited for earlier launches, or need not */
};

/* Ends the block with an error (printf format). Inside a kernel it does not return; outside it only records the
 * error. Not noreturn, since AddressSanitizer would then assume that this stack is never used again. */
void fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

fiber *current();
fiber *thread_of(unsigned lin);
unsigned block_threads();

/* simt.cpp: suspends the running thread until its state changes. */
void wait();
/* Yields to other blocks, if several are resident or this thread polls. */
void step_aside(bool polls);
/* Index of the running resident, below MOST_PLACES; its block's number in the grid; the kernel. */
unsigned resident();
uint32_t block_number();
const void *kernel();
/* Held by launches and by changes of device memory. */
extern std::mutex launch_lock;
/* "NAME at FILE:LINE" of code, if the program has debug tables and addr2line is installed. */
const char *source_of(const void *pc);

/* ptx.cpp: state of a block's mbarriers and bulk copies. bulk_end: all copies must have been waited for. */
void bulk_select(unsigned resident);
void bulk_begin();
void bulk_end();
/* True if the thread may use the data of a bulk copy (by index). */
bool bulk_visible(unsigned lin, size_t copy, uint32_t block_epoch);
/* Records a thread's read of copied data; true if the thread may overwrite the data, since all readers are done. */
void bulk_read(unsigned lin, size_t copy);
bool bulk_let_go(unsigned lin, size_t copy);
/* Number of mbarrier arrivals so far; true if the thread has waited for an arrival of the warp after `time`. */
uint64_t bulk_time();
bool bulk_knows(unsigned lin, unsigned warp, uint64_t time);

/* mma.cpp: d += a b of 16-bit floats, 16x16 by 16x8, with operands per lane in fragment layout. */
void multiply_16(float *const *d, const uint32_t (*a)[4], const uint32_t (*b)[2], bool bf16);

/* wgmma.cpp: instructions of a block's warps in flight. */
void wgmma_select(unsigned resident);
void wgmma_begin();
void wgmma_end();

/* shadow.cpp: accesses of thread lin to shared memory, for race and initialization checks. No effect unless the
 * kernels are instrumented. */
enum class access { read, write, atomic, copy_issued, copy_done, wgmma_read };
void shadow_select(unsigned resident); /* selects the resident for the calls below */
void shadow_begin(size_t shared_size);
void shadow_block_barrier();
void shadow_warp_barrier(unsigned warp);
uint32_t shadow_epoch();
uint32_t shadow_warp_epoch(unsigned warp);
/* A bulk copy has written `size` bytes. */
void shadow_arrival(const void *p, size_t size, size_t copy);
void shadow_access(unsigned lin, const void *p, size_t size, access kind, const char *file, int line);
/* An access of size bytes by instrumented code at pc. aligned: the code relies on p being a multiple of size. */
void compiled_access(const void *p, size_t size, bool write, bool aligned, const void *pc);
/* True if the program's kernels are instrumented. */
bool instrumented();

/* between.cpp: accesses to global memory by the blocks of a launch. code: code address; NULL = use file and line. */
void between_begin(uint64_t blocks);
void between_block(); /* a block begins in the running resident */
void between_barrier();
void between_access(const void *p, size_t size, access kind, const void *code, const char *file, int line);
void between_atomic(const void *p, semantics order);

/* overlap.cpp: premature accesses of dependent launches. */
void overlap_begin(); /* begins a launch of kind next_launch */
void overlap_thread(fiber *f);
void overlap_thread_end();
void overlap_access(const void *p, size_t size, bool write, const void *code, const char *file, int line);

/* Code address of an access in a kernel, for functions that the kernel calls. */
#define SIMT_CODE __builtin_return_address(0)

/* counters.cpp. The kinds of accesses and collectives are in enum counted of counters.h. */
bool counting();
void count_launch(const void *kernel, dim3 grid, dim3 block, size_t shared);
void count_end();
/* Numbers of the launch's blocks to run; empty = all. probe: true if a block has work. */
std::vector<uint64_t> count_blocks(bool (*probe)(dim3 idx));
void count_block(dim3 idx);
bool count_trial(); /* true if the block that was started, but not run to its end, did something */
void count_block_end();
void count_op(int what, double n = 1);
void count_access(unsigned lin, const void *p, size_t size, int what, const void *code);
void count_copy(unsigned lin, uint32_t dst, const void *src, unsigned size, unsigned n, const void *code);
void count_bulk(const void *src, unsigned size);
/* Rows of shared memory that one instruction of a warp reads, 8 per phase. */
void count_rows(const uint32_t *address, int n);
/* Completes the requests of the lanes in the mask since their last collective. */
void count_meet(unsigned warp, unsigned mask);

/* Memory of device_alloc: true if p is in its address region; true if `size` bytes from p are in a live allocation. */
bool in_device_region(const void *p);
bool in_device_memory(const void *p, size_t size); /* during a launch */
/* Like in_device_memory, outside of launches. */
bool device_holds(const void *p, size_t size);
bool device_holds(const void *p, size_t size, int device); /* on that device */

/* Calls fn(p, size) for each allocation, outside of launches. */
void device_each(const std::function<void(char *p, size_t size)> &fn);

/* While an object exists, memory of other devices is inaccessible; an access ends the program with a message. Only
 * one object exists at a time. */
struct alone {
    explicit alone(int device);
    ~alone();
};
struct together { /* makes all devices' memory accessible */
    together();
    ~together();
};
/* Offset of p in the region; size of the region. */
size_t device_offset(const void *p);
enum : uint64_t { DEVICE_REGION = UINT64_C(1) << 36 };

} // namespace simt

#endif
