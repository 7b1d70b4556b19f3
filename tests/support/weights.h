/* Random weights of every format, loaded as a model's weights are, for tests of the matmul ops (see test_linear.c). */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"
#include "rounds.h"

static const int all_types[] = {
    PI__F32, PI__F16, PI__BF16, PI__Q8_0, PI__Q5_0, PI__Q4_K, PI__Q6_K, PI__Q4_0, PI__Q4_1, PI__Q5_1, PI__Q5_K,
    PI__Q2_K, PI__Q3_K, PI__IQ4_NL, PI__IQ4_XS, PI__MXFP4, PI__NVFP4, PI__IQ2_XXS, PI__IQ2_XS, PI__IQ2_S,
    PI__IQ3_XXS, PI__IQ3_S, PI__IQ1_S, PI__IQ1_M, PI__TQ1_0, PI__TQ2_0,
};
enum { N_TYPES = (int) (sizeof all_types / sizeof *all_types) };

static uint64_t seed = 88172645463325252u;
static uint32_t rnd(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t) (seed >> 24);
}
static float uniform(void) { return (float) (rnd() & 0xffffff) / 8388608.0f - 1.0f; }
static float normalish(void) { return uniform() + uniform() + uniform(); }

static void put_half(uint8_t *p, float v)
{
    uint16_t h = pi__f32_to_f16(v);
    memcpy(p, &h, 2);
}

/* Sets the scales of a block such that values are around 1. */
static void random_scales(int type, uint8_t *p)
{
    float d = 0.01f + 0.01f * fabsf(uniform());
    if (rnd() & 1) d = -d;
    switch (type) {
    case PI__F32: { float v = normalish(); memcpy(p, &v, 4); break; }
    case PI__F16: put_half(p, normalish()); break;
    case PI__BF16: { uint16_t h = pi__f32_to_bf16(normalish()); memcpy(p, &h, 2); break; }
    case PI__Q4_1: case PI__Q5_1: put_half(p, d * 8); put_half(p + 2, uniform()); break;
    case PI__Q4_K: case PI__Q5_K: put_half(p, d / 10); put_half(p + 2, uniform() / 64); break;
    case PI__Q2_K: put_half(p + 80, d * 2); put_half(p + 82, uniform() / 16); break;
    case PI__Q3_K: put_half(p + 108, d / 2); break;
    case PI__Q6_K: put_half(p + 208, d / 64); break;
    case PI__IQ4_XS: put_half(p, d / 32); break;
    case PI__MXFP4: p[0] = (uint8_t) (122 + rnd() % 8); break;
    case PI__NVFP4: for (int i = 0; i < 4; i++) p[i] = (uint8_t) (0x20 + rnd() % 0x20); break;
    case PI__IQ1_M: { /* the scale's nibbles are the top bits of four words */
        uint16_t h = pi__f32_to_f16(d * 10);
        for (int i = 0; i < 4; i++) p[49 + 2 * i] = (uint8_t) ((p[49 + 2 * i] & 15) | (h >> 4 * i & 15) << 4);
        break;
    }
    case PI__TQ1_0: put_half(p + 52, d * 50); break;
    case PI__TQ2_0: put_half(p + 64, d * 50); break;
    default: put_half(p, d); break;
    }
}

/* Fills a block with random codes. */
static void random_block(int type, uint8_t *p)
{
    for (uint32_t i = 0; i < pi__type_info_of(type)->type_size; i++) p[i] = (uint8_t) rnd();
    random_scales(type, p);
}

typedef struct fixture {
    pi__cpu cpu;
    pi__weight w;
    uint8_t *src;     /* as in a file, at an odd address */
    uint8_t *src_mem;
    float *ref;       /* [n_mat * n_out, n_in] as the reader decodes it */
} fixture;

static void *aligned(size_t n)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, 64, n ? n : 64), 0);
    return p;
}

static void cpu_start(pi__cpu *cpu, const pi__cpu_linear_kernels *k, int32_t threads, const pi__limits *lim)
{
    memset(cpu, 0, sizeof *cpu);
    assert_int_equal(pi__pool_create(&cpu->pool, threads, 0, 50, NULL), PI_OK);
    cpu->lin = k;
    cpu->lim = *lim;
    const size_t linear = pi__cpu_linear_scratch(cpu, lim), moe = pi__cpu_moe_scratch(cpu, lim);
    cpu->scratch_size = lim->max_expert ? moe : linear;
    cpu->scratch = aligned(cpu->scratch_size);
    memset(cpu->scratch, 0xff, cpu->scratch_size); /* NaNs, to detect reads of unwritten scratch */
}

static void backend_stop(pi__cpu *cpu)
{
    pi__pool_destroy(cpu->pool);
    free(cpu->scratch);
}

/* Loads in pieces, as a loader with bounded memory does. */
static void load_all(fixture *f)
{
    const size_t row = pi__row_size(pi__type_info_of(f->w.type), f->w.n_in);
    for (int64_t m = 0; m < f->w.n_mat; m++)
        for (int64_t r = 0; r < f->w.n_out; r += PI__LOAD_ROWS)
            pi__cpu_weight_load(&f->cpu.be, &f->w, m, r,
                                f->w.n_out - r < PI__LOAD_ROWS ? f->w.n_out - r : PI__LOAD_ROWS,
                                f->src + (size_t) (m * f->w.n_out + r) * row);
}

static void weight_make(fixture *f, int type, int64_t n_in, int64_t n_out, int64_t n_mat)
{
    const pi__type_info *t = pi__type_info_of(type);
    const size_t row = pi__row_size(t, n_in), n = (size_t) (n_out * n_mat);
    f->w = (pi__weight) {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = n_mat};
    f->src_mem = malloc(n * row + 1);
    f->src = f->src_mem + 1;
    f->ref = malloc(n * (size_t) n_in * sizeof *f->ref);
    for (size_t i = 0; i < n * row; i += t->type_size) random_block(type, f->src + i);
    for (size_t i = 0; i < n; i++)
        assert_true(pi__dequantize_row(type, f->src + i * row, f->ref + i * (size_t) n_in, n_in));
    f->w.size = pi__cpu_weight_size(&f->cpu.be, &f->w);
    assert_true(f->w.size > 0);
    f->w.data = aligned(f->w.size);
    memset(f->w.data, 0xff, f->w.size);
    load_all(f);
}

static void weight_drop(fixture *f)
{
    free(f->src_mem);
    free(f->ref);
    free(f->w.data);
}

static inline bool is_float(int type) { return type == PI__F32 || type == PI__F16 || type == PI__BF16; }

static float *random_rows(int64_t n)
{
    float *x = malloc((size_t) n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = normalish();
    return x;
}

#ifdef PI__SIMD_X86
const pi__cpu_linear_kernels *pi__lin_kernels_avxvnni_evex(int bits); /* avxvnni_evex.c */
extern const pi__lin_mul_fn pi__lin_amx_twin[2][PI__LK_N];            /* amx_twin.c */
static inline const pi__cpu_linear_kernels *kernels_amx_twin(int bits)
{
    static pi__cpu_linear_kernels k[2];
    k[bits == 15] = *pi__lin_kernels_avx512(bits);
    k[bits == 15].many = pi__lin_amx_twin[bits == 15];
    return &k[bits == 15];
}
#else
static inline const pi__cpu_linear_kernels *kernels_amx_twin(int bits) { (void) bits; return NULL; }
static inline const pi__cpu_linear_kernels *pi__lin_kernels_avxvnni_evex(int bits) { (void) bits; return NULL; }
#endif

/* Returns the kernels of an instruction set for activations of `bits` bits, or NULL. On processors with AVX-512 only,
 * the AVX-VNNI kernels use the EVEX form of the instruction. The AMX kernels then use a plain C twin of the
 * instructions. */
static inline const pi__cpu_linear_kernels *kernels_here(int isa, int bits)
{
    if (pi__isa_available(isa)) return pi__cpu_linear_kernels_of(isa, bits);
    if (!pi__isa_available(PI__ISA_AVX512)) return NULL;
    return isa == PI__ISA_AVXVNNI ? pi__lin_kernels_avxvnni_evex(bits)
           : isa == PI__ISA_AMX   ? kernels_amx_twin(bits)
                                  : NULL;
}

/* Calls fn for each available instruction set with both activation widths. PI_TEST_ISA selects a single one, which
 * must be available. Other builds cover plain C natively. */
static inline void each_isa(void (*fn)(const pi__cpu_linear_kernels *k))
{
    const char *only = getenv("PI_TEST_ISA");
    int isa = crossed() ? PI__ISA_GENERIC + 1 : PI__ISA_GENERIC, end = PI__N_ISAS;
    if (only) {
        assert_int_equal(pi__isa_choose(only, &isa, NULL), PI_OK);
        end = isa + 1;
    }
    for (; isa < end; isa++)
        for (int bits = 8; bits <= 15; bits += 7)
            if (kernels_here(isa, bits)) fn(kernels_here(isa, bits));
}

/* Largest magnitude of a rounded activation's code. */
static inline float code_max(const pi__cpu *cpu) { return cpu->lin->digits == 2 ? PI__LIN_CODE_MAX : PI__LIN_BYTE_MAX; }

#endif
