/* Internals of DeepSeek V4's attention on the CPU: cached rows, and the kernels of each instruction set.
 *
 * A block of the pool holds, for one layer, consecutive rows of n values each, padded with zeros to a multiple of 32. A
 * token attends to a list of rows: the rows of its sliding window by position, then compressed entries by index. F32
 * rows are read in place. Other types are converted to floats in the thread's own memory, up to PI__SPARSE_SPLIT rows
 * at a time. The 16 lanes of a vector are 16 heads.
 *
 * Batch invariance: a token's list is cut into splits of PI__SPARSE_SPLIT rows. In a split, scores are sums over
 * dims in order; exponentials and weighted rows are added in list order. Splits are folded in order. A token's list
 * does not depend on the other tokens of the batch. */
#ifndef PI__CPU_SPARSE_H
#define PI__CPU_SPARSE_H

#include "backend/cpu/attention.h"

enum {
    PI__SPARSE_HEADS = 16,  /* query heads of a kernel call */
    PI__SPARSE_SPLIT = 32,  /* max rows of a kernel call */
    PI__SPARSE_MAX_ROW = 576, /* max values of a row: block_mla.c and deepseek4.c refuse more */
    /* max tokens that one compressed entry covers: a window, or with overlap a window and the previous one */
    PI__SPARSE_SLOTS = 128,
};

/* Running softmax of 16 heads over the rows so far. */
typedef struct pi__sparse_sum {
    float m[PI__SPARSE_HEADS], l[PI__SPARSE_HEADS]; /* maximum, sum of exponentials */
    float *acc;  /* weighted sum of rows: [16, dim] */
    bool any;    /* false = no row has been added yet */
} pi__sparse_sum;

struct pi__cpu_sparse_kernels {
    /* Adds n rows to sum. A score is the product of a query with the first dim values of a row; the weighted sum adds
     * its first dim_v values. qt: [dim][16] queries; s: scratch [PI__SPARSE_SPLIT][16]. acc of heads >= n_head is not
     * computed. */
    void (*split)(const float *qt, int32_t n_head, int32_t dim, int32_t dim_v, const float *const *row, int32_t n,
                  float *s, pi__sparse_sum *sum);
    /* score[i] = sum over heads h of w[h] * max(0, q[h] . row i) for n rows of dim values. n16: groups of 16 heads; qt:
     * [n16][dim][16] queries; w: [n16][16] weights, 0 for heads that do not exist. */
    void (*scores)(const float *qt, const float *w, int32_t n16, int32_t dim, const float *const *row, int32_t n,
                   float *score);
    /* out[d] = sum over i < n of v[i][d] * softmax over i of s[i][d], for each d < dim. */
    void (*pool)(const float *const *v, const float *const *s, int32_t n, int32_t dim, float *out);
    /* Returns 1 / sqrt(mean(x^2) + eps) of n values. */
    float (*rms)(const float *x, int64_t n, float eps);
};

extern const pi__cpu_sparse_kernels pi__cpu_sparse_generic;
extern const pi__cpu_sparse_kernels pi__cpu_sparse_avx2;
extern const pi__cpu_sparse_kernels pi__cpu_sparse_avx512;
extern const pi__cpu_sparse_kernels pi__cpu_sparse_neon;
extern const pi__cpu_sparse_kernels pi__cpu_sparse_sve256;

/* Returns the number of values of a cached row of n values, with padding to a multiple of 32. */
static inline int32_t pi__row_width(int32_t n) { return (n + 31) / 32 * 32; }

/* Returns the address of row number `row` of a layer's pool; n_rows: rows per block. */
static inline char *pi__row_in(const pi__kv_layer *kv, int64_t row, int32_t n_rows)
{
    const size_t size = pi__kv_row_size(kv->type_k, pi__row_width(kv->head_dim));
    return kv->base + (size_t) (row / n_rows) * kv->stride + (size_t) (row % n_rows) * size;
}

/* Returns the address of the row of sequence seq for positions pos to pos + ratio - 1; pos is a multiple of
 * kv->ratio. */
static inline const char *pi__row_of(const pi__kv_layer *kv, const pi__kv_batch *kb, int32_t seq, int32_t pos)
{
    const int32_t block = kb->block_table[(size_t) seq * (size_t) kb->table_stride + (size_t) (pos / kb->block_size)];
    const int32_t n_rows = kb->block_size / kv->ratio;
    return pi__row_in(kv, (int64_t) block * n_rows + pos % kb->block_size / kv->ratio, n_rows);
}

/* Returns the row's values as floats: the row itself if its type is F32, else buf after conversion. */
static inline const float *pi__row_floats(const pi__cpu *cpu, const pi__kv_layer *kv, const char *row, float *buf)
{
    if (kv->type_k == PI__F32) return (const float *) (const void *) row;
    cpu->attn->load_row(kv->type_k, row, pi__row_width(kv->head_dim), buf);
    return buf;
}

/* Rotates the last n of dim values of x in interleaved pairs. rope: n/2 cosines, then n/2 sines. sign -1 = inverse
 * rotation. */
static inline void pi__rotate_tail(float *x, int32_t dim, const float *rope, int32_t n, float sign)
{
    if (!n) return; /* rope may be NULL */
    const float *c = rope, *s = rope + n / 2;
    x += dim - n;
    for (int32_t i = 0; i < n / 2; i++) {
        const float a = x[2 * i], b = x[2 * i + 1], sin = sign * s[i];
        x[2 * i] = a * c[i] - b * sin;
        x[2 * i + 1] = a * sin + b * c[i];
    }
}

#endif
