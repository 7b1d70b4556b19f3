/* Layouts of recurrent states, shared by launch_gdn.cu and launch_ssd.cu; the kernels of Mamba-2 and Kimi delta
 * attention, which launch_gdn.cu calls for states with `ssd` or `kda`. */
#ifndef PI_LAUNCH_STATES_CUH
#define PI_LAUNCH_STATES_CUH

#include "backend/cuda/launch.cuh"
#include "gdn.cuh"

namespace gdn {

/* Returns *at, the offset of n new floats, and advances *at to the next multiple of 16 floats after them. */
static inline size_t take(size_t *at, size_t n)
{
    size_t p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

/* Returns a ring of n rows, with the factor and shift by which kernels divide by n. */
static inline ring ring_of(int32_t n)
{
    int32_t bits = 0;
    while (1 << bits < n) bits++;
    return {n, (uint32_t) (((UINT64_C(1) << (31 + bits)) + (uint32_t) n - 1) / (uint32_t) n), 31 + bits};
}

} /* namespace gdn */

/* launch_ssd.cu: as the functions of kernels.h without "ssd" in their names. */
size_t pi__k_ssd_state_bytes(const pi__k_state *st);
size_t pi__k_ssd_snapshot_bytes(const pi__k_state *st);
size_t pi__k_ssd_scratch(const pi__k_state *st, int32_t n_tokens);
int pi__k_ssd_run(void *stream, const pi__k_gdn *a);
int pi__k_ssd_move(void *stream, const pi__k_state *st, bool is_save, int32_t slot, int32_t pos, int32_t snap);

#endif
