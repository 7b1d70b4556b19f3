/* The few things that the CUDA backend wants from a runtime: memory, copies, one queue of work.
 *
 * Two implementations: runtime_cuda.c for devices, tests/simt/runtime_emu.cpp for the emulator, which makes the backend
 * and its kernels run on any machine. Numbers returned are 0 or an error code of the runtime. */
#ifndef PI__CUDA_RUNTIME_H
#define PI__CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__rt pi__rt;
typedef struct pi__rt_graph pi__rt_graph; /* captured work */

typedef struct pi__rt_info {
    char name[96];  /* of the device, as describe() shows it */
    uint64_t memory; /* bytes */
    int32_t n_sm;   /* multiprocessors */
    int32_t arch;   /* 80, 90, 120, 121: compute capability; 0: an emulated device that runs no kernels */
    size_t page;    /* bytes of the pages that map takes, a power of two; 0: it cannot, or was not opened */
    bool integrated; /* its memory is the host's */
    size_t graph_bytes; /* device memory that all graphs together may take, 0: they take none */
    bool slow;      /* an emulator: little is tried out when it opens */
    bool shares;    /* and the host may write what alloc_shared gave while kernels run that use other parts of it */
    bool exports;   /* memory of map_shared can be passed to other processes; needs pages */
    uint8_t uuid[16]; /* of the device, the same in every process */
} pi__rt_info;

/* What a report says of a device beside that; 0: not known. */
typedef struct pi__rt_facts {
    int32_t driver, runtime;     /* CUDA of the driver, of this build: 12080 is 12.8 */
    int32_t clock, memory_clock; /* highest, MHz */
    int32_t bus;                 /* bits to its memory */
    int32_t l2;                  /* KiB */
    int32_t block_shared;        /* bytes of shared memory that a block may have */
    bool ecc;
} pi__rt_facts;

enum { PI__RT_MAX = 16 }; /* devices that work together */

/* "cuda", or "emu". */
extern const char *const pi__rt_kind;
/* Describes device number index. A code that is not 0: there is none (memory is 0 then), or it cannot run the
 * kernels. */
int pi__rt_tell(int32_t index, pi__rt_info *info);
/* Opens it, with the same codes. */
int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info);
void pi__rt_close(pi__rt *rt);
/* Loads every kernel, so that no launch takes memory or waits; before the first launch. *lazy: NULL, or why some are loaded
 * at their first launch instead. A code: kernels cannot run at all. */
int pi__rt_load_kernels(pi__rt *rt, const char **lazy);
/* Text of a code; never NULL. */
const char *pi__rt_text(int code);
int pi__rt_tell_facts(pi__rt *rt, pi__rt_facts *out);

/* Bytes of the device's memory that can still be had; 0 after an error. */
int pi__rt_free_memory(pi__rt *rt, uint64_t *bytes);
/* Zeroed device memory, aligned to 256 bytes. 0 with *out NULL: none left. */
int pi__rt_alloc(pi__rt *rt, void **out, size_t size);
/* Memory that kernels and the host reach, the host only while nothing is queued; what is in it is not said. */
int pi__rt_alloc_shared(pi__rt *rt, void **out, size_t size);
/* Of both. What is queued is done first; so it is after an error, whose code a later call gives. */
void pi__rt_free(pi__rt *rt, void *p);
/* Addresses without memory, a multiple of the page. 0 with *out NULL: none left. */
int pi__rt_reserve(pi__rt *rt, void **out, size_t size);
/* Nothing may be mapped there any more. */
void pi__rt_unreserve(pi__rt *rt, void *p, size_t size);
/* Zeroed memory for whole pages of them. 0 with *done false: none left. */
int pi__rt_map(pi__rt *rt, void *p, size_t size, bool *done);
/* The same, of memory that other processes can map: *fd is a descriptor of it, which keeps it as the mapping does. */
int pi__rt_map_shared(pi__rt *rt, void *p, size_t size, int *fd, bool *done);
/* Maps memory of such a descriptor, to be read alone. A code, and nothing mapped: it is none, or not of that size. */
int pi__rt_map_import(pi__rt *rt, void *p, size_t size, int fd);
/* Takes back the memory that one of these mapped. What is queued is done first, as in free. */
void pi__rt_unmap(pi__rt *rt, void *p, size_t size);
/* Memory of the host that copies need no other copy of. 0 with *out NULL: none left. */
int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size);
void pi__rt_host_free(pi__rt *rt, void *p);

/* Copies in the order of the queue. What is in host_alloc's memory is read and written when the queue comes to it, at the
 * latest in wait; src elsewhere may be changed after the call. */
int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n);
int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n);
/* Fence i, below PI__RT_FENCES, is behind what is queued by now; and waiting until the queue is past it. */
enum { PI__RT_FENCES = 2 };
int pi__rt_fence(pi__rt *rt, int i);
int pi__rt_fence_wait(pi__rt *rt, int i);
/* What is queued from now on begins when all that the other device's queue has by now is done. */
int pi__rt_follow(pi__rt *rt, pi__rt *other);
/* Copies beside the queue: each starts when all that was queued before it is done, they end in order, and what is queued
 * after them does not wait. The host's memory must be pinned. */
int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n); /* from the device */
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n);  /* to the device */
/* How many of all copies that were queued have ended; wait: all of them, when this returns. */
int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended);
/* Host memory, whole pages, that the device reaches by itself. Any thread. */
int pi__rt_pin(pi__rt *rt, void *p, size_t n);
void pi__rt_unpin(pi__rt *rt, void *p);
/* Waits until the queue is empty. */
int pi__rt_wait(pi__rt *rt);
/* The device's number. */
int32_t pi__rt_index(const pi__rt *rt);
/* The queue, as launch functions take it; on CUDA queue.h says what is there. Its device becomes the one of the calling thread: ask
 * for it where something is launched, so that a thread may use several devices. */
void *pi__rt_stream(pi__rt *rt);
/* Takes down when the queue comes here, i below 2; and the time from 0 to 1 once the queue is empty, 0: there is no clock. */
int pi__rt_stamp(pi__rt *rt, int i);
int pi__rt_stamped(pi__rt *rt, float *ms);

/* Capture: from now on what is queued is taken down instead of being done: kernels with their arguments, copies to and
 * from memory of host_alloc. Nothing else may be called until the end. */
int pi__rt_capture(pi__rt *rt);
/* Ends that, also after an error. *out: what was queued, NULL after an error. */
int pi__rt_capture_end(pi__rt *rt, pi__rt_graph **out);
/* Device memory that it took. */
size_t pi__rt_graph_size(const pi__rt_graph *g);
/* Queues all of it. */
int pi__rt_replay(pi__rt *rt, pi__rt_graph *g);
/* g may be NULL. Where it is queued, it is replayed to its end. */
void pi__rt_graph_free(pi__rt *rt, pi__rt_graph *g);

#ifdef __cplusplus
}
#endif

#endif
