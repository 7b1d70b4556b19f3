/* Building a pi__batch of prefill chunks and decoding sequences: the mutable arrays of a step, and the batch of const
 * pointers into them that models and backends read.
 *
 * Owns all arrays of the batch and of its logits-row batch. Call clear, then add for each sequence, add_lora for each
 * of its adapters, add_row for each logits row, and end; b is valid until the next clear. Memory: one allocation at
 * init, of pi__batch_bytes; the planner reports the same number. One thread. */
#ifndef PI__BATCH_H
#define PI__BATCH_H

#include "backend/ops.h"
#include "cache/cache.h"
#include "engine/images.h"

/* Sizes of the arrays. */
typedef struct pi__batch_shape {
    int32_t max_tokens, max_seqs; /* max per step */
    int32_t n_groups;             /* cache groups */
    int32_t block_size[PI__MAX_GROUPS];
    int32_t stride[PI__MAX_GROUPS]; /* block table entries per sequence; 0 = no table (recurrent states) */
    int32_t max_rows;             /* max logits rows per pass; 0 = no logits-row batch and no adapters */
    bool runs;                    /* allocate the arrays of pi__batch.runs (sparse prefill) */
    bool images;                  /* allocate input_row and see_to: the engine reads images */
    bool mrope;                   /* allocate rope_pos, which every batch then has: images have 2-D positions */
} pi__batch_shape;

/* One adapter of one sequence, as recorded by pi__batch_add_lora. */
typedef struct pi__lora_note {
    const pi__lora_pair *pair; /* weights of the adapter; pair and rank: as in pi__lora_run */
    const int32_t *rank;
    float scale;
    int32_t level, seq;        /* position in the sequence's list of adapters; index of the sequence in the batch */
} pi__lora_note;

typedef struct pi__batch_builder {
    pi__batch b;              /* the finished batch; points into the arrays below */
    pi__batch rows;           /* the batch at b.logits_batch: the tokens that have logits rows */
    int32_t *token, *pos, *seq, *row;            /* [max_tokens] of b; row is b.logits_indices */
    int32_t *seq_start, *save_start;             /* [max_seqs + 1] of b */
    int32_t *seq_len, *n_verified, *state_slot;  /* [max_seqs] of b */
    int32_t *slot[PI__MAX_GROUPS];               /* [max_tokens] slot mapping of each group */
    int32_t *table[PI__MAX_GROUPS];              /* [max_seqs, stride] block tables of each group */
    int32_t *rope_pos;                           /* [max_tokens, 3] of b; NULL = the shape has no mrope */
    int32_t *input_row, *see_to;                 /* [max_tokens] of b; NULL = the shape has no images */
    int32_t *row_input, *row_see;                /* [max_tokens] of `rows`, likewise */
    int32_t *row_token, *row_pos, *row_seq;      /* [max_tokens] of `rows` */
    int32_t *row_start;                          /* [max_seqs + 1] of `rows` */
    int32_t *run_start, *run_seq, *run_block;    /* [max runs + 1], [max runs], [max runs] of b.runs; NULL = no runs */
    /* [max_seqs * PI__MAX_LORA] one entry per pair of a sequence and one of its adapters, without gaps: in the order of
     * pi__batch_add_lora, until pi__batch_end sorts them */
    struct pi__lora_note *lora;
    pi__lora_run *lora_run, *row_lora_run;       /* [max_seqs * PI__MAX_LORA] of b.lora, and of rows.lora */
    int32_t *lora_row, *row_lora_row;            /* [max_tokens * PI__MAX_LORA] of b.lora, and of rows.lora */
    int32_t n_lora;                              /* entries of `lora` in use */
    pi__lora_rows *piece;                        /* [max_rows] results of pi__batch_lora_rows */
    pi__lora_run *piece_run;                     /* [max_rows * PI__MAX_LORA] runs of all pieces */
    int32_t *piece_row;                          /* [max_rows * PI__MAX_LORA] rows of all pieces */
    int32_t n_piece, n_piece_run, n_piece_row;   /* entries of piece, piece_run and piece_row in use */
    uint64_t lora_no;                            /* pi__lora_rows.no of the last list that was built */
    int32_t max_tokens, max_seqs, max_rows; /* capacity of the arrays */
    void *memory;             /* one allocation for all arrays */
} pi__batch_builder;

/* Returns the shape for a cache with these groups and sequences of at most max_ctx tokens; `runs` is false. */
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
/* Sets the images of the sequence that was added last: rows of its images' tokens, and rotary positions. whole: tokens
 * of an image see each other. The token ids of images become 0. */
void pi__batch_add_images(pi__batch_builder *bb, const pi__seq_images *im, bool whole);
/* Gives token t (its index in the batch) a logits row. t must ascend from call to call. */
void pi__batch_add_row(pi__batch_builder *bb, int32_t t);
/* Records an adapter of sequence q, an index returned by add. level: position of the adapter in the list of q, from 0.
 * pair, rank, scale: as in pi__lora_run. */
void pi__batch_add_lora(pi__batch_builder *bb, int32_t q, int32_t level, const pi__lora_pair *pair, const int32_t *rank,
                        float scale);
/* Returns the adapters of logits rows first..first + n; in the result, row `first` has number 0. NULL = no adapters.
 * n is at most max_rows, or all rows. Call after end. Valid until pi__batch_drop_lora_rows, or clear. */
const pi__lora_rows *pi__batch_lora_rows(pi__batch_builder *bb, int32_t first, int32_t n);
/* Ends the use of all results of pi__batch_lora_rows: later calls overwrite them. The device must not read them any
 * more. */
void pi__batch_drop_lora_rows(pi__batch_builder *bb);
/* True if each sequence has the same number of tokens (at most `most`) and the same number of logits rows (at most
 * `most_rows` in total). Drafters' steps of this shape can be captured (PI__STEP_MODEL and others). */
bool pi__batch_is_even(const pi__batch *b, int32_t most, int32_t most_rows);
/* Finishes the batch: sorts the recorded adapters into runs (b.lora) and builds the logits-row batch, if any. */
void pi__batch_end(pi__batch_builder *bb);

#endif
