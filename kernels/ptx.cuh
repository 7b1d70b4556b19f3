/* PTX instructions as functions. This is the only file with inline assembly. For the SIMT emulator of the tests, each
 * function calls a bit-exact model of the instruction (tests/simt/ptx.h).
 *
 * mma fragments, by lane l with g = l / 4 and t = l % 4. A has 16 rows, B has 8 columns; C and D are f32 or s32:
 *
 *     d[0], d[1]: row g, columns 2t, 2t+1        d[2], d[3]: row g+8, columns 2t, 2t+1
 *     A words: a[0] row g, a[1] row g+8: columns W t .. W t + W - 1; a[2], a[3]: rows g, g+8, columns + 4 W
 *     B words: b[0] column g, rows W t .. W t + W - 1; b[1]: rows + 4 W
 *     W = elements per 32-bit word; 1 for tf32
 *
 * A block-scaled mma (FP4, FP8) also reads scales, one word per lane: sa for A, sb for B. Row m of A uses the word sa
 * of lane 4 (m % 8) + m / 8 + 2 TA, from byte BA on. Column n of B uses the word sb of lane 4 n + TB, from byte BB on.
 * The words of the other lanes are ignored. */
#ifndef PI_PTX_CUH
#define PI_PTX_CUH

#include "device.cuh"

#ifdef __CUDACC__

#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL) || \
    (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ / 100 == 12)
#define PI_HAS_FP4 1 /* block-scaled mma and conversions to FP4: targets 120a, 121a and 120f, which runs on both */
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PI_HAS_WGMMA 1
#endif

/* Returns the 32-bit shared memory address of p, for the functions below. */
PI_FN uint32_t ptx_shared(const void *p) { return (uint32_t) __cvta_generic_to_shared(p); }

/* Prefetches the cache line at p into L2. */
PI_FN void ptx_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
/* Starts a copy of n bytes (0 .. 16) to shared address dst, and zeros the rest of the 16. Both addresses are 16-byte
 * aligned; n = 0 reads nothing. */
PI_FN void ptx_cp_async16(uint32_t dst, const void *src, int n = 16)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n) : "memory");
}
/* Returns the L2 cache policy evict_first, for data that a step reads once, for example weights in products with few
 * rows. L2 evicts it before activations, keys and the kernels' code. */
PI_FN uint64_t ptx_read_once()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
/* Copies 16 bytes with the L2 policy of ptx_read_once(). */
PI_FN void ptx_cp_async16_once(uint32_t dst, const void *src, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "l"(policy) : "memory");
}
/* Starts a copy of 16 bytes if at < end, else does nothing. A predicate replaces the branch, because the lanes of a
 * warp copy pieces of different blocks. */
PI_FN void ptx_cp_async16_below(uint32_t dst, const void *src, int at, int end)
{
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(dst), "l"(src), "r"(at),
                 "r"(end) : "memory");
}
PI_FN void ptx_cp_async16_once_below(uint32_t dst, const void *src, int at, int end, uint64_t policy)
{
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %4; }" ::"r"(dst),
                 "l"(src), "r"(at), "r"(end), "l"(policy) : "memory");
}
/* Starts a copy of n bytes (0 .. 4) to shared address dst, and zeros the rest of the 4. Both addresses are 4-byte
 * aligned. */
PI_FN void ptx_cp_async4(uint32_t dst, const void *src, int n = 4)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(n) : "memory");
}
PI_FN void ptx_cp_async4_below(uint32_t dst, const void *src, int at, int end)
{
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p cp.async.ca.shared.global [%0], [%1], 4; }" ::"r"(dst), "l"(src), "r"(at),
                 "r"(end) : "memory");
}
PI_FN void ptx_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most N of the calling thread's copy groups are pending. */
template <int N> PI_FN void ptx_cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

/* Returns true if bulk copies and mbarriers exist (sm_90+). A constant in each compiled kernel. */
PI_FN constexpr bool ptx_has_bulk()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    return true;
#else
    return false;
#endif
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/* Initializes the mbarrier at shared address `at`. A phase ends when `count` arrivals are counted and all expected
 * bytes have been copied. */
PI_FN void ptx_mbarrier_init(uint32_t at, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
/* Makes the calling thread's earlier writes to shared memory visible to the async proxy: mbarrier inits, stores and
 * completed cp.async. Call it before the barrier or mbarrier arrival that lets other threads use them. */
PI_FN void ptx_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* Counts an arrival, and adds `bytes` to the bytes that the current phase expects. */
PI_FN void ptx_mbarrier_arrive_expect(uint32_t at, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
/* Counts an arrival at the mbarrier at `at`. A thread that waits for this phase may then overwrite the data that the
 * caller has read. */
PI_FN void ptx_mbarrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
/* Waits until the mbarrier's phase of this parity has ended. The first phase has parity 0. */
PI_FN void ptx_mbarrier_wait(uint32_t at, uint32_t parity)
{
    asm volatile("{\n\t.reg .pred p;\n\tAGAIN:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
                 "@!p bra AGAIN;\n\t}" ::"r"(at), "r"(parity) : "memory");
}
/* Starts one bulk copy of n bytes from global memory to shared address dst. The mbarrier at `mbarrier` counts the
 * bytes. n and both addresses are multiples of 16. */
PI_FN void ptx_bulk_copy(uint32_t dst, const void *src, uint32_t n, uint32_t mbarrier)
{
    asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
                 "r"(n), "r"(mbarrier) : "memory");
}
#else
PI_FN void ptx_mbarrier_init(uint32_t, uint32_t) { __trap(); }
PI_FN void ptx_fence_async() { __trap(); }
PI_FN void ptx_mbarrier_arrive_expect(uint32_t, uint32_t) { __trap(); }
PI_FN void ptx_mbarrier_arrive(uint32_t) { __trap(); }
PI_FN void ptx_mbarrier_wait(uint32_t, uint32_t) { __trap(); }
PI_FN void ptx_bulk_copy(uint32_t, const void *, uint32_t, uint32_t) { __trap(); }
#endif

/* Programmatic dependent launch (launch.cuh): sm_90+, no effect on older devices. The next kernel may start when all
 * blocks of this grid have called this function or ended. */
PI_FN void ptx_launch_dependents()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/* Waits until the preceding kernels of the stream have ended and their writes are visible. Returns immediately if the
 * kernel was not launched early. */
PI_FN void ptx_wait_grids()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* A barrier like __syncthreads() for the first N threads of the block only. The other threads continue. */
template <int N> PI_FN void ptx_sync_first() { asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory"); }

/* Returns true if block-scaled mma and conversions to FP4 exist (sm_120, sm_121). */
PI_FN constexpr bool ptx_has_fp4()
{
#ifdef PI_HAS_FP4
    return true;
#else
    return false;
#endif
}

/* Sets the number of registers per thread to N, a multiple of 8, on devices with FP4 instructions or wgmma. All four
 * warps of an aligned group of four call it. ptx_fewer_registers() releases registers; ptx_more_registers() claims
 * released ones. */
template <int N> PI_FN void ptx_fewer_registers()
{
#if defined(PI_HAS_FP4) || defined(PI_HAS_WGMMA)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> PI_FN void ptx_more_registers()
{
#if defined(PI_HAS_FP4) || defined(PI_HAS_WGMMA)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* Loads four 8x8 matrices of 16-bit values from shared memory. Lane l passes the address of row l % 8 of matrix l / 8.
 * Word r[m] has values 2 (l % 4) and + 1 of row l / 4 of matrix m. ptx_ldmatrix_x4_trans() transposes each matrix. */
PI_FN void ptx_ldmatrix_x4(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
PI_FN void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

PI_FN void ptx_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PI_FN void ptx_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The operands are floats; the hardware reads the sign, the exponent and the first 11 significant bits. */
PI_FN void ptx_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PI_FN void ptx_mma_s8_k32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PI_FN void ptx_mma_s8_k16(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* wgmma: 64 rows of A times the columns of B, asynchronously, by four warps that start at a multiple of four. Each warp
 * has 16 of the rows. d[g]: columns 8 g .. 8 g + 7 in the fragment layout of D above, for 4, 8 or 16 groups g. a: in
 * the fragment layout of A. b: descriptor of B in shared memory. FIRST: overwrites D instead of adding to it. TURNED: B
 * is MN-major in shared memory: adjacent values belong to adjacent columns. Otherwise B is K-major: 16 adjacent values
 * belong to one column.
 *
 *     fence   orders earlier writes to the registers of A and D before the wgmma
 *     commit  makes a group of the wgmmas issued since the last commit
 *     wait    waits until at most N groups are pending: D of the completed ones is valid, A and B may be changed
 *     pin     forces d into registers here: earlier writes precede it, later reads follow it
 *
 * D must not be touched before the wait, except by wgmmas of equal shape, which execute in order. Threads that write B
 * with ordinary stores or cp.async call ptx_fence_async() before they release it to wgmma. */
PI_FN constexpr bool ptx_has_wgmma()
{
#ifdef PI_HAS_WGMMA
    return true;
#else
    return false;
#endif
}
#ifdef PI_HAS_WGMMA
template <int G> PI_FN void ptx_wgmma_pin(float (&d)[G][4])
{
#pragma unroll
    for (int i = 0; i < 4 * G; i++) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}
template <int N> PI_FN void ptx_wgmma_fence(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
PI_FN void ptx_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> PI_FN void ptx_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* Waits until at most N wgmma groups are pending, then pins d, so that the compiler keeps reads of d after the wait. */
template <int N, int G> PI_FN void ptx_wgmma_wait(float (&d)[G][4])
{
    ptx_wgmma_wait<N>();
    ptx_wgmma_pin(d);
}
#define PI_WGMMA_16(d, g, f)                                                                                              \
    f(d[g][0]), f(d[g][1]), f(d[g][2]), f(d[g][3]), f(d[g + 1][0]), f(d[g + 1][1]), f(d[g + 1][2]), f(d[g + 1][3]),       \
    f(d[g + 2][0]), f(d[g + 2][1]), f(d[g + 2][2]), f(d[g + 2][3]), f(d[g + 3][0]), f(d[g + 3][1]), f(d[g + 3][2]),       \
    f(d[g + 3][3])
#define PI_WGMMA_NEW "=f"
#define PI_WGMMA_SUM "+f"
#define PI_WGMMA_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define PI_WGMMA_1 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PI_WGMMA_2 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define PI_WGMMA_3 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PI_WGMMA_D4(d, f) PI_WGMMA_16(d, 0, f)
#define PI_WGMMA_D8(d, f) PI_WGMMA_D4(d, f), PI_WGMMA_16(d, 4, f)
#define PI_WGMMA_D16(d, f) PI_WGMMA_D8(d, f), PI_WGMMA_16(d, 8, f), PI_WGMMA_16(d, 12, f)
#define PI_WGMMA_ASM(type, columns, text, behind, adds, operands)                                                         \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, " adds ", 0;\n\t"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" text "}, " behind ";\n\t}"     \
                 : operands                                                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED ? 1 : 0))
/* g: number of 8-column groups; text: asm operands of D; `behind`: the asm operands after D. */
#define PI_WGMMA_OF(name, type, g, columns, text, behind)                                                                 \
    template <bool FIRST = false, bool TURNED = false>                                                                    \
    PI_FN void name(float (&d)[g][4], const uint32_t (&a)[4], uint64_t b)                                                 \
    {                                                                                                                     \
        if constexpr (FIRST) PI_WGMMA_ASM(type, columns, text, behind, "0", PI_WGMMA_D##g(d, PI_WGMMA_NEW));              \
        else PI_WGMMA_ASM(type, columns, text, behind, "1", PI_WGMMA_D##g(d, PI_WGMMA_SUM));                              \
    }
#define PI_WGMMA(name, type)                                                                                              \
    PI_WGMMA_OF(name, type, 4, "32", PI_WGMMA_0, "{%16,%17,%18,%19}, %20, p, 1, 1, %21")                                  \
    PI_WGMMA_OF(name, type, 8, "64", PI_WGMMA_0 PI_WGMMA_1, "{%32,%33,%34,%35}, %36, p, 1, 1, %37")                       \
    PI_WGMMA_OF(name, type, 16, "128", PI_WGMMA_0 PI_WGMMA_1 PI_WGMMA_2 PI_WGMMA_3,                                       \
                "{%64,%65,%66,%67}, %68, p, 1, 1, %69")
#else
template <int G> PI_FN void ptx_wgmma_pin(float (&)[G][4]) { __trap(); }
template <int N> PI_FN void ptx_wgmma_fence(uint32_t (&)[N][4]) { __trap(); }
PI_FN void ptx_wgmma_commit() { __trap(); }
template <int N> PI_FN void ptx_wgmma_wait() { __trap(); }
template <int N, int G> PI_FN void ptx_wgmma_wait(float (&)[G][4]) { __trap(); }
#define PI_WGMMA(name, type)                                                                                            \
    template <bool FIRST = false, bool TURNED = false, int G>                                                           \
    PI_FN void name(float (&)[G][4], const uint32_t (&)[4], uint64_t) { __trap(); }
#endif
PI_WGMMA(ptx_wgmma_f16, "f16")
PI_WGMMA(ptx_wgmma_bf16, "bf16")
#undef PI_WGMMA

/* One bitwise instruction with three operands. If b and c are both constants, the compiler emits two. */
PI_FN uint32_t ptx_and_or(uint32_t a, uint32_t b, uint32_t c) /* a & b | c */
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
PI_FN uint32_t ptx_and_xor(uint32_t a, uint32_t b, uint32_t c) /* (a & b) ^ c */
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
/* As __byte_perm(a, b, s), but without masking the selectors: each selector in s must be 0 to 7. */
PI_FN uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t s)
{
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(s));
    return d;
}

/* Fused a * b + c for two F16 or two BF16. Each result is rounded once; subnormals are supported. */
PI_FN uint32_t ptx_fma_f16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
PI_FN uint32_t ptx_add_f16x2(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
PI_FN uint32_t ptx_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

#ifdef PI_HAS_FP4
#define PI_MMA_SCALED(name, text, shape)                                                                                \
    template <int BA, int TA, int BB, int TB>                                                                           \
    PI_FN void name(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb)            \
    {                                                                                                                   \
        asm volatile("mma.sync.aligned." shape ".row.col." text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3},"  \
                     " {%10}, {%12,%13}, {%11}, {%14,%15};"                                                              \
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "r"(sb), "n"(BA),      \
                       "n"(TA), "n"(BB), "n"(TB));                                                                      \
    }
#else
#define PI_MMA_SCALED(name, text, shape)                                                                                \
    template <int BA, int TA, int BB, int TB>                                                                           \
    PI_FN void name(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2], uint32_t, uint32_t)                     \
    {                                                                                                                   \
        __trap();                                                                                                       \
    }
#endif
PI_MMA_SCALED(ptx_mma_mxf4nvf4, "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "m16n8k64")
PI_MMA_SCALED(ptx_mma_mxf4, "kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "m16n8k64")
PI_MMA_SCALED(ptx_mma_mxf8_e4m3_e4m3, "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0", "m16n8k32")
PI_MMA_SCALED(ptx_mma_mxf8_e2m1_e4m3, "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e4m3.f32.ue8m0", "m16n8k32")
PI_MMA_SCALED(ptx_mma_mxf8_e2m1_e2m1, "kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e2m1.f32.ue8m0", "m16n8k32")
#undef PI_MMA_SCALED

/* Returns threadIdx.x as a value opaque to the compiler. Values derived from it are recomputed in each loop iteration;
 * values derived from threadIdx itself would occupy registers throughout the loop. */
PI_FN int ptx_thread()
{
    int x = (int) threadIdx.x;
    asm volatile("" : "+r"(x));
    return x;
}

/* Returns threadIdx.x, read from the special register at each call, so that even the index occupies no register. */
PI_FN int ptx_read_thread()
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

/* Returns the low half of x. The product of the result with an int is one instruction; with a plain cast of x the
 * compiler emits several. */
PI_FN int ptx_low(int64_t x)
{
    int y;
    asm("cvt.u32.u64 %0, %1;" : "=r"(y) : "l"(x));
    return y;
}

/* Makes x opaque to the compiler: values derived from it are recomputed in each loop iteration. */
PI_FN void ptx_opaque(float &x) { asm volatile("" : "+f"(x)); }
PI_FN int ptx_opaque(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}
/* Returns x as a value that the compiler cannot recompute. Without it, a compiler short of registers recomputes
 * addresses in each iteration. */
PI_FN uint32_t ptx_pin(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}
PI_FN const uint8_t *ptx_pin(const uint8_t *p)
{
    asm volatile("" : "+l"(p));
    return p;
}
/* Returns the number of blocks of a launch that may wait for its other blocks. On a device this is `want`, at most the
 * places of the launch's engine (places.h). */
PI_FN constexpr uint32_t ptx_max_spinning(uint32_t want) { return want; }
/* Marks the end of the calling thread's own work, before the epilogue. Only the emulator uses it. */
PI_FN void ptx_arriving() {}
/* Counts a block as arrived in *counter. Returns the number of blocks that arrived before it. An acquire and a release
 * for the device: threads that a barrier orders before the caller release their writes, too. A sequentially consistent
 * fence (__threadfence) would cost more. */
PI_FN uint32_t ptx_arrive(uint32_t *counter, uint32_t)
{
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}
/* Waits until `total` blocks have arrived in *counter, and acquires their results. After PTX_MAX_WAIT clocks, about a
 * second, writes 1 to *stuck (host memory, or NULL) and returns: the other blocks have no place to run on. Work of other
 * processes delays them for a shorter time. */
enum : long long { PTX_MAX_WAIT = 1ll << 31 };
PI_FN void ptx_wait_arrived(uint32_t *counter, uint32_t total, uint32_t *stuck)
{
    const long long begin = clock64();
    for (uint32_t n;;) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(n) : "l"(counter) : "memory");
        if (n >= total) return;
        if (clock64() - begin >= PTX_MAX_WAIT) break;
    }
    if (stuck) asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(stuck), "r"(1) : "memory");
}
/* Counts a block as done in *counter. Returns true for the last one, which would make the counter `last` and resets it
 * to 0 instead. A caller that ignores the result does not wait for the atomic. */
PI_FN bool ptx_leave(uint32_t *counter, uint32_t last) { return atomicInc(counter, last - 1) == last - 1; }
/* Like ptx_leave, as an acquire and a release for the device: accesses of the other blocks before it come before
 * accesses of the last block after it. */
PI_FN bool ptx_leave_ordered(uint32_t *counter, uint32_t last)
{
    uint32_t before;
    asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(counter), "r"(last - 1) : "memory");
    return before == last - 1;
}

/* 2^x, within 2 ulp. Subnormal results are flushed to 0. */
PI_FN float ptx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* 1 / x, within 1 ulp. The result is 0 for |x| > 2^126. */
PI_FN float ptx_rcp(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* 1 / sqrt(x), within 2 ulp. x must not be subnormal. */
PI_FN float ptx_rsqrt(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* Conversions between float and F16 or BF16 bits. They round to nearest even; values beyond the largest become
 * infinite. */
PI_FN uint16_t ptx_half(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
PI_FN float ptx_of_half(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
PI_FN uint16_t ptx_bf16(float f)
{
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
/* ptx_bf16x2() and ptx_half2() return two 16-bit floats in a word, with the first argument in the low half.
 * ptx_floats() returns the two values of such a word. */
PI_FN uint32_t ptx_bf16x2(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
PI_FN uint32_t ptx_half2(float low, float high)
{
    uint32_t y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
PI_FN float2 ptx_floats(uint32_t half2)
{
    float2 y;
    asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
        : "=f"(y.x), "=f"(y.y) : "r"(half2));
    return y;
}
/* Returns x - low half and y - high half of half2, as two F16: the rounding errors of half2 = ptx_half2(x, y). */
PI_FN uint32_t ptx_rest(float x, float y, uint32_t half2)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    uint32_t d;
    asm("{\n\t.reg .b16 l, h;\n\t.reg .f32 a, b;\n\tmov.b32 {l, h}, %3;\n\tneg.f16 l, l;\n\tneg.f16 h, h;\n\t"
        "add.f32.f16 a, l, %1;\n\tadd.f32.f16 b, h, %2;\n\tcvt.rn.f16x2.f32 %0, b, a;\n\t}"
        : "=r"(d) : "f"(x), "f"(y), "r"(half2));
    return d;
#else
    const float2 f = ptx_floats(half2);
    return ptx_half2(x - f.x, y - f.y);
#endif
}
/* Computes half2 = ptx_half2(x, y) and rest = ptx_rest(x, y, half2). Two instructions round the two F16, because the
 * compiler would copy a word that one instruction creates and that is then unpacked. */
PI_FN void ptx_split(float x, float y, uint32_t &half2, uint32_t &rest)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    asm("{\n\t.reg .b16 l, h;\n\t.reg .f32 a, b;\n\tcvt.rn.f16.f32 l, %2;\n\tcvt.rn.f16.f32 h, %3;\n\tmov.b32 %0, {l, h};\n\t"
        "neg.f16 l, l;\n\tneg.f16 h, h;\n\tadd.f32.f16 a, l, %2;\n\tadd.f32.f16 b, h, %3;\n\tcvt.rn.f16x2.f32 %1, b, a;\n\t}"
        : "=&r"(half2), "=r"(rest) : "f"(x), "f"(y));
#else
    half2 = ptx_half2(x, y);
    rest = ptx_rest(x, y, half2);
#endif
}

#else

#include "ptx.h"

PI_FN uint32_t ptx_shared(const void *p) { return simt::shared_address(p); }
PI_FN void ptx_cp_async16(uint32_t dst, const void *src, int n = 16, SIMT_AT)
{
    simt::cp_async(dst, src, 16, (unsigned) n, file, line);
}
PI_FN uint64_t ptx_read_once() { return 0; }
PI_FN void ptx_prefetch(const void *) {}
PI_FN void ptx_cp_async16_once(uint32_t dst, const void *src, uint64_t, SIMT_AT) { simt::cp_async(dst, src, 16, 16, file, line); }
PI_FN void ptx_cp_async16_below(uint32_t dst, const void *src, int at, int end, SIMT_AT)
{
    if (at < end) simt::cp_async(dst, src, 16, 16, file, line);
}
PI_FN void ptx_cp_async16_once_below(uint32_t dst, const void *src, int at, int end, uint64_t, SIMT_AT)
{
    if (at < end) simt::cp_async(dst, src, 16, 16, file, line);
}
PI_FN void ptx_cp_async4(uint32_t dst, const void *src, int n = 4, SIMT_AT)
{
    simt::cp_async(dst, src, 4, (unsigned) n, file, line);
}
PI_FN void ptx_cp_async4_below(uint32_t dst, const void *src, int at, int end, SIMT_AT)
{
    if (at < end) simt::cp_async(dst, src, 4, 4, file, line);
}
PI_FN void ptx_cp_async_commit() { simt::cp_async_commit(); }
template <int N> PI_FN void ptx_cp_async_wait(SIMT_AT) { simt::cp_async_wait(N, file, line); }
PI_FN void ptx_launch_dependents() {}
PI_FN void ptx_wait_grids() { simt::wait_grids(); }
PI_FN bool ptx_has_bulk() { return simt::options.arch >= 90; }
template <int N> PI_FN void ptx_fewer_registers() {}
template <int N> PI_FN void ptx_more_registers() {}
template <int N> PI_FN void ptx_sync_first(SIMT_AT) { simt::first_barrier(N, file, line); }
PI_FN bool ptx_has_fp4() { return simt::options.arch >= 120; }
PI_FN bool ptx_has_wgmma() { return simt::options.arch == 90; }
template <int G> PI_FN void ptx_wgmma_pin(float (&)[G][4]) {}
template <int N> PI_FN void ptx_wgmma_fence(uint32_t (&a)[N][4]) { simt::wgmma_fence(a[0], 4 * N); }
PI_FN void ptx_wgmma_commit() { simt::wgmma_commit(); }
template <int N> PI_FN void ptx_wgmma_wait(SIMT_AT) { simt::wgmma_wait(N, file, line); }
template <int N, int G> PI_FN void ptx_wgmma_wait(float (&)[G][4], SIMT_AT) { simt::wgmma_wait(N, file, line); }
template <bool FIRST = false, bool TURNED = false, int G>
PI_FN void ptx_wgmma_f16(float (&d)[G][4], const uint32_t (&a)[4], uint64_t b, SIMT_AT)
{
    simt::wgmma(d[0], {8 * G, FIRST, TURNED, false}, a, b, file, line);
}
template <bool FIRST = false, bool TURNED = false, int G>
PI_FN void ptx_wgmma_bf16(float (&d)[G][4], const uint32_t (&a)[4], uint64_t b, SIMT_AT)
{
    simt::wgmma(d[0], {8 * G, FIRST, TURNED, true}, a, b, file, line);
}
PI_FN void ptx_mbarrier_init(uint32_t at, uint32_t count, SIMT_AT) { simt::mbarrier_init(at, count, file, line); }
PI_FN void ptx_fence_async() { simt::fence_async(); }
PI_FN void ptx_mbarrier_arrive_expect(uint32_t at, uint32_t bytes, SIMT_AT)
{
    simt::mbarrier_arrive_expect(at, bytes, file, line);
}
PI_FN void ptx_mbarrier_arrive(uint32_t at, SIMT_AT) { simt::mbarrier_arrive_expect(at, 0, file, line); }
PI_FN void ptx_mbarrier_wait(uint32_t at, uint32_t parity, SIMT_AT) { simt::mbarrier_wait(at, parity, file, line); }
PI_FN void ptx_bulk_copy(uint32_t dst, const void *src, uint32_t n, uint32_t mbarrier, SIMT_AT)
{
    simt::bulk_copy(dst, src, n, mbarrier, file, line);
}
PI_FN void ptx_ldmatrix_x4(uint32_t (&r)[4], uint32_t address, SIMT_AT) { simt::ldmatrix(r, 4, false, address, file, line); }
PI_FN void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address, SIMT_AT)
{
    simt::ldmatrix(r, 4, true, address, file, line);
}
PI_FN void ptx_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_bf16(d, a, b, file, line);
}
PI_FN void ptx_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_f16(d, a, b, file, line);
}
PI_FN void ptx_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_tf32(d, a, b, file, line);
}
PI_FN void ptx_mma_s8_k32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], SIMT_AT)
{
    simt::mma_s8_k32(d, a, b, file, line);
}
PI_FN void ptx_mma_s8_k16(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b, SIMT_AT)
{
    simt::mma_s8_k16(d, a, &b, file, line);
}

template <int BA, int TA, int BB, int TB>
PI_FN void ptx_mma_mxf4nvf4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb, SIMT_AT)
{
    simt::mma_mxf4nvf4(d, a, b, {sa, sb, BA, TA, BB, TB}, file, line);
}
template <int BA, int TA, int BB, int TB>
PI_FN void ptx_mma_mxf4(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb, SIMT_AT)
{
    simt::mma_mxf4(d, a, b, {sa, sb, BA, TA, BB, TB}, file, line);
}
template <int BA, int TA, int BB, int TB>
PI_FN void ptx_mma_mxf8_e4m3_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb,
                                  SIMT_AT)
{
    simt::mma_mxf8f6f4(d, a, b, simt::mx::e4m3, simt::mx::e4m3, {sa, sb, BA, TA, BB, TB}, file, line);
}
template <int BA, int TA, int BB, int TB>
PI_FN void ptx_mma_mxf8_e2m1_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb,
                                  SIMT_AT)
{
    simt::mma_mxf8f6f4(d, a, b, simt::mx::e2m1, simt::mx::e4m3, {sa, sb, BA, TA, BB, TB}, file, line);
}
template <int BA, int TA, int BB, int TB>
PI_FN void ptx_mma_mxf8_e2m1_e2m1(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], uint32_t sa, uint32_t sb,
                                  SIMT_AT)
{
    simt::mma_mxf8f6f4(d, a, b, simt::mx::e2m1, simt::mx::e2m1, {sa, sb, BA, TA, BB, TB}, file, line);
}

PI_FN uint32_t ptx_and_or(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
PI_FN uint32_t ptx_and_xor(uint32_t a, uint32_t b, uint32_t c) { return (a & b) ^ c; }
PI_FN uint32_t ptx_permute(uint32_t a, uint32_t b, uint32_t s) { return __byte_perm(a, b, s); }
PI_FN uint32_t ptx_add_f16x2(uint32_t a, uint32_t b) { return simt::fma_f16x2(a, 0x3c003c00, b); }
PI_FN uint32_t ptx_fma_f16x2(uint32_t a, uint32_t b, uint32_t c) { return simt::fma_f16x2(a, b, c); }
PI_FN uint32_t ptx_fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) { return simt::fma_bf16x2(a, b, c); }
PI_FN int ptx_thread() { return (int) threadIdx.x; }
PI_FN int ptx_read_thread() { return (int) threadIdx.x; }
PI_FN void ptx_opaque(float &) {}
PI_FN int ptx_low(int64_t x) { return (int) x; }
PI_FN int ptx_opaque(int x) { return x; }
PI_FN uint32_t ptx_pin(uint32_t x) { return x; }
PI_FN const uint8_t *ptx_pin(const uint8_t *p) { return p; }
/* In the emulator only options.resident blocks run concurrently. At most that many wait, unless a test sets the places
 * of a device. If a launch is sampled, one block counts as the last to arrive, and the counter stays 0. */
PI_FN uint32_t ptx_max_spinning(uint32_t want)
{
    return simt::options.exact_places ? want : min(want, simt::options.resident);
}
PI_FN void ptx_arriving() { simt::arrives(); }
PI_FN uint32_t ptx_arrive(uint32_t *counter, uint32_t total, SIMT_AT)
{
    if (simt::sampling()) return simt::ends_sample() ? total - 1 : 0;
    return simt::arrive(counter, file, line);
}
PI_FN void ptx_wait_arrived(uint32_t *counter, uint32_t total, uint32_t *stuck, SIMT_AT)
{
    for (unsigned long n = 1; simt::load_acquire(counter, file, line) < total; n++)
        if (n == simt::options.max_polls) return simt::report_stuck(stuck);
}
PI_FN bool ptx_leave(uint32_t *counter, uint32_t last, SIMT_AT)
{
    if (simt::sampling() || atomicAdd(counter, 1u, file, line) + 1 != last) return false;
    atomicExch(counter, 0u, file, line);
    return true;
}
PI_FN bool ptx_leave_ordered(uint32_t *counter, uint32_t last, SIMT_AT)
{
    if (simt::sampling() || simt::arrive(counter, file, line) + 1 != last) return false;
    atomicExch(counter, 0u, file, line);
    return true;
}
PI_FN float ptx_exp2(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
PI_FN float ptx_rcp(float x) { return fabsf(x) > 0x1p126f ? x < 0 ? -0.0f : 0.0f : 1.0f / x; }
PI_FN float ptx_rsqrt(float x) { return 1.0f / sqrtf(x); }
PI_FN uint16_t ptx_half(float f) { return simt::to_half(f); }
PI_FN float ptx_of_half(uint16_t h) { return simt::from_half(h); }
PI_FN uint16_t ptx_bf16(float f) { return simt::to_bf16(f); }
PI_FN uint32_t ptx_bf16x2(float low, float high) { return simt::to_bf16(low) | (uint32_t) simt::to_bf16(high) << 16; }
PI_FN uint32_t ptx_half2(float low, float high) { return simt::to_half(low) | (uint32_t) simt::to_half(high) << 16; }
PI_FN float2 ptx_floats(uint32_t half2) { return {ptx_of_half((uint16_t) half2), ptx_of_half((uint16_t) (half2 >> 16))}; }
PI_FN uint32_t ptx_rest(float x, float y, uint32_t half2)
{
    const float2 f = ptx_floats(half2);
    return ptx_half2(x - f.x, y - f.y);
}
PI_FN void ptx_split(float x, float y, uint32_t &half2, uint32_t &rest)
{
    half2 = ptx_half2(x, y);
    rest = ptx_rest(x, y, half2);
}

#endif

PI_FN float ptx_of_bf16(uint16_t h) { return __uint_as_float((uint32_t) h << 16); }

/* Start of most kernels: lets the next kernel of the stream begin early (programmatic dependent launch), then waits for
 * the previous kernels. */
PI_FN void ptx_wait_dependency()
{
    ptx_launch_dependents();
    ptx_wait_grids();
}

#endif
