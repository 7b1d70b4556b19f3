/* Bytes of tokens to text that may be shown: whole characters, nothing of a stop string.
 *
 *     tokens' bytes -> pi__utf8_hold -> held text -> shown text
 *
 * Text is held back while it may be the beginning of a stop string. All stop strings are matched together as a stream of
 * bytes, so token borders change nothing: by an Aho-Corasick automaton, the trie of the strings with a link from each
 * node to the longest proper suffix of its text that is a node as well. A byte costs the same for one string and for
 * thousands, amortised.
 *
 *     stop "he", "she", "his":   root -h-> h -e-> he!       sh links to h, she! to he!, his! to s
 *                                          h -i-> hi -s-> his!
 *                                root -s-> s -h-> sh -e-> she!
 *
 * Memory: the held text, and 24 bytes for each byte of the stop strings, which the outputs of one request share. One
 * thread at a time uses an output; an automaton does not change once it is made. */
#ifndef PI__OUTPUT_H
#define PI__OUTPUT_H

#include "tokenizer/vocab.h"

typedef struct pi__stop_node {
    int32_t child, sibling; /* first child, next child of the same parent; -1 = none */
    int32_t link;           /* node of the longest proper suffix */
    int32_t depth;          /* bytes of the node's text */
    int32_t hit;            /* the longest stop string that ends the node's text, or -1 */
    uint8_t byte;           /* last one of the text */
} pi__stop_node;

typedef struct pi__stops {
    char *const *text;      /* [n] owned by the caller of pi__stops_make */
    pi__stop_node *node;    /* [n_node] node 0 is the root; NULL = no stop strings */
    int32_t n_node;
} pi__stops;

/* The automaton of n texts, which outlive it; empty ones are ignored. PI_ENOMEM: needs no free. */
int pi__stops_make(pi__stops *a, char *const *text, size_t n);
void pi__stops_free(pi__stops *a);

typedef struct pi__output {
    pi__utf8_hold hold; /* an incomplete character */
    const pi__stops *stops; /* stop strings; borrowed, or NULL */
    int32_t at;             /* their node: the longest suffix of the stream that begins a stop string */
    const char *hit;    /* the stop string that was found, or NULL */
    char *buf;          /* [cap] held text, then room for what comes */
    size_t n, cap;      /* bytes held, allocated */
    size_t shown;       /* bytes at the start of buf that the last call released */
} pi__output;

/* stops: outlives o; NULL = no stop strings. PI_ENOMEM: needs no free. */
int pi__output_init(pi__output *o, const pi__stops *stops);
void pi__output_free(pi__output *o);
/* Bytes of the next token. *text and *n: what may be shown now, valid until the next call. PI_ENOMEM: nothing changed.
 * After a stop string was found (o->hit) everything is ignored. */
int pi__output_feed(pi__output *o, const char *bytes, size_t n_bytes, const char **text, size_t *n);
/* The end: what was held back, n bytes and a NUL. The caller frees it with pi__free; NULL only after a second call.
 * Allocates nothing. */
char *pi__output_finish(pi__output *o, size_t *n);

#endif
