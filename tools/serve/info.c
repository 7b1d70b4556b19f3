/* What the server says of itself: the page at /, /health, /v1/models, /props, /slots. The loop's thread. */
#include <string.h>

#include "serve/gen.h"

/* Nothing but this page's own script, and requests to this server. */
void handle_page(server *s, exchange *ex)
{
    static const char more[] =
        "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";
    (void) s;
    answer(ex, 200, "text/html; charset=utf-8", more, page_html, page_html_size);
}

void handle_health(server *s, exchange *ex)
{
    const char *why = NULL;
    if (s->state == SERVE_LOADING) why = "Loading model";
    else if (s->state != SERVE_READY) why = "the server is shutting down";
    else server_hangs(s, &why);
    if (why) answer_error(ex, 503, NULL, s->state == SERVE_LOADING ? "loading" : NULL, "%s", why);
    else answer_json(ex, 200, json_pack("{s:s}", "status", "ok"));
}

void handle_models(server *s, exchange *ex)
{
    json_t *meta = json_pack("{s:I, s:I, s:I, s:I, s:I}", "n_vocab", (json_int_t) s->info.n_vocab, "n_ctx_train",
                             (json_int_t) s->info.n_ctx_train, "n_embd", (json_int_t) s->info.n_embd, "n_params",
                             (json_int_t) s->info.n_params, "size", (json_int_t) s->info.file_bytes);
    json_t *one = json_pack("{s:s, s:s, s:I, s:s, s:s, s:I, s:o}", "id", s->alias, "object", "model", "created",
                            (json_int_t) s->created, "owned_by", "pagedinfer", "root", s->alias, "max_model_len",
                            (json_int_t) s->info.ctx_size, "meta", meta);
    static const char prefix[] = "/v1/models/";
    if (ex->req.path_len > sizeof prefix - 1 && !memcmp(ex->req.target.p, prefix, sizeof prefix - 1)) {
        size_t n = ex->req.path_len - (sizeof prefix - 1);
        if (n == strlen(s->alias) && !memcmp(ex->req.target.p + sizeof prefix - 1, s->alias, n)) {
            answer_json(ex, 200, one);
            return;
        }
        json_decref(one);
        pi_lora l;
        if (server_adapter(s, ex->req.target.p + sizeof prefix - 1, n, &l)) {
            json_t *all = adapter_models(s, s->alias), *v, *found = NULL;
            size_t i;
            json_array_foreach(all, i, v)
                if (!strcmp(json_string_value(json_object_get(v, "id")), l.name)) found = json_incref(v);
            json_decref(all);
            answer_json(ex, 200, found);
            return;
        }
        answer_error(ex, 404, "model", "model_not_found", "there is no such model; /v1/models lists what there is");
        return;
    }
    json_t *all = adapter_models(s, s->alias);
    json_array_insert_new(all, 0, one);
    answer_json(ex, 200, json_pack("{s:s, s:o}", "object", "list", "data", all));
}

static const char *default_of(const void *c, const char *key) { return cli_str(c, key); }

json_t *server_settings(const server *s, const params *p)
{
    json_t *all = params_settings(p, default_of, s->c);
    const int64_t n = p && p->max_tokens != INT64_MIN ? p->max_tokens : cli_int(s->c, "max-tokens");
    json_object_set_new(all, "n_predict", json_integer(n));
    json_object_set_new(all, "max_tokens", json_integer(n));
    return all;
}

void handle_props(server *s, exchange *ex)
{
    json_t *general = json_pack("{s:I, s:o}", "n_ctx", (json_int_t) s->info.ctx_size, "params", server_settings(s, NULL));
    json_t *root = json_pack("{s:o, s:I, s:s, s:s, s:s, s:s, s:b, s:{s:b, s:b}}", "default_generation_settings",
                             general, "total_slots", (json_int_t) cli_int(s->c, "parallel"), "model_alias", s->alias,
                             "model_path", cli_str(s->c, "model"), "chat_template", s->info.chat_template, "build_info",
                             pi_version(), "is_sleeping", 0, "modalities", "vision", 0, "audio", 0);
    json_object_set_new(root, "device", json_string(s->info.device));
    json_object_set_new(root, "model_type", json_string(s->info.type_desc));
    answer_json(ex, 200, root);
}

/* There are no slots that a client could hold; what runs is shown as if there were, one for each answer. */
void handle_slots(server *s, exchange *ex)
{
    json_t *list = json_array();
    int64_t n = 0, total = cli_int(s->c, "parallel");
    for (const gen *g = s->gens; g; g = g->next) {
        for (size_t i = 0; !g->working && g->submitted && i < g->n_choices; i++) {
            const choice *ch = &g->choices[i];
            if (ch->done) continue;
            pi_result res = {.size = sizeof res};
            pi_request_sample(ch->r, ch->sample, &res);
            json_array_append_new(list, json_pack("{s:I, s:I, s:s, s:i, s:b, s:I, s:I}", "id", (json_int_t) n++,
                                                  "n_ctx", (json_int_t) s->info.ctx_size, "id_task", g->id, "index",
                                                  (int) i, "is_processing", 1, "n_prompt_tokens",
                                                  (json_int_t) res.prompt_tokens, "n_decoded", (json_int_t) ch->n_ids));
        }
    }
    for (; n < total; n++) {
        json_array_append_new(list, json_pack("{s:I, s:I, s:b}", "id", (json_int_t) n, "n_ctx",
                                              (json_int_t) s->info.ctx_size, "is_processing", 0));
    }
    answer_json(ex, 200, list);
}
