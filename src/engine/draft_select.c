/* The selector of a block drafter (DFlash2). Each row of a block has a few candidates, its top tokens. The selector
 * chooses one candidate per row, in order. The score is the candidate's logit plus its fit with the token chosen
 * before:
 *
 *     token     row 1          row 2          row 3
 *       t   ->  a  [b]  c  ->  [d] e   f  ->  g   h  [i]
 *
 *     score(b -> d) = logit(d) + sum of before[b] gate[2] after[d]
 *
 * The vectors before and after are rows of two matrices as large as the embedding. The drafter's backend looks up the
 * vectors of all candidates, and they are copied to the host together. So a block of any length waits twice for the
 * device. The choice takes a few thousand multiplications per row on the host.
 *
 * Memory: allocated at init. Step thread only. */
#include "engine/draft_select.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* Returns the number of ids of all rows. */
static size_t n_candidate_ids(int32_t n, int32_t max_rows) { return (size_t) max_rows * (size_t) (n + 1); }

/* Returns the bytes of vec. */
static size_t vec_bytes(const pi__model *m, int32_t max_rows)
{
    const size_t n_vec = (size_t) max_rows + 2 * n_candidate_ids(m->block.n_select, max_rows);
    return n_vec * (size_t) m->block.rank * sizeof(float);
}

size_t pi__selector_bytes(const pi__model *m, int32_t max_rows)
{
    const size_t n = n_candidate_ids(m->block.n_select, max_rows), rows = (size_t) max_rows;
    if (!m->block.n_select) return 0;
    return vec_bytes(m, max_rows) + (n + rows) * sizeof(int32_t) + rows * (size_t) m->block.n_select * sizeof(float);
}

int pi__selector_init(pi__selector *s, pi__model *m, pi__backend *be, int32_t max_rows, int32_t max_tokens,
                      pi_error *err)
{
    const size_t rows = (size_t) max_rows;
    *s = (pi__selector) {.m = m, .be = be, .n = m->block.n_select, .max_rows = max_rows, .max_tokens = max_tokens};
    if (!s->n) return PI_OK;
    s->id = pi__calloc(n_candidate_ids(s->n, max_rows), sizeof *s->id);
    s->n_found = pi__calloc(rows, sizeof *s->n_found);
    s->logit = pi__calloc(rows * (size_t) s->n, sizeof *s->logit);
    s->vec = be->dev->host_alloc(be, vec_bytes(m, max_rows));
    return s->id && s->n_found && s->logit && s->vec ? PI_OK : pi__fail_mem(err, "drafts");
}

void pi__selector_destroy(pi__selector *s)
{
    if (s->vec) s->be->dev->host_free(s->be, s->vec, vec_bytes(s->m, s->max_rows));
    pi__free(s->id);
    pi__free(s->n_found);
    pi__free(s->logit);
    memset(s, 0, sizeof *s);
}

/* Queues the copy of n vectors to the host. */
static void download_vectors(const pi__selector *s, float *to, const float *from, int32_t n)
{
    s->be->dev->download(s->be, to, from, (size_t) n * (size_t) s->m->block.rank * sizeof *to);
}

void pi__selector_copy(pi__selector *s, int32_t n) { download_vectors(s, s->vec, s->m->block.gate, n); }

/* Inserts candidate i with logit x into the lists of the n_found best, sorted by logit; for equal logits the lower
 * index comes first. Returns the new n_found, at most `most`. */
static int32_t insert_candidate(float *logit, int32_t *id, int32_t n_found, int32_t most, float x, int32_t i)
{
    int32_t at = n_found < most ? n_found : most - 1;
    if (n_found == most && !(x > logit[at])) return n_found;
    for (; at > 0 && logit[at - 1] < x; at--) logit[at] = logit[at - 1], id[at] = id[at - 1];
    logit[at] = x, id[at] = i;
    return n_found < most ? n_found + 1 : most;
}

/* Scales and caps a logit like the target's. */
static float adjusted_logit(const pi__selector *s, float x)
{
    const pi__draft_blocks *b = &s->m->block;
    x *= b->logit_scale;
    return b->softcap > 0 ? b->softcap * tanhf(x / b->softcap) : x;
}

void pi__selector_row(pi__selector *s, int32_t r, const float *row, const pi__top *top, int32_t before)
{
    int32_t *id = s->id + (size_t) r * (size_t) (s->n + 1) + 1, n = 0;
    float *logit = s->logit + (size_t) r * (size_t) s->n;
    id[-1] = before < 0 ? 0 : before;
    for (int32_t i = 0; i < (top && !top->odd ? top->n : 0) && n < s->n; i++, n++)
        id[n] = (int32_t) (uint32_t) top->key[i], logit[n] = pi__top_logit(top->key[i]);
    for (int32_t i = 0; i < (top ? 0 : s->m->block.n_out); i++)
        if (isfinite(row[i])) n = insert_candidate(logit, id, n, s->n, row[i], i);
    for (int32_t i = 0; i < n; i++) {
        logit[i] = adjusted_logit(s, logit[i]);
        if (s->m->block.token) id[i] = s->m->block.token[id[i]];
    }
    for (int32_t i = n; i < s->n; i++) id[i] = 0;
    s->n_found[r] = n;
}

int pi__selector_read(pi__selector *s, int32_t n, pi_error *err)
{
    const size_t rank = (size_t) s->m->block.rank;
    const int32_t all = n * (s->n + 1);
    float *before = s->vec + (size_t) s->max_rows * rank, *after = before + n_candidate_ids(s->n, s->max_rows) * rank;
    int rc = PI_OK;
    for (int32_t i = 0; i < all && !rc; i += s->max_tokens) {
        const int32_t k = all - i < s->max_tokens ? all - i : s->max_tokens;
        const pi__batch b = {.n_tokens = k, .token = s->id + i};
        s->m->arch->candidates(s->m, s->be->dev->begin(s->be, &b, PI__STEP_ANY));
        download_vectors(s, before + (size_t) i * rank, s->m->block.before, k);
        download_vectors(s, after + (size_t) i * rank, s->m->block.after, k);
        rc = s->be->dev->finish(s->be, err);
    }
    return rc;
}

int32_t pi__selector_best(const pi__selector *s, int32_t r, int32_t from, double *p)
{
    const int32_t rank = s->m->block.rank;
    const size_t R = (size_t) rank, row = (size_t) (s->n + 1) * R;
    const float *gate = s->vec + (size_t) r * R, *before = s->vec + (size_t) s->max_rows * R;
    const float *after = before + (size_t) s->max_rows * row + (size_t) r * row + R;
    const float *logit = s->logit + (size_t) r * (size_t) s->n;
    float score[PI__MAX_SELECT];
    int32_t best = -1;
    before += from < 0 ? (size_t) r * row : (size_t) (r - 1) * row + (size_t) (from + 1) * R;
    for (int32_t i = 0; i < s->n_found[r]; i++, after += R) {
        double sum = 0;
        for (int32_t k = 0; k < rank; k++) sum += (double) (before[k] * gate[k]) * (double) after[k];
        score[i] = (float) ((double) logit[i] + sum);
        if (isfinite(score[i]) && (best < 0 || score[i] > score[best])) best = i;
    }
    *p = 0;
    for (int32_t i = 0; i < s->n_found[r] && best >= 0; i++)
        if (isfinite(score[i])) *p += exp((double) (score[i] - score[best]));
    if (best >= 0) *p = 1 / *p;
    return best;
}

int32_t pi__selector_token(const pi__selector *s, int32_t r, int32_t candidate)
{
    return s->id[(size_t) r * (size_t) (s->n + 1) + 1 + (size_t) candidate];
}
