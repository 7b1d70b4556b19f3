/* The draft head that files have as a block behind the last layer (MTP, "nextn"; DeepSeek-V3's multi-token prediction, arXiv
 * 2412.19437): it reads a token's embedding and the model's hidden state before that token, and gives what follows the token.
 *
 *     x = proj [norm(embedding) | norm(hidden state)]     x = block(x)     logits = output(norm(x))
 *
 * The block is the architecture's own; here is what lies around it. Hidden states are normed ones, the model's own or, of
 * drafts after drafts, the head's. Position 0 has no hidden state before it, so keys begin at 1. Memory: of the model. One
 * thread. */
#ifndef PI__NEXTN_H
#define PI__NEXTN_H

#include "model/blocks.h"

typedef struct pi__nextn {
    /* tensors */
    pi__weight proj;            /* [E, 2E]: embedding, hidden state */
    float *embd_norm, *hidden_norm; /* [E] of the two */
    float *out_norm;            /* [E]; NULL: the model's */
    pi__weight tok_embd;        /* [V, E]; n_out 0: the model's */
    pi__weight output;          /* [V, E]; n_out 0: the model's */
    /* scratch: the head runs while the model's x and rows are still needed */
    float *pair;                /* [T, 2E] norms of embedding and hidden state; free once there is x */
    float *x;                   /* [T, E] residual stream */
    float *rows;                /* [R, E] output of its rows, normed: the hidden states of drafts after drafts */
} pi__nextn;
/* Wants what "blk.LAYER.nextn" has. */
void pi__nextn_declare(pi__model *m, pi__nextn *h, int32_t layer);
void pi__nextn_layout(const pi__model *m, pi__nextn *h, const pi__limits *lim, pi__arena *a);
/* h->x = the block's input for the tokens of b, as pi__arch.draft has them. states [T, E]: the model's last stream; y [T, E]:
 * scratch. */
void pi__nextn_input(pi__model *m, const pi__nextn *h, const pi__head *head, const pi__batch *b, const float *states,
                     bool chained, float *y);
/* out = logits of n rows of the block's result; keeps their hidden states. [n, V] */
void pi__nextn_logits(pi__model *m, const pi__nextn *h, const pi__head *head, const float *x, int32_t n, float *out);

#endif
