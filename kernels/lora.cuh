/* Shared by all LoRA kernels: threads per block, and access to A and B of an adapter. */
#ifndef PI_LORA_CUH
#define PI_LORA_CUH

#include "backend/cuda/kernels_lora.h"
#include "formats/formats.h"
#include "input.cuh"
#include "ptx.cuh"

namespace lora {

enum { LORA_THREADS = 256, LORA_WARPS = LORA_THREADS / 32 };

/* Returns the address of byte `offset` in an adapter's memory, which starts with its pairs. */
PI_FN const void *lora_at(const pi__lora_pair *image, uint64_t offset) { return (const char *) image + offset; }

/* Returns value i of the matrix A or B at p, of type F32, F16 or BF16. */
PI_FN float lora_value(int32_t type, const void *p, int64_t i)
{
    if (type == PI__F32) return ((const float *) p)[i];
    const uint16_t h = ((const uint16_t *) p)[i];
    return type == PI__F16 ? ptx_of_half(h) : ptx_of_bf16(h);
}

} /* namespace lora */

#endif
