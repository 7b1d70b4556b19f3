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

static int conversation(job *j, int (*convert)(params *, pi_error *), chat_state *c)
{
    params *p = &j->p;
    int rc = convert(p, &j->err);
    if (!rc) rc = gen_template_defaults(j->s, p, &j->err);
    return rc ? rc : chat_prepare(c, p->messages, p->tools, p->template_vars, &j->err);
}

/* The ids of the conversation as a prompt. Free *ids in any case. */
static int conversation_tokens(job *j, int (*convert)(params *, pi_error *), int32_t **ids, size_t *n)
{
    chat_state c = {0};
    int rc = conversation(j, convert, &c);
    *ids = NULL;
    *n = 0;
    if (!rc) rc = chat_tokens(&c, j->s->e, ids, n, &j->err);
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

/* What is to be tokenised: llama-server's "content", vLLM's "prompt". */
static int input_tokens(job *j, bool bos, bool special, int32_t **ids, size_t *n)
{
    params *p = &j->p;
    const json_t *content = json_object_get(p->root, "content"), *v = content ? content : json_object_get(p->root, "prompt");
    if (!is_text_or_ids(v))
        return params_fail(p, "content", &j->err, "'content' must be a text, or a list of texts and token ids");
    int rc = server_tokens(j->s, v, (bos ? PI_TOK_BOS : 0) | (special ? PI_TOK_SPECIAL : 0), ids, n);
    for (size_t i = 0; i < *n && !rc; i++)
        if ((*ids)[i] >= (int32_t) j->s->info.n_vocab)
            rc = params_fail(p, "content", &j->err, "'content' holds token %d; ids go to %u", (*ids)[i],
                             j->s->info.n_vocab - 1);
    return rc;
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
    const bool content = json_object_get(p->root, "content"), prompt = json_object_get(p->root, "prompt");
    const bool chat = !content && !prompt && json_object_get(p->root, "messages"); /* vLLM's */
    bool add_special = !content, parse_special = true, pieces = false, strs = false;
    int rc = params_bool(p, p->root, "add_special", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "add_special_tokens", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "parse_special", &parse_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "with_pieces", &pieces, &j->err);
    if (!rc) rc = params_bool(p, p->root, "return_token_strs", &strs, &j->err);
    int32_t *ids = NULL;
    size_t n = 0;
    if (!rc) rc = chat ? conversation_tokens(j, convert_chat, &ids, &n) : input_tokens(j, add_special, parse_special, &ids, &n);
    if (!rc)
        *out = json_pack("{s:o, s:I, s:I}", "tokens", pieces ? pieces_json(j->s, ids, n) : ids_json(ids, n), "count",
                         (json_int_t) n, "max_model_len", (json_int_t) j->s->info.ctx_size);
    if (!rc && strs) json_object_set_new(*out, "token_strs", texts_json(j->s, ids, n));
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
    chat_state c = {0};
    char *text = NULL;
    size_t n = 0;
    int rc = conversation(j, convert_chat, &c);
    if (!rc) rc = chat_render(&c, j->s->e, &text, &n, &j->err);
    if (!rc) *out = json_pack("{s:o}", "prompt", text_json(text, n));
    chat_state_free(&c);
    free(text);
    return rc;
}

/* How many tokens a conversation has as a prompt. */
static int count(job *j, int (*convert)(params *, pi_error *), json_int_t *out)
{
    int32_t *ids;
    size_t n;
    int rc = conversation_tokens(j, convert, &ids, &n);
    free(ids);
    *out = (json_int_t) n;
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
static int run_count_response(job *j, json_t **out) { return count_input(j, convert_responses, out); }

void handle_tokenize(server *s, exchange *ex) { job_start(s, ex, run_tokenize); }
void handle_detokenize(server *s, exchange *ex) { job_start(s, ex, run_detokenize); }
void handle_count_tokens(server *s, exchange *ex) { job_start(s, ex, run_count_messages); }
void handle_count_chat(server *s, exchange *ex) { job_start(s, ex, run_count_chat); }
void handle_count_response(server *s, exchange *ex) { job_start(s, ex, run_count_response); }
void handle_apply_template(server *s, exchange *ex) { job_start(s, ex, run_template); }
