/* A device's stream as launch functions receive it: the void *stream of kernels.h comes from pi__rt_stream(), and on
 * CUDA points to this struct. The struct holds the device properties that a launch needs, because the runtime must
 * not be queried during a capture: cudaStreamGetDevice fails then, and ends the capture (CUDA 13.0). */
#ifndef PI__CUDA_QUEUE_H
#define PI__CUDA_QUEUE_H

#include <stdbool.h>

struct CUstream_st; /* the pointee of cudaStream_t */

typedef struct pi__queue {
    struct CUstream_st *stream;
    int device;    /* CUDA device number */
    bool overlaps; /* dependent launches are supported: sm_90 or later, and a driver that captures them (CUDA 12.3) */
    /* max bytes of shared memory per block, which a launch has to set for its kernel; 0 = the runtime has set it for
     * all kernels. Never the bytes of a launch: engines share the kernels of a device, so they would lower each
     * other's limits */
    int late_shared;
} pi__queue;

/* Returns the CUDA stream, for calls of CUDA libraries. `queue` comes from pi__rt_stream(). */
static inline struct CUstream_st *pi__queue_stream(const void *queue) { return ((const pi__queue *) queue)->stream; }

#endif
