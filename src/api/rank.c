/* pi_request_prompt_rank: a query and a document as the prompt of a reranker.
 *
 * If the file has the template tokenizer.chat_template.rerank, the prompt is its text with {query} and {document}
 * replaced. Only text that the template itself contains becomes control tokens. Otherwise the prompt is
 * [BOS] query [EOS] [SEP] document [EOS], with the tokens that the metadata asks for.
 *
 * Memory: the template belongs to the engine and is constant after opening: any thread may read it. */
#include "api/rank.h"

#include <string.h>

#include "api/image_prompt.h"
#include "api/request.h"
#include "base/alloc.h"
#include "base/error.h"

#define KEY "tokenizer.chat_template.rerank"

int pi__engine_open_rank(pi_engine *e, pi_error *err)
{
    const int64_t n = pi_engine_meta(e, KEY, NULL, 0);
    if (n < 0) return PI_OK;
    e->rank_template = pi__malloc((size_t) n + 1);
    if (e->rank_template) pi_engine_meta(e, KEY, e->rank_template, (size_t) n + 1);
    if (e->rank_template) e->rank_markup = pi__trust_markup(pi__core_vocab(e->core), e->rank_template, (size_t) n);
    return e->rank_markup ? PI_OK : pi__fail_mem(err, "the template of query and document");
}

/* Text under construction; p NULL = only counts n. */
typedef struct out {
    char *p, *trust; /* [n] each; trust is 1 for a byte of the template, 0 for a byte of the pair */
    size_t n;
} out;

static void put_bytes(out *o, const char *p, size_t n, bool trusted)
{
    if (o->p && n) memcpy(o->p + o->n, p, n);
    if (o->p) memset(o->trust + o->n, trusted, n);
    o->n += n;
}

/* Inserts the pair into the template. false = the template lacks {query} or {document}. */
static bool fill_template(out *o, const char *template, const pi__str pair[2])
{
    static const char *const place[2] = {"{query}", "{document}"};
    bool found[2] = {false, false};
    o->n = 0;
    for (const char *at = template; *at;) {
        int which = 0;
        while (which < 2 && strncmp(at, place[which], strlen(place[which])) != 0) which++;
        if (which == 2) {
            const size_t n = 1 + strcspn(at + 1, "{");
            put_bytes(o, at, n, true);
            at += n;
            continue;
        }
        put_bytes(o, pair[which].p, pair[which].n, false);
        found[which] = true;
        at += strlen(place[which]);
    }
    return found[0] && found[1];
}

static int by_template(const pi_engine *e, const pi__str pair[2], pi__ids *ids, pi_error *err)
{
    out o = {0};
    if (!fill_template(&o, e->rank_template, pair))
        return pi__fail(err, PI_EUNSUPPORTED,
                        "metadata " KEY " lacks {query} or {document}: give the whole prompt as text");
    o.p = pi__malloc(o.n + 1);
    o.trust = pi__malloc(o.n + 1);
    int rc = PI_ENOMEM;
    if (o.p && o.trust) {
        fill_template(&o, e->rank_template, pair);
        const pi__trust trust = {o.trust, e->rank_markup};
        rc = pi__tokenize_trusted(pi__core_vocab(e->core), o.p, o.n, false, &trust, ids);
    }
    pi__free(o.p);
    pi__free(o.trust);
    return rc ? pi__fail(err, rc, "tokenizing query and document: %s", pi_strerror(rc)) : PI_OK;
}

static int add_id(pi__ids *ids, bool wanted, int32_t id)
{
    if (!wanted || id < 0) return PI_OK;
    if (!pi__grow(&ids->p, &ids->cap, ids->n + 1, sizeof *ids->p)) return PI_ENOMEM;
    ids->p[ids->n++] = id;
    return PI_OK;
}

static int by_tokens(const pi_engine *e, const pi__str pair[2], pi__ids *ids, pi_error *err)
{
    const pi__vocab *v = pi__core_vocab(e->core);
    const int32_t sep = pi__vocab_sep(v), eos = pi__vocab_eos(v) >= 0 ? pi__vocab_eos(v) : sep;
    if (eos < 0)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "the model has neither the template " KEY " nor an EOS or SEP token: give the "
                        "whole prompt as text");
    int rc = add_id(ids, pi__vocab_add_bos(v), pi__vocab_bos(v));
    for (int i = 0; i < 2 && !rc; i++) {
        rc = pi__tokenize(v, pair[i].p, pair[i].n, false, false, ids);
        if (!rc) rc = add_id(ids, pi__vocab_add_eos(v), eos);
        if (!rc) rc = add_id(ids, i == 0 && pi__vocab_add_sep(v), sep);
    }
    return rc ? pi__fail(err, rc, "tokenizing query and document: %s", pi_strerror(rc)) : PI_OK;
}

int pi_request_prompt_rank(pi_request *r, const char *query, size_t query_len, const char *document,
                           size_t document_len, pi_error *err)
{
    int rc = pi__request_check_new(r, err);
    if (rc) return rc;
    if ((!query && query_len) || (!document && document_len))
        return pi__fail(err, PI_EINVAL, "query and document must not be NULL");
    const pi__str pair[2] = {{query ? query : "", query_len}, {document ? document : "", document_len}};
    if (query_len > INT32_MAX || document_len > INT32_MAX)
        return pi__fail(err, PI_ETOOBIG, "query or document exceeds the length limit of a prompt");
    pi__ids ids = {.work = r->work};
    rc = (r->e->rank_template ? by_template : by_tokens)(r->e, pair, &ids, err);
    if (!rc && !ids.n) rc = pi__fail(err, PI_EINVAL, "the prompt is empty");
    if (!rc) rc = pi__image_expand(r, &ids, true, err);
    if (rc) pi__free(ids.p);
    else pi__request_take_prompt(r, ids.p, ids.n);
    return rc;
}
