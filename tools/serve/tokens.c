/* /tokenize, /detokenize, /apply-template, counts of tokens: text to ids and back. */
#include <stdlib.h>
#include <string.h>

#include "serve/chat.h"
#include "serve/convert.h"
#include "serve/gen.h"
#include "serve/job.h"

/* ------------------------------------------------------------------------------------------------------ the work */

static json_t *piece_json(const server *s, int32_t id)
{
    char small[256], *p = small;
    size_t n = server_token_text(s, id, true, small, sizeof small);
    if (n > sizeof small && (p = malloc(n))) server_token_text(s, id, true, p, n);
    if (!p) text_no_memory();
    json_t *piece = p ? json_stringn(p, n) : NULL;
    if (!piece) { /* part of a character: its bytes */
        piece = json_array();
        for (size_t i = 0; p && i < n; i++) json_array_append_new(piece, json_integer((unsigned char) p[i]));
    }
    if (p != small) free(p);
    return json_pack("{s:i, s:o}", "id", (int) id, "piece", piece);
}

/* The conversation as the template writes it; *text is to be freed. */
static int rendered(job *j, int (*convert)(params *, pi_error *), char **text, size_t *n)
{
    params *p = &j->p;
    chat_state c = {0};
    int rc = convert(p, &j->err);
    if (!rc) rc = gen_template_defaults(j->s, p, &j->err);
    if (!rc) rc = chat_prepare(&c, p->messages, p->tools, p->template_vars, &j->err);
    if (!rc) rc = chat_render(&c, j->s->e, text, n, &j->err);
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

/* What is to be tokenised: llama-server's "content", vLLM's "prompt" or "messages". */
static json_t *input_of(job *j, bool *add_special, int *rc)
{
    const params *p = &j->p;
    json_t *v = json_object_get(p->root, "content");
    char *text = NULL;
    size_t n = 0;
    if (v) return json_incref(v);
    *add_special = true; /* as vLLM does; a template has its own */
    if ((v = json_object_get(p->root, "prompt"))) return json_incref(v);
    if (!json_object_get(p->root, "messages")) return NULL;
    *rc = rendered(j, convert_chat, &text, &n);
    v = *rc ? NULL : text_json(text, n);
    free(text);
    return v;
}

static json_t *pieces_json(const server *s, const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, piece_json(s, ids[i]));
    return list;
}

static json_t *texts_json(const server *s, const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        char text[256];
        const size_t len = server_token_text(s, ids[i], true, text, sizeof text);
        json_array_append_new(list, text_json(text, len < sizeof text ? len : sizeof text));
    }
    return list;
}

static int run_tokenize(job *j, json_t **out)
{
    params *p = &j->p;
    bool add_special = false, parse_special = true, pieces = false, strs = false;
    int rc = PI_OK;
    json_t *v = input_of(j, &add_special, &rc);
    const bool chat = !json_object_get(p->root, "content") && !json_object_get(p->root, "prompt");
    if (!rc && !is_text_or_ids(v)) rc = params_fail(p, "content", &j->err, "'content' must be a text, or a list of texts and token ids");
    if (!rc) rc = params_bool(p, p->root, "add_special", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "add_special_tokens", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "parse_special", &parse_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "with_pieces", &pieces, &j->err);
    if (!rc) rc = params_bool(p, p->root, "return_token_strs", &strs, &j->err);
    add_special |= chat; /* which rendering left to be added */
    int32_t *ids = NULL;
    size_t n = 0;
    if (!rc) rc = server_tokens(j->s, v, (add_special ? PI_TOK_BOS : 0) | (parse_special ? PI_TOK_SPECIAL : 0), &ids, &n);
    for (size_t i = 0; i < n && !rc; i++)
        if (ids[i] >= (int32_t) j->s->info.n_vocab)
            rc = params_fail(p, "content", &j->err, "'content' holds token %d; ids go to %u", ids[i], j->s->info.n_vocab - 1);
    if (!rc)
        *out = json_pack("{s:o, s:I, s:I}", "tokens", pieces ? pieces_json(j->s, ids, n) : ids_json(ids, n), "count",
                         (json_int_t) n, "max_model_len", (json_int_t) j->s->info.ctx_size);
    if (!rc && strs) json_object_set_new(*out, "token_strs", texts_json(j->s, ids, n));
    free(ids);
    json_decref(v);
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
        if (t->ids[i] >= (int32_t) j->s->info.n_vocab)
            return params_fail(p, "tokens", &j->err, "'tokens' holds %d; ids go to %u", t->ids[i],
                               j->s->info.n_vocab - 1);
    }
    int64_t n = pi_detokenize(j->s->e, t->ids, t->n_ids, PI_TOK_SPECIAL, NULL, 0);
    char *text = n < 0 ? NULL : malloc((size_t) n + 1);
    if (text) n = pi_detokenize(j->s->e, t->ids, t->n_ids, PI_TOK_SPECIAL, text, (size_t) n);
    json_t *s = text && n >= 0 ? text_json(text, (size_t) n) : NULL;
    free(text);
    if (s) *out = json_pack("{s:O, s:o}", "content", s, "prompt", s);
    return n < 0 ? (int) n : PI_OK;
}

static int run_template(job *j, json_t **out)
{
    char *text = NULL;
    size_t n = 0;
    int rc = rendered(j, convert_chat, &text, &n);
    if (!rc) *out = json_pack("{s:o}", "prompt", text_json(text, n));
    free(text);
    return rc;
}

/* How many tokens a conversation has as a prompt. */
static int count(job *j, int (*convert)(params *, pi_error *), json_int_t *out)
{
    char *text = NULL;
    size_t n = 0;
    int rc = rendered(j, convert, &text, &n);
    const int64_t got = rc ? 0 : pi_tokenize(j->s->e, text, n, PI_TOK_BOS | PI_TOK_SPECIAL, NULL, 0);
    free(text);
    *out = (json_int_t) got;
    return rc ? rc : got < 0 ? (int) got : PI_OK;
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
static int run_count_response(job *j, json_t **out) { return count_input(j, convert_responses, out); }

void handle_tokenize(server *s, exchange *ex) { job_start(s, ex, run_tokenize); }
void handle_detokenize(server *s, exchange *ex) { job_start(s, ex, run_detokenize); }
void handle_count_tokens(server *s, exchange *ex) { job_start(s, ex, run_count_messages); }
void handle_count_chat(server *s, exchange *ex) { job_start(s, ex, run_count_chat); }
void handle_count_response(server *s, exchange *ex) { job_start(s, ex, run_count_response); }
void handle_apply_template(server *s, exchange *ex) { job_start(s, ex, run_template); }
