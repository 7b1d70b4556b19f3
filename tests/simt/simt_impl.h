/* Inside of the emulator: a block and its threads, shared by the scheduler (simt.cpp), the access checks (shadow.cpp)
 * and the tensor-core and copy instructions (ptx.cpp, mma.cpp).
 *
 * Memory: everything is the emulator's own and lives as long as the process; a thread that is abandoned after an error
 * holds nothing that would have to be freed. Threads: under the lock of simt::run. */
#ifndef SIMT_IMPL_H
#define SIMT_IMPL_H

#include <vector>

#include "simt.h"

namespace simt {

enum class state : uint8_t { runs, in_warp_op, at_barrier, at_mbarrier, done };

/* An asynchronous copy that was issued and not yet waited for. */
struct async_copy {
    unsigned char *dst; /* shared memory */
    const void *src;    /* global memory */
    unsigned size, n;   /* bytes of dst, of which the first n come from src; the rest are zeros */
    unsigned group;     /* number of its group in the thread */
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
    const void *pc;                /* code of its last access to shared memory, in instrumented kernels */
    unsigned group;                /* number of the open group of asynchronous copies */
    std::vector<async_copy> async; /* issued, in order */
    size_t waits_for;              /* mbarrier, by its number in the block */
    std::vector<uint64_t> seen;    /* of each mbarrier, phases whose end this thread has waited for */
};

/* Ends the block with an error: printf-like. Inside a kernel it does not return; outside it only takes note. Not marked
 * noreturn: to AddressSanitizer that would mean that this stack is left for good. */
void fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

fiber *current();
fiber *thread_of(unsigned lin);
unsigned block_threads();

/* simt.cpp: lets the thread that runs wait until something changes its state. */
void wait();

/* ptx.cpp: mbarriers and bulk copies are a block's. end: all copies must have been waited for. */
void bulk_begin();
void bulk_end();
/* True when a thread may use the data of a bulk copy, by its number. */
bool bulk_visible(unsigned lin, size_t copy, uint32_t block_epoch);

/* shadow.cpp. Accesses of shared memory by thread lin, as race and initialisation checks see them. They do nothing
 * unless the kernels are instrumented. */
enum class access { read, write, atomic, copy_issued, copy_done };
void shadow_begin(size_t shared_size);
void shadow_block_barrier();
void shadow_warp_barrier(unsigned warp);
uint32_t shadow_epoch();
/* A bulk copy has brought size bytes. */
void shadow_arrival(const void *p, size_t size, size_t copy);
void shadow_access(unsigned lin, const void *p, size_t size, access kind, const char *file, int line);
/* An access of size bytes by instrumented code at pc. aligned: the code relies on p being a multiple of size. */
void compiled_access(const void *p, size_t size, bool write, bool aligned, const void *pc);
/* true: the program's kernels are instrumented. */
bool instrumented();

/* Memory of device_alloc: whether p is in its region at all, and in a live allocation with size bytes from p on. */
bool in_device_region(const void *p);
bool in_device_memory(const void *p, size_t size);

} // namespace simt

#endif
