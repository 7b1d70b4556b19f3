/* The runtime interface that the CUDA backend needs: memory, copies, one stream of work.
 *
 * Two implementations: runtime_cuda.c for devices, tests/simt/runtime_emu.cpp for the emulator, which runs the
 * backend and its kernels on any machine. Functions return 0 or an error code of the runtime. */
#ifndef PI__CUDA_RUNTIME_H
#define PI__CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__rt pi__rt;
typedef struct pi__rt_graph pi__rt_graph; /* a captured graph */

typedef struct pi__rt_info {
    char name[96];  /* device name, as describe() shows it */
    uint64_t memory; /* bytes */
    int32_t n_sm;   /* SMs */
    int32_t arch;   /* compute capability: 80, 90, 120, 121; 0 = an emulated device that runs no kernels */
    /* page size for pi__rt_map, a power of two; 0 = mapping is not supported, or the device is not open */
    size_t page;
    bool integrated; /* device memory is host memory */
    size_t graph_bytes; /* max device memory of all graphs together; 0 = graphs take none */
    bool slow;      /* an emulator: the self-test is reduced */
    /* integrated, and the host may write memory of alloc_shared while kernels use other parts of it */
    bool shares;
    bool exports;   /* memory of map_shared can be passed to other processes; requires pages */
    uint8_t uuid[16]; /* device id, equal in every process */
} pi__rt_info;

/* Further device properties for reports; 0 = unknown. */
typedef struct pi__rt_facts {
    int32_t driver, runtime;     /* CUDA version of the driver; of this build. 12080 is 12.8 */
    int32_t clock, memory_clock; /* max clocks, MHz */
    int32_t bus;                 /* memory bus width, bits */
    int32_t l2;                  /* KiB */
    int32_t block_shared;        /* max bytes of shared memory per block */
    bool ecc;
} pi__rt_facts;

enum { PI__RT_MAX = 16 }; /* max devices that work together */

/* "cuda", or "emu". */
extern const char *const pi__rt_kind;
/* Describes device number `index`. Returns an error code if the device does not exist (memory is 0 then), or cannot
 * run the kernels. */
int pi__rt_tell(int32_t index, pi__rt_info *info);
/* Opens the device; returns the same codes. */
int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info);
void pi__rt_close(pi__rt *rt);
/* Loads every kernel before the first launch, so that no launch takes memory or waits. *lazy: NULL, or the reason why
 * some kernels load at their first launch. Returns an error code if kernels cannot run at all. */
int pi__rt_load_kernels(pi__rt *rt, const char **lazy);
/* Returns the text of a code; never NULL. */
const char *pi__rt_text(int code);
int pi__rt_tell_facts(pi__rt *rt, pi__rt_facts *out);

/* Free bytes of device memory; 0 after an error. */
int pi__rt_free_memory(pi__rt *rt, uint64_t *bytes);
/* Zeroed device memory, aligned to 256 bytes. Returns 0 with *out NULL if memory ran out. */
int pi__rt_alloc(pi__rt *rt, void **out, size_t size);
/* Memory that kernels and the host can access, the host only while the stream is idle. Contents are undefined. */
int pi__rt_alloc_shared(pi__rt *rt, void **out, size_t size);
/* Frees memory of either function after all queued work has completed. After an error it frees as well; a later call
 * returns the code. */
void pi__rt_free(pi__rt *rt, void *p);
/* Reserves addresses without memory, a multiple of the page. Returns 0 with *out NULL if none are left. */
int pi__rt_reserve(pi__rt *rt, void **out, size_t size);
/* All memory there must have been unmapped. */
void pi__rt_unreserve(pi__rt *rt, void *p, size_t size);
/* Maps zeroed memory to whole pages of the reserved addresses. Returns 0 with *done false if memory ran out. */
int pi__rt_map(pi__rt *rt, void *p, size_t size, bool *done);
/* Maps memory that other processes can map, too. *fd is a descriptor of it, which keeps the memory alive like the
 * mapping. */
int pi__rt_map_shared(pi__rt *rt, void *p, size_t size, int *fd, bool *done);
/* Maps the memory of a descriptor, read-only. Returns an error code, and maps nothing, if fd is no memory or has
 * another size. */
int pi__rt_map_import(pi__rt *rt, void *p, size_t size, int fd);
/* Unmaps memory of the three functions above after all queued work has completed, as in free. */
void pi__rt_unmap(pi__rt *rt, void *p, size_t size);
/* Pinned host memory. Returns 0 with *out NULL if memory ran out. */
int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size);
void pi__rt_host_free(pi__rt *rt, void *p);

/* Copies in stream order. Memory of host_alloc is read and written when the stream reaches the copy, at the latest in
 * wait. Other src memory may be changed after the call. */
int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n);
int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n);
/* fence: records fence i, below PI__RT_FENCES, after all work queued so far. fence_wait: waits until the stream has
 * passed it. */
enum { PI__RT_FENCES = 2 };
int pi__rt_fence(pi__rt *rt, int i);
int pi__rt_fence_wait(pi__rt *rt, int i);
/* Work queued from now on waits for all work that the other device's stream has now. */
int pi__rt_follow(pi__rt *rt, pi__rt *other);
/* Copies in a second stream. Each copy starts when all work queued before it has completed. Copies complete in order;
 * work queued after them does not wait. The host memory must be pinned. */
int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n); /* from the device */
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n);  /* to the device */
/* *ended: number of completed copies since the start. wait: waits for all of them. */
int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended);
/* Pins whole pages of host memory for direct device access. Any thread. */
int pi__rt_pin(pi__rt *rt, void *p, size_t n);
void pi__rt_unpin(pi__rt *rt, void *p);
/* Waits until the stream is empty. */
int pi__rt_wait(pi__rt *rt);
/* Returns the device number. */
int32_t pi__rt_index(const pi__rt *rt);
/* Returns the stream for launch functions (on CUDA a pi__queue, see queue.h) and makes its device the calling
 * thread's current device. Call it at each launch, so that a thread can use several devices. */
void *pi__rt_stream(pi__rt *rt);
/* stamp: records the time at which the stream gets here, i below 2. stamped: ms from 0 to 1 after the stream is
 * empty; 0 = no clock. */
int pi__rt_stamp(pi__rt *rt, int i);
int pi__rt_stamped(pi__rt *rt, float *ms);

/* Starts a capture: queued kernels with their arguments, and copies to and from memory of host_alloc, are recorded
 * instead of executed. No other function may be called until the end. */
int pi__rt_capture(pi__rt *rt);
/* Ends the capture, also after an error. *out: the captured graph, NULL after an error. */
int pi__rt_capture_end(pi__rt *rt, pi__rt_graph **out);
/* Returns the device memory that the graph took. */
size_t pi__rt_graph_size(const pi__rt_graph *g);
/* Queues the graph. */
int pi__rt_replay(pi__rt *rt, pi__rt_graph *g);
/* Frees a graph; g may be NULL. A queued replay completes first. */
void pi__rt_graph_free(pi__rt *rt, pi__rt_graph *g);

#ifdef __cplusplus
}
#endif

#endif