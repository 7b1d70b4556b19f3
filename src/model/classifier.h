/* The head of a classifier: scores of a text from one vector, the hidden state of its last token (of its first, where tokens
 * see those behind them), or the mean of all (option pooling, rank). A file of any architecture may have one beside its layers:
 *
 *     dense   cls.weight [D, E], cls.bias [D], then tanh               one of these two must be there:
 *     out     cls.output.weight [labels, D or E], cls.output.bias      scores are the values of the last
 *
 * In files of qwen3, whose rerankers have two rows of the LM head ("yes", "no"), scores are the softmax of these values.
 *
 * Dense heads make a text's vector of its pooled one (those of sentence-transformers, as EmbeddingGemma has them):
 *
 *     dense_2.weight [P, E], then dense_3.weight [E, P]; either may be absent
 *
 * They are read once a text, so they lie in ordinary memory and are computed there, on the step thread, in an order of sums
 * that follows from their shape alone. Memory: the model's. */
#ifndef PI__CLASSIFIER_H
#define PI__CLASSIFIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pi__model pi__model;

typedef struct pi__classifier {
    int32_t n_in;             /* E */
    int32_t n_dense;          /* D; 0: there is no dense layer */
    int32_t n_labels;         /* scores of a text; 0: there is no classifier */
    bool mean;                /* of the mean of all tokens' hidden states, */
    bool first;               /* or of the first one's, instead of the last one's */
    bool softmax;             /* scores are probabilities */
    float *dense, *dense_bias; /* [D, E], [D]; the bias may be NULL */
    float *out, *out_bias;    /* [labels, D or E], [labels]; NULL: the dense layer's values are the scores */
    const char **labels;      /* [labels] names, "" for one without */
    float *scratch;           /* [D + labels] */
} pi__classifier;

typedef struct pi__dense_heads {
    int32_t n[3];             /* values before, between and behind them */
    int32_t n_out;            /* n[2], which is E; 0: there are none */
    float *w[2];              /* [n[i + 1], n[i]]; NULL: it is absent */
    float *scratch;           /* [n[1] + n[2]] */
} pi__dense_heads;

/* Reads what the file has of a head; m->classifier.n_labels stays 0 where it has none. */
void pi__classifier_declare(pi__model *m);
/* The same of m->dense. */
void pi__dense_heads_declare(pi__model *m);
size_t pi__dense_heads_bytes(const pi__dense_heads *d);
/* out [n_out] of x [n[0]], which may be the same memory. */
void pi__dense_heads_apply(const pi__dense_heads *d, const float *x, float *out);
/* Bytes of its values and of what it computes in. */
size_t pi__classifier_bytes(const pi__classifier *c);
/* scores [labels] of x [E], which may be the same memory. */
void pi__classifier_scores(const pi__classifier *c, const float *x, float *scores);

#endif
