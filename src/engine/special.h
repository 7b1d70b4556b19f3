/* Special tokens of a vocabulary: tokens that end a generation, that are never generated, and that begin a turn of a
 * conversation. Immutable once collected; owned by the engine, read by the step thread. */
#ifndef PI__SPECIAL_H
#define PI__SPECIAL_H

#include "gguf/gguf.h"
#include "tokenizer/vocab.h"

typedef struct pi__special {
    int32_t *eog;              /* [n_eog] tokens that end a generation */
    int32_t n_eog;             /* entries in eog */
    int32_t *suppress;         /* [n_suppress] tokens that are never generated */
    int32_t n_suppress;        /* entries in suppress */
    int32_t turn_id[PI__MAX_TURNS]; /* tokens that begin a turn of a conversation */
    int32_t n_turn_ids;        /* entries in turn_id */
} pi__special;

/* Collects the special tokens of vocabulary v of file g, for a model of n_vocab tokens. Call free also after an
 * error. */
int pi__special_collect(pi__special *sp, const pi__vocab *v, const pi__gguf *g, int32_t n_vocab, pi_error *err);
void pi__special_free(pi__special *sp);

#endif
