/* Launches of kernels/fp4_kernels.cuh: variant, grid, shared memory (see kernels.h). WAY: FP4_NV, FP4_MX (x as the
 * matrix), or FP4_MX8 (MXFP4 times x in FP8).
 *
 *     pack              one block per row of x, rows rounded up to a multiple of 8
 *     to FEW_ROWS rows  fp4_few, in launch_fp4_few.cu
 *     more rows         fp4_tiles: x = tile of rows of x, y = tile of rows of W, z = part of K */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/launch_fp4.cuh"

using namespace fp4;

static int way_of(int32_t type) { return type == PI__NVFP4 ? FP4_NV : type == PI__MXFP4 ? FP4_MX : -1; }

size_t pi__k_fp4_packed_x_bytes(int32_t n_rows, int64_t n_in)
{
    return fp4_factors_at(FP4_MX8, n_rows, n_in) + ((size_t) n_rows + 7) / 8 * 8 * sizeof(float);
}

/* way: -1 = error */
static int prepare(void *stream, const pi__k_input *in, int32_t way, int32_t n_rows, int64_t n_in, void *prepared)
{
    uint8_t *to = (uint8_t *) prepared;
    if (n_rows < 1) return 0;
    if (way < 0) return 1;
    return pi_launch_dependent(stream, fp4_prepare<pi__k_input>, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS),
                               2 * THREADS / 32 * sizeof(float), *in, way, n_rows, n_in, to,
                               (float *) (to + fp4_factors_at(way, n_rows, n_in)));
}

int pi__k_fp4_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    return prepare(stream, in, way_of(type), n_rows, n_in, prepared);
}

int pi__k_w4a8_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    return prepare(stream, in, type == PI__MXFP4 ? FP4_MX8 : -1, n_rows, n_in, prepared);
}

enum { MIN_BLOCKS = 128 /* below the SM count of most devices */ };

/* Launches tiles of shape S: 16 * S::TILES rows of W by 8 * S::GROUPS rows of x. Several blocks may share K, except
 * with the largest tiles, which are used only if there are many. The tensor cores of an SM do 2048 FP4 multiply-adds
 * per clock, or 1024 in FP8. */
template <int WAY, class S> static int run_tiles(void *stream, fp4_products &p, const pi__k_split *split)
{
    /* results of a tile; clocks of a tile for 32 columns of W */
    constexpr int64_t VALUES = S::TILES * S::GROUPS * 128, CLOCKS = VALUES * 32 / (WAY == FP4_MX8 ? 1024 : 2048);
    const unsigned y = share(p, S::TILES), x = (unsigned) ((p.n_rows + 8 * S::GROUPS - 1) / (8 * S::GROUPS));
    const split_work work = {(int64_t) x * y, CLOCKS * p.shape.n_block, VALUES};
    const bool largest = S::TILES == 8 && S::GROUPS == 16;
    return pi_launch_dependent(stream, fp4_tiles<WAY, S>, dim3(x, y, largest ? 1 : (unsigned) split_parts(split, work)),
                               dim3(FP4_THREADS), S::SHARED, p);
}

/* Uses tiles of 128 rows of W by 128 rows of x. Tiles have 64 rows of W if all matrices have at most 64 rows. They have
 * 64 rows of x if there are at most 64, or if 128 would give fewer than MIN_BLOCKS blocks; and always in FP8, as a row
 * of x takes twice the registers. */
template <int WAY> static int run_many(void *stream, fp4_products &p, const pi__k_split *split)
{
    const unsigned columns = (unsigned) (p.n_rows + 127) / 128;
    int64_t most = 0;
    for (int i = 0; i < p.n; i++) most = p.w[i].n_out > most ? p.w[i].n_out : most;
    const bool thin = most <= 64, few = p.n_rows <= 64 || (!thin && share(p, 8) * columns < MIN_BLOCKS);
    if constexpr (WAY != FP4_MX8) {
        if (!few && thin) return run_tiles<WAY, fp4_shape<WAY, 4, 16, 2>>(stream, p, split);
        if (!few) return run_tiles<WAY, fp4_shape<WAY, 8, 16, 4>>(stream, p, split);
    }
    return run_tiles<WAY, fp4_shape<WAY, 8, 8, 4>>(stream, p, split);
}

enum { FEW_ROWS = 32 /* max rows of fp4_few */ };

int pi__k_fp4_adds(int32_t n_rows) { return n_rows > FEW_ROWS; }

template <int WAY> static int run_fp4(void *stream, fp4_products &p, const pi__k_split *split)
{
    return p.n_rows <= FEW_ROWS ? launch_few(stream, WAY, p) : run_many<WAY>(stream, p, split);
}

static int run(void *stream, int way, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
               const pi__k_tail *t, const pi__k_split *split)
{
    if (n_rows < 1 || n < 1) return 0;
    if (n > PI__K_MAX_LINEAR || way < 0 || (t && n_rows > PI__K_TAIL_ROWS)) return 1;
    for (int i = 0; i < n; i++)
        if (w[i].add != 0 && !pi__k_fp4_adds(n_rows)) return 1;
    const int64_t n_in = w->w.n_in;
    const uint8_t *x = (const uint8_t *) prepared;
    fp4_products p = {w->w.shape, x, (const float *) (x + fp4_factors_at(way, n_rows, n_in)), n_rows,
                      fp4_steps((int32_t) ((n_in + 63) / 64)), n, {}, {}, {}};
    if (t) p.tail = *t;
    if (split) p.split = {split->sums, split->arrived};
    for (int i = 0; i < n; i++) p.w[i] = {w[i].w.data, w[i].w.scale, w[i].y, w[i].ldy, w[i].w.n_out, 0, w[i].add};
    if (way == FP4_MX8) return run_fp4<FP4_MX8>(stream, p, split);
    return way == FP4_NV ? run_fp4<FP4_NV>(stream, p, split) : run_fp4<FP4_MX>(stream, p, split);
}

static int fp4_way_of(const pi__k_product *w, int32_t n) { return n < 1 ? -1 : way_of(w->w.type); }
static int fp8_way_of(const pi__k_product *w, int32_t n) { return n < 1 || w->w.type != PI__MXFP4 ? -1 : FP4_MX8; }

int pi__k_fp4_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                          const pi__k_tail *t)
{
    return run(stream, fp4_way_of(w, n), w, n, prepared, n_rows, t, nullptr);
}

int pi__k_w4a8_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_tail *t)
{
    return run(stream, fp8_way_of(w, n), w, n, prepared, n_rows, t, nullptr);
}

int pi__k_fp4_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_split *split)
{
    return run(stream, fp4_way_of(w, n), w, n, prepared, n_rows, nullptr, split);
}

int pi__k_w4a8_linear_split(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                            const pi__k_split *split)
{
    return run(stream, fp8_way_of(w, n), w, n, prepared, n_rows, nullptr, split);
}

int pi__k_fp4_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    return pi__k_fp4_linear_split(stream, w, n, prepared, n_rows, nullptr);
}

int pi__k_w4a8_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows)
{
    return pi__k_w4a8_linear_split(stream, w, n, prepared, n_rows, nullptr);
}
