/* Internals of CPU attention: the layout of cached keys and values, and the kernels of each instruction set.
 *
 * A block of the pool holds, for one layer, the keys of each KV head, then the values of each KV head. Both are stored
 * in tiles of 16 consecutive tokens. So a block of 16, 32 or 64 tokens has 1, 2 or 4 tiles of keys per head, and the
 * same number of tiles of values:
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
 *       q4_1, q5_0, q5_1  as q4_0, with more groups of 16 two-byte words after the scales: half minima (q4_1, q5_1),
 *                         then (q5_0, q5_1) the fifth bits of dims 0 .. 15, and of dims 16 .. 31
 *
 *     Keys and values of tq4_0 and tq3_0 are stored rotated (formats/cache_rotation.h). If keys have such a type, op
 *     qkv also rotates the queries. If values have such a type, attention rotates its outputs back.
 *
 *     If head_dim % 32 is 16 (f32, f16, bf16 only), the last [32] of a tile has 16 dims and half the size.
 *
 * A tile has the bytes of 16 rows of head_dim values in the type's row format, for every type.
 *
 * Batch invariance: a query row's keys are split at multiples of PI__KV_SPLIT in the sequence's own positions. In a KV
 * split, a score is a sum over dims in order. Maximum and sum of exponentials run over the row's visible keys by lane =
 * position mod 16. Values are added in order of position. KV splits are folded in order. So block size, batch, chunk
 * lengths and number of threads do not change a result. */
#ifndef PI__CPU_ATTENTION_H
#define PI__CPU_ATTENTION_H

#include <math.h>

#include "backend/cpu/cpu.h"
#include "formats/formats.h"

enum {
    PI__ATTN_TILE = 16,      /* keys per tile */
    PI__KV_SPLIT = 256,      /* keys per KV split */
    PI__ATTN_MAX_ROWS = 12,  /* max query rows (query heads x tokens) of one kernel call */
    /* floats from one query row's scores to the next; more than PI__KV_SPLIT, so that rows are spread over all cache
     * sets */
    PI__ATTN_S_STRIDE = 272,
    PI__MAX_HEAD_DIM = 512,  /* max values per head */
};

/* Query rows of one sequence that read the same KV head; the input of a kernel call. A row is one query head of one
 * token. */
typedef struct pi__attn_rows {
    int32_t n;              /* rows, 1..max_rows of the kernels */
    int32_t n_padded;       /* rows that the kernels compute: n rounded up by round_rows */
    int32_t head_dim;       /* values per row */
    int32_t n_dot;          /* values that scores are computed from: the other queries are zeros */
    int32_t type_k, type_v; /* cache types of keys and of values */
    float softcap;          /* softcap of the scores; 0 = none */
    bool has_sinks;         /* sink[] is valid */
    int32_t n_rel;          /* values per row in rel[], as in pi__attention; 0 = no biases of scores */
    /* positions in the sequence of the first and last key that each row attends to */
    int32_t lo[PI__ATTN_MAX_ROWS], hi[PI__ATTN_MAX_ROWS];
    const float *q[PI__ATTN_MAX_ROWS];                    /* [head_dim] query of each row, already scaled */
    /* [head_dim] the row's result is multiplied by sigmoid(gate), value by value; NULL = no gate */
    const float *gate[PI__ATTN_MAX_ROWS];
    float *out[PI__ATTN_MAX_ROWS];                        /* [head_dim] result of each row */
    /* if has_sinks: extra logit of each row in the softmax sum, without a value */
    float sink[PI__ATTN_MAX_ROWS];
    /* if n_rel > 0: biases of each row's scores, and the row's position in the sequence */
    const float *rel[PI__ATTN_MAX_ROWS];
    int32_t pos[PI__ATTN_MAX_ROWS];
} pi__attn_rows;

/* Running softmax of n_padded rows. Per row: m = maximum of the scores, l = sum of e^(score - m), acc = sum of e^(score
 * - m) * value. */
typedef struct pi__attn_sum {
    float m[PI__ATTN_MAX_ROWS], l[PI__ATTN_MAX_ROWS];
    float *acc; /* [n_padded, head_dim] */
} pi__attn_sum;

/* Arguments of prep: norm, RoPE and scale of one head of q, k or v before attention. */
typedef struct pi__head_prep {
    int32_t head_dim;    /* values */
    bool norm;           /* true = RMSNorm, multiplied by w if w is not NULL */
    const float *w;      /* [head_dim] or NULL */
    float eps;           /* of the norm */
    const float *rope;   /* n_rot/2 cosines, then n_rot/2 sines, for the token's position; NULL = no RoPE */
    int32_t n_rot;       /* dims that RoPE rotates */
    int32_t pair_stride; /* RoPE rotates dims i and i + pair_stride as a pair, i < n_rot/2 */
    float scale;         /* factor of the result */
    bool norm_last;      /* the norm follows RoPE */
} pi__head_prep;

struct pi__cpu_attn_kernels {
    int32_t max_rows; /* max rows of a kernel call, at most PI__ATTN_MAX_ROWS */
    /* Returns n rounded up to a number of rows for which kernels are compiled. */
    int32_t (*round_rows)(int32_t n);
    /* Packs queries: qt [head_dim][n_padded] = the transposed query rows; rows n..n_padded - 1 repeat the last row. */
    void (*pack)(const pi__attn_rows *w, float *qt);
    /* *out = the rows' softmax sums over the keys of one KV split. split: index of the KV split in the sequence. k, v:
     * [16] addresses of its tiles; NULL is allowed for tiles without visible keys. s: scratch for scores,
     * PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE floats. out is undefined for rows that attend to no key of the split. */
    void (*split)(const pi__attn_rows *w, const float *qt, int32_t split, const char *const *k, const char *const *v,
                 float *s, pi__attn_sum *out);
    /* Folds sum, the result of KV split number `split`, into run, the result of the earlier splits. A row's first split
     * overwrites run. */
    void (*fold)(const pi__attn_rows *w, int32_t split, pi__attn_sum *run, const pi__attn_sum *sum);
    /* Adds sinks to the softmax sum, divides acc by the sum, rotates back if values are rotated, and applies the gate.
     * Writes the rows' results to w->out. */
    void (*finish)(const pi__attn_rows *w, const pi__attn_sum *run);

    /* mean [head_dim] = mean of the 16 * n_tiles keys in tiles k[0 .. n_tiles - 1]. type: cache type of the keys. */
    void (*mean)(int32_t type, int32_t head_dim, const char *const *k, int32_t n_tiles, float *mean);
    /* For each row in order and i < n: sum[i] += e^(s[i] - max), with s[i] the row's score of key i and max the row's
     * largest score. k: n keys in consecutive F32 tiles. s: scratch, PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE floats for
     * every 256 keys. */
    void (*rank)(const pi__attn_rows *w, const float *qt, const float *k, int32_t n, float *s, float *sum);

    /* dst [head_dim] = the head at src after norm, RoPE and scale; src may be dst */
    void (*prep)(const pi__head_prep *p, const float *src, float *dst);
    /* Rotates a head of n values (a multiple of 32) in place for rotated cache types (cache_rotation.h). back: true =
     * inverse rotation. */
    void (*turn)(int32_t n, float *x, bool back);
    /* Convert one head of one token (head_dim values of x) to the cache type and store it at token `lane` (0..15) of a
     * K or V tile. */
    void (*store_k)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);
    void (*store_v)(int32_t type, char *tile, int32_t lane, int32_t head_dim, const float *x);

    /* Store x to, or load x from, a cached row of n consecutive values in the type's row format; n is a multiple of
     * 32. */
    void (*store_row)(int32_t type, char *dst, int32_t n, const float *x);
    void (*load_row)(int32_t type, const char *src, int32_t n, float *x);

    /* Kernels for one row [n] of the ops in elementwise.c. Arguments: as in the op's struct (ops.h); NULL pointers are
     * skipped. */
    void (*add_norm)(float *x, const float *y, const float *w, const float *bias, float eps, float scale, int64_t n);
    void (*layer_norm)(float *x, const float *y, const float *b, const float *w, const float *shift, float eps,
                       int64_t n);
    void (*activate)(const pi__activate *a, float *x);
    void (*softcap)(float *x, float cap, size_t n);
};

/* Returns the bytes of a tile of keys or values: 16 rows of head_dim values. */
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
