/* A vocabulary's tokens as a trie over their bytes, for walking all tokens in one pass.
 *
 * Nodes are in depth-first order. Node 0 is the root. A node's subtree is the range of nodes up to skip[node]. The
 * tokens that end in a subtree are a range of `id`, which has the same order:
 *
 *     node  0  1:a  2:ab  3:b     skip[1] = 3: skips everything that starts with "a"
 *     first 0  0    1     2  3    tokens id[first[1]] .. id[first[3] - 1] start with "a"
 *
 * Each node has the kinds of the characters that follow it in its subtree's tokens (64 kinds), and the largest number
 * of characters that follow. If all of these are allowed, the entire subtree is. The trie has no control tokens, tokens
 * without bytes, or tokens that are never allowed. Immutable once made, except for its cache of slices. Owned by the
 * engine's grammars. */
#ifndef PI__GRAMMAR_TOKENS_H
#define PI__GRAMMAR_TOKENS_H

#include "pagedinfer.h"
#include "tokenizer/vocab.h"

enum { /* bits of kinds: digits, letters in four groups, white space, each other ASCII character, non-ASCII */
    PI__KIND_LINE = 60,    /* U+2028 and U+2029, which "." in a regular expression does not match */
    PI__KIND_BLANK = 61,   /* white space, which \S does not match */
    PI__KIND_WIDE = 62,    /* all others; a character cut off by the token's end has all kinds that it may become */
    PI__KIND_BROKEN = 63,  /* bytes that are not UTF-8 */
    PI__LONG_TOKEN = 255,  /* n_chars: this many characters or more */
};

typedef struct pi__slice pi__slice;
typedef struct pi__slices pi__slices; /* slice.c */

typedef struct pi__tokens {
    const pi__vocab *v;   /* the vocabulary */
    int32_t n_vocab;      /* length of a logits row; number of bits of a mask */
    int32_t eos;          /* end-of-text token to use if only one is needed; -1 = none */
    int32_t *eog;         /* [n_eog] all end-of-text tokens */
    int32_t n_eog;
    uint32_t n_nodes;     /* including the root */
    uint32_t max_bytes;   /* length of the longest token, in the trie or not */
    uint8_t *byte;        /* [n_nodes] last byte of the node's text */
    uint8_t *n_chars;     /* [n_nodes] max characters after the node's text in its tokens; capped at PI__LONG_TOKEN */
    uint8_t *n_before;    /* [n_nodes] number of characters of the node's text; valid if kinds lacks PI__KIND_BROKEN */
    uint32_t *depth;      /* [n_nodes] bytes of the node's text */
    uint32_t *skip;       /* [n_nodes] first node after the node's subtree */
    uint32_t *first;      /* [n_nodes + 1] index in `id` of the node's first token; own tokens precede the subtree's */
    uint64_t *kinds;      /* [n_nodes] one bit per kind of character after the node's text in its tokens */
    int32_t *id;          /* [first[n_nodes]] token ids in trie order */
    uint8_t *length;      /* [first[n_nodes]] number of characters of each token in `id`; capped at PI__LONG_TOKEN */
    uint32_t *set_of;     /* [first[n_nodes]] index in `set` of the kinds of each token in `id` */
    uint64_t *set;        /* [n_sets] distinct sets of kinds that tokens consist of */
    uint32_t *n_of_set;   /* [n_sets] number of tokens of this set with fewer than PI__LONG_TOKEN characters */
    size_t n_sets;
    pi__slices *slices;   /* cached slices */
    uint64_t *bare;       /* one bit per token outside the trie that may be generated: control tokens, no eog */
    uint64_t *all;        /* one bit per token that may be generated, no eog */
} pi__tokens;

int pi__tokens_create(pi__tokens **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                      pi_error *err);
void pi__tokens_free(pi__tokens *t);

/* A SLICE: the tokens that consist only of certain kinds of characters, as in the body of a JSON string. If any number
 * of these characters may follow, all its tokens are allowed, and only the rest of the trie is walked. The engine
 * caches a few slices; grammars share them. */
struct pi__slice {
    uint64_t kinds;       /* one bit per kind of character of its tokens */
    uint32_t n, longest;  /* number of tokens; characters of the longest one */
    int32_t *id;          /* [n] by length, shortest first */
    uint32_t upto[PI__LONG_TOKEN + 1]; /* [k] number of its tokens with at most k characters */
    uint64_t *bits;       /* one bit per token of the slice */
    uint32_t n_rest;
    uint32_t *node;       /* [n_rest] trie nodes on the paths to tokens outside the slice, in trie order */
    uint32_t *skip;       /* [n_rest] index in `node` of the first entry after the subtree of node[i] */
    unsigned users;       /* grammars that use it; guarded by the lock of pi__slices */
};

/* Stores in *out the slice of these kinds, cached or new; the caller releases it. NULL: the slice has too few tokens to
 * save work, or all cached slices are in use. Any thread. PI_ENOMEM. */
int pi__slice_get(const pi__tokens *t, uint64_t kinds, pi__slice **out, pi_error *err);
void pi__slice_release(const pi__tokens *t, pi__slice *s);
/* Sets bits to the mask of the slice's tokens with at most n characters, and to no other tokens. */
void pi__slice_fill(const pi__tokens *t, const pi__slice *s, uint32_t n, uint64_t *bits);

pi__slices *pi__slices_new(void); /* returns NULL if out of memory */
void pi__slices_free(pi__slices *s); /* may be NULL; no slice may be in use */

/* Returns the kind (bit number) of an ASCII character. */
int pi__char_kind(uint32_t c);
/* Returns the kinds, as bits, of the n non-ASCII characters from cp on. */
uint64_t pi__wide_kinds(uint32_t cp, uint32_t n);
bool pi__tokens_is_eog(const pi__tokens *t, int32_t id);
/* Returns the number of 64-bit words of a mask. */
static inline size_t pi__mask_words(const pi__tokens *t) { return ((size_t) t->n_vocab + 63) / 64; }

#endif
