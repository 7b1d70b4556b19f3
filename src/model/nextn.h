/* The draft head stored as a block after the last layer (MTP, "nextn"; DeepSeek-V3's multi-token prediction, arXiv
 * 2412.19437). It reads a token's embedding and the hidden state before that token, and predicts the token after it.
 *
 *     x = proj [norm(embedding) | norm(hidden state)]     x = block(x)     logits = output(norm(x))
 *
 * The architecture provides the block; this module provides the rest. The hidden state is the model's after its output
 * norm, or when drafting after a draft, the head's own after out_norm. Position 0 has no hidden state before it, so the
 * block's keys start at position 1. Memory: owned by the model. Threads: one. */
#ifndef PI__NEXTN_H
#define PI__NEXTN_H

#include "model/blocks.h"

/* The draft head's tensors and scratch, without its block. */
typedef struct pi__nextn {
    /* tensors */
    pi__weight proj;            /* [E, 2E]: columns for the embedding, then for the hidden state */
    float *embd_norm, *hidden_norm; /* [E] norms of the embedding and of the hidden state */
    float *out_norm;            /* [E]; NULL = use the model's */
    pi__weight tok_embd;        /* [V, E]; n_out 0 = use the model's */
    pi__weight output;          /* [V, E]; n_out 0 = use the model's */
    /* scratch of the head: the model's x and rows are still needed when the head runs */
    float *pair;                /* [T, 2E] normed embedding, then normed hidden state; free once x is computed */
    float *x;                   /* [T, E] residual stream */
    float *rows;                /* [R, E] normed output of the logits rows: hidden states for the next draft */
} pi__nextn;
/* Declares the head's tensors "blk.LAYER.nextn.*", except for the block. */
void pi__nextn_declare(pi__model *m, pi__nextn *h, int32_t layer);
void pi__nextn_layout(const pi__model *m, pi__nextn *h, const pi__limits *lim, pi__arena *a);
/* h->x = the block's input for the tokens of b; b->hidden_row names their hidden states (see pi__arch.draft).
 * states [T, E]: the model's last residual stream, used unless chained; y [T, E]: scratch. */
void pi__nextn_input(pi__model *m, const pi__nextn *h, const pi__head *head, const pi__batch *b, const float *states,
                     bool chained, float *y);
/* out [n, V] = logits of n rows x of the block's output. Stores the rows after out_norm in h->rows, as hidden
 * states for the next draft. */
void pi__nextn_logits(pi__model *m, const pi__nextn *h, const pi__head *head, const float *x, int32_t n, float *out);

#endif
