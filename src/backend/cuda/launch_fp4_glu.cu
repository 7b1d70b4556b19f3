/* Launches of kernels/fp4_glu_kernels.cuh: variant, grid, shared memory (see kernels.h). Up to 32 rows: fp4_glu_few,
 * one block per 16 (NVFP4) or 32 (MXFP4) columns of mid, for all rows of x. More rows: fp4_glu_tiles, x = tile of rows
 * of x, y = chunk of 64 columns of mid; then, for NVFP4, fp4_end converts mid's scales, one warp per row. */
#include "backend/cuda/launch.cuh"
#include "fp4_glu_kernels.cuh"

using namespace fp4;

template <int WAY, int NT> static int run_few(void *stream, const fp4_glu &p)
{
    using C = fp4_few_columns<WAY>;
    return pi_launch_dependent(stream, fp4_glu_few<WAY, NT>, dim3((unsigned) (p.n_out / C::N)), dim3(THREADS),
                               2 * C::TILES * fp4_few_sums<NT> * sizeof(float), p);
}

int pi__k_fp4_end(void *stream, void *mid, int64_t n_rows, int64_t n)
{
    float *factors = (float *) ((uint8_t *) mid + fp4_factors_at(FP4_NV, n_rows, n));
    if (n_rows < 1) return 0;
    return pi_launch_dependent(stream, fp4_end, dim3((unsigned) ((n_rows + THREADS / 32 - 1) / (THREADS / 32))),
                               dim3(THREADS), 0, (uint8_t *) mid, factors, n_rows,
                               fp4_steps((int32_t) ((n + 63) / 64)));
}

template <int WAY, class S> static int run_tiles(void *stream, const fp4_glu &p)
{
    const dim3 grid((unsigned) ((p.n_rows + 8 * S::GROUPS - 1) / (8 * S::GROUPS)), (unsigned) p.mid_chunks);
    const int code = pi_launch_dependent(stream, fp4_glu_tiles<WAY, S>, grid, dim3(FP4_THREADS), S::SHARED, p);
    return code || !fp4_way<WAY>::NV ? code : pi__k_fp4_end(stream, p.mid, p.n_rows, p.n_out);
}

enum { MIN_BLOCKS = 128 /* below the SM count of most devices */ };

template <int WAY> static int run_glu(void *stream, const fp4_glu &p)
{
    if (p.n_rows <= 8) return run_few<WAY, 1>(stream, p);
    if (p.n_rows <= 16) return run_few<WAY, 2>(stream, p);
    if (p.n_rows <= 32) return run_few<WAY, 4>(stream, p);
    if constexpr (WAY != FP4_MX8) { /* tiles of 64 instead of 128 rows, if 128 leave too few blocks */
        const bool many = p.n_rows > 64 && (int64_t) p.mid_chunks * ((p.n_rows + 127) / 128) >= MIN_BLOCKS;
        if (many) return run_tiles<WAY, fp4_shape<WAY, 8, 16, 4>>(stream, p);
    }
    return run_tiles<WAY, fp4_shape<WAY, 8, 8, 4>>(stream, p);
}

template <int WAY> static int run(void *stream, const pi__k_glu *a, const void *prepared, int32_t n_rows)
{
    const int64_t n_in = a->gate.n_in, n = a->gate.n_out;
    const uint8_t *x = (const uint8_t *) prepared;
    uint8_t *mid = (uint8_t *) a->mid;
    const int32_t chunks = (int32_t) ((n + 63) / 64);
    if (n < 1 || n % (fp4_way<WAY>::NV ? 64 : 32)) return 1;
    return run_glu<WAY>(stream, {a->gate.shape,
                                 {a->gate.data, a->up},
                                 {a->gate.scale, a->up_scale},
                                 n,
                                 x,
                                 (const float *) (x + fp4_factors_at(WAY, n_rows, n_in)),
                                 n_rows,
                                 fp4_steps((int32_t) ((n_in + 63) / 64)),
                                 a->act,
                                 a->limit,
                                 mid,
                                 (float *) (mid + fp4_factors_at(WAY, n_rows, n)),
                                 chunks,
                                 fp4_steps(chunks),
                                 a->arrived,
                                 a->waits});
}

int pi__k_fp4_glu(void *stream, const pi__k_glu *a, const void *prepared, int32_t n_rows)
{
    if (n_rows < 1) return 0;
    if (a->gate.type == PI__NVFP4 && !a->fp8) return run<FP4_NV>(stream, a, prepared, n_rows);
    if (a->gate.type != PI__MXFP4) return 1;
    return a->fp8 ? run<FP4_MX8>(stream, a, prepared, n_rows) : run<FP4_MX>(stream, a, prepared, n_rows);
}
