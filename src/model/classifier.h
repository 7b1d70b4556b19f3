/* Classifier head: computes the scores of a text from one vector (option pooling, rank). The vector is the hidden
 * state of the last token, of the first token in bidirectional models, or the mean of all tokens. A file of any
 * architecture may contain the head:
 *
 *     dense   cls.weight [D, E], cls.bias [D], then tanh               at least one of the two is required:
 *     out     cls.output.weight [labels, D or E], cls.output.bias      the last one's values are the scores
 *
 * Rerankers in qwen3 files have two rows of the LM head ("yes", "no"); their scores are the softmax of these values.
 *
 * Dense heads map the pooled vector to the final vector (sentence-transformers modules, as in EmbeddingGemma):
 *
 *     dense_2.weight [P, E], then dense_3.weight [E, P]; either may be absent
 *
 * Both heads run once per text, so weights are in host memory and the step thread computes the result. The order of
 * sums depends only on the shape. Memory: owned by the model. */
#ifndef PI__CLASSIFIER_H
#define PI__CLASSIFIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pi__model pi__model;

typedef struct pi__classifier {
    int32_t n_in;             /* E */
    int32_t n_dense;          /* D; 0 = no dense layer */
    int32_t n_labels;         /* scores of a text; 0 = no classifier */
    bool mean;                /* true = the input is the mean of all tokens' hidden states */
    bool first;               /* true = the input is the first token's; neither = the last token's */
    bool softmax;             /* scores are the softmax of the last layer's values */
    float *dense, *dense_bias; /* [D, E], [D]; dense_bias NULL = no bias */
    float *out, *out_bias;    /* [labels, D or E], [labels]; out NULL = the dense layer's values are the scores */
    const char **labels;      /* [labels] names; "" = unnamed */
    float *scratch;           /* [D + labels] */
} pi__classifier;

typedef struct pi__dense_heads {
    int32_t n[3];             /* vector sizes before, between and after the layers */
    int32_t n_out;            /* n[2], equal to E; 0 = no dense heads */
    float *w[2];              /* [n[i + 1], n[i]]; NULL = absent */
    float *scratch;           /* [n[1] + n[2]] temporary values */
} pi__dense_heads;

/* Declares the file's classifier head in m->classifier; its n_labels stays 0 if the file has none. */
void pi__classifier_declare(pi__model *m);
/* Declares the file's dense heads in m->dense; its n_out stays 0 if the file has none. */
void pi__dense_heads_declare(pi__model *m);
size_t pi__dense_heads_bytes(const pi__dense_heads *d);
/* Computes out [n_out] from x [n[0]]; out may be x. */
void pi__dense_heads_apply(const pi__dense_heads *d, const float *x, float *out);
/* Returns the bytes of weights and scratch. */
size_t pi__classifier_bytes(const pi__classifier *c);
/* Computes scores [labels] from x [E]; scores may be x. */
void pi__classifier_scores(const pi__classifier *c, const float *x, float *scores);

#endif
