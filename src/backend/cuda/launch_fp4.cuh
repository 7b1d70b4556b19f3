/* Products in FP4 and FP8: the parts that the launches of few and of many rows share. They are two files, because
 * kernels of many rows use setmaxnreg, which the compiler ignores in relocatable code, and kernels of few rows call the
 * shared epilogue. */
#ifndef PI_LAUNCH_FP4_CUH
#define PI_LAUNCH_FP4_CUH

#include "fp4_kernels.cuh"

namespace fp4 {

/* Assigns blocks to each matrix, in order; a block has `tiles` tiles of 16 rows of W. Sets w[i].first, the first block
 * of matrix i. Returns the number of blocks. */
static inline unsigned share(fp4_products &p, int64_t tiles)
{
    unsigned blocks = 0;
    for (int i = 0; i < p.n; i++) {
        p.w[i].first = blocks;
        blocks += (unsigned) ((p.w[i].n_out + 16 * tiles - 1) / (16 * tiles));
    }
    return blocks;
}

/* Launches fp4_few for up to 32 rows of x: one block per 16 rows of W, for all rows of x. Returns the launch's code. */
int launch_few(void *stream, int way, fp4_products &p);

} /* namespace fp4 */

#endif
