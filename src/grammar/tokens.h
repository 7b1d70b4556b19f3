/* The tokens of a vocabulary as a trie over their bytes, for walking all of them at once.
 *
 * Nodes are in depth-first order: node 0 is the root, a node's subtree are the nodes behind it up to skip[node], and
 * the tokens that end in a subtree are a range of `id`, which is in the same order:
 *
 *     node  0  1:a  2:ab  3:b     skip[1] = 3: to leave out everything that starts with "a"
 *     first 0  0    1     2  3    tokens id[first[1]] .. id[first[3] - 1] start with "a"
 *
 * Of what follows a node in its subtree's tokens the node has the kinds of characters, one of 64 a character, and the
 * longest one in characters: where all of these are allowed, so is the subtree. Control tokens, tokens without bytes
 * and those that are never allowed are not there. Immutable once made, but for the slices that it keeps;
 * owned by the engine's grammars. */
#ifndef PI__GRAMMAR_TOKENS_H
#define PI__GRAMMAR_TOKENS_H

#include "pagedinfer.h"
#include "tokenizer/vocab.h"

enum { /* bits of kinds: digits, letters in four groups, white space, each other ASCII character, and beyond ASCII */
    PI__KIND_LINE = 60,    /* U+2028 and U+2029, which are in no "." of a regular expression */
    PI__KIND_BLANK = 61,   /* white space, which is in no \S */
    PI__KIND_WIDE = 62,    /* all others; a character that the token's end cuts off is of all kinds that it may become */
    PI__KIND_BROKEN = 63,  /* bytes that are no UTF-8 */
    PI__LONG_TOKEN = 255,  /* n_chars: so many characters or more */
};

typedef struct pi__slice pi__slice;
typedef struct pi__slices pi__slices; /* slice.c */

typedef struct pi__tokens {
    const pi__vocab *v;   /* of it */
    int32_t n_vocab;      /* logits of the model; bits of a mask */
    int32_t eos;          /* the token that ends a text, -1: none */
    int32_t *eog;         /* [n_eog] all tokens that do */
    int32_t n_eog;
    uint32_t n_nodes;     /* root included */
    uint32_t max_bytes;   /* of the longest token, whether in the trie or not */
    uint8_t *byte;        /* [n_nodes] the last byte of a node's text */
    uint8_t *n_chars;     /* [n_nodes] most characters behind it, at most PI__LONG_TOKEN */
    uint8_t *n_before;    /* [n_nodes] characters of its own text, where kinds has no BROKEN */
    uint32_t *depth;      /* [n_nodes] bytes of a node's text */
    uint32_t *skip;       /* [n_nodes] the node behind its subtree */
    uint32_t *first;      /* [n_nodes + 1] tokens before it in the order of id; those of the node itself come first */
    uint64_t *kinds;      /* [n_nodes] a bit a kind of character that comes behind it */
    int32_t *id;          /* [first[n_nodes]] */
    uint8_t *length;      /* [first[n_nodes]] characters of each, at most PI__LONG_TOKEN */
    uint32_t *set_of;     /* [first[n_nodes]] the number of each token's kinds in `set` */
    uint64_t *set;        /* [n_sets] the different kinds that tokens consist of */
    uint32_t *n_of_set;   /* [n_sets] tokens of these kinds that have fewer than PI__LONG_TOKEN characters */
    size_t n_sets;
    pi__slices *slices;   /* that are kept */
    uint64_t *bare;       /* bits of tokens that are not in the trie but may be generated: control tokens, no eog */
    uint64_t *all;        /* bits of all tokens that may be generated, no eog */
} pi__tokens;

int pi__tokens_create(pi__tokens **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                      pi_error *err);
void pi__tokens_free(pi__tokens *t);

/* A SLICE: the tokens that consist of some kinds of characters only, as the body of a JSON text does. Where any number of
 * these characters may follow, all its tokens are allowed, and only the rest of the trie has to be walked.
 * The engine keeps a few of them; grammars share them. */
struct pi__slice {
    uint64_t kinds;
    uint32_t n, longest;  /* tokens; characters of the longest one */
    int32_t *id;          /* [n] shorter ones first */
    uint32_t upto[PI__LONG_TOKEN + 1]; /* tokens of at most so many characters */
    uint64_t *bits;       /* all of them, a bit a token */
    uint32_t n_rest;
    uint32_t *node;       /* [n_rest] nodes of the trie on the way to other tokens, in its order */
    uint32_t *skip;       /* [n_rest] in `node`, the one behind its subtree */
    unsigned users;       /* guarded by the tokens' lock */
};

/* The slice, for the caller to release. *out NULL: too few tokens for one, or no room for more. Any thread. PI_ENOMEM. */
int pi__slice_get(const pi__tokens *t, uint64_t kinds, pi__slice **out, pi_error *err);
void pi__slice_release(const pi__tokens *t, pi__slice *s);
/* The mask of its tokens of at most n characters. */
void pi__slice_fill(const pi__tokens *t, const pi__slice *s, uint32_t n, uint64_t *bits);

pi__slices *pi__slices_new(void); /* NULL: out of memory */
void pi__slices_free(pi__slices *s); /* may be NULL; none is in use */

/* The kind of an ASCII character. */
int pi__char_kind(uint32_t c);
/* The kinds of the n characters from cp on, beyond ASCII, as bits. */
uint64_t pi__wide_kinds(uint32_t cp, uint32_t n);
bool pi__tokens_is_eog(const pi__tokens *t, int32_t id);
/* Words of a mask. */
static inline size_t pi__mask_words(const pi__tokens *t) { return ((size_t) t->n_vocab + 63) / 64; }

#endif
