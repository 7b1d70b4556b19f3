/* Converts bytes of tokens to text that may be shown: complete characters, and no part of a stop string.
 *
 *     tokens' bytes -> pi__utf8_hold -> held text -> shown text
 *
 * Text is held back while it may be the beginning of a stop string. All stop strings are matched together on the byte
 * stream, so token boundaries do not matter. The matcher is an Aho-Corasick automaton: the trie of the strings, where
 * each node has a link to the longest proper suffix of its text that is also a node. The amortized cost per byte does
 * not depend on the number of strings.
 *
 *     stop "he", "she", "his":   root -h-> h -e-> he!       sh links to h, she! to he!, his! to s
 *                                          h -i-> hi -s-> his!
 *                                root -s-> s -h-> sh -e-> she!
 *
 * Memory: the held text, and 24 bytes per byte of the stop strings, shared by the outputs of one request. An output
 * belongs to one thread at a time. An automaton is constant once it is made. */
#ifndef PI__OUTPUT_H
#define PI__OUTPUT_H

#include "tokenizer/vocab.h"

typedef struct pi__stop_node {
    int32_t child, sibling; /* first child; next child of the same parent; -1 = none */
    int32_t link;           /* node of the longest proper suffix */
    int32_t depth;          /* bytes of the node's text */
    int32_t hit;            /* longest stop string at the end of the node's text: index in pi__stops.text; -1 = none */
    uint8_t byte;           /* last byte of the node's text */
} pi__stop_node;

typedef struct pi__stops {
    char *const *text;      /* [n] the stop strings; owned by the caller of pi__stops_make */
    pi__stop_node *node;    /* [n_node] node 0 is the root; NULL = no stop strings */
    int32_t n_node;
} pi__stops;

/* Builds the automaton of n texts, which must outlive it. Empty texts are ignored. PI_ENOMEM: needs no free. */
int pi__stops_make(pi__stops *a, char *const *text, size_t n);
void pi__stops_free(pi__stops *a);

typedef struct pi__output {
    pi__utf8_hold hold; /* bytes of an incomplete character */
    const pi__stops *stops; /* stop strings; borrowed, or NULL */
    int32_t at;             /* automaton node for the longest end of the byte stream that begins a stop string */
    const char *hit;    /* the stop string found, or NULL */
    char *buf;          /* [cap] buf[0..shown) was released by the last call, buf[shown..n) is held back */
    size_t n, cap;      /* bytes used in buf; bytes allocated */
    size_t shown;       /* bytes at the start of buf that the last call released */
} pi__output;

/* stops must outlive o; NULL = no stop strings. PI_ENOMEM: needs no free. */
int pi__output_init(pi__output *o, const pi__stops *stops);
void pi__output_free(pi__output *o);
/* Feeds the bytes of the next token. Stores in *text and *n the text that may be shown now, valid until the next call.
 * If the text contains a stop string, sets o->hit and releases only the text before it; later input is ignored.
 * PI_ENOMEM: nothing changed. */
int pi__output_feed(pi__output *o, const char *bytes, size_t n_bytes, const char **text, size_t *n);
/* Ends the text. Returns the text not yet released, n bytes and a NUL; the caller frees it with pi__free. A stop string
 * is never part of it. Returns NULL only if called twice. Allocates nothing. */
char *pi__output_finish(pi__output *o, size_t *n);

#endif
