/* Small kernels for the tests of the emulator: correct with bug 0, with one mistake each for the other values. */
#ifndef BUGGY_CUH
#define BUGGY_CUH

#include "backend/cuda/kernels.h"
#include "ptx.cuh"

enum bug {
    BUG_NONE,
    BUG_NO_BARRIER,      /* sum: no barrier between the partial sums and their reader */
    BUG_LANE_LEAVES,     /* sum: a lane returns before the shuffles */
    BUG_NO_LOOP_BARRIER, /* staged: the next tile overwrites the one in use */
    BUG_WAIT_TOO_FEW,    /* staged: waits for one group of copies less */
    BUG_NO_TILE_BARRIER, /* staged: reads the data of another thread's copy without a barrier */
    BUG_PAST_END,        /* sum: accesses one word past the end of shared memory */
    BUG_UNINITIALISED,   /* sum: reads a word that no thread writes */
    BUG_NO_WARP_SYNC,    /* swap: lanes exchange through shared memory without a sync */
    BUG_MISALIGNED,      /* swap: an 8-byte access at an address of alignment 4 */
    BUG_GLOBAL_END,      /* sum: reads past the input */
    BUG_BAD_LANE,        /* swap: shuffles from a lane outside of the mask */
    BUG_SPLIT_BARRIER,   /* sum: half a warp at a barrier, half in a shuffle */
    BUG_SAME_WORD,       /* count: plain adds where atomics are needed */
    BUG_READ_ATOMIC,     /* count: reads the atomic sum too early */
    BUG_WRONG_MASK,      /* swap: a lane outside of its own mask calls a collective */
    BUG_BULK_NO_WAIT,    /* bulk: reads without waiting for the copy */
    BUG_BULK_ONE_WAITS,  /* bulk: only one thread waits, with no barrier after its wait */
    BUG_BULK_REUSE,      /* bulk: the next tile overwrites the one in use */
    BUG_BULK_NO_FENCE,   /* bulk: no fence makes the mbarrier visible to the copies */
    BUG_BULK_TOO_FEW,    /* bulk: expects fewer bytes than the copy brings */
    BUG_BULK_TWICE,      /* bulk: one arrival more than announced */
    BUG_BULK_SKIPS,      /* bulk: skips a phase */
    BUG_BULK_LEFT,       /* bulk: ends with a copy in flight */
    BUG_RING_NO_WAIT,    /* ring: a tile overwrites one that may be unread */
    BUG_RING_EARLY,      /* ring: a warp arrives as done before it reads */
    BUG_PASS_NO_WAIT,    /* pass: the reading warp does not wait */
    BUG_PASS_EARLY,      /* pass: the writing warp arrives before it writes */
    BUG_PASS_ONE_LANE,   /* pass: a lane arrives without waiting for the other lanes */
    BUG_BOTH_WRITE,      /* folded: two blocks write a word */
    BUG_READS_OTHERS,    /* folded: a block reads a word of another block without any ordering */
    BUG_NO_FENCE,        /* folded: the block counts itself before its part is visible */
    BUG_NO_FENCE_LAST,   /* folded: the last block reads the count without a fence after it */
    BUG_NO_BLOCK_BARRIER, /* folded: other threads of the last block do not wait for the thread that read the count */
    BUG_ARRIVES,         /* folded, passed_on: right, with ptx_arrive() and ptx_wait_arrived() instead of fences */
    BUG_OTHER_WORD,      /* folded: the block releases its part by another atomic than the one that counts it */
    BUG_READS_LATE,      /* reused: one of several readers reads a word after its arrival, which releases its reads */
    BUG_ADDS_LATE,       /* reused: one of several blocks adds to a word again, after its arrival */
    BUG_ANY_ORDER,       /* folded: parts are added in the order in which blocks arrive */
    BUG_NEVER,           /* passed_on: waits for a block that never runs */
    BUG_READS_EARLY,     /* dependent: reads the previous launch's output before the wait */
    BUG_WRITES_EARLY,    /* dependent: writes before the wait */
    BUG_COPIES_EARLY,    /* dependent: starts to copy the previous launch's output before the wait */
    BUG_ENDS_EARLY,      /* dependent: a block without work ends without waiting */
    BUG_ONE_WAITS,       /* dependent: only one thread waits */
    BUG_GROUP_NO_FENCE,  /* four_warps: A is written after the fence */
    BUG_GROUP_NO_WAIT,   /* four_warps: reads the accumulator too early */
    BUG_GROUP_WRITES_A,  /* four_warps: changes A while the instruction runs */
    BUG_GROUP_WRITES_D,  /* four_warps: changes the accumulator while the instruction runs */
    BUG_GROUP_WRITES_B,  /* four_warps: changes B while the instruction runs */
    BUG_GROUP_NO_B,      /* four_warps: a warp does not wait for B */
    BUG_GROUP_NO_B_FENCE, /* four_warps: writes to B are not fenced */
    BUG_GROUP_LEFT,      /* four_warps: ends with an instruction in flight */
    BUG_GROUP_OF_THREE   /* four_warps: one warp does not issue the instruction */
};

/* y[block] = sum of the block's n values of x; 64 threads, 16 bytes of shared memory. */
int launch_sum(int bug, const float *x, float *y, int n, int blocks);
/* y[i] = sum of value i over the n_tiles tiles of 32 values at x, through two buffers of 128 bytes; 32 or 64
 * threads. */
int launch_staged(int bug, const float *x, float *y, int n_tiles, int threads);
/* Computes the sums of launch_staged with two mbarriers and bulk copies; 64 threads. */
int launch_bulk(int bug, const float *x, float *y, int n_tiles);
/* Computes the sums of launch_staged: one warp copies tiles, two warps read them, synchronized by mbarriers; 96
 * threads. */
int launch_ring(int bug, const float *x, float *y, int n_tiles);
int launch_pass(int bug, const float *x, float *y); /* computes the result of launch_swap with two warps */
/* y[l] = x[31 - l]; one warp, 128 bytes. */
int launch_swap(int bug, const float *x, float *y);
/* *y = number of odd values among the 64 at x; 4 bytes. */
int launch_count(int bug, const int *x, int *y);
/* y[b] = y[b - 1] + 1; blocks rely on their order. */
int launch_chain(float *y, int blocks);
/* *y = sum of all values of x, n per block, added up by the last block to arrive. part: [blocks]; count: [1 + blocks]
 * zeros. 64 threads, 16 bytes. */
int launch_folded(int bug, const float *x, float *part, unsigned *count, float *y, int n, int blocks);
/* All blocks read word[0] and add to word[1]. The last one to arrive copies word[1] to word[0]. word: [2]; count:
 * 0. 32 threads. */
int launch_reused(int bug, float *word, unsigned *count, float *y, int blocks);
/* y[b] = y[b - 1] + 1. Each block waits for the one before it by flag [blocks], which must be 0. Blocks number
 * themselves in order of arrival by *ticket, which must be 0. */
int launch_passed_on(int bug, float *y, unsigned *flag, unsigned *ticket, int blocks);
/* Each of 32 lanes reads `bytes` (4, 8, 16) of shared memory, `stride` bytes apart. One warp. */
int launch_strided(int bytes, int stride, float *y);
/* ldmatrix of rows at a distance of `stride` bytes. */
int launch_rows(int stride, float *y);
/* Two dependent launches in the stream: x[i] = i in one block, then y[i] = x[31 - i] + w[i] in two blocks; 32
 * values. */
int launch_dependent(int bug, void *stream, const float *w, float *x, float *y);
/* y[m][n] = x[m][n % 16] twice, 64 rows of 128, by wgmma: A is x, B ones and zeros; 128 threads, 4 KiB for B. */
int launch_four_warps(int bug, const float *x, float *y);
/* y[i] = (i + 1) * sum of the block numbers, for n items: each block writes its number to part[b], and the blocks that
 * arrive last compute the items (arrive_of() of tail.cuh). 32 threads. */
int launch_gathered(void *stream, pi__k_waits waits, uint32_t *arrived, float *part, float *y, int n, int blocks);
/* Launches for the stream's device, independent of the current device. */
int launch_elsewhere(void *stream, float *y);

#endif
