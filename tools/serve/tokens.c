/* /tokenize, /detokenize, /apply-template: text to ids and back. */
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

static int run_tokenize(job *j, json_t **out)
{
    const char *text = NULL;
    params *p = &j->p;
    bool add_special = false, parse_special = true, pieces = false;
    const json_t *v = json_object_get(p->root, "content");
    if (!v) v = json_object_get(p->root, "prompt");
    if (!json_is_string(v)) return params_fail(p, "content", &j->err, "'content' must be a string");
    text = json_string_value(v);
    int rc = params_bool(p, p->root, "add_special", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "add_special_tokens", &add_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "parse_special", &parse_special, &j->err);
    if (!rc) rc = params_bool(p, p->root, "with_pieces", &pieces, &j->err);
    if (rc) return rc;
    int flags = (add_special ? PI_TOK_BOS : 0) | (parse_special ? PI_TOK_SPECIAL : 0);
    size_t len = json_string_length(v), cap = len + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    int64_t n = ids ? pi_tokenize(j->s->e, text, len, flags, ids, cap) : PI_ENOMEM;
    json_t *list = json_array();
    for (int64_t i = 0; i < n && i < (int64_t) cap; i++) {
        if (json_array_append_new(list, pieces ? piece_json(j->s, ids[i]) : json_integer(ids[i]))) break;
    }
    free(ids);
    *out = json_pack("{s:o, s:I, s:I}", "tokens", list, "count", (json_int_t) n, "max_model_len",
                     (json_int_t) j->s->info.ctx_size);
    return n < 0 ? (int) n : PI_OK;
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
    params *p = &j->p;
    chat_state c = {0};
    const json_t *m = json_object_get(p->root, "messages"), *tools = json_object_get(p->root, "tools");
    json_t *vars = json_object_get(p->root, "chat_template_kwargs");
    char *text = NULL;
    size_t n = 0;
    if (!json_is_array(m)) return params_fail(p, "messages", &j->err, "'messages' must be a list");
    vars = json_is_object(vars) ? json_deep_copy(vars) : json_object();
    json_t *gen = json_object_get(p->root, "add_generation_prompt");
    if (gen) json_object_set(vars, "add_generation_prompt", gen);
    int rc = gen_template_defaults(j->s, &vars, &j->err);
    if (!rc) rc = chat_prepare(&c, m, json_is_array(tools) ? tools : NULL, vars, &j->err);
    if (!rc) rc = chat_render(&c, j->s->e, &text, &n, &j->err);
    if (!rc) *out = json_pack("{s:o}", "prompt", text_json(text, n));
    free(text);
    json_decref(vars);
    chat_state_free(&c);
    return rc;
}

/* /v1/messages/count_tokens */
static int run_count(job *j, json_t **out)
{
    params *p = &j->p;
    chat_state c = {0};
    char *text = NULL;
    size_t n = 0;
    int rc = convert_anthropic(p, &j->err);
    if (!rc) rc = gen_template_defaults(j->s, &p->template_vars, &j->err);
    if (!rc) rc = chat_prepare(&c, p->messages, p->tools, p->template_vars, &j->err);
    if (!rc) rc = chat_render(&c, j->s->e, &text, &n, &j->err);
    int64_t count = rc ? 0 : pi_tokenize(j->s->e, text, n, PI_TOK_BOS | PI_TOK_SPECIAL, NULL, 0);
    if (!rc && count >= 0) *out = json_pack("{s:I}", "input_tokens", (json_int_t) count);
    free(text);
    chat_state_free(&c);
    return rc ? rc : count < 0 ? (int) count : PI_OK;
}

void handle_tokenize(server *s, exchange *ex) { job_start(s, ex, run_tokenize); }
void handle_detokenize(server *s, exchange *ex) { job_start(s, ex, run_detokenize); }
void handle_count_tokens(server *s, exchange *ex) { job_start(s, ex, run_count); }
void handle_apply_template(server *s, exchange *ex) { job_start(s, ex, run_template); }
