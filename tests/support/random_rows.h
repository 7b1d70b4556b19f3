/* The rows from which random_model.c writes random models; random_rows.c has them.
 *
 * A letter is a number of the model at hand. Capitals are sizes, small letters are conditions (0 or 1); an architecture
 * may use others for what only it has:
 *
 *     L layers  E embedding  H heads  G key-value heads  D head size  F feed-forward  V vocabulary  C context
 *     W window  P each so-manyth layer is global
 *     u output matrix of its own   k head size in the metadata   b biases of q, k, v   n norms of q and k
 *     j rows of a classifier head, behind a dense layer of q rows, y with biases (of any architecture, zeros unless asked for)
 *     a dense heads behind pooling
 *     w norms of all heads of q and of k, and the routing of MiniMax
 *     h another name of a norm   o what else gpt-oss has: sinks, more biases   s what GLM has beside experts   z a draft head
 *     f q, k and v are one matrix   X experts, two a token   p norms behind attention and feed-forward   r rope_freqs.weight, of R numbers
 *
 * A size is a sum of products of numbers and letters: "40", "HD", "HD+2GD". A condition lists letters that must all be
 * nonzero, "!" before one that must be zero: "o!f". */
#ifndef RANDOM_ROWS_H
#define RANDOM_ROWS_H

#include "random_model.h"

/* An entry of the metadata. Names without "general." or "tokenizer." stand behind the architecture's name. */
typedef struct tiny_key {
    const char *when, *name;
    int type;          /* PI__GGUF_*; of an array: of its elements */
    const char *size;  /* U32: the value; an array: how many elements */
    float real;        /* F32: the value */
    const void *array; /* STR: the text; else an array's elements */
} tiny_key;

/* Types of a tensor beside enum pi__type. A vector is F32, its values around 1. */
enum { TINY_OPEN = -1 /* the spec's, or the row's own */, TINY_BIAS = -2 /* F32, a vector around 0 */ };

typedef struct tiny_tensor {
    const char *when, *name;
    int32_t type;
    const char *shape; /* one to three sizes */
    double (*value)(const int64_t *v, uint64_t *rng, int64_t i); /* of element i; NULL: random */
} tiny_tensor;

typedef struct tiny_row {
    const char *name, *arch;             /* arch NULL: name */
    const tiny_key *keys, *more_keys;    /* each list ends with a name of NULL */
    const tiny_tensor *head, *layer, *tail;
    void (*per_layer)(int64_t *v, int32_t i); /* sets what differs from layer to layer; NULL: nothing */
    const char *sizes;                   /* "L=3 E=64": each value a size */
    const char *vocab;                   /* "spm", "wpm", or the name of a pre-tokenizer: BPE */
    int32_t type;                        /* of matrices that leave it open */
    uint64_t rng;                        /* where the random numbers begin, unless the spec has a seed */
    int32_t first;                       /* layers before it are not in the file */
    const char *prefix;                  /* of the first layer's tensors where it is not blk.N; NULL */
} tiny_row;

extern const tiny_tensor tiny_classifier[];
extern const tiny_row tiny_rows[];
extern const size_t tiny_n_rows;

#endif
