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
    char name[96];  /* device name and architecture, for describe() */
    uint64_t memory; /* bytes of device memory */
    int32_t n_sm;   /* SMs */
    int32_t places; /* max blocks that may wait for others, at least 1 (places.h); 0 = the device is not open */
    /* host memory that kernels can write: not 0 = a block has waited too long for others (pi__k_waits). From then on
     * wait and fence_wait return an error. NULL = the device is not open */
    uint32_t *stuck;
    int32_t arch;   /* compute capability: 80, 90, 120, 121; 0 = an emulated device that runs no kernels */
    /* page size for pi__rt_map, a power of two; 0 = mapping is not supported, or the device is not open */
    size_t page;
    bool integrated; /* device memory is host memory */
    size_t graph_bytes; /* max device memory of all graphs together; 0 = graphs take none */
    bool slow;      /* an emulator: the self-test is reduced */
    /* integrated, and the host may write memory of alloc_shared while kernels use other parts of it */
    bool shares;
    bool exports;   /* memory of map_shared can be passed to other processes; requires page > 0 */
    bool maps_host; /* pi__rt_map_host works; requires page > 0 */
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
    bool concurrent;             /* the host may access memory of alloc_shared while kernels run */
} pi__rt_facts;

enum { PI__RT_MAX = 16 }; /* max devices that work together */

/* "cuda", or "emu". */
extern const char *const pi__rt_kind;
/* Fills *info for device number `index`. Returns an error code if the device does not exist (memory is 0 then), or
 * cannot run the kernels. */
int pi__rt_tell(int32_t index, pi__rt_info *info);
/* Opens the device and fills *info. Returns 0 or a code as pi__rt_tell does. */
int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info);
void pi__rt_close(pi__rt *rt);
/* From now on, each launch begins after the previous one has ended: no dependent launches (launch.cuh). */
void pi__rt_in_order(pi__rt *rt);
/* Loads every kernel now, so that launches neither allocate memory nor wait for loading, and allows each kernel the
 * device's max shared memory per block. *lazy: NULL, or the reason why some kernels load at their first launch. Returns
 * an error code if kernels cannot run at all. */
int pi__rt_load_kernels(pi__rt *rt, const char **lazy);
/* Returns the text of a code; never NULL. */
const char *pi__rt_text(int code);
/* Fills *out; properties that the driver does not report are 0. */
int pi__rt_tell_facts(pi__rt *rt, pi__rt_facts *out);

/* Sets *bytes to the free device memory; 0 after an error. */
int pi__rt_free_memory(pi__rt *rt, uint64_t *bytes);
/* Allocates device memory, zeroed and aligned to 256 bytes. Returns 0 with *out NULL if memory ran out. */
int pi__rt_alloc(pi__rt *rt, void **out, size_t size);
/* Allocates memory that kernels and the host can access; the host only while the stream is idle, except with
 * pi__rt_info.shares. Contents are undefined. */
int pi__rt_alloc_shared(pi__rt *rt, void **out, size_t size);
/* True if p is in memory of pi__rt_alloc_shared. */
bool pi__rt_is_shared(pi__rt *rt, const void *p);
/* Moves n bytes of memory of pi__rt_alloc_shared to the device after all queued work, if the device has own memory or
 * page tables. The host may write to other bytes meanwhile. */
int pi__rt_prefetch(pi__rt *rt, void *p, size_t n);
/* Frees memory of pi__rt_alloc or pi__rt_alloc_shared after all queued work has completed. An error of that work is
 * returned by a later call. */
void pi__rt_free(pi__rt *rt, void *p);
/* Reserves a range of addresses without memory; size is a multiple of the page. Returns 0 with *out NULL if no range is
 * free. */
int pi__rt_reserve(pi__rt *rt, void **out, size_t size);
/* Releases the addresses. All memory in the range must have been unmapped. */
void pi__rt_unreserve(pi__rt *rt, void *p, size_t size);
/* Maps zeroed memory at reserved addresses; p and size are multiples of the page. Returns 0 with *done false if memory
 * ran out. */
int pi__rt_map(pi__rt *rt, void *p, size_t size, bool *done);
/* Like pi__rt_map, with pinned host memory, which the device reads and writes over its bus. The host can write to it at
 * the same addresses; its contents are undefined. Requires pi__rt_info.maps_host. */
int pi__rt_map_host(pi__rt *rt, void *p, size_t size, bool *done);
/* Like pi__rt_map, with memory that other processes can map. *fd receives a descriptor, which keeps the memory alive
 * even after it is unmapped; the caller closes it. -1 after a failure. */
int pi__rt_map_shared(pi__rt *rt, void *p, size_t size, int *fd, bool *done);
/* Maps another process's memory at reserved addresses, read-only if the driver can. Returns an error code, and maps
 * nothing, if fd is not exported device memory, or has another size. */
int pi__rt_map_import(pi__rt *rt, void *p, size_t size, int fd);
/* Unmaps memory of the map functions after all queued work has completed. */
void pi__rt_unmap(pi__rt *rt, void *p, size_t size);
/* Allocates pinned host memory. Returns 0 with *out NULL if memory ran out. */
int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size);
void pi__rt_host_free(pi__rt *rt, void *p);

/* Queue a copy of n bytes in the stream, to and from the device. Host memory of pi__rt_host_alloc is accessed only when
 * the stream reaches the copy. Other src memory may be changed after the call. */
int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n);
int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n);
/* fence: records fence i (below PI__RT_FENCES) after all work queued so far. fence_wait: blocks the host until that
 * work has completed; a fence that was never recorded counts as passed. */
enum { PI__RT_FENCES = 2 };
int pi__rt_fence(pi__rt *rt, int i);
int pi__rt_fence_wait(pi__rt *rt, int i);
/* Work queued on rt from now on waits for all work that has been queued on `other` so far. */
int pi__rt_follow(pi__rt *rt, pi__rt *other);
/* Queue a copy in a second stream. The copy starts after all work queued before it. Copies complete in order; work
 * queued after a copy does not wait for it. The host memory must be pinned. */
int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n); /* from the device */
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n);  /* to the device */
/* Sets *ended to the number of completed copies (copy_out, copy_in) since pi__rt_open. wait not 0: waits for all copies
 * first. */
int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended);
/* Pins whole pages of host memory, as copy_out and copy_in require. Any thread. */
int pi__rt_pin(pi__rt *rt, void *p, size_t n);
void pi__rt_unpin(pi__rt *rt, void *p);
/* Blocks the host until all work in the stream has completed. */
int pi__rt_wait(pi__rt *rt);
/* Returns the device number. */
int32_t pi__rt_index(const pi__rt *rt);
/* Returns the stream for launch functions (on CUDA a pi__queue, see queue.h), and makes rt's device the current device
 * of the calling thread. Call it before each launch, as a thread may use several devices. */
void *pi__rt_stream(pi__rt *rt);
/* stamp: records time stamp i (0 or 1) at this position of the stream. stamped: waits for stamp 1, and sets *ms to the
 * milliseconds from stamp 0 to stamp 1; 0 = no clock. */
int pi__rt_stamp(pi__rt *rt, int i);
int pi__rt_stamped(pi__rt *rt, float *ms);

/* Starts a capture: queued kernels with their arguments, and copies to and from memory of host_alloc, are recorded
 * instead of executed. No other function may be called until the end. */
int pi__rt_capture(pi__rt *rt);
/* Ends the capture; must be called even after an error. *out: the captured graph; NULL after an error. */
int pi__rt_capture_end(pi__rt *rt, pi__rt_graph **out);
/* Returns the bytes of device memory that creating the graph took. */
size_t pi__rt_graph_size(const pi__rt_graph *g);
/* Queues the graph's work in the stream. */
int pi__rt_replay(pi__rt *rt, pi__rt_graph *g);
/* Frees a graph; g may be NULL. A queued replay completes first. */
void pi__rt_graph_free(pi__rt *rt, pi__rt_graph *g);

#ifdef __cplusplus
}
#endif

#endif