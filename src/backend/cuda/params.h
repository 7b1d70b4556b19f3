/* Options of the CUDA backend. */
#ifndef PI__CUDA_PARAMS_H
#define PI__CUDA_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

/* Precision of products with packed (quantized) matrices. EXACT: 15-bit activations. W16: weights and activations in
 * 16-bit floats. AUTO: the fastest mode within the usual error (kernels/w16.cuh). EXACT also keeps the queries of
 * attention as hi + lo pairs; the other modes round them to F16. */
enum { PI__MATMUL_AUTO, PI__MATMUL_EXACT, PI__MATMUL_W16 };

/* Products of NVFP4 and MXFP4 matrices on FP4 tensor cores.
 *   OFF     not used: as other packed types
 *   W4A4    activations in the matrix's own format
 *   W4A8    MXFP4: 8-bit activations; NVFP4: as W4A16
 *   W4A16   weights and activations in 16-bit floats
 *   AUTO    with MATMUL_AUTO, MXFP4 by 8-bit activations; everything else as OFF
 * Devices that act as one must multiply alike: AUTO becomes OFF if only some of them support it, and for ranks
 * that are processes (devices.c). */
enum { PI__FP4_AUTO, PI__FP4_OFF, PI__FP4_W4A4, PI__FP4_W4A8, PI__FP4_W4A16 };

typedef struct pi__cuda_params {
    int32_t n_threads; /* host threads that pack weights; 0 = all cores that the process may use */
    int matmul;        /* PI__MATMUL_*, the mode of packed matrices */
    int fp4;           /* PI__FP4_*, the mode of FP4 matrices on devices with FP4 instructions */
    bool blas;         /* true = cuBLAS, if installed, multiplies F16 and BF16 matrices by 64 rows or more */
    bool no_graphs;    /* true = decode steps are not captured as graphs */
    bool no_fuse;      /* true = ops are not fused; each has its own launches */
    uint32_t rules_off; /* bits of the rules of fusing (fuse_rules.h) that are disabled, in their order */
    bool no_dependent; /* true = a launch begins after the previous one has ended */
    int32_t waiting_blocks; /* max blocks of a launch that may wait for others (places.h); 0 = by the device */
    bool exports;      /* true = weights lie in arenas where possible, so that other processes can map them */
} pi__cuda_params;

#endif
