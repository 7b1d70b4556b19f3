/* Declaring a model: reading metadata and naming tensors. What architectures and blocks are written with.
 *
 * The first thing that is wrong sticks in m->error. From then on every function here does nothing: numbers come back as the
 * least that they may be, so that dividing by them and sizing by them is safe, pointers as NULL, weights empty. So a
 * declaration is read top to bottom without a check a line; only what would use a pointer, or refuse what it has read,
 * asks pi__model_ok (pi__model_refuse keeps what came first).
 *
 * Names of tensors are those of the file. layer: of a layer's, without "blk.N."; PI__OF_FILE: of the file's own.
 * One thread. */
#ifndef PI__DECLARE_H
#define PI__DECLARE_H

#include "model/adapter.h"

enum { PI__OF_FILE = -1 };

static inline bool pi__model_ok(const pi__model *m) { return m->error.code == PI_OK; }
/* Notes what is wrong, if it is the first such thing. */
void pi__model_refuse(pi__model *m, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* n zeroed elements that live as long as the model; NULL, with m->error set ("out of memory for WHAT"). */
void *pi__model_calloc(pi__model *m, size_t n, size_t size, const char *what);
/* Gives all of that back, with the model. */
void pi__model_free_owned(pi__model *m);

/* ---- metadata "ARCHITECTURE.NAME" */

/* A whole number that must be there and in lo..hi; with _or: def where it is absent. */
int32_t pi__hp_u32(pi__model *m, const char *name, uint32_t lo, uint32_t hi);
int32_t pi__hp_u32_or(pi__model *m, const char *name, uint32_t def, uint32_t lo, uint32_t hi);
float pi__hp_f32(pi__model *m, const char *name);
float pi__hp_f32_or(pi__model *m, const char *name, float def);
/* One for each layer: a number for all, or an array. out [n_layer] */
void pi__hp_each(pi__model *m, const char *name, int32_t lo, int32_t hi, int32_t *out);
/* An array of at least n elements of the type, which the caller reads; NULL: absent. A number alone is returned, too, where
 * or_number allows it. */
const pi__gguf_kv *pi__hp_array(pi__model *m, const char *name, int type, int32_t n, bool or_number);
/* n_trunk, of n layers in the file: all, or the first so many that are asked for. */
void pi__read_trunk(pi__model *m, int32_t n);
/* n_vocab from the rows of token_embd.weight. */
void pi__read_vocab_size(pi__model *m);
/* freq[n/2]: radians a position by which the pairs of n values turn, from the base at base_key (def where it is absent);
 * scaled: stretched as rope.scaling says. Returns what cosines and sines are multiplied by. */
float pi__rope_freqs(pi__model *m, const char *base_key, float def, bool scaled, int32_t n, float *freq);

/* ---- tensors */

/* true: the file has it. */
bool pi__has_tensor(const pi__model *m, const char *name, int layer);
/* Wants a matrix [n_out, n_in] called NAME.weight, and its factor NAME.scale where the file has one; with _or_not:
 * w->n_out is 0 where it is absent. */
void pi__want_weight(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
void pi__want_weight_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* The same where row says the file's row of each of its rows; stays until the model is loaded. NULL: as in the file. */
void pi__want_weight_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *row, const char *name,
                          int layer);
/* The same for a matrix of which each of several devices has all. */
void pi__want_whole(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* The same where it may be absent, and NAME.scale, if it is there, is something else. */
void pi__want_unscaled_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer);
/* The same for queries, keys and values of a layer with n_head_kv heads in its cache; fused_rows: rows of each matrix
 * in it, as in pi__weight. row: file row of each of its rows, or NULL: as in the file; stays until the model is
 * loaded. */
void pi__want_heads(pi__model *m, pi__weight *w, int64_t n_in, int32_t n_head_kv, const int64_t fused_rows[3], const int32_t *row,
                    const char *name, int layer);
/* The same for n_mat stacked matrices of which each of several devices has all: those of heads. */
void pi__want_head_linear(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name, int layer);
/* The same out of a matrix [n_rows, columns] that has what they are made of below each other: row says its row of each of theirs,
 * or turned, of each of their columns; these are then F32, BF16 or F16, whatever it is. row stays until the model is loaded. */
void pi__want_head_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row, bool turned,
                        int64_t n_rows, const char *name, int layer);
/* The same for n_mat stacked matrices, with one factor or n_mat of them. */
void pi__want_experts(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name, int layer);
/* Gate and up of a feed-forward, one below the other: [2 n_ff, n_in]. */
void pi__want_gate_up(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, const char *name, int layer);
/* The same where each is two of [n_ff, n_in], gate above up, and may be absent. */
void pi__want_gate_up_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, int64_t n_mat, const char *name,
                             int layer);
/* Wants n f32 values; with _or_not: *vec stays NULL where they are absent; with _times: times factor. */
void pi__want_vec(pi__model *m, float **vec, int64_t n, const char *name, int layer);
void pi__want_vec_or_not(pi__model *m, float **vec, int64_t n, const char *name, int layer);
void pi__want_vec_times(pi__model *m, float **vec, int64_t n, float factor, const char *name, int layer);
/* In the order that row says: value i is that of the file's at row[i]. NULL: as in the file. */
void pi__want_vec_rows(pi__model *m, float **vec, int64_t n, const int32_t *row, const char *name, int layer);
/* Wants n_rows rows of n values, of any type, as f32. */
void pi__want_table(pi__model *m, float **vec, int64_t n_rows, int64_t n, const char *name, int layer);
/* The same in the order that at says: value i is that of the file's at at[i]. NULL: as in the file. */
void pi__want_table_at(pi__model *m, float **vec, int64_t n_rows, int64_t n, const int32_t *at, const char *name, int layer);
/* The same of n_mat tables, one behind the other. */
void pi__want_tables(pi__model *m, float **vec, int64_t n_mat, int64_t n_rows, int64_t n, const char *name, int layer);
/* Wants n f32 values at dst, which is filled by load; with _or_not: stays as it is where they are absent. */
void pi__want_host(pi__model *m, float *dst, int64_t n, const char *name, int layer);
void pi__want_host_or_not(pi__model *m, float *dst, int64_t n, const char *name, int layer);
/* The same of n_rows rows of n values, of any type. */
void pi__want_host_table(pi__model *m, float *dst, int64_t n_rows, int64_t n, const char *name, int layer);
/* Wants a permutation of n numbers, I32 or I64 in the file, at dst. */
void pi__want_order(pi__model *m, int32_t *dst, int64_t n, const char *name, int layer);
/* The same of n whole numbers from 0 to below - 1. */
void pi__want_ids(pi__model *m, int32_t *dst, int64_t n, int32_t below, const char *name, int layer);
/* Wants n_rows rows of n whole numbers from 0 to below - 1, I32 or I64 in the file, on the device. */
void pi__want_numbers(pi__model *m, int32_t **numbers, int64_t n_rows, int64_t n, int32_t below, const char *name, int layer);
/* Wants a matrix of the file, [n_out * n_mat, n_in], as n_mat stacked ones, of which each of several devices has all. Rows
 * are those that row names (filled by a tensor that was wanted before), or with row NULL in the order of the file. */
void pi__want_clusters(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                       const char *name, int layer);
/* The same in the order of the file, for op head_linear. */
void pi__want_head_groups(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name, int layer);
/* Makes room in the limits for layers of n_expert routed experts, n_used a token: gate and up [n_ff, n_in] each. */
void pi__need_experts(pi__model *m, int32_t n_expert, int32_t n_used, int64_t n_in, int64_t n_ff);
/* Refuses the file where it has a tensor whose name ends so and which was not declared, but for layers left out. */
void pi__refuse_unwanted(pi__model *m, const char *suffix);

/* ---- caches and states */

/* The cache group of layers of rows. */
typedef struct pi__row_group {
    const char *name;     /* "compressed" */
    int32_t window, keep; /* see pi__group_spec */
    int32_t block;        /* least tokens of a block */
    bool draft;           /* of a drafter of blocks */
} pi__row_group;

/* A layer that keeps K,V in the group with this window (made where there is none). owner: the model whose cache it is in, m or
 * its target, which has groups of their own for those. Returns its index in owner->kv. */
int32_t pi__want_kv(pi__model *m, pi__model *owner, int32_t layer, int32_t window, int32_t n_head_kv, int32_t head_dim);
/* Rows of n values that a layer keeps, as pi__kv_layer has them, in the group of this kind. owner: the model whose cache they
 * are in, m or its target. Returns their index in owner->kv. */
int32_t pi__want_rows(pi__model *m, pi__model *owner, int32_t layer, const pi__row_group *group, int32_t ratio, int32_t n,
                      bool f32);
/* A layer that keeps a recurrent state of this shape. Returns its index in m->state. */
int32_t pi__want_state(pi__model *m, int32_t layer, const pi__state_layer *shape);

#endif
