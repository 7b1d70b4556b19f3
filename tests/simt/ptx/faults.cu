/* Kernels with a mistake in their inline assembly. The host compiler sees the functions of kernels/ptx.cuh instead, so
 * that its kernels are right; those from nvcc's PTX are wrong. tools/kernel_ptx.py expects the difference. */
#include "ptx.cuh"

#ifdef __CUDACC__
/* C is an input of the instruction, but the constraint says that D is only written. */
PI_FN void mma_new(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PI_FN void mma_swapped(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%9,%8}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Without "memory", the compiler keeps the value that it stored before the copy. */
PI_FN void copy_and_wait(uint32_t dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src));
    asm volatile("cp.async.wait_all;");
}
#else
PI_FN void mma_new(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_f16(d, a, b, file, line);
}
PI_FN void mma_swapped(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_f16(d, a, b, file, line);
}
PI_FN void copy_and_wait(uint32_t dst, const void *src)
{
    ptx_cp_async4(dst, src);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
}
#endif

/* One mma of words of x, by a warp. F: how. */
template <void (*F)(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2])>
PI_FN void multiply(const uint32_t *x, float *y)
{
    const int t = (int) threadIdx.x;
    uint32_t a[4], b[2];
    float d[4];
    for (int i = 0; i < 4; i++) a[i] = x[4 * t + i];
    for (int i = 0; i < 2; i++) b[i] = x[128 + 2 * t + i];
    for (int i = 0; i < 4; i++) d[i] = (float) (i + t);
    F(d, a, b);
    for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}

PI_FN void right(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { ptx_mma_f16(d, a, b); }
PI_FN void constraint(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_new(d, a, b); }
PI_FN void swapped(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_swapped(d, a, b); }
extern "C" __global__ void fault_none(const uint32_t *x, float *y) { multiply<right>(x, y); }
extern "C" __global__ void fault_constraint(const uint32_t *x, float *y) { multiply<constraint>(x, y); }
extern "C" __global__ void fault_swapped(const uint32_t *x, float *y) { multiply<swapped>(x, y); }
extern "C" __global__ void fault_clobber(const uint32_t *x, float *y)
{
    PI_SMEM(raw);
    uint32_t *const own = (uint32_t *) raw + threadIdx.x;
    *own = 0;
    copy_and_wait(ptx_shared(own), x + threadIdx.x);
    y[threadIdx.x] = (float) *own;
}
