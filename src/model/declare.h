/* The interface for declaring a model: reads metadata and names tensors. Used by architectures and blocks.
 *
 * The first error is kept in m->error. After an error, all functions that read or declare do nothing: they return the
 * lower bound for numbers (safe to divide and size by), NULL for pointers, and leave weights empty. So a
 * declaration needs no check on each line. Only code that dereferences a pointer or refuses a value checks
 * `pi__model_ok`.
 *
 * Tensor names are the file's. `layer`: number of the tensor's layer, and the name is given without "blk.N.";
 * PI__OF_FILE = the tensor belongs to no layer. Threads: one. */
#ifndef PI__DECLARE_H
#define PI__DECLARE_H

#include "model/adapter.h"

enum { PI__OF_FILE = -1 };

static inline bool pi__model_ok(const pi__model *m) { return m->error.code == PI_OK; }
/* Sets m->error, if it is the first error. */
void pi__model_refuse(pi__model *m, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Returns n zeroed elements that live as long as the model, or NULL with m->error set (message: out of memory for
 * `what`). */
void *pi__model_calloc(pi__model *m, size_t n, size_t size, const char *what);
/* Frees all memory from pi__model_calloc. */
void pi__model_free_owned(pi__model *m);

/* ---- metadata "ARCHITECTURE.NAME" */

/* Returns the value of a required integer key, which must be in lo..hi. With _or: returns def if the key is absent.
 * f32: likewise for a float, without bounds. */
int32_t pi__hp_u32(pi__model *m, const char *name, uint32_t lo, uint32_t hi);
int32_t pi__hp_u32_or(pi__model *m, const char *name, uint32_t def, uint32_t lo, uint32_t hi);
float pi__hp_f32(pi__model *m, const char *name);
float pi__hp_f32_or(pi__model *m, const char *name, float def);
/* True if the metadata has the key. */
bool pi__has_key(const pi__model *m, const char *name);
/* Reads one value per layer (lo..hi) into out [n_layer]; the key has a number for all layers, or an array. */
void pi__hp_each(pi__model *m, const char *name, int32_t lo, int32_t hi, int32_t *out);
/* Returns an array of at least n elements of the metadata type `type`; NULL = the key is absent. The caller reads the
 * elements. `or_number`: a single number is accepted, too. */
const pi__gguf_kv *pi__hp_array(pi__model *m, const char *name, int type, int32_t n, bool or_number);
/* Sets m->n_trunk for a file of n layers: n, or n_exit if that is set. */
void pi__read_trunk(pi__model *m, int32_t n);
/* Sets m->n_vocab to the rows of token_embd.weight. */
void pi__read_vocab_size(pi__model *m);
/* Fills in freq[n/2]: radians per position of the pairs among n rotated values. The base is read from base_key (default
 * def). `scaled`: apply the file's rope.scaling. Returns the factor for cosines and sines. */
float pi__rope_freqs(pi__model *m, const char *base_key, float def, bool scaled, int32_t n, float *freq);

/* ---- tensors */

/* True if the file has the tensor. */
bool pi__has_tensor(const pi__model *m, const char *name, int layer);
/* Returns the name that the file has: `without`, for converters that leave out the suffix, or else name. */
const char *pi__name_of(const pi__model *m, const char *without, const char *name, int layer);
/* Declares a matrix [n_out, n_in] called NAME.weight, and its factor NAME.scale if the file has one. With _or_not:
 * optional; w->n_out is 0 if absent. */
void pi__declare_weight(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
void pi__declare_weight_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* Like pi__declare_weight with reordered rows: row[i] = file row of row i; row must live until the model is loaded.
 * NULL = file order. */
void pi__declare_weight_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *row,
                             const char *name, int layer);
/* Declares a matrix [n_out, n_in] with rows gathered from a file matrix [n_rows, n_in]. row[i]: file row of row i,
 * -1 = zeros. Several matrices may be gathered from one tensor. row must live until the model is loaded. */
void pi__declare_gathered(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *row, int64_t n_rows,
                          const char *name, int layer);
/* Declares n values gathered from a file vector of n_file values; otherwise like pi__declare_gathered. Optional. */
void pi__declare_vec_gathered(pi__model *m, float **vec, int64_t n, const int32_t *row, int64_t n_file, float factor,
                              const char *name, int layer);
/* Declares a matrix [n_out, n_in] with reordered columns: col[i] = file column of column i. The result is F32, BF16 or
 * F16 for any file type. col must live until the model is loaded. */
void pi__declare_columns(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *col, const char *name,
                         int layer);
/* Declares the kernel of a convolution of size x size pixels and 3 channels without overlap, as a matrix [n_out, 3 *
 * size * size]. The file has shape [size, size, 3, n_out], or is that matrix. */
void pi__declare_kernel(pi__model *m, pi__weight *w, int64_t size, int64_t n_out, const char *name, int layer);
/* Like pi__declare_weight, replicated on every device of a sharded model. */
void pi__declare_replicated(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* Like pi__declare_weight_or_not, but NAME.scale is not the matrix's factor. */
void pi__declare_unscaled_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* Like pi__declare_weight_rows, for queries, keys and values of a layer with n_head_kv KV heads. fused_rows: rows of
 * each stacked matrix, as in pi__weight. */
void pi__declare_heads(pi__model *m, pi__weight *w, int64_t n_in, int32_t n_head_kv, const int64_t fused_rows[3],
                       const int32_t *row, const char *name, int layer);
/* Like pi__declare_heads, with rows gathered from a file matrix of n_rows rows: row[i] = -1 makes row i zeros. */
void pi__declare_heads_of(pi__model *m, pi__weight *w, int64_t n_in, int32_t n_head_kv, const int64_t fused_rows[3],
                          const int32_t *row, int64_t n_rows, const char *name, int layer);
/* Like pi__declare_weight, for n_mat stacked per-head matrices, replicated on every device. */
void pi__declare_head_linear(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                          int layer);
/* Like pi__declare_head_linear, for matrices that are gathered from one file matrix [n_rows, columns]: row[i] =
 * file row that becomes row i of the stack, or with `turned` a column (transposed). The result is F32, BF16 or F16
 * for any file type. row must live until the model is loaded. */
void pi__declare_head_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                        bool turned, int64_t n_rows, const char *name, int layer);
/* Like pi__declare_weight, for n_mat stacked matrices; NAME.scale has one factor for all or n_mat factors. */
void pi__declare_experts(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                      int layer);
/* Declares a matrix that stacks gate and up of a feed-forward: [2 n_ff, n_in]. */
void pi__declare_gate_up(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, const char *name, int layer);
/* Like pi__declare_gate_up, optional, for n_mat stacks of gate [n_ff, n_in] above up [n_ff, n_in]. */
void pi__declare_gate_up_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, int64_t n_mat,
                                const char *name, int layer);
/* Declares n f32 values on the device; *vec receives their address. With _or_not: optional; *vec stays NULL if
 * absent. With _times: the file's values are multiplied by factor. */
void pi__declare_vec(pi__model *m, float **vec, int64_t n, const char *name, int layer);
void pi__declare_vec_or_not(pi__model *m, float **vec, int64_t n, const char *name, int layer);
void pi__declare_vec_times(pi__model *m, float **vec, int64_t n, float factor, const char *name, int layer);
/* Like pi__declare_vec, reordered: value i is the file's value row[i]; NULL = file order. */
void pi__declare_vec_rows(pi__model *m, float **vec, int64_t n, const int32_t *row, const char *name, int layer);
/* Declares n_rows rows of n values as f32 on the device; the file may have any type. */
void pi__declare_table(pi__model *m, float **vec, int64_t n_rows, int64_t n, const char *name, int layer);
/* Like pi__declare_table, reordered: value i is the file's value at[i]. NULL = file order. */
void pi__declare_table_at(pi__model *m, float **vec, int64_t n_rows, int64_t n, const int32_t *at, const char *name,
                       int layer);
/* Declares n values gathered from a table of n_file_rows rows of n_file floats: value i is the file's value at[i], -1 =
 * zero. at must live until the model is loaded. */
void pi__declare_table_gathered(pi__model *m, float **vec, int64_t n, const int32_t *at, int64_t n_file,
                                int64_t n_file_rows, const char *name, int layer);
/* Declares n f32 values on the device that are not in the file. values must live until the model is loaded. */
void pi__declare_values(pi__model *m, float **vec, int64_t n, const float *values);
/* As pi__declare_values: n times 1, the weights of a norm that has none. */
void pi__declare_ones(pi__model *m, float **vec, int32_t n);
/* Like pi__declare_table, for n_mat consecutive tables. */
void pi__declare_tables(pi__model *m, float **vec, int64_t n_mat, int64_t n_rows, int64_t n, const char *name,
                        int layer);
/* Like pi__declare_table, for n_part tables with a tensor each: *vec receives the address of the first; the others
 * follow it. A tensor may have a dimension of 1 between the two others. */
void pi__declare_joined(pi__model *m, float **vec, int32_t n_part, int64_t n_rows, int64_t n, const char *const *name,
                        int layer);
/* Declares n f32 values at dst in host memory, which load fills in. With _or_not: optional; dst is unchanged if
 * absent. */
void pi__declare_host(pi__model *m, float *dst, int64_t n, const char *name, int layer);
void pi__declare_host_or_not(pi__model *m, float *dst, int64_t n, const char *name, int layer);
/* Like pi__declare_host, for n_rows rows of n values of any type. */
void pi__declare_host_table(pi__model *m, float *dst, int64_t n_rows, int64_t n, const char *name, int layer);
/* Declares a permutation of 0..n-1 at dst in host memory; the file has I32 or I64. */
void pi__declare_order(pi__model *m, int32_t *dst, int64_t n, const char *name, int layer);
/* Like pi__declare_order, for n integers in 0..below-1. */
void pi__declare_ids(pi__model *m, int32_t *dst, int64_t n, int32_t below, const char *name, int layer);
/* Declares n_rows rows of n integers in 0..below-1 as int32 on the device; the file has I32 or I64. */
void pi__declare_numbers(pi__model *m, int32_t **numbers, int64_t n_rows, int64_t n, int32_t below, const char *name,
                      int layer);
/* Declares a file matrix [n_out * n_mat, n_in] as n_mat stacked matrices, replicated on every device. row: file row
 * of each row, filled in by load from a tensor declared earlier; NULL = file order. */
void pi__declare_clusters(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                       const char *name, int layer);
/* Like pi__declare_clusters in file order, for op head_linear. */
void pi__declare_head_groups(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                          int layer);
/* Raises m->lim for layers of n_expert routed experts, n_used per token; an expert's gate and up are [n_ff, n_in]
 * each. */
void pi__need_experts(pi__model *m, int32_t n_expert, int32_t n_used, int64_t n_in, int64_t n_ff);
/* Refuses a file that has a tensor with a name that begins with prefix and was not declared. except: prefix of names
 * that are ignored; NULL = none. */
void pi__refuse_others(pi__model *m, const char *prefix, const char *except);
/* Refuses a file that has a tensor with a name ending in suffix that was not declared. Layers that are not loaded are
 * ignored. */
void pi__refuse_unwanted(pi__model *m, const char *suffix);

/* ---- caches and states */

/* Properties of a cache group of layers that store rows instead of K and V. */
typedef struct pi__row_group {
    const char *name;     /* name of the group, for example "compressed" */
    int32_t window, keep; /* see pi__group_spec */
    int32_t block;        /* min tokens per block */
    bool draft;           /* the group is of a block drafter: only sequences that use the drafter have blocks in it */
} pi__row_group;

/* Declares K and V of a layer in the cache group with this window, which is created if needed. owner: the model
 * with the cache: m, or m's target, which keeps separate groups for drafters. Returns the index in owner->kv. */
int32_t pi__declare_kv(pi__model *m, pi__model *owner, int32_t layer, int32_t window, int32_t n_head_kv,
                       int32_t head_dim);
/* Declares rows of n values that a layer caches, one per `ratio` tokens, as in pi__kv_layer, in this group. f32:
 * rows are F32 for any cache type. owner: the model with the cache: m or m's target. Returns the index in
 * owner->kv. */
int32_t pi__declare_rows(pi__model *m, pi__model *owner, int32_t layer, const pi__row_group *group, int32_t ratio,
                         int32_t n, bool f32);
/* Declares a layer's recurrent state with the dimensions of shape. Returns the index in m->state. */
int32_t pi__declare_state(pi__model *m, int32_t layer, const pi__state_layer *shape);

#endif
