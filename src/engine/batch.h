/* Building a pi__batch, prefill chunks and decoding sequences in one: the arrays that a step's sequences are written
 * into, and the batch of const pointers that models and backends read.
 *
 * Owned here and mutable: every array of the batch, and of the batch of its logits rows beside it. Filled by clear, then
 * add for each sequence, add_row for each logits row, and end; b is valid until the next clear.
 * Memory: one allocation at init, sized by the function that the plan asks. One thread. */
#ifndef PI__BATCH_H
#define PI__BATCH_H

#include "backend/ops.h"
#include "cache/cache.h"

/* The sizes that the arrays have to have. */
typedef struct pi__batch_shape {
    int32_t max_tokens, max_seqs; /* of a step */
    int32_t n_groups;             /* cache groups */
    int32_t block_size[PI__MAX_GROUPS];
    int32_t stride[PI__MAX_GROUPS]; /* entries of a block table, 0: the group has none */
    int32_t max_rows;             /* logits rows at once; 0: without the batch of logits rows */
    bool runs;                    /* with runs (sparse prefill) */
} pi__batch_shape;

/* An adapter of a sequence. */
typedef struct pi__lora_note {
    const pi__lora_pair *pair; /* as in pi__lora_run, as are */
    const int32_t *rank;
    float scale;
    int32_t level, seq;
} pi__lora_note;

typedef struct pi__batch_builder {
    pi__batch b;              /* what it yields; its pointers are those below */
    pi__batch rows;           /* b.logits_batch: the tokens of b.logits_indices as a batch of their own */
    int32_t *token, *pos, *seq, *row;            /* [max_tokens] */
    int32_t *seq_start, *save_start;             /* [max_seqs + 1] */
    int32_t *seq_len, *n_verified, *state_slot;  /* [max_seqs] */
    int32_t *slot[PI__MAX_GROUPS];               /* [max_tokens] */
    int32_t *table[PI__MAX_GROUPS];              /* [max_seqs, stride] */
    int32_t *row_token, *row_pos, *row_seq;      /* [max_tokens] of rows */
    int32_t *row_start;                          /* [max_seqs + 1] of rows */
    int32_t *run_start, *run_seq, *run_block;    /* [most runs + 1], NULL: there are none */
    struct pi__lora_note *lora;                  /* [max_seqs * PI__MAX_LORA] adapters of sequences, as they were added */
    pi__lora_run *lora_run, *row_lora_run;       /* [the same] of the batch, and of rows */
    int32_t *lora_row, *row_lora_row;            /* [max_tokens * PI__MAX_LORA] the same */
    int32_t n_lora;                              /* in lora */
    pi__lora_rows *piece;                        /* [max_rows] of some logits rows, as pi__batch_lora_rows made them, */
    pi__lora_run *piece_run;                     /* and what they have: [max_rows * PI__MAX_LORA] */
    int32_t *piece_row;                          /* [the same] */
    int32_t n_piece, n_piece_run, n_piece_row;   /* in use */
    uint64_t lora_no;                            /* the last number that a list got */
    int32_t max_tokens, max_seqs, max_rows; /* what the arrays have room for */
    void *memory;             /* of all arrays */
} pi__batch_builder;

/* The shape for a cache of these groups, whose longest sequence has max_ctx tokens. */
pi__batch_shape pi__batch_shape_of(const pi__group_spec *spec, int32_t n_groups, int32_t max_tokens, int32_t max_seqs,
                                   int32_t max_ctx, int32_t max_rows);
/* Bytes that init allocates; SIZE_MAX: too many. */
size_t pi__batch_bytes(const pi__batch_shape *shape);
int pi__batch_init(pi__batch_builder *bb, const pi__batch_shape *shape, pi_error *err);
void pi__batch_destroy(pi__batch_builder *bb);

void pi__batch_clear(pi__batch_builder *bb);
/* Appends a sequence, of row `row` in the cache, with n tokens from position pos on, of which the first n_sure stay
 * (the others are drafts; see pi__batch.n_verified). Returns its index. */
int32_t pi__batch_add(pi__batch_builder *bb, const pi__cache *c, int32_t row, const int32_t *tokens, int32_t pos, int32_t n,
                      int32_t n_sure);
/* Token t, an index of the batch, gets a logits row; ascending. */
void pi__batch_add_row(pi__batch_builder *bb, int32_t t);
/* The tokens of sequence q, the last one or one before, have this adapter, which is its adapter number `level`. */
void pi__batch_add_lora(pi__batch_builder *bb, int32_t q, int32_t level, const pi__lora_pair *pair, const int32_t *rank, float scale);
/* The adapters of logits rows first..first + n, at most max_rows, numbered from 0 on; NULL: none has one. It stays until
 * pi__batch_drop_lora_rows, or clear. */
const pi__lora_rows *pi__batch_lora_rows(pi__batch_builder *bb, int32_t first, int32_t n);
void pi__batch_drop_lora_rows(pi__batch_builder *bb);
/* Of each sequence there are as many tokens, `most` at most, and as many logits rows, `most_rows` of all at most: a step that
 * drafters can have captured (PI__STEP_MODEL and others). */
bool pi__batch_is_even(const pi__batch *b, int32_t most, int32_t most_rows);
/* All is added: fills the batch of logits rows, where there is one. */
void pi__batch_end(pi__batch_builder *bb);

#endif
