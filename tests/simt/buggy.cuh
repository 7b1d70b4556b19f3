/* Small kernels for the tests of the emulator: correct at bug 0, with one mistake each at the others. */
#ifndef BUGGY_CUH
#define BUGGY_CUH

#include "ptx.cuh"

enum bug {
    BUG_NONE,
    BUG_NO_BARRIER,      /* sum: none between the partial sums and their reader */
    BUG_LANE_LEAVES,     /* sum: a lane returns before the shuffles */
    BUG_NO_LOOP_BARRIER, /* staged: the next tile overwrites the one in use */
    BUG_WAIT_TOO_FEW,    /* staged: waits for one group of copies less */
    BUG_NO_TILE_BARRIER, /* staged: reads what another thread's copy brings */
    BUG_PAST_END,        /* sum: one word behind shared memory */
    BUG_UNINITIALISED,   /* sum: reads a word that nobody writes */
    BUG_NO_WARP_SYNC,    /* swap: lanes exchange through shared memory */
    BUG_MISALIGNED,      /* swap: an 8-byte access at an address of 4 */
    BUG_GLOBAL_END,      /* sum: reads past the input */
    BUG_BAD_LANE,        /* swap: shuffles from a lane outside of the mask */
    BUG_SPLIT_BARRIER,   /* sum: half a warp at a barrier, half in a shuffle */
    BUG_SAME_WORD,       /* count: plain adds where atomics are needed */
    BUG_READ_ATOMIC,     /* count: reads the atomic sum too early */
    BUG_WRONG_MASK,      /* swap: a lane calls a collective that its mask leaves out */
    BUG_BULK_NO_WAIT,    /* bulk: reads what may not have come */
    BUG_BULK_ONE_WAITS,  /* bulk: so do all threads but one, with no barrier after its wait */
    BUG_BULK_REUSE,      /* bulk: the next tile overwrites the one in use */
    BUG_BULK_NO_FENCE,   /* bulk: the copies may not know the mbarrier */
    BUG_BULK_TOO_FEW,    /* bulk: expects fewer bytes than come */
    BUG_BULK_TWICE,      /* bulk: one arrival more than was announced */
    BUG_BULK_SKIPS,      /* bulk: leaves a phase out */
    BUG_BULK_LEFT,       /* bulk: ends with a copy under way */
    BUG_RING_NO_WAIT,    /* ring: a tile overwrites one that nobody may have read */
    BUG_RING_EARLY,      /* ring: a warp says that it is done before it reads */
    BUG_PASS_NO_WAIT,    /* pass: the other warp reads without having waited */
    BUG_PASS_EARLY,      /* pass: the warp says that it has written before it has */
    BUG_PASS_ONE_LANE,   /* pass: a lane says so without waiting for the others */
    BUG_BOTH_WRITE,      /* folded: two blocks write a word */
    BUG_READS_OTHERS,    /* folded: a block reads what another has written, and nothing orders them */
    BUG_NO_FENCE,        /* folded: it counts itself before its part is there to be seen */
    BUG_NO_FENCE_LAST,   /* folded: the last block sees the count, and not what came before it */
    BUG_NO_BLOCK_BARRIER, /* folded: other threads of the last block do not wait for the one that saw it */
    BUG_ANY_ORDER,       /* folded: parts are added in the order in which blocks come */
    BUG_NEVER,           /* passed_on: waits for a block that does not come */
    BUG_READS_EARLY,     /* dependent: reads what the launch before writes, and has not waited */
    BUG_WRITES_EARLY,    /* dependent: writes before it has waited */
    BUG_COPIES_EARLY,    /* dependent: begins to copy what the launch before writes */
    BUG_ENDS_EARLY,      /* dependent: a block that has nothing to do ends at once */
    BUG_ONE_WAITS,       /* dependent: so do threads but one */
    BUG_GROUP_NO_FENCE,  /* four_warps: A is written behind the fence */
    BUG_GROUP_NO_WAIT,   /* four_warps: reads the accumulator too early */
    BUG_GROUP_WRITES_A,  /* four_warps: changes A under the instruction */
    BUG_GROUP_WRITES_D,  /* four_warps: and the accumulator */
    BUG_GROUP_WRITES_B,  /* four_warps: and B */
    BUG_GROUP_NO_B,      /* four_warps: a warp does not wait for B */
    BUG_GROUP_NO_B_FENCE, /* four_warps: what is written to B is not fenced */
    BUG_GROUP_LEFT,      /* four_warps: ends with one under way */
    BUG_GROUP_OF_THREE   /* four_warps: one of them leaves it out */
};

/* y[block] = sum of the block's n values of x; 64 threads, 16 bytes of shared memory. */
int launch_sum(int bug, const float *x, float *y, int n, int blocks);
/* y[i] = sum over the n tiles of 32 values at x of value i, through two buffers of 128 bytes; 32 or 64 threads. */
int launch_staged(int bug, const float *x, float *y, int n_tiles, int threads);
/* The same through two mbarriers and bulk copies; 64 threads. */
int launch_bulk(int bug, const float *x, float *y, int n_tiles);
/* The same by a warp that brings tiles and two that read them, which tell each other by mbarriers; 96 threads. */
int launch_ring(int bug, const float *x, float *y, int n_tiles);
int launch_pass(int bug, const float *x, float *y); /* as swap, by two warps */
/* y[l] = x[31 - l]; one warp, 128 bytes. */
int launch_swap(int bug, const float *x, float *y);
/* *y = number of odd values among the 64 at x; 4 bytes. */
int launch_count(int bug, const int *x, int *y);
/* y[b] = y[b - 1] + 1, blocks relying on their order. */
int launch_chain(float *y, int blocks);
/* *y = sum of all n values a block of x, added up by the block that comes last: part [blocks], *count is 0 before. 64
 * threads, 16 bytes. */
int launch_folded(int bug, const float *x, float *part, unsigned *count, float *y, int n, int blocks);
/* y[b] = y[b - 1] + 1, each block waiting for the one before it by flag [blocks], zeros before; it takes blocks in the
 * order in which they come, by *ticket, 0 before. */
int launch_passed_on(int bug, float *y, unsigned *flag, unsigned *ticket, int blocks);
/* Each of 32 lanes moves `bytes` (4, 8, 16) of shared memory, `stride` bytes apart. One warp. */
int launch_strided(int bytes, int stride, float *y);
/* ldmatrix of rows that lie stride bytes apart. */
int launch_rows(int stride, float *y);
/* Two dependent launches in the stream: x[i] = i, then y[i] = x[31 - i] + w[i], in one block of two; 32 values. */
int launch_dependent(int bug, void *stream, const float *w, float *x, float *y);
/* y[m][n] = x[m][n % 16] twice, 64 rows of 128, by wgmma: A is x, B ones and zeros; 128 threads, 4 KiB for B. */
int launch_four_warps(int bug, const float *x, float *y);
/* A launch for the stream's device, whatever the current one is. */
int launch_elsewhere(void *stream, float *y);

#endif
