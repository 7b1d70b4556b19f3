/* Server information: the page at /, /health, /version, /v1/models, /props, /slots. Runs on the loop's thread. */
#include <string.h>

#include "serve/reply.h"

/* The policy allows only the page's own script, and requests to this server. */
void handle_page(server *s, exchange *ex)
{
    static const char more[] =
        "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";
    if (cli_bool(s->c, "ui")) answer(ex, 200, "text/html; charset=utf-8", more, page_html, page_html_size);
    else answer_error(ex, 404, NULL, NULL, "the page is disabled: start the server without --no-ui");
}

void handle_health(server *s, exchange *ex)
{
    const char *why = NULL;
    if (s->state == SERVE_LOADING) why = "Loading model";
    else if (s->state != SERVE_READY) why = "the server is shutting down";
    else server_hangs(s, &why);
    json_t *root = why ? exchange_error(ex, 503, NULL, s->state == SERVE_LOADING ? "loading" : NULL, why)
                       : json_pack("{s:s}", "status", "ok");
    json_object_set_new(root, "preparation", preps_json(s));
    json_object_set_new(root, "step_age_seconds", json_real(server_step_age(s)));
    answer_json(ex, why ? 503 : 200, root);
}

/* For liveness probes: an error means that the process must be restarted. */
void handle_live(server *s, exchange *ex)
{
    const char *why;
    if (server_hangs(s, &why)) answer_error(ex, 503, NULL, NULL, "%s", why);
    else answer_json(ex, 200, json_pack("{s:s}", "status", "ok"));
}

/* Splits names separated by sep. */
static json_t *names_json(const char *text, char sep)
{
    const char seps[] = {sep, 0};
    json_t *list = json_array();
    for (size_t n; *text; text += n + (text[n] == sep)) {
        n = strcspn(text, seps);
        json_array_append_new(list, json_stringn(text, n));
    }
    return list;
}

bool server_is_named(const server *s, const char *name, size_t n)
{
    if (n == strlen(s->sv.alias) && !memcmp(name, s->sv.alias, n)) return true;
    for (const char *p = s->aliases; *p; p += strcspn(p, ","), p += *p == ',')
        if (n && n == strcspn(p, ",") && !memcmp(name, p, n)) return true;
    return false;
}

static json_t *model_json(const server *s)
{
    json_t *meta = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "n_vocab", (json_int_t) s->sv.info.n_vocab, "n_ctx",
                             (json_int_t) s->sv.info.ctx_size, "n_ctx_train", (json_int_t) s->sv.info.n_ctx_train,
                             "n_embd", (json_int_t) s->sv.info.n_embd, "n_params", (json_int_t) s->sv.info.n_params,
                             "size", (json_int_t) s->sv.info.file_bytes);
    return json_pack("{s:s, s:o, s:[], s:s, s:I, s:s, s:s, s:I, s:o}", "id", s->sv.alias, "aliases",
                     names_json(s->aliases, ','), "tags", "object", "model", "created", (json_int_t) s->created,
                     "owned_by", "pagedinfer", "root", s->sv.alias, "max_model_len", (json_int_t) s->sv.info.ctx_size,
                     "meta", meta);
}

static bool reads_images(const server *s) { return s->sv.info.modalities & PI_MODALITY_VISION; }

/* Returns the list that llama-server adds to OpenAI's for clients of Ollama's API. */
static json_t *named_models(const server *s)
{
    json_t *abilities = json_pack("[s, s*]", "completion", reads_images(s) ? "multimodal" : NULL);
    return json_pack("[{s:s, s:s, s:s, s:s, s:o, s:{s:s, s:s}}]", "name", s->sv.alias, "model", s->sv.alias, "type",
                     "model", "description", s->sv.info.type_desc, "capabilities", abilities, "details", "format",
                     "gguf", "family", s->sv.info.arch);
}

json_t *server_description(const server *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:b}", "model", model_json(s), "tags", ollama_entry(s, false), "ps",
                     ollama_entry(s, true), "show", ollama_properties(s, false), "vision", (int) reads_images(s));
}

void handle_models(server *s, exchange *ex)
{
    json_t *one = model_json(s);
    static const char before[] = "/v1/models/"; /* the name follows, also after --api-prefix */
    const char *name = memmem(ex->req.target.p, ex->req.path_len, before, sizeof before - 1);
    if (name) {
        name += sizeof before - 1;
        size_t n = ex->req.path_len - (size_t) (name - ex->req.target.p);
        if (server_is_named(s, name, n)) {
            answer_json(ex, 200, one);
            return;
        }
        json_decref(one);
        pi_lora l;
        if (service_adapter(&s->sv, name, n, &l)) {
            json_t *all = adapter_models(s, s->sv.alias), *v, *found = NULL;
            size_t i;
            json_array_foreach(all, i, v)
                if (!strcmp(json_string_value(json_object_get(v, "id")), l.name)) found = json_incref(v);
            json_decref(all);
            answer_json(ex, 200, found);
            return;
        }
        answer_error(ex, 404, "model", "model_not_found", "unknown model; GET /v1/models lists the models");
        return;
    }
    json_t *all = adapter_models(s, s->sv.alias);
    json_array_insert_new(all, 0, one);
    answer_json(ex, 200, json_pack("{s:s, s:o, s:o}", "object", "list", "data", all, "models", named_models(s)));
}

void handle_version(server *s, exchange *ex)
{
    (void) s;
    answer_json(ex, 200, json_pack("{s:s}", "version", pi_version()));
}

static const char *default_of(const void *c, const char *key) { return cli_str(c, key); }

/* Returns the values of a list option: the request's, else the command line's. */
static json_t *list_json(const server *s, const params *p, const char *key)
{
    json_t *list = json_array();
    for (size_t i = 0; p && i < p->n_option; i++)
        if (!strcmp(p->option[i].key, key))
            json_array_append_new(list, text_json(p->option[i].value, strlen(p->option[i].value)));
    const bool given = json_array_size(list) > 0;
    for (size_t i = 0; !given && i < cli_n(s->c, key); i++)
        json_array_append_new(list, text_json(cli_nth(s->c, key, i), strlen(cli_nth(s->c, key, i))));
    return list;
}

json_t *server_settings(const server *s, const params *p)
{
    json_t *all = params_settings(p, default_of, s->c);
    const int64_t n = p && p->max_tokens != INT64_MIN ? p->max_tokens : cli_int(s->c, "max-tokens");
    const char *samplers = cli_str(s->c, "samplers");
    for (size_t i = 0; p && i < p->n_option; i++)
        if (!strcmp(p->option[i].key, "samplers")) samplers = p->option[i].value;
    json_object_set_new(all, "n_predict", json_integer(n));
    json_object_set_new(all, "max_tokens", json_integer(n));
    json_object_set_new(all, "n_probs", json_integer(p && p->logprobs > 0 ? p->logprobs : 0));
    json_object_set_new(all, "stream", json_boolean(p && p->stream));
    json_object_set_new(all, "timings_per_token", json_boolean(p && p->timings));
    json_object_set_new(all, "post_sampling_probs", json_boolean(p && p->drawn));
    json_object_set_new(all, "samplers", names_json(samplers, ';'));
    json_object_set_new(all, "stop", list_json(s, p, "stop"));
    json_object_set_new(all, "logit_bias", list_json(s, p, "logit-bias"));
    json_object_set_new(all, "lora", list_json(s, p, "lora"));
    return all;
}

/* Returns a control token as text; "" if the model has none. */
static json_t *token_json(const server *s, int32_t id)
{
    char text[256];
    const size_t n = id < 0 ? 0 : service_token_text(&s->sv, id, true, text, sizeof text);
    return text_json(text, n < sizeof text ? n : sizeof text);
}

void handle_props(server *s, exchange *ex)
{
    json_t *general = json_pack("{s:I, s:o}", "n_ctx", (json_int_t) s->sv.info.ctx_size, "params",
                                server_settings(s, NULL));
    json_t *root = json_pack("{s:o, s:I, s:s, s:s, s:s, s:s, s:b, s:{s:b, s:b, s:b}}", "default_generation_settings",
                             general, "total_slots", (json_int_t) cli_int(s->c, "parallel"), "model_alias", s->sv.alias,
                             "model_path", cli_str(s->c, "model"), "chat_template", s->sv.info.chat_template,
                             "build_info", s->sv.build, "is_sleeping", 0, "modalities", "vision", (int) reads_images(s),
                             "video", 0, "audio", 0);
    json_object_set_new(root, "media_marker", json_string(s->sv.media_marker));
    json_object_set_new(root, "bos_token", token_json(s, s->sv.info.bos));
    json_object_set_new(root, "eos_token", token_json(s, s->sv.info.eos));
    json_object_set_new(root, "endpoint_slots", json_boolean(cli_bool(s->c, "slots")));
    json_object_set_new(root, "endpoint_props", json_false());
    json_object_set_new(root, "endpoint_metrics", json_true());
    json_object_set_new(root, "device", json_string(s->sv.info.device));
    json_object_set_new(root, "model_type", json_string(s->sv.info.type_desc));
    answer_json(ex, 200, root);
}

/* Returns the settings of a request that other clients may see: none of its texts. */
static json_t *shown_settings(const server *s, const params *p)
{
    static const char *const texts[] = {"grammar", "stop", "logit_bias", "reasoning_budget_message"};
    json_t *all = server_settings(s, p);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) json_object_del(all, texts[i]);
    return all;
}

static json_t *slot_json(const server *s, const gen *g, const choice *ch, int64_t id)
{
    pi_result res = {.size = sizeof res};
    pi_request_sample(ch->r, ch->sample, &res);
    const json_int_t most = g->p.max_tokens == INT64_MIN ? -1 : g->p.max_tokens, n = (json_int_t) ch->n_ids;
    json_t *one = json_pack("{s:I, s:I, s:s, s:i, s:b, s:b, s:I, s:I, s:I}", "id", (json_int_t) id, "n_ctx",
                            (json_int_t) s->sv.info.ctx_size, "id_task", g->id, "index", (int) ch->index, "speculative",
                            res.n_drafted > 0, "is_processing", 1, "n_prompt_tokens", (json_int_t) res.prompt_tokens,
                            "n_prompt_tokens_cache", (json_int_t) res.cached_tokens, "n_decoded", n);
    json_object_set_new(one, "params", shown_settings(s, &g->p));
    json_object_set_new(one, "next_token",
                        json_pack("[{s:b, s:b, s:I, s:I}]", "has_next_token", 1, "has_new_line", (int) ch->has_line,
                                  "n_remain", most < 0 ? (json_int_t) -1 : most - n, "n_decoded", n));
    return one;
}

/* Lists running choices as if each had a slot, although the server has no slots. With ?fail_on_no_slot=1 the response
 * is an error if the number of running choices has reached the limit. */
void handle_slots(server *s, exchange *ex)
{
    static const char question[] = "fail_on_no_slot=";
    if (!cli_bool(s->c, "slots")) {
        answer_error(ex, 501, NULL, NULL, "/slots is disabled: start the server without --no-slots");
        return;
    }
    const char *query = memmem(ex->req.target.p + ex->req.path_len, ex->req.target.n - ex->req.path_len, question,
                               sizeof question - 1);
    json_t *list = json_array();
    int64_t n = 0, total = cli_int(s->c, "parallel");
    for (const reply *r = s->replies; r; r = r->next) {
        const gen *g = &r->g;
        for (size_t i = 0; !g->working && r->submitted && i < g->n_choices; i++)
            if (!g->choices[i].done) json_array_append_new(list, slot_json(s, g, &g->choices[i], n++));
    }
    if (query && n >= total) {
        json_decref(list);
        answer_error(ex, 503, NULL, NULL, "no slot is free");
        return;
    }
    for (; n < total; n++) {
        json_array_append_new(list, json_pack("{s:I, s:I, s:b, s:b}", "id", (json_int_t) n, "n_ctx",
                                              (json_int_t) s->sv.info.ctx_size, "speculative", 0, "is_processing", 0));
    }
    answer_json(ex, 200, list);
}
