/* Computes the logits of a drafter that has its own model file, on any backend. */
#ifndef DRAFT_LOGITS_H
#define DRAFT_LOGITS_H

#include <string.h>

#include "formats/formats.h"
#include "model/model.h"

enum { DA_ROWS = 7, DA_BLOCK = 16 };

/* Returns one block with zeroed keys and values of every layer, or NULL if out of memory. */
static inline char *da_cache(pi__model *m, size_t *size)
{
    pi__backend *be = pi__backend_at(m->be, PI__AT_DEVICE);
    *size = 0;
    for (int32_t i = 0; i < m->n_kv; i++) {
        pi__kv_layer *kv = &m->kv[i];
        const size_t n = be->dev->kv_bytes(be, PI__F32, PI__F32, kv->n_head_kv, kv->head_dim, DA_BLOCK);
        kv->type_k = kv->type_v = PI__F32;
        kv->stride = n;
        *size = n > *size ? n : *size;
    }
    char *p = be->dev->alloc(be, *size);
    for (int32_t i = 0; i < m->n_kv; i++) m->kv[i].base = p;
    return p;
}

/* Runs tokens as separate sequences, each at position 1 after a hidden state of zeros. */
static inline int da_run(pi__model *m, const pi__model *target, float *out, float *logits, pi_error *err)
{
    static const int32_t zero[2 * DA_ROWS];
    int32_t token[DA_ROWS], start[DA_ROWS + 1] = {0}, one[DA_ROWS], two[DA_ROWS], index[DA_ROWS], hidden[DA_ROWS];
    for (int32_t i = 0; i < DA_ROWS; i++)
        token[i] = 40 * i + 5, start[i + 1] = i + 1, one[i] = 1, two[i] = 2, index[i] = i, hidden[i] = -1;
    pi__batch b = {.n_tokens = DA_ROWS,
                   .n_seqs = DA_ROWS,
                   .n_rows = DA_ROWS,
                   .n_groups = target->n_groups,
                   .token = token,
                   .pos = one,
                   .seq = index,
                   .seq_start = start,
                   .seq_len = two,
                   .n_verified = one,
                   .logits_indices = index,
                   .save_start = zero,
                   .state_slot = zero,
                   .hidden_row = hidden};
    for (int32_t i = 0; i < b.n_groups; i++) b.kv[i] = (pi__kv_batch) {DA_BLOCK, 1, zero, index};
    const pi__batch *own = m->be->dev->begin(m->be, &b, PI__STEP_ANY);
    m->arch->draft(m, own, false, out);
    m->be->dev->download(m->be, logits, out, DA_ROWS * (size_t) m->n_vocab * sizeof *logits);
    return m->be->dev->finish(m->be, err);
}

/* Writes logits [DA_ROWS, n_vocab] of the drafter in file `draft` for the model in file `model`. */
static inline int da_logits(pi__backend *be, const char *model, const char *draft, int load_mode, float *logits,
                            pi_error *err)
{
    const char *const path[] = {model, draft};
    pi__gguf *g[2] = {NULL};
    pi__model *m[2] = {NULL};
    pi__limits lim = {.max_tokens = DA_ROWS, .max_seqs = DA_ROWS, .max_rows = DA_ROWS, .max_ctx = 64};
    int rc = PI_OK;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = pi__gguf_open(&g[i], path[i], load_mode, err);
        if (!rc)
            rc = pi__model_declare(&m[i], g[i], be, &(pi__model_use) {.n_draft = 1, .target = i ? m[0] : NULL}, err);
        if (!rc) (void) pi__model_scratch(m[i], &lim);
    }
    if (!rc) lim.n_vocab = m[1]->n_vocab;
    if (!rc) rc = be->dev->reserve(be, &lim, err);
    for (int i = 0; i < 2 && !rc; i++) rc = pi__model_load(m[i], &lim, NULL, err);
    if (!rc) {
        size_t size, n = DA_ROWS * (size_t) m[1]->n_vocab * sizeof *logits;
        char *cache = da_cache(m[0], &size);
        float *out = be->dev->alloc(be, n);
        rc = cache && out ? da_run(m[1], m[0], out, logits, err) : PI_ENOMEM;
        pi__backend *keeps = pi__backend_at(be, PI__AT_DEVICE);
        if (cache) keeps->dev->free(keeps, cache, size);
        if (out) be->dev->free(be, out, n);
    }
    for (int i = 1; i >= 0; i--) pi__model_free(m[i]), pi__gguf_close(g[i]);
    return rc;
}

#endif
