/* Inside of attention on the CPU: the layout of cached keys and values, and the kernels that each instruction set has.
 *
 * A block of the pool holds, for one layer, the keys of each kv head, then the values of each kv head. Both are cut into
 * tiles of 16 consecutive tokens, so a block of 16, 32 or 64 tokens is 1, 2 or 4 tiles a head:
 *
 *     block:  K head 0: tile tile ..| K head 1: tile ..| ... | V head 0: tile tile ..| V head 1: ...
 *
 *     K tile: 16 keys are the lanes of a vector               V tile: dims are the lanes, 32 of them a row
 *       f32, f16, bf16  [head_dim][16 keys]                     [head_dim / 32][16 keys][32]
 *       q8_0            [head_dim / 32] of                      [head_dim / 32] of
 *                         16 half scales, [32][16 keys] int8      16 half scales, [16 keys][32] int8
 *       q4_0, iq4_nl    [head_dim / 32] of                      [head_dim / 32] of
 *                         16 half scales, [16][16 keys] bytes     16 half scales, [16 keys][16] bytes
 *       tq4_0           (byte i: dim i in the low nibble, dim i + 16 in the high one, as in the file format)
 *       tq3_0           [head_dim / 32] of                      [head_dim / 32] of
 *                         16 half scales, [3][16 keys] words      16 half scales, [16 keys][12] bytes
 *                       (words of 32 bits; dim i: the three bits from bit 3 i of the three words, or 12 bytes, on)
 *       q4_1, q5_0, q5_1  the same, with more 16s of words behind the scales: half minima; the fifth bits of dims
 *                         0 .. 15, then those of 16 .. 31
 *
 *     Rows of tq4_0 and tq3_0 are rotated (formats/cache_rotation.h): op qkv rotates queries where the keys are of such a type,
 *     and attention rotates its results back where the values are.
 *
 *     Where head_dim % 32 is 16 (f32, f16, bf16 only), the last of a tile is for 16 dims and half as large.
 *
 * A tile takes exactly 16 rows of the type, whatever the type.
 *
 * How a query row is computed, and why that is batch-invariant: keys are cut at absolute multiples of
 * PI__KV_SPLIT. In a KV split, scores are sums over dims in order, the maximum and the sum of exponentials go over the
 * row's own keys by lane = position mod 16, values are added in order of position. Splits are folded in order. So
 * block size, batch, chunks and threads only choose who computes what. */
#ifndef PI__CPU_ATTENTION_H
#define PI__CPU_ATTENTION_H

#include <math.h>

#include "backend/cpu/cpu.h"
#include "formats/formats.h"

enum {
    PI__ATTN_TILE = 16,      /* keys a tile */
    PI__KV_SPLIT = 256,      /* keys a split */
    PI__ATTN_MAX_ROWS = 12,  /* query rows a kernel takes at once */
    PI__ATTN_S_STRIDE = 272, /* floats from score row to score row; more than a split, so that rows use all cache sets */
    PI__MAX_HEAD_DIM = 512,  /* values a head */
};

/* Query rows of one sequence that read the same kv head. */
typedef struct pi__attn_rows {
    int32_t n;              /* rows, 1..max_rows of the kernels */
    int32_t n_padded;       /* rows that the kernels compute: n rounded up to a size they have */
    int32_t head_dim;       /* values a row */
    int32_t type_k, type_v; /* of the cache */
    float softcap;          /* 0: none */
    bool has_sinks;         /* sink[] counts */
    int32_t lo[PI__ATTN_MAX_ROWS], hi[PI__ATTN_MAX_ROWS]; /* first and last key position a row sees */
    const float *q[PI__ATTN_MAX_ROWS];                    /* [head_dim] */
    const float *gate[PI__ATTN_MAX_ROWS];                 /* [head_dim], or NULL: none */
    float *out[PI__ATTN_MAX_ROWS];                        /* [head_dim] */
    float sink[PI__ATTN_MAX_ROWS];                        /* extra logit */
} pi__attn_rows;

/* Softmax in the making of some rows: maximum, sum of exponentials, weighted sum of values. */
typedef struct pi__attn_sum {
    float m[PI__ATTN_MAX_ROWS], l[PI__ATTN_MAX_ROWS];
    float *acc; /* [n_padded, head_dim] */
} pi__attn_sum;

/* Norm, rotation and scale of one head of q, k or v before attention. */
typedef struct pi__head_prep {
    int32_t head_dim;    /* values */
    bool norm;           /* RMSNorm, times w if there is one */
    const float *w;      /* [head_dim] or NULL */
    float eps;           /* of the norm */
    const float *rope;   /* n_rot/2 cosines, n_rot/2 sines; NULL: not rotated */
    int32_t n_rot;       /* rotated dims */
    int32_t pair_stride; /* dims i and i + pair_stride are a pair */
    float scale;         /* multiplies at the end */
} pi__head_prep;

struct pi__cpu_attn_kernels {
    int32_t max_rows; /* rows the kernels take at once, at most PI__ATTN_MAX_ROWS */
    /* n rounded up to a number of rows the kernels exist for. */
    int32_t (*round_rows)(int32_t n);
    /* qt = the rows of q, transposed: [head_dim][n_padded], the last row repeated. */
    void (*pack)(const pi__attn_rows *w, float *qt);
    /* The rows over the keys of one KV split. k, v: tiles of the split, those that no row sees may be NULL. s: scores,
     * PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE floats. Rows that see nothing of the split are left undefined in out. */
    void (*split)(const pi__attn_rows *w, const float *qt, int32_t split, const char *const *k, const char *const *v,
                 float *s, pi__attn_sum *out);
    /* Folds the sum of a KV split into run, which goes first; a row's first split replaces what run holds. */
    void (*fold)(const pi__attn_rows *w, int32_t split, pi__attn_sum *run, const pi__attn_sum *sum);
    /* Sinks, division by the sum, the gate, and the result to out. */
    void (*finish)(const pi__attn_rows *w, const pi__attn_sum *run);

    /* The mean of the keys of some tiles, which are whole. [head_dim] */
    void (*mean)(int32_t type, int32_t head_dim, const char *const *k, int32_t n_tiles, float *mean);
    /* sum[i] += e^(s[i] - the largest s of the row) for each of the rows in order, where s are the scores of n keys, which lie
     * in F32 tiles one behind the other. s: room for PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE floats for every 256 of them. */
    void (*rank)(const pi__attn_rows *w, const float *qt, const float *k, int32_t n, float *s, float *sum);

    void (*prep)(const pi__head_prep *p, const float *src, float *dst); /* src may be dst */
    /* A head of n values, a multiple of 32, to what rotated caches have of it (cache_rotation.h), or back. */
    void (*turn)(int32_t n, float *x, bool back);
    /* One head of one token into lane 0..15 of a tile. */
    void (*store_k)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);
    void (*store_v)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);

    /* A cached row of n values, a multiple of 32, one behind the other. */
    void (*store_row)(int32_t type, char *dst, int32_t n, const float *x);
    void (*load_row)(int32_t type, const char *src, int32_t n, float *x);

    /* The ops of elementwise.c, on one row. */
    void (*add_norm)(float *x, const float *y, const float *w, const float *bias, float eps, float scale, int64_t n);
    void (*layer_norm)(float *x, const float *y, const float *b, const float *w, const float *shift, float eps, int64_t n);
    void (*gelu)(float *x, const float *b, int64_t n);
    void (*softcap)(float *x, float cap, size_t n);
};

/* The tile of a kv head that holds the key of token `offset` of a block of block_size. */
char *pi__cpu_k_tile(const pi__kv_layer *kv, int32_t block_size, int64_t block, int32_t offset, int32_t head);

extern const pi__cpu_attn_kernels pi__cpu_attn_generic;
extern const pi__cpu_attn_kernels pi__cpu_attn_avx2;
extern const pi__cpu_attn_kernels pi__cpu_attn_avx512;
extern const pi__cpu_attn_kernels pi__cpu_attn_neon;
extern const pi__cpu_attn_kernels pi__cpu_attn_sve256;

#endif
