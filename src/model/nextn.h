/* The draft head stored as a block after the last layer (MTP, "nextn"; DeepSeek-V3's multi-token prediction, arXiv
 * 2412.19437). It reads a token's embedding and the hidden state before that token, and predicts the token after it.
 *
 *     x = proj [norm(embedding) | norm(hidden state)]     x = block(x)     logits = output(norm(x))
 *
 * The architecture provides the block; this module provides the rest. Hidden states are taken after the output norm:
 * the model's, or when drafting after a draft, the head's own. Position 0 has no hidden state before it, so keys
 * start at position 1. Memory: owned by the model. Threads: one. */
#ifndef PI__NEXTN_H
#define PI__NEXTN_H

#include "model/blocks.h"

typedef struct pi__nextn {
    /* tensors */
    pi__weight proj;            /* [E, 2E]: columns for embedding, hidden state */
    float *embd_norm, *hidden_norm; /* [E] norms of the two inputs */
    float *out_norm;            /* [E]; NULL = use the model's */
    pi__weight tok_embd;        /* [V, E]; n_out 0 = use the model's */
    pi__weight output;          /* [V, E]; n_out 0 = use the model's */
    /* scratch of its own: the model's x and rows are still needed when the head runs */
    float *pair;                /* [T, 2E] normed embedding and hidden state; unused once x is computed */
    float *x;                   /* [T, E] residual stream */
    float *rows;                /* [R, E] normed output of the logits rows: hidden states for the next draft */
} pi__nextn;
/* Declares the tensors "blk.LAYER.nextn.*". */
void pi__nextn_declare(pi__model *m, pi__nextn *h, int32_t layer);
void pi__nextn_layout(const pi__model *m, pi__nextn *h, const pi__limits *lim, pi__arena *a);
/* h->x = the block's input for the tokens of b (see pi__arch.draft). states [T, E]: the model's last residual stream;
 * y [T, E]: scratch. */
void pi__nextn_input(pi__model *m, const pi__nextn *h, const pi__head *head, const pi__batch *b, const float *states,
                     bool chained, float *y);
/* out [n, V] = logits of n rows of the block's output. Keeps their hidden states. */
void pi__nextn_logits(pi__model *m, const pi__nextn *h, const pi__head *head, const float *x, int32_t n, float *out);

#endif
