/* A vocabulary from GGUF metadata: text to token ids and back.
 *
 * Kinds (tokenizer.ggml.model): "llama" (SentencePiece: scores), "gpt2" (byte-level BPE with the regex that
 * tokenizer.ggml.pre names), "gemma4" (BPE over raw UTF-8), "bert" (WordPiece),
 * "t5" (unigram). Immutable once loaded: any number of threads. */
#ifndef PI__VOCAB_H
#define PI__VOCAB_H

#include "base/utf8.h"
#include "base/work.h"
#include "gguf/gguf.h"

typedef struct pi__vocab pi__vocab;

enum pi__token_attr { /* tokenizer.ggml.token_type */
    PI__TOK_NORMAL = 1, PI__TOK_UNKNOWN = 2, PI__TOK_CONTROL = 3, PI__TOK_USER = 4, PI__TOK_UNUSED = 5, PI__TOK_BYTE = 6
};

/* PI_EFORMAT: metadata missing or inconsistent; PI_EUNSUPPORTED: a tokenizer or pre-tokenizer not known (named). */
int pi__vocab_load(pi__vocab **out, const pi__gguf *g, pi_error *err);
void pi__vocab_free(pi__vocab *v);

int32_t pi__vocab_size(const pi__vocab *v);
int32_t pi__vocab_bos(const pi__vocab *v); /* -1: none; the same for the others */
int32_t pi__vocab_eos(const pi__vocab *v);
int32_t pi__vocab_sep(const pi__vocab *v); /* between two texts */
int32_t pi__vocab_eot(const pi__vocab *v);
bool pi__vocab_add_bos(const pi__vocab *v); /* there is one, and texts begin with it */
bool pi__vocab_add_eos(const pi__vocab *v); /* texts end with EOS, or whatever stands for it */
bool pi__vocab_add_sep(const pi__vocab *v); /* SEP stands between two texts */
bool pi__vocab_is_eog(const pi__vocab *v, int32_t id); /* ends a generation: eos, eot, eom and their well-known texts */
int32_t pi__vocab_attr(const pi__vocab *v, int32_t id);
/* The token as the file spells it (no byte decoding). */
pi__str pi__vocab_spelling(const pi__vocab *v, int32_t id);
/* Id of a token by its exact spelling, -1: none. */
int32_t pi__vocab_find(const pi__vocab *v, const char *text, size_t len);
/* Tokens that begin a turn of a conversation ("<|im_start|>"), as the file's chat template uses them: writes at most cap
 * of them to ids and returns how many there are (at most PI__MAX_TURNS). */
enum { PI__MAX_TURNS = 16 };
int32_t pi__vocab_turn_starts(const pi__vocab *v, int32_t *ids, int32_t cap);

typedef struct pi__ids { /* growable; free with pi__free(ids.p) */
    int32_t *p;
    size_t n, cap;
    pi__work *work; /* of those who append, or NULL */
} pi__ids;

/* Appends the tokens of text (any bytes; invalid UTF-8 must not crash and must give the same ids as llama.cpp's where
 * that is defined). add_special: BOS/EOS as metadata says. parse_special: control tokens are recognised in text (user
 * defined ones always are). PI_ENOMEM, and the code of out->work, leave out as it was before. Time near linear in len for any text. */
int pi__tokenize(const pi__vocab *v, const char *text, size_t len, bool add_special, bool parse_special, pi__ids *out);

/* Text of which only a part may become control tokens. */
typedef struct pi__trust {
    const char *flag;      /* [len] 1: the byte is trusted */
    const uint8_t *markup; /* bit id: a user-defined token that counts as control here (pi__trust_markup) */
} pi__trust;
/* As pi__tokenize with parse_special, but that control tokens are made of trusted bytes alone; all the
 * rest is split and merged as there, across the borders too. So the ids are the same where the other bytes hold no
 * such text. */
int pi__tokenize_trusted(const pi__vocab *v, const char *text, size_t len, bool add_special, const pi__trust *trust,
                         pi__ids *out);
/* Which user-defined tokens are markup: spelled in angle or square brackets, and either with a bar ("<|start|>") or in
 * the text of the template ("<think>"). A bit a token, pi__free; NULL: out of memory. */
uint8_t *pi__trust_markup(const pi__vocab *v, const char *template, size_t n);

/* Bytes of one token as generation appends them (may be part of a UTF-8 character). Returns their number and writes at
 * most cap. special: control tokens print their spelling, otherwise nothing. */
size_t pi__token_bytes(const pi__vocab *v, int32_t id, bool special, char *out, size_t cap);
/* Text of a sequence from its start: as llama.cpp's detokenize (a leading space that the tokenizer added is removed). */
int pi__detokenize(const pi__vocab *v, const int32_t *ids, size_t n, bool special, char **out, size_t *out_len);

#endif
