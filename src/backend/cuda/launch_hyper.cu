/* Launches of kernels/hyper_kernels.cuh: variant, grid, shared memory (see kernels_hyper.h). Grids: hyper_post x =
 * PI__K_HYPER_PIECE columns of each stream, y = HYPER_WARPS rows; hyper_mix x = the same columns, y = one row or a
 * group of MANY rows; hyper_read x = row. */
#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/launch.cuh"
#include "hyper_kernels.cuh"

using namespace hyper;

size_t pi__k_hyper_sums(int32_t n_rows, int64_t n)
{
    return (size_t) n_rows * HYPER_SUMS * (size_t) pi__k_hyper_parts(n);
}

static unsigned pieces_of(const pi__k_streams &k)
{
    return (unsigned) ((k.n + PI__K_HYPER_PIECE - 1) / PI__K_HYPER_PIECE);
}

static int add_result(void *stream, const pi__k_streams &k)
{
    const dim3 grid(pieces_of(k), (unsigned) ((k.n_rows + HYPER_WARPS - 1) / HYPER_WARPS));
    return pi_launch_dependent(stream, hyper_post, grid, dim3(HYPER_THREADS), 0, k);
}

/* Launches hyper_mix, which also runs hyper_pre if there are few rows; with more rows hyper_read runs it in a second
 * launch. bytes: shared memory of the block that computes y of a row. smem_copy: that block keeps a copy of y in shared
 * memory. */
static int run(void *stream, const pi__k_streams &k, const pi__k_tail &t, size_t bytes, bool smem_copy)
{
    const size_t piece = PI__STREAMS * PI__K_HYPER_PIECE * sizeof(float);
    const unsigned pieces = pieces_of(k);
    if (k.n_rows <= PI__K_HYPER_ROWS)
        return pi_launch_dependent(stream, hyper_mix<1>, dim3(pieces, (unsigned) k.n_rows), dim3(HYPER_THREADS),
                                   max(bytes, piece), k, t, 1u, (int32_t) smem_copy);
    const unsigned groups = (unsigned) ((k.n_rows + MANY - 1) / MANY);
    const dim3 grid(pieces, groups);
    if (groups <= PI__K_HYPER_GROUPS) { /* the groups divide the places; with one block per group, none waits */
        const unsigned read = max(min((unsigned) MANY, (unsigned) k.waits.places / groups), 1u);
        return pi_launch_dependent(stream, hyper_mix<MANY>, grid, dim3(HYPER_THREADS), max(bytes, MANY * piece),
                                   k, t, read, (int32_t) smem_copy);
    }
    const int code = pi_launch_dependent(stream, hyper_mix<MANY>, grid, dim3(HYPER_THREADS), MANY * piece, k, t,
                                         0u, 0);
    if (code) return code;
    return pi_launch_dependent(stream, hyper_read, dim3((unsigned) k.n_rows), dim3(HYPER_THREADS), bytes, k, t,
                               (int32_t) smem_copy);
}

int pi__k_streams_run(void *stream, const pi__k_streams *k, const pi__k_tail *then)
{
    if (k->n_rows < 1) return 0;
    const pi__k_tail t = then ? *then : pi__k_tail{};
    if ((then && !streams_read(*k, t)) || t.sum.n_used || t.add[0].x || t.qkv.n_tokens || t.routes.n_rows) return 1;
    if (!k->w && !k->y) return k->result ? add_result(stream, *k) : 0;
    const size_t row = (size_t) k->n * sizeof(float), smem_copy = k->y && then && row <= HYPER_SMEM_COPY ? row : 0;
    const size_t bytes = HYPER_ROW * sizeof(float) + smem_copy;
    if (k->w && k->type != PI__F32 && k->type != PI__F16 && k->type != PI__BF16) return 1;
    return run(stream, *k, t, bytes, smem_copy > 0);
}
