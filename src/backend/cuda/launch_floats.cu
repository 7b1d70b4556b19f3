/* Launches of kernels/floats_kernels.cuh: variant, grid (see kernels_floats.h). A warp multiplies R rows of W by
 * FLOAT_ROWS rows of x. Grid: x = R * FLOAT_WARPS rows of W, y = FLOAT_ROWS rows of x. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/kernels_floats.h"
#include "floats_kernels.cuh"

using namespace floats;

/* MOST, FEWER: rows of W per warp in the two variants. ENOUGH: number of warps that keeps the SMs busy. */
enum { MOST = 8, FEWER = 4, ENOUGH = 1024 };

/* Returns the number of warps that multiply a matrix by n_rows rows of x, with `each` rows of W per warp. */
static int64_t warps_of(int64_t n_out, int32_t n_rows, int each)
{
    return (n_out + each - 1) / each * ((n_rows + FLOAT_ROWS - 1) / FLOAT_ROWS);
}

static bool is_float(int32_t type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }

int pi__k_floats_has(int32_t type, int64_t n_out, int32_t n_rows)
{
    return is_float(type) && n_rows > FLOAT_ROWS && warps_of(n_out, n_rows, FEWER) >= ENOUGH;
}

template <int R> static int run(void *stream, const product &p)
{
    const int64_t each = R * FLOAT_WARPS;
    const dim3 grid((unsigned) ((p.w.n_out + each - 1) / each), (unsigned) ((p.n_rows + FLOAT_ROWS - 1) / FLOAT_ROWS));
    return pi_launch_dependent(stream, floats_many<R>, grid, dim3(FLOAT_WARPS * 32), 0, p);
}

int pi__k_floats_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    int code = 0;
    for (int32_t i = 0; i < n && n_rows > 0 && !code; i++) {
        const product p = {w[i].w, (const uint4 *) prepared, nullptr, w[i].y, w[i].ldy, n_rows};
        if (!is_float(p.w.type)) return 1;
        code = warps_of(p.w.n_out, n_rows, MOST) >= ENOUGH ? run<MOST>(stream, p) : run<FEWER>(stream, p);
    }
    return code;
}
