/* A device's queue as launch functions take it: the void *stream of kernels.h is pi__rt_stream's, and on CUDA one of these.
 * What a launch has to know of the device is in it, because the runtime is not to be asked while work is captured:
 * cudaStreamGetDevice fails then, and ends the capture (CUDA 13.0). */
#ifndef PI__CUDA_QUEUE_H
#define PI__CUDA_QUEUE_H

#include <stdbool.h>

struct CUstream_st; /* what a cudaStream_t points to */

typedef struct pi__queue {
    struct CUstream_st *stream;
    int device;    /* its number */
    bool overlaps; /* it has dependent launches, and the driver captures them (since CUDA 12.3) */
} pi__queue;

/* For calls of CUDA's own libraries; queue: pi__rt_stream's. */
static inline struct CUstream_st *pi__queue_stream(const void *queue) { return ((const pi__queue *) queue)->stream; }

#endif
