/* The row types from which random_model.c writes random models; random_rows.c has the rows.
 *
 * A letter is a number of the current model. Capitals are sizes, small letters are conditions (0 or 1). An
 * architecture may use other letters for its own features:
 *
 *     L layers;  E embedding;  H heads;  G key-value heads;  D head size;  F feed-forward;  V vocabulary;  C context;
 *     W window;  P every P-th layer is global;
 *     u untied output matrix;  k head size in the metadata;  b biases of q, k, v;  n norms of q and k;
 *     j rows of a classifier head after a dense layer of q rows, y with biases (any architecture; default 0);
 *     a dense heads after pooling;
 *     w norms over all heads of q and of k, and MiniMax's routing;
 *     h alternative name of a norm;  o further gpt-oss features: sinks, more biases;  s GLM's features beyond experts;
 *     z a draft head;  m layers with DeepStack rows;
 *     f q, k and v are one matrix;  X experts, two per token;  p norms after attention and feed-forward;
 *     r rope_freqs.weight with R numbers.
 *
 * Further conditions:
 *
 *     m no norms before blocks;  i no norm before the feed-forward;  d feed-forward without a gate;
 *     e biases of norms, outputs and feed-forwards;  t correction of the router;  g gate of the shared expert;
 *     T shared expert of size Z;  y layers with DeepStack rows.
 *
 * A size is a sum of products of numbers and letters: "40", "HD", "HD+2GD". A condition lists letters that must all be
 * nonzero, "!" before one that must be zero: "o!f". */
#ifndef RANDOM_ROWS_H
#define RANDOM_ROWS_H

#include "random_model.h"

/* A metadata entry. Names without "general.", "tokenizer." or "xielu." follow the architecture's name. */
typedef struct tiny_key {
    const char *when, *name;
    int type;          /* PI__GGUF_* type; for an array: its element type */
    const char *size;  /* U32: the value; array: number of elements */
    float real;        /* F32: the value */
    const void *array; /* STR: the text; array: the elements */
} tiny_key;

/* Tensor types in addition to enum pi__type. A vector is F32, its values around 1. */
enum { TINY_OPEN = -1 /* type from the spec, or the row's own */, TINY_BIAS = -2 /* F32, a vector around 0 */ };

typedef struct tiny_tensor {
    const char *when, *name;
    int32_t type;
    const char *shape; /* one to four sizes */
    double (*value)(const int64_t *v, uint64_t *rng, int64_t i); /* value of element i; NULL = random */
} tiny_tensor;

typedef struct tiny_row {
    const char *name, *arch;             /* arch NULL = name */
    const tiny_key *keys, *more_keys;    /* each list ends with a name of NULL */
    const tiny_tensor *head, *layer, *tail;
    void (*per_layer)(int64_t *v, int32_t i); /* sets the letters that differ between layers; NULL = none differ */
    const char *sizes;                   /* "L=3 E=64": the value of each letter */
    const char *vocab;                   /* "spm", "plamo2", "wpm", "t5", or a BPE pre-tokenizer; NULL = none */
    int32_t type;                        /* type of matrices with an open type */
    uint64_t rng;                        /* initial state of the random generator, unless the spec has a seed */
    int32_t first;                       /* earlier layers are not in the file */
    const char *prefix;                  /* prefix of the first layer; after "blk." N follows; NULL = "blk." */
} tiny_row;

extern const tiny_tensor tiny_classifier[];
extern const tiny_row tiny_rows[];
extern const size_t tiny_n_rows;
/* Vision models (random_towers.c). Letters: L, E, H, F as above; O width of the text model; P pixels per side of a
 * patch; K patches per side of a token; I pixels per side of the image; S rows of the position embedding. */
extern const tiny_row tiny_towers[];
extern const size_t tiny_n_towers;

#endif
