/* /completion and /infill in llama-server's format. Reading runs on the pool, writing on the loop (gen.h). */
#include <math.h>
#include <string.h>

#include "serve/fields.h"
#include "serve/reply.h"

static int read_indent(gen *g, pi_error *err)
{
    return params_int(&g->p, g->p.root, "n_indent", -1, INT32_MAX, &g->p.n_indent, err);
}

static int read_native(gen *g, pi_error *err)
{
    const int rc = read_indent(g, err);
    return rc ? rc : params_prompts(&g->p, "prompt", err);
}

static int read_infill(gen *g, pi_error *err)
{
    const int rc = read_indent(g, err);
    return rc ? rc : infill_read(g, err);
}

static json_t *bytes_json(const char *p, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer((unsigned char) p[i]));
    return list;
}

/* Writes a token with its log probability; with post_sampling_probs its probability after the sampler chain. */
static json_t *prob_json(const gen *g, const pi_token_prob *p)
{
    char text[256];
    size_t n = service_token_text(g->sv, p->id, true, text, sizeof text);
    if (n > sizeof text) n = sizeof text;
    const double log_p = p->logprob > -1e30f ? (double) p->logprob : -1e30;
    return json_pack("{s:i, s:o, s:o, s:f}", "id", (int) p->id, "token", text_json(text, n), "bytes",
                     bytes_json(text, n), g->p.drawn ? "prob" : "logprob", g->p.drawn ? exp(log_p) : log_p);
}

static json_t *probs_json(const gen *g, const choice *ch, const piece *pc)
{
    json_t *list = json_array();
    for (size_t i = 0; i < pc->n_ids; i++) {
        const pi_token_prob *row = pc->probs + i * ch->n_probs;
        json_t *own = prob_json(g, row), *top = json_array();
        for (size_t k = 1; k < ch->n_probs && row[k].id >= 0; k++) json_array_append_new(top, prob_json(g, &row[k]));
        json_object_set_new(own, g->p.drawn ? "top_probs" : "top_logprobs", top);
        json_array_append_new(list, own);
    }
    return list;
}

/* Returns the prompt as text; ids are detokenized. */
static json_t *prompt_json(const gen *g, const prompt *p)
{
    if (!p->ids) return text_json(p->text, p->len);
    buf b = {0};
    service_put_prompt(g->sv, p, PI_TOK_SPECIAL, &b);
    if (b.failed) text_no_memory();
    json_t *s = text_json(b.p, b.n);
    buf_free(&b);
    return s;
}

/* Adds the fields of the last event to o. */
static void add_end(const gen *g, const choice *ch, json_t *o)
{
    const pi_result *r = &ch->res;
    const char *type = ch->finish == PI_FINISH_LENGTH ? "limit" : *r->stop ? "word" : "eos";
    json_t *more =
        json_pack("{s:b, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:o}", "stop", 1, "stop_type", type, "stopping_word",
                  r->stop, "model", gen_model(g), "tokens_predicted", (json_int_t) r->generated_tokens,
                  "tokens_evaluated", (json_int_t) r->prompt_tokens, "tokens_cached",
                  (json_int_t) (r->prompt_tokens + r->generated_tokens), "truncated", 0, "has_new_line",
                  ch->content.n && memchr(ch->content.p, '\n', ch->content.n) != NULL, "timings", gen_timings(ch));
    json_object_set_new(more, "generation_settings", server_settings(reply_server(g), &g->p));
    json_object_set_new(more, "prompt", prompt_json(g, &g->p.prompts[ch->index / (size_t) g->p.n]));
    json_object_update(o, more);
    json_decref(more);
}

/* Applies "response_fields": keeps only the named fields. "a/b" is member b of a and is returned as "a/b". Takes
 * ownership of o. */
static json_t *chosen_fields(const gen *g, json_t *o)
{
    const json_t *paths = json_object_get(g->p.root, "response_fields"), *path;
    size_t i;
    if (!json_array_size(paths)) return o;
    json_t *out = json_object();
    json_array_foreach(paths, i, path) {
        const char *s = json_string_value(path);
        json_t *v = s ? o : NULL;
        while (v && strchr(s, '/')) {
            v = json_object_getn(v, s, strcspn(s, "/"));
            s += strcspn(s, "/") + 1;
        }
        if (v && (v = json_object_get(v, s))) json_object_set(out, json_string_value(path), v);
    }
    json_decref(o);
    return out;
}

static void native_begin(gen *g) { (void) g; }
static void native_finish(gen *g) { (void) g; }

static bool wants_tokens(const gen *g)
{
    return g->p.stream || g->p.token_ids || json_is_true(json_object_get(g->p.root, "return_tokens"));
}

/* Returns the fields of every stream event. */
static json_t *event_of(const choice *ch, const piece *pc)
{
    const chat_delta *d = pc->n_deltas ? pc->delta : NULL;
    pi_result r = {.size = sizeof r};
    if (ch->r) pi_request_sample(ch->r, ch->sample, &r);
    return json_pack("{s:i, s:o, s:o, s:b, s:i, s:I, s:I}", "index", (int) ch->index, "content",
                     text_json(d ? d->text : "", d ? d->n : 0), "tokens", ids_json(pc->ids, pc->n_ids), "stop", 0,
                     "id_slot", (int) ch->index, "tokens_predicted",
                     (json_int_t) (pc->ids ? (size_t) (pc->ids - ch->ids) + pc->n_ids : 0), "tokens_evaluated",
                     (json_int_t) r.prompt_tokens);
}

static void native_piece(gen *g, choice *ch, const piece *pc)
{
    json_t *o = event_of(ch, pc);
    if (pc->probs) json_object_set_new(o, "completion_probabilities", probs_json(g, ch, pc));
    if (pc->last) add_end(g, ch, o);
    else if (g->p.timings) json_object_set_new(o, "timings", gen_timings(ch));
    gen_send(g, NULL, pc->last ? chosen_fields(g, o) : o);
}

static void native_progress(gen *g, const choice *ch)
{
    json_t *o = event_of(ch, &(piece) {.n_ids = 0});
    json_object_set_new(o, "prompt_progress", progress_json(ch));
    gen_send(g, NULL, o);
}

static json_t *native_one(gen *g, choice *ch)
{
    piece all = {.ids = ch->ids, .n_ids = ch->n_ids, .probs = ch->probs};
    json_t *o =
        json_pack("{s:i, s:o, s:o, s:i}", "index", (int) ch->index, "content", text_json(ch->content.p, ch->content.n),
                  "tokens", wants_tokens(g) ? ids_json(ch->ids, ch->n_ids) : json_array(), "id_slot", (int) ch->index);
    if (ch->n_probs) json_object_set_new(o, "completion_probabilities", probs_json(g, ch, &all));
    add_end(g, ch, o);
    return chosen_fields(g, o);
}

static json_t *native_whole(gen *g)
{
    if (g->n_choices == 1) return native_one(g, &g->choices[0]);
    json_t *list = json_array();
    for (size_t i = 0; i < g->n_choices; i++) json_array_append_new(list, native_one(g, &g->choices[i]));
    return list;
}

const wire wire_native = {.id_prefix = "cmpl-", .what = "completion", .api = API_NATIVE, .read = read_native,
                          .begin = native_begin,
                          .piece = native_piece, .finish = native_finish, .progress = native_progress,
                          .whole = native_whole, .raw_prompt = true};
const wire wire_infill = {.id_prefix = "cmpl-", .what = "infill", .api = API_INFILL, .read = read_infill,
                          .begin = native_begin,
                          .piece = native_piece, .finish = native_finish, .progress = native_progress,
                          .whole = native_whole, .raw_prompt = true};
