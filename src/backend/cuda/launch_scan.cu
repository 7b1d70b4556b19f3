/* Launches of kernels/scan_kernels.cuh (see kernels_scan.h). Variant: values per channel. */
#include "backend/cuda/launch.cuh"
#include "scan_kernels.cuh"

using namespace scan;

static bool supported(const pi__k_scan *a)
{
    return a->n_channel > 0 && a->n_channel % 16 == 0 && (a->n_state == 16 || a->n_state == 32) && a->n_draft >= 0;
}

static unsigned groups_of(const pi__k_scan *a) { return (unsigned) (a->n_channel + THREADS - 1) / THREADS; }

size_t pi__k_scan_state_bytes(const pi__k_scan *a)
{
    if (!supported(a)) return 0;
    const size_t states = (size_t) (2 + n_later(*a)) * (size_t) a->n_state, channels = (size_t) a->n_channel;
    const size_t n_draft = (size_t) a->n_draft, b = groups_of(a) * n_draft * (size_t) a->n_state;
    return ((1 + states + 2 * n_draft) * channels + b) * sizeof(float);
}

size_t pi__k_scan_snapshot_bytes(const pi__k_scan *a)
{
    return supported(a) ? (size_t) a->n_state * (size_t) a->n_channel * sizeof(float) : 0;
}

int pi__k_scan_run(void *stream, const pi__k_scan *a)
{
    if (a->n_seqs < 1) return 0;
    if (!supported(a)) return 1;
    const dim3 grid(groups_of(a), (unsigned) a->n_seqs), block(THREADS);
    return a->n_state == 16 ? pi_launch_dependent(stream, scan_tokens<16>, grid, block, 0, *a)
                            : pi_launch_dependent(stream, scan_tokens<32>, grid, block, 0, *a);
}

/* The launches are normal, not dependent, as those of other states. */
int pi__k_scan_save(void *stream, const pi__k_scan *a, int32_t slot, int32_t pos, int32_t snap)
{
    return pi_launch(stream, move, dim3(groups_of(a)), dim3(THREADS), 0, *a, slot, pos, snap, 1);
}

int pi__k_scan_load(void *stream, const pi__k_scan *a, int32_t slot, int32_t pos, int32_t snap)
{
    return pi_launch(stream, move, dim3(groups_of(a)), dim3(THREADS), 0, *a, slot, pos, snap, 0);
}
