/* Counts the work of launches: warp instructions by kind, wavefronts of shared memory, sectors of global memory.
 *
 * Counts are exact for tensor-core instructions, ldmatrix, asynchronous copies and collectives: all their addresses
 * pass through the emulator. Plain loads and stores are counted only in instrumented kernels (shadow_hooks.cpp), and
 * approximately. The n-th accesses of a warp's lanes at one code address since their last collective form one
 * request. Consecutive loads of adjacent words within 16 aligned bytes form one access, since the host compiler
 * splits vectors into words.
 *
 * A wavefront is one shared memory transaction: one word of 4 bytes from each of 32 banks, readable by any lanes.
 * Accesses of 8 bytes are processed by half warps; accesses of 16 bytes and rows of ldmatrix by quarter warps.
 * `least` is the number of wavefronts without bank conflicts.
 *
 * A sector is 32 bytes of global memory. A request moves each of its sectors once; they come from the L2 cache. The
 * footprint counts each sector that the launch touches once: the minimum traffic of DRAM.
 *
 * Launches may be sampled: some blocks of a large grid run, and their counts are scaled up. The blocks have the same
 * positions in each dimension, so that shared sectors can be told from private ones. Blocks without work, which end
 * immediately, are detected first and counted separately. */
#ifndef SIMT_COUNTERS_H
#define SIMT_COUNTERS_H

#include <vector>

#include "simt.h"

namespace simt {

enum counted {
    DO_MMA_BF16, DO_MMA_F16, DO_MMA_TF32, DO_MMA_S8_K16, DO_MMA_S8_K32, DO_MMA_NVFP4, DO_MMA_MXFP4, DO_MMA_MX8,
    DO_WGMMA, /* 128 columns each; the last tensor core kind */
    DO_LDMATRIX, DO_SHUFFLE, DO_VOTE /* and sums */, DO_SYNC_WARP, DO_BARRIER, DO_BULK /* copies */,
    DO_CP_ASYNC, DO_LDS, DO_STS, DO_LDG, DO_STG, /* requests */
    DO_ATOMIC, /* counted per lane */
    N_COUNTED
};

struct launch_counts {
    const void *kernel;
    dim3 grid, block;
    size_t shared;            /* bytes per block */
    int part;                 /* value of counter.part at the launch */
    uint64_t ran;             /* number of blocks that ran */
    double blocks, empty;     /* number of blocks in the grid; number of blocks without work */
    double op[N_COUNTED];     /* warp instructions */
    double wavefronts, least; /* shared memory wavefronts; minimum without bank conflicts */
    double read, written;     /* sectors of requests, by plain accesses and copies */
    double bulk;              /* part of `read` that comes from bulk copies */
    double touched_read, touched_written; /* footprint in sectors */
};

/* Receives the counts of launches: simt::options.count. */
struct counter {
    unsigned sample = 0;                 /* max blocks that run per dimension; 0 = all */
    bool (*whole)(const void *kernel) = nullptr; /* true for kernels that are never sampled */
    int part = 0;                        /* label for the following launches */
    std::vector<launch_counts> launches; /* in launch order */
};

/* Adds the counts of a launch of the same kernel; the launch shape in `sum` stays. */
void add_counts(launch_counts *sum, const launch_counts &more);

} // namespace simt

#endif
