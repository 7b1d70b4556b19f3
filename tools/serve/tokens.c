/* /tokenize, /detokenize, /apply-template and token counts: conversion of text to ids and back. */
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "json.h"
#include "serve/responses.h"
#include "serve/chat.h"
#include "serve/convert.h"
#include "serve/reply.h"
#include "serve/job.h"
#include "serve/media.h"

/* ------------------------------------------------------------------------------------------------------ the work */

/* Returns the token's text: in `small` if it fits, else allocated and freed by the caller. NULL = out of memory. */
static char *text_of(const server *s, int32_t id, char *small, size_t cap, size_t *n)
{
    char *p = small;
    *n = service_token_text(&s->sv, id, true, small, cap);
    if (*n > cap && (p = malloc(*n))) service_token_text(&s->sv, id, true, p, *n);
    if (!p) text_no_memory();
    return p;
}

static bool is_utf8(const char *p, size_t n)
{
    size_t i = 0;
    for (size_t k; i < n && (k = utf8_char(p + i, n - i)); i += k) {}
    return i == n;
}

enum { PIECE_ID, PIECE, PIECE_TEXT }; /* id only; id and text, or bytes of an incomplete character; text only */

static void put_piece(buf *b, const server *s, int32_t id, int form)
{
    char small[256], *p = small;
    size_t n = 0;
    if (form == PIECE_ID) {
        buf_fmt(b, "%d", id);
        return;
    }
    if (!(p = text_of(s, id, small, sizeof small, &n))) return;
    if (form == PIECE) buf_fmt(b, "{\"id\":%d,\"piece\":", id);
    if (form == PIECE_TEXT || is_utf8(p, n)) {
        text_put_json(b, p, n);
    } else {
        for (size_t i = 0; i < n; i++) buf_fmt(b, i ? ",%d" : "[%d", (unsigned char) p[i]);
        buf_put(b, "]", 1);
    }
    if (form == PIECE) buf_put(b, "}", 1);
    if (p != small) free(p);
}

/* Appends a JSON list of the n tokens to j->text; form: PIECE_*. Returns PI_OK, or the code of the job's work
 * budget. */
static int put_pieces(job *j, const int32_t *ids, size_t n, int form)
{
    int rc = PI_OK;
    buf_put(&j->text, "[", 1);
    for (size_t i = 0; i < n && !rc && !j->text.failed; i++) {
        if (i % 1024 == 0) rc = pi_work_check(j->prep.limit);
        if (i) buf_put(&j->text, ",", 1);
        put_piece(&j->text, j->s, ids[i], form);
    }
    buf_put(&j->text, "]", 1);
    return rc;
}

static int conversation(job *j, int (*convert)(params *, pi_error *), chat_state *c)
{
    params *p = &j->p;
    int rc = convert(p, &j->err);
    j->wants_heavy = p->n_images > 0;
    if (!rc && j->wants_heavy && !j->prep.heavy) return PI_ETOOBIG;
    if (!rc) rc = gen_template_defaults(&j->s->sv, p, &j->err);
    return rc ? rc : chat_prepare(c, p->messages, p->tools, p->template_vars, &j->err);
}

/* Returns the prompt ids of the conversation. The caller frees *ids, also after a failure. */
static int conversation_tokens(job *j, int (*convert)(params *, pi_error *), int32_t **ids, size_t *n)
{
    chat_state c = {0};
    int rc = conversation(j, convert, &c);
    *ids = NULL;
    *n = 0;
    if (!rc) rc = chat_tokens(&c, j->prep.limit, j->s->sv.e, ids, n, &j->err);
    chat_state_free(&c);
    return rc;
}

static bool is_text_or_ids(const json_t *v)
{
    const json_t *one;
    size_t i;
    json_array_foreach(v, i, one) {
        const bool id = json_is_integer(one) && json_integer_value(one) >= 0 && json_integer_value(one) <= INT32_MAX;
        if (!id && !json_is_string(one)) return false;
    }
    return json_is_string(v) || json_is_array(v);
}

/* Tokenizes the input: llama-server's "content", vLLM's "prompt". */
static int input_tokens(job *j, bool bos, bool special, int32_t **ids, size_t *n)
{
    params *p = &j->p;
    const json_t *content = json_object_get(p->root, "content"),
                 *v = content ? content : json_object_get(p->root, "prompt");
    if (!is_text_or_ids(v))
        return params_fail(p, "content", &j->err, "'content' must be a text, or a list of texts and token ids");
    const int flags = (bos ? PI_TOK_BOS : 0) | (special ? PI_TOK_SPECIAL : 0);
    int rc = service_tokens(&j->s->sv, j->prep.limit, v, flags, ids, n);
    for (size_t i = 0; i < *n && !rc; i++)
        if ((*ids)[i] >= (int32_t) j->s->sv.info.n_vocab)
            rc = params_fail(p, "content", &j->err, "'content' has token %d; the highest id is %u", (*ids)[i],
                             j->s->sv.info.n_vocab - 1);
    return rc;
}

static int run_tokenize(job *j, json_t **out)
{
    params *p = &j->p;
    const bool content = json_object_get(p->root, "content"), prompt = json_object_get(p->root, "prompt");
    const bool chat = !content && !prompt && json_object_get(p->root, "messages"); /* vLLM's format */
    bool add_special = !content, parse_special = true, pieces = false, strs = false;
    int rc = params_bool(p, p->root, "add_special", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "add_special_tokens", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "parse_special", &parse_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "with_pieces", &pieces, &j->err);
    if (!rc) rc = params_bool(p, p->root, "return_token_strs", &strs, &j->err);
    int32_t *ids = NULL;
    size_t n = 0;
    if (!rc)
        rc = chat ? conversation_tokens(j, convert_chat, &ids, &n)
                  : input_tokens(j, add_special, parse_special, &ids, &n);
    if (!rc && p->n_images)
        rc = params_fail(p, "messages", &j->err, "'messages' has images, which have no token ids: count the tokens "
                         "with /v1/messages/count_tokens");
    if (!rc) buf_str(&j->text, "{\"tokens\":");
    if (!rc) rc = put_pieces(j, ids, n, pieces ? PIECE : PIECE_ID);
    if (!rc) buf_fmt(&j->text, ",\"count\":%zu,\"max_model_len\":%u", n, j->s->sv.info.ctx_size);
    if (!rc && strs) buf_str(&j->text, ",\"token_strs\":");
    if (!rc && strs) rc = put_pieces(j, ids, n, PIECE_TEXT);
    if (!rc) buf_put(&j->text, "}", 1);
    (void) out;
    free(ids);
    return rc;
}

static int run_detokenize(job *j, json_t **out)
{
    params *p = &j->p;
    int rc = params_prompts(p, "tokens", &j->err);
    if (rc) return rc;
    if (p->n_prompts != 1 || !p->prompts[0].ids)
        return params_fail(p, "tokens", &j->err, "'tokens' must be a list of token ids");
    const prompt *t = &p->prompts[0];
    for (size_t i = 0; i < t->n_ids; i++) {
        if (t->ids[i] >= (int32_t) j->s->sv.info.n_vocab)
            return params_fail(p, "tokens", &j->err, "'tokens' has %d; the highest id is %u", t->ids[i],
                               j->s->sv.info.n_vocab - 1);
    }
    int64_t n = pi_detokenize(j->s->sv.e, t->ids, t->n_ids, PI_TOK_SPECIAL, NULL, 0);
    char *text = n < 0 ? NULL : malloc((size_t) n + 1);
    if (text) n = pi_detokenize(j->s->sv.e, t->ids, t->n_ids, PI_TOK_SPECIAL, text, (size_t) n);
    for (int i = 0; i < 2 && text && n >= 0; i++) {
        buf_str(&j->text, i ? ",\"prompt\":" : "{\"content\":");
        text_put_json(&j->text, text, (size_t) n);
    }
    if (j->text.n) buf_put(&j->text, "}", 1);
    free(text);
    (void) out;
    return n < 0 ? (int) n : text ? PI_OK : params_no_memory(&j->err);
}

static int run_template(job *j, json_t **out)
{
    chat_state c = {0};
    char *text = NULL;
    size_t n = 0;
    int rc = conversation(j, convert_chat, &c);
    if (!rc) rc = chat_render(&c, j->prep.limit, j->s->sv.e, &text, &n, &j->err);
    if (!rc) *out = json_pack("{s:o}", "prompt", text_json(text, n));
    chat_state_free(&c);
    free(text);
    return rc;
}

/* Counts the tokens of a conversation's prompt. */
static int count(job *j, int (*convert)(params *, pi_error *), json_int_t *out)
{
    int32_t *ids;
    size_t n;
    uint64_t n_tokens = 0;
    int rc = conversation_tokens(j, convert, &ids, &n);
    if (!rc) rc = media_count(&j->s->sv, &j->p, "messages", j->prep.limit, &n_tokens, &j->err);
    free(ids);
    *out = (json_int_t) (n - j->p.n_images + n_tokens); /* each image is one id */
    return rc;
}

static int run_count_messages(job *j, json_t **out)
{
    json_int_t n;
    int rc = count(j, convert_anthropic, &n);
    if (!rc) *out = json_pack("{s:I}", "input_tokens", n);
    return rc;
}

static int count_input(job *j, int (*convert)(params *, pi_error *), json_t **out)
{
    json_int_t n;
    int rc = count(j, convert, &n);
    if (!rc) *out = json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens", n);
    return rc;
}

static int run_count_chat(job *j, json_t **out) { return count_input(j, convert_chat, out); }

static int run_count_response(job *j, json_t **out)
{
    char previous[72];
    size_t n_previous;
    json_t *body = j->p.root, *all;
    int rc = responses_expand(j->s, j->ex->key, &j->p, body, &all, previous, &n_previous, &j->err);
    j->p.root = all;
    json_decref(body);
    return rc ? rc : count_input(j, convert_responses, out);
}


void handle_tokenize(server *s, exchange *ex) { job_start(s, ex, run_tokenize); }
void handle_detokenize(server *s, exchange *ex) { job_start(s, ex, run_detokenize); }
void handle_count_tokens(server *s, exchange *ex) { job_start(s, ex, run_count_messages); }
void handle_count_chat(server *s, exchange *ex) { job_start(s, ex, run_count_chat); }
void handle_count_response(server *s, exchange *ex) { job_start(s, ex, run_count_response); }
void handle_apply_template(server *s, exchange *ex) { job_start(s, ex, run_template); }
