/* What launches did, counted: instructions of warps by kind, wavefronts of shared memory, sectors of global memory.
 *
 * Exact, as their lanes' addresses all pass the emulator: tensor-core instructions, ldmatrix, asynchronous copies,
 * collectives. Plain loads and stores are known where kernels are instrumented (shadow_hooks.cpp): what the lanes of a warp
 * did at one place of the code, each for the n-th time since their last collective, is one request; loads of neighbouring
 * words of 16 aligned bytes that follow each other in a lane are one access, as the host's compiler cuts vectors into
 * words. So these are near, not exact.
 *
 * A wavefront: what shared memory moves at once: of 32 banks of 4 bytes, each one word, which any lanes may share. Accesses of
 * 8 bytes go by halves of a warp, those of 16 bytes and the rows of ldmatrix by quarters. `least` counts those that there
 * would be without conflicts.
 *
 * A sector: 32 bytes of global memory. A request moves each of its sectors once; they come from the second-level cache. The
 * footprint is what the launch touches, each sector once: what the memory behind has to move at least.
 *
 * Launches may be sampled: of large grids some blocks run, and what they do stands for all; the blocks are the same places
 * in each dimension, so that what several share is known from what is each one's own. Blocks that end at once, having
 * nothing to do, are found out before, and counted apart. */
#ifndef SIMT_COUNTERS_H
#define SIMT_COUNTERS_H

#include <vector>

#include "simt.h"

namespace simt {

enum counted {
    DO_MMA_BF16, DO_MMA_F16, DO_MMA_TF32, DO_MMA_S8_K16, DO_MMA_S8_K32, DO_MMA_NVFP4, DO_MMA_MXFP4, DO_MMA_MX8,
    DO_WGMMA, /* of 128 columns each; tensor cores until here */
    DO_LDMATRIX, DO_SHUFFLE, DO_VOTE /* and sums */, DO_SYNC_WARP, DO_BARRIER, DO_BULK /* copies */,
    DO_CP_ASYNC, DO_LDS, DO_STS, DO_LDG, DO_STG, /* requests */
    DO_ATOMIC, /* of lanes */
    N_COUNTED
};

struct launch_counts {
    const void *kernel;
    dim3 grid, block;
    size_t shared;            /* bytes of a block */
    int part;                 /* as the counter had it */
    uint64_t ran;             /* blocks */
    double blocks, empty;     /* of the launch; of them, with nothing to do */
    double op[N_COUNTED];     /* instructions of warps */
    double wavefronts, least; /* of shared memory */
    double read, written;     /* sectors by requests, of plain accesses and of copies */
    double bulk;              /* of read: of bulk copies */
    double touched_read, touched_written; /* footprint, sectors */
};

/* Where launches are counted: simt::options.count. */
struct counter {
    unsigned sample = 0;                 /* blocks of a dimension that are run at most; 0: all are */
    bool (*whole)(const void *kernel) = nullptr; /* kernels that are never sampled */
    int part = 0;                        /* a mark for the launches that come */
    std::vector<launch_counts> launches; /* in order */
};

/* Sums of what one kernel's launches did; those of launch_counts, save shapes. */
void add_counts(launch_counts *sum, const launch_counts &more);

} // namespace simt

#endif
