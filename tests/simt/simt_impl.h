/* Inside of the emulator: a block and its threads, shared by the scheduler (simt.cpp), the access checks (shadow.cpp)
 * and the tensor-core and copy instructions (ptx.cpp, mma.cpp, wgmma.cpp).
 *
 * Memory: everything is the emulator's own and lives as long as the process; a thread that is abandoned after an error
 * holds nothing that would have to be freed. Threads: under the lock of simt::run. */
#ifndef SIMT_IMPL_H
#define SIMT_IMPL_H

#include <mutex>
#include <vector>

#include "simt.h"

namespace simt {

/* aside: another block may go first; polls: it asks again when another thread has gone on. */
enum class state : uint8_t { runs, in_warp_op, at_barrier, at_first_barrier, at_mbarrier, aside, polls, done };

/* An asynchronous copy that was issued and not yet waited for. */
struct async_copy {
    unsigned char *dst; /* shared memory */
    const void *src;    /* global memory */
    unsigned size, n;   /* bytes of dst, of which the first n come from src; the rest are zeros */
    unsigned group;     /* number of its group in the thread */
};

/* What is known of a release: of the block, all that was written before its barrier number block, by the warp before its
 * number warp, and by the thread before its fence of that number. */
struct released {
    uint32_t block_id;
    uint16_t block, warp, fence, lin;
};
struct between_thread {
    uint16_t fences;                /* so far */
    uint16_t block, warp;           /* barriers before the last one */
    std::vector<released> heard;    /* by atomics, and not yet ordered by a fence */
    std::vector<released> acquired; /* of other blocks */
};

struct fiber : thread_view {
    void *sp;                      /* stack pointer while it does not run */
    char *stack;                   /* lowest byte */
    state st;
    unsigned mask;                 /* of the warp op it waits in */
    warp_fn fn;                    /* that op */
    void *arg;                     /* and this lane's operand */
    const char *file;              /* where it waits */
    int line;
    const void *pc;                /* code of its last access, in instrumented kernels */
    unsigned group;                /* number of the open group of asynchronous copies */
    std::vector<async_copy> async; /* issued, in order */
    uint32_t async_fences;         /* so far: fence_async() */
    size_t waits_for;              /* mbarrier, by its number in the block */
    std::vector<uint64_t> seen;    /* of each mbarrier, phases whose end this thread has waited for */
    std::vector<uint64_t> knows;   /* of each warp: the last arrival at an mbarrier that this thread has waited for */
    between_thread order;          /* against other blocks */
    bool waited;                   /* for the launches before this one, or it need not */
};

/* Ends the block with an error: printf-like. Inside a kernel it does not return; outside it only takes note. Not marked
 * noreturn: to AddressSanitizer that would mean that this stack is left for good. */
void fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

fiber *current();
fiber *thread_of(unsigned lin);
unsigned block_threads();

/* simt.cpp: lets the thread that runs wait until something changes its state. */
void wait();
/* Lets other blocks go first, where several are resident or this one polls. */
void step_aside(bool polls);
/* The resident that runs, below MOST_RESIDENT, its block's number in the grid, and the kernel. */
unsigned resident();
uint32_t block_number();
const void *kernel();
/* Taken by launches and by whoever changes device memory. */
extern std::mutex launch_lock;
/* "NAME at FILE:LINE" of code, as far as the program has such tables and the machine addr2line. */
const char *source_of(const void *pc);

/* ptx.cpp: mbarriers and bulk copies are a block's. end: all copies must have been waited for. */
void bulk_select(unsigned resident);
void bulk_begin();
void bulk_end();
/* True when a thread may use the data of a bulk copy, by its number. */
bool bulk_visible(unsigned lin, size_t copy, uint32_t block_epoch);
/* A thread reads what a copy brought; and whether it may overwrite that, as others who read it are done. */
void bulk_read(unsigned lin, size_t copy);
bool bulk_let_go(unsigned lin, size_t copy);
/* Arrivals at mbarriers so far; and whether a thread has waited for one of a warp behind so many. */
uint64_t bulk_time();
bool bulk_knows(unsigned lin, unsigned warp, uint64_t time);

/* mma.cpp: d += a b of 16-bit floats, 16x16 by 16x8, by lanes as the fragments are. */
void multiply_16(float *const *d, const uint32_t (*a)[4], const uint32_t (*b)[2], bool bf16);

/* wgmma.cpp: what warps of a block have under way. */
void wgmma_select(unsigned resident);
void wgmma_begin();
void wgmma_end();

/* shadow.cpp. Accesses of shared memory by thread lin, as race and initialisation checks see them. They do nothing
 * unless the kernels are instrumented. */
enum class access { read, write, atomic, copy_issued, copy_done, wgmma_read };
void shadow_select(unsigned resident); /* whose block the calls below are about */
void shadow_begin(size_t shared_size);
void shadow_block_barrier();
void shadow_warp_barrier(unsigned warp);
uint32_t shadow_epoch();
uint32_t shadow_warp_epoch(unsigned warp);
/* A bulk copy has brought size bytes. */
void shadow_arrival(const void *p, size_t size, size_t copy);
void shadow_access(unsigned lin, const void *p, size_t size, access kind, const char *file, int line);
/* An access of size bytes by instrumented code at pc. aligned: the code relies on p being a multiple of size. */
void compiled_access(const void *p, size_t size, bool write, bool aligned, const void *pc);
/* true: the program's kernels are instrumented. */
bool instrumented();

/* between.cpp: accesses of global memory by blocks of a launch. code: where, where that is not the source line given. */
void between_begin(uint64_t blocks);
void between_block(); /* a block begins in the resident that runs */
void between_barrier();
void between_access(const void *p, size_t size, access kind, const void *code, const char *file, int line);
void between_atomic(const void *p);

/* overlap.cpp: what dependent launches do before they have waited. */
void overlap_begin(); /* a launch, of kind next_launch */
void overlap_thread(fiber *f);
void overlap_thread_end();
void overlap_access(const void *p, size_t size, bool write, const void *code, const char *file, int line);

/* Where an access stands in the kernel, for functions that are called from it. */
#define SIMT_CODE __builtin_return_address(0)

/* counters.cpp. Kinds of accesses and collectives are enum counted of counters.h. */
bool counting();
void count_launch(const void *kernel, dim3 grid, dim3 block, size_t shared);
void count_end();
/* The blocks of it to be run, by number; empty: all. probe: whether a block would do anything. */
std::vector<uint64_t> count_blocks(bool (*probe)(dim3 idx));
void count_block(dim3 idx);
bool count_trial(); /* the block that was begun, and not ended, did something */
void count_block_end();
void count_op(int what, double n = 1);
void count_access(unsigned lin, const void *p, size_t size, int what, const void *code);
void count_copy(unsigned lin, uint32_t dst, const void *src, unsigned size, unsigned n, const void *code);
void count_bulk(const void *src, unsigned size);
/* Shared-memory rows that one instruction of a warp reads, 8 a phase. */
void count_rows(const uint32_t *address, int n);
/* What the lanes of the mask did since their last collective are whole requests. */
void count_meet(unsigned warp, unsigned mask);

/* Memory of device_alloc: whether p is in its region at all, and in a live allocation with size bytes from p on. */
bool in_device_region(const void *p);
bool in_device_memory(const void *p, size_t size); /* in a launch */
/* The same for those who launch nothing. */
bool device_holds(const void *p, size_t size);
bool device_holds(const void *p, size_t size, int device); /* of that device */

/* While one exists nobody can reach the memory of other devices; who comes to it ends the program with a line that says so. One of all
 * these at a time. */
struct alone {
    explicit alone(int device);
    ~alone();
};
struct together { /* all can be reached */
    together();
    ~together();
};
/* Bytes from the beginning of the region, and the region's. */
size_t device_offset(const void *p);
enum : uint64_t { DEVICE_REGION = UINT64_C(1) << 36 };

} // namespace simt

#endif
