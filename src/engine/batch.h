/* Building a pi__batch of prefill chunks and decoding sequences: the mutable arrays of a step, and the batch of const
 * pointers into them that models and backends read.
 *
 * Owns all arrays of the batch and of its logits-row batch. Call clear, then add for each sequence, add_row for each
 * logits row, and end; b is valid until the next clear. Memory: one allocation at init, sized by the function that
 * the planner uses. One thread. */
#ifndef PI__BATCH_H
#define PI__BATCH_H

#include "backend/ops.h"
#include "cache/cache.h"

/* Sizes of the arrays. */
typedef struct pi__batch_shape {
    int32_t max_tokens, max_seqs; /* max per step */
    int32_t n_groups;             /* cache groups */
    int32_t block_size[PI__MAX_GROUPS];
    int32_t stride[PI__MAX_GROUPS]; /* entries of a block table; 0 = the group has no table */
    int32_t max_rows;             /* max logits rows per pass; 0 = no logits-row batch */
    bool runs;                    /* with runs (sparse prefill) */
} pi__batch_shape;

/* An adapter of a sequence, as it was added. */
typedef struct pi__lora_note {
    const pi__lora_pair *pair; /* this and rank: as in pi__lora_run */
    const int32_t *rank;
    float scale;
    int32_t level, seq;
} pi__lora_note;

typedef struct pi__batch_builder {
    pi__batch b;              /* the finished batch; points into the arrays below */
    pi__batch rows;           /* b.logits_batch: the tokens of b.logits_indices as a batch */
    int32_t *token, *pos, *seq, *row;            /* [max_tokens] */
    int32_t *seq_start, *save_start;             /* [max_seqs + 1] */
    int32_t *seq_len, *n_verified, *state_slot;  /* [max_seqs] */
    int32_t *slot[PI__MAX_GROUPS];               /* [max_tokens] */
    int32_t *table[PI__MAX_GROUPS];              /* [max_seqs, stride] */
    int32_t *row_token, *row_pos, *row_seq;      /* [max_tokens] of `rows` */
    int32_t *row_start;                          /* [max_seqs + 1] of `rows` */
    int32_t *run_start, *run_seq, *run_block;    /* [max runs + 1], NULL = no runs */
    /* [max_seqs * PI__MAX_LORA] adapters of sequences, in the order of add */
    struct pi__lora_note *lora;
    pi__lora_run *lora_run, *row_lora_run;       /* [max_seqs * PI__MAX_LORA] of the batch, and of `rows` */
    int32_t *lora_row, *row_lora_row;            /* [max_tokens * PI__MAX_LORA] of the batch, and of `rows` */
    int32_t n_lora;                              /* entries of `lora` in use */
    pi__lora_rows *piece;                        /* [max_rows] subsets of logits rows, from pi__batch_lora_rows */
    pi__lora_run *piece_run;                     /* [max_rows * PI__MAX_LORA] runs of all pieces */
    int32_t *piece_row;                          /* [max_rows * PI__MAX_LORA] rows of all pieces */
    int32_t n_piece, n_piece_run, n_piece_row;   /* entries in use */
    uint64_t lora_no;                            /* number of the last pi__lora_rows made */
    int32_t max_tokens, max_seqs, max_rows; /* capacity of the arrays */
    void *memory;             /* one allocation for all arrays */
} pi__batch_builder;

/* Returns the shape for a cache with these groups and sequences of at most max_ctx tokens. */
pi__batch_shape pi__batch_shape_of(const pi__group_spec *spec, int32_t n_groups, int32_t max_tokens, int32_t max_seqs,
                                   int32_t max_ctx, int32_t max_rows);
/* Bytes that init allocates; SIZE_MAX = overflow. */
size_t pi__batch_bytes(const pi__batch_shape *shape);
int pi__batch_init(pi__batch_builder *bb, const pi__batch_shape *shape, pi_error *err);
void pi__batch_destroy(pi__batch_builder *bb);

void pi__batch_clear(pi__batch_builder *bb);
/* Appends n tokens of the sequence in cache row `row`, from position pos on. The first n_committed are committed, the
 * others are drafts (see pi__batch.n_verified). Returns the index of the sequence in the batch. */
int32_t pi__batch_add(pi__batch_builder *bb, const pi__cache *c, int32_t row, const int32_t *tokens, int32_t pos,
                      int32_t n, int32_t n_committed);
/* Gives token t, an index of the batch, a logits row. t must ascend from call to call. */
void pi__batch_add_row(pi__batch_builder *bb, int32_t t);
/* Adds an adapter as number `level` of sequence q. q must be the last sequence or an earlier one. */
void pi__batch_add_lora(pi__batch_builder *bb, int32_t q, int32_t level, const pi__lora_pair *pair, const int32_t *rank,
                        float scale);
/* Returns the adapters of logits rows first..first + n (n at most max_rows), rows numbered from 0; NULL = no adapters.
 * Valid until pi__batch_drop_lora_rows, or clear. */
const pi__lora_rows *pi__batch_lora_rows(pi__batch_builder *bb, int32_t first, int32_t n);
void pi__batch_drop_lora_rows(pi__batch_builder *bb);
/* True if all sequences have the same number of tokens (at most `most`) and the same number of logits rows (at most
 * `most_rows` in total). Drafters' steps of this shape can be captured (PI__STEP_MODEL and others). */
bool pi__batch_is_even(const pi__batch *b, int32_t most, int32_t most_rows);
/* Finishes the batch: fills adapters and the logits-row batch, if any. */
void pi__batch_end(pi__batch_builder *bb);

#endif
