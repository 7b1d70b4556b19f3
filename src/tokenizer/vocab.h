/* A vocabulary from GGUF metadata: text to token ids and back.
 *
 * Kinds (tokenizer.ggml.model): "llama" (SentencePiece with scores), "gpt2" (byte-level BPE with the regular
 * expressions of tokenizer.ggml.pre), "gemma4" (BPE over raw UTF-8), "bert" (WordPiece), "t5" (unigram). Immutable
 * once loaded: any number of threads. */
#ifndef PI__VOCAB_H
#define PI__VOCAB_H

#include "base/utf8.h"
#include "base/work.h"
#include "gguf/gguf.h"

typedef struct pi__vocab pi__vocab;

enum pi__token_attr { /* tokenizer.ggml.token_type */
    PI__TOK_NORMAL = 1, PI__TOK_UNKNOWN = 2, PI__TOK_CONTROL = 3, PI__TOK_USER = 4, PI__TOK_UNUSED = 5, PI__TOK_BYTE = 6
};

/* Loads the vocabulary of g, which may be closed afterwards. PI_EFORMAT: metadata is missing or inconsistent.
 * PI_EUNSUPPORTED: unknown tokenizer or pre-tokenizer (err names it). */
int pi__vocab_load(pi__vocab **out, const pi__gguf *g, pi_error *err);
void pi__vocab_free(pi__vocab *v);

int32_t pi__vocab_size(const pi__vocab *v);
int32_t pi__vocab_bos(const pi__vocab *v); /* bos, eos, sep, eot: -1 = the vocabulary has none */
int32_t pi__vocab_eos(const pi__vocab *v);
int32_t pi__vocab_sep(const pi__vocab *v); /* separates two texts */
int32_t pi__vocab_eot(const pi__vocab *v);
bool pi__vocab_add_bos(const pi__vocab *v); /* texts begin with BOS, and BOS exists */
bool pi__vocab_add_eos(const pi__vocab *v); /* texts end with EOS, or the token used in its place */
bool pi__vocab_add_sep(const pi__vocab *v); /* SEP separates two texts */
bool pi__vocab_is_eog(const pi__vocab *v, int32_t id); /* ends a generation: eos, eot, eom and known spellings */
int32_t pi__vocab_attr(const pi__vocab *v, int32_t id);
/* Returns the token as the file spells it (no byte decoding). */
pi__str pi__vocab_spelling(const pi__vocab *v, int32_t id);
/* Returns the id of a token by its exact spelling; -1 if it does not exist. */
int32_t pi__vocab_find(const pi__vocab *v, const char *text, size_t len);
/* Stores the ids of the tokens that begin a turn of a conversation ("<|im_start|>"), at most cap of them: found in the
 * file's chat template, or known spellings (turns.c). Returns their total number, at most PI__MAX_TURNS. */
enum { PI__MAX_TURNS = 16 };
int32_t pi__vocab_turn_starts(const pi__vocab *v, int32_t *ids, int32_t cap);

typedef struct pi__ids { /* growable; free with pi__free(ids.p) */
    int32_t *p;
    size_t n, cap;
    pi__work *work; /* the appending call's work; NULL = unlimited */
} pi__ids;

/* Appends the tokens of text. Any bytes are allowed: invalid UTF-8 must not crash, and must give llama.cpp's ids if
 * these are defined. add_special: add BOS and EOS according to metadata. parse_special: match control tokens in text
 * (user defined tokens always match). On PI_ENOMEM or the code of out->work, out is unchanged. Time is near linear in
 * len. */
int pi__tokenize(const pi__vocab *v, const char *text, size_t len, bool add_special, bool parse_special, pi__ids *out);

/* Marks the parts of a text that may become control tokens, and the images in it. */
enum { PI__TRUST_NONE, PI__TRUST_OWN, PI__TRUST_IMAGE, PI__TRUST_IMAGE_MORE };
typedef struct pi__trust {
    /* [len] OWN = the byte is trusted. An image is a byte IMAGE and all following bytes from IMAGE_MORE on. */
    const char *flag;
    const uint8_t *markup; /* bit id = this user-defined token counts as control here (pi__trust_markup) */
} pi__trust;
/* As pi__tokenize with parse_special, but control tokens match only trusted bytes. Other bytes are split and merged as
 * usual, across the borders too. So the ids are equal if the untrusted bytes contain no control token's text. Images
 * become the ids -1, -2 ... in the order of the text; text before and after an image is tokenized as next to a control
 * token. */
int pi__tokenize_trusted(const pi__vocab *v, const char *text, size_t len, bool add_special, const pi__trust *trust,
                         pi__ids *out);
/* Returns the user-defined tokens that are markup: spelled in angle or square brackets, and either with a bar
 * ("<|start|>") or contained in the template's text ("<think>"). One bit per token; free with pi__free. NULL: out of
 * memory. */
uint8_t *pi__trust_markup(const pi__vocab *v, const char *template, size_t n);

/* Stores the bytes of text that token id appends (possibly part of a UTF-8 character), at most cap. Returns their total
 * number. special: control tokens print their spelling; otherwise they print nothing. */
size_t pi__token_bytes(const pi__vocab *v, int32_t id, bool special, char *out, size_t cap);
/* Stores the text of n tokens in *out, which the caller frees with pi__free. As in llama.cpp's detokenize, the tokens
 * begin a sequence: the leading space that the tokenizer added is removed. */
int pi__detokenize(const pi__vocab *v, const int32_t *ids, size_t n, bool special, char **out, size_t *out_len);

#endif
