/* Internals of CPU attention: the layout of cached keys and values, and the kernels of each instruction set.
 *
 * A block of the pool holds, for one layer, the keys of each KV head, then the values of each KV head. Both are
 * stored in tiles of 16 consecutive tokens. So a block of 16, 32 or 64 tokens has 1, 2 or 4 tiles of keys per head,
 * and as many of values:
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
 *                       (32-bit words; dim i: three bits from bit 3 i on of the three words, or of the 12 bytes)
 *       q4_1, q5_0, q5_1  as q4_0, with more groups of 16 words after the scales: half minima; the fifth bits of dims
 *                         0 .. 15, then of dims 16 .. 31
 *
 *     Rows of tq4_0 and tq3_0 are rotated (formats/cache_rotation.h). Op qkv rotates queries for keys of these types;
 *     attention rotates its outputs back for values of these types.
 *
 *     If head_dim % 32 is 16 (f32, f16, bf16 only), the last [32] of a tile has 16 dims and half the size.
 *
 * The size of a tile is exactly 16 rows of the type, for every type.
 *
 * Batch invariance: a query row's keys are split at multiples of PI__KV_SPLIT in the sequence's own positions. In a KV
 * split, a score is a sum over dims in order. Maximum and sum of exponentials run over the row's visible keys by lane =
 * position mod 16. Values are added in order of position. Splits are folded in order. So block size, batch, chunks and
 * threads do not change a result; they only decide which thread computes it. */
#ifndef PI__CPU_ATTENTION_H
#define PI__CPU_ATTENTION_H

#include <math.h>

#include "backend/cpu/cpu.h"
#include "formats/formats.h"

enum {
    PI__ATTN_TILE = 16,      /* keys per tile */
    PI__KV_SPLIT = 256,      /* keys per KV split */
    PI__ATTN_MAX_ROWS = 12,  /* max query rows of one kernel call */
    /* floats between the score rows of one KV split; more than PI__KV_SPLIT, to spread rows over all cache sets */
    PI__ATTN_S_STRIDE = 272,
    PI__MAX_HEAD_DIM = 512,  /* max values per head */
};

/* Query rows of one sequence that read the same KV head; the input of a kernel call. */
typedef struct pi__attn_rows {
    int32_t n;              /* rows, 1..max_rows of the kernels */
    int32_t n_padded;       /* rows that the kernels compute: n rounded up by round_rows */
    int32_t head_dim;       /* values per row */
    int32_t type_k, type_v; /* cache types of keys and of values */
    float softcap;          /* softcap of the scores; 0 = none */
    bool has_sinks;         /* sink[] is valid */
    int32_t lo[PI__ATTN_MAX_ROWS], hi[PI__ATTN_MAX_ROWS]; /* positions of the first and last visible key of each row */
    const float *q[PI__ATTN_MAX_ROWS];                    /* [head_dim] query, already scaled */
    /* [head_dim] the row's result is multiplied by sigmoid(gate); NULL = no gate */
    const float *gate[PI__ATTN_MAX_ROWS];
    float *out[PI__ATTN_MAX_ROWS];                        /* [head_dim] result */
    float sink[PI__ATTN_MAX_ROWS];                        /* with has_sinks: the row's extra logit in the softmax sum */
} pi__attn_rows;

/* Running softmax of n_padded rows: m = maximum of the scores, l = sum of exponentials, acc = weighted sum of
 * values. */
typedef struct pi__attn_sum {
    float m[PI__ATTN_MAX_ROWS], l[PI__ATTN_MAX_ROWS];
    float *acc; /* [n_padded, head_dim] */
} pi__attn_sum;

/* Arguments of prep: norm, RoPE and scale of one head of q, k or v before attention. */
typedef struct pi__head_prep {
    int32_t head_dim;    /* values */
    bool norm;           /* RMSNorm, multiplied by w if w is not NULL */
    const float *w;      /* [head_dim] or NULL */
    float eps;           /* of the norm */
    const float *rope;   /* n_rot/2 cosines, then n_rot/2 sines, of the token; NULL = no RoPE */
    int32_t n_rot;       /* rotated dims */
    int32_t pair_stride; /* dims i and i + pair_stride are a pair */
    float scale;         /* multiplies the result */
} pi__head_prep;

struct pi__cpu_attn_kernels {
    int32_t max_rows; /* max rows of a kernel call, at most PI__ATTN_MAX_ROWS */
    /* Rounds a number of rows up to one that has kernels. */
    int32_t (*round_rows)(int32_t n);
    /* Packs queries: qt [head_dim][n_padded] = the transposed rows of q; the last row is repeated as padding. */
    void (*pack)(const pi__attn_rows *w, float *qt);
    /* Computes the rows' attention to the keys of one KV split into out. split: number of the KV split. k, v:
     * addresses of its tiles; NULL is allowed for tiles that no row sees. s: scratch for scores, PI__ATTN_MAX_ROWS
     * * PI__ATTN_S_STRIDE floats. out is undefined for rows that see no key of the split. */
    void (*split)(const pi__attn_rows *w, const float *qt, int32_t split, const char *const *k, const char *const *v,
                 float *s, pi__attn_sum *out);
    /* Folds sum, the result of a KV split, into run, the result of the earlier splits. A row's first split
     * overwrites run. */
    void (*fold)(const pi__attn_rows *w, int32_t split, pi__attn_sum *run, const pi__attn_sum *sum);
    /* Adds sinks to the sum, divides by the sum, applies the gate, and writes the rows' results to w->out. */
    void (*finish)(const pi__attn_rows *w, const pi__attn_sum *run);

    /* mean [head_dim] = mean of the keys in n_tiles complete tiles. type: cache type of the keys. */
    void (*mean)(int32_t type, int32_t head_dim, const char *const *k, int32_t n_tiles, float *mean);
    /* For each row in order: sum[i] += e^(s[i] - max of the row's s), with s[i] the row's score of key i. k: n keys in
     * consecutive F32 tiles. s: scratch, PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE floats for every 256 keys. */
    void (*rank)(const pi__attn_rows *w, const float *qt, const float *k, int32_t n, float *s, float *sum);

    /* dst = the head at src after norm, RoPE and scale; src may be dst */
    void (*prep)(const pi__head_prep *p, const float *src, float *dst);
    /* Rotates a head of n values (a multiple of 32) in place as rotated cache types require (cache_rotation.h).
     * back: the inverse. */
    void (*turn)(int32_t n, float *x, bool back);
    /* Store one head of one token (head_dim values of x) in lane 0..15 of a tile of keys or of values. */
    void (*store_k)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);
    void (*store_v)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);

    /* Store or load a cached row of n consecutive values; n is a multiple of 32. */
    void (*store_row)(int32_t type, char *dst, int32_t n, const float *x);
    void (*load_row)(int32_t type, const char *src, int32_t n, float *x);

    /* Kernels for one row of the ops in elementwise.c, with these ops' arguments. */
    void (*add_norm)(float *x, const float *y, const float *w, const float *bias, float eps, float scale, int64_t n);
    void (*layer_norm)(float *x, const float *y, const float *b, const float *w, const float *shift, float eps,
                       int64_t n);
    void (*gelu)(float *x, const float *b, int64_t n);
    void (*softcap)(float *x, float cap, size_t n);
};

/* Returns the bytes of a tile of keys or values. */
static inline size_t pi__cpu_tile_bytes(int32_t type, int32_t head_dim)
{
    return PI__ATTN_TILE * pi__kv_row_size(type, head_dim);
}
/* Returns the address of the K tile with token `offset` of a block of block_size tokens, for one KV head. */
static inline char *pi__cpu_k_tile(const pi__kv_layer *kv, int32_t block_size, int64_t block, int32_t offset,
                                   int32_t head)
{
    int32_t tile = head * (block_size / PI__ATTN_TILE) + offset / PI__ATTN_TILE;
    return kv->base + (size_t) block * kv->stride + (size_t) tile * pi__cpu_tile_bytes(kv->type_k, kv->head_dim);
}

extern const pi__cpu_attn_kernels pi__cpu_attn_generic;
extern const pi__cpu_attn_kernels pi__cpu_attn_avx2;
extern const pi__cpu_attn_kernels pi__cpu_attn_avx512;
extern const pi__cpu_attn_kernels pi__cpu_attn_neon;
extern const pi__cpu_attn_kernels pi__cpu_attn_sve256;

#endif
