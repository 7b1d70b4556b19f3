/* Launches of kernels/short_conv_kernels.cuh (see kernels_conv.h). Variant: more than four taps. */
#include "backend/cuda/launch.cuh"
#include "short_conv_kernels.cuh"

using namespace short_conv;

static bool supported(const pi__k_conv *a)
{
    return a->dim > 0 && a->dim % 4 == 0 && a->n_conv >= PI__MIN_CONV && a->n_conv <= PI__MAX_CONV && a->n_draft >= 0;
}

static size_t bytes_of(const pi__k_conv *a, int32_t rows)
{
    return supported(a) ? (size_t) rows * (size_t) a->dim * sizeof(float) : 0;
}

size_t pi__k_conv_state_bytes(const pi__k_conv *a)
{
    return bytes_of(a, a->n_conv - 1 + PI__STATE_CHUNK + a->n_draft);
}

size_t pi__k_conv_snapshot_bytes(const pi__k_conv *a) { return bytes_of(a, a->n_conv - 1); }

static unsigned groups_of(const pi__k_conv *a) { return (unsigned) (a->dim + 4 * THREADS - 1) / (4 * THREADS); }

template <bool LONG> static int run(void *stream, const pi__k_conv *a)
{
    const dim3 grid(groups_of(a), (unsigned) a->n_seqs, (unsigned) (a->most + TILE - 1) / TILE);
    return pi_launch_dependent(stream, conv<LONG>, grid, dim3(THREADS), 0, *a);
}

static bool aligned(const void *p, int64_t ld) { return (uintptr_t) p % 16 == 0 && ld % 4 == 0; }

int pi__k_conv_run(void *stream, const pi__k_conv *a)
{
    if (a->n_seqs < 1 || a->most < 1) return 0;
    if (!supported(a) || !aligned(a->x, a->ldx) || !aligned(a->out, a->ldo)) return 1;
    return a->n_conv > 4 ? run<true>(stream, a) : run<false>(stream, a);
}

/* The launches are normal, not dependent, as those of other states. */
int pi__k_conv_save(void *stream, const pi__k_conv *a, int32_t slot, int32_t pos, int32_t snap)
{
    return pi_launch(stream, move, dim3(groups_of(a)), dim3(THREADS), 0, *a, slot, pos, snap, 1);
}

int pi__k_conv_load(void *stream, const pi__k_conv *a, int32_t slot, int32_t pos, int32_t snap)
{
    return pi_launch(stream, move, dim3(groups_of(a)), dim3(THREADS), 0, *a, slot, pos, snap, 0);
}
