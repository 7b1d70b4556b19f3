/* /completion: llama-server's own form. Reading runs on the pool, writing on the loop (gen.h). */
#include <string.h>

#include "serve/gen.h"

static int read_native(gen *g, pi_error *err)
{
    params *p = &g->p;
    p->n = 1;
    return params_prompts(p, "prompt", err);
}

static json_t *probs_json(const gen *g, const choice *ch, const piece *pc)
{
    json_t *list = json_array();
    for (size_t i = 0; i < pc->n_ids; i++) {
        const pi_token_prob *row = pc->probs + i * ch->n_probs;
        json_t *own = NULL, *top = json_array();
        for (size_t k = 0; k < ch->n_probs && row[k].id >= 0; k++) {
            char text[256];
            size_t n = server_token_text(g->s, row[k].id, true, text, sizeof text);
            json_t *e = json_pack("{s:i, s:o, s:f}", "id", (int) row[k].id, "token",
                                  text_json(text, n < sizeof text ? n : sizeof text), "logprob",
                                  row[k].logprob > -1e30f ? (double) row[k].logprob : -1e30);
            if (k) json_array_append_new(top, e);
            else own = e;
        }
        json_object_set_new(own, "top_logprobs", top);
        json_array_append_new(list, own);
    }
    return list;
}

static json_t *timings(const choice *ch)
{
    const pi_result *r = &ch->res;
    double n_prompt = (double) (r->prompt_tokens - r->cached_tokens), n = r->generated_tokens;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t) r->cached_tokens,
                     "prompt_n", (json_int_t) n_prompt, "prompt_ms", r->prefill_ms, "prompt_per_token_ms",
                     n_prompt > 0 ? r->prefill_ms / n_prompt : 0, "prompt_per_second",
                     r->prefill_ms > 0 ? n_prompt / r->prefill_ms * 1e3 : 0, "predicted_n",
                     (json_int_t) r->generated_tokens, "predicted_ms", r->decode_ms, "predicted_per_token_ms",
                     n > 0 ? r->decode_ms / n : 0, "predicted_per_second",
                     r->decode_ms > 0 ? n / r->decode_ms * 1e3 : 0);
}

/* What the last event has beside its text. */
static void add_end(const gen *g, const choice *ch, json_t *o)
{
    const pi_result *r = &ch->res;
    const char *type = ch->finish == PI_FINISH_LENGTH ? "limit" : *r->stop ? "word" : "eos";
    json_t *more =
        json_pack("{s:b, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:o}", "stop", 1, "stop_type", type, "stopping_word",
                  r->stop, "model", gen_model(g), "tokens_predicted", (json_int_t) r->generated_tokens,
                  "tokens_evaluated", (json_int_t) r->prompt_tokens, "tokens_cached",
                  (json_int_t) (r->prompt_tokens + r->generated_tokens), "truncated", 0, "has_new_line",
                  ch->content.n && memchr(ch->content.p, '\n', ch->content.n) != NULL, "timings", timings(ch));
    json_object_update(o, more);
    json_decref(more);
}

static void native_begin(gen *g) { (void) g; }
static void native_finish(gen *g) { (void) g; }

static bool wants_tokens(const gen *g)
{
    return g->p.stream || g->p.token_ids || json_is_true(json_object_get(g->p.root, "return_tokens"));
}

static void native_piece(gen *g, choice *ch, const piece *pc)
{
    const chat_delta *d = pc->n_deltas ? pc->delta : NULL;
    json_t *o = json_pack("{s:i, s:o, s:o, s:b, s:i}", "index", (int) ch->index, "content",
                          text_json(d ? d->text : "", d ? d->n : 0), "tokens", ids_json(pc->ids, pc->n_ids), "stop", 0,
                          "id_slot", (int) ch->index);
    if (pc->probs) json_object_set_new(o, "completion_probabilities", probs_json(g, ch, pc));
    if (pc->last) add_end(g, ch, o);
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
    return o;
}

static json_t *native_whole(gen *g)
{
    if (g->n_choices == 1) return native_one(g, &g->choices[0]);
    json_t *list = json_array();
    for (size_t i = 0; i < g->n_choices; i++) json_array_append_new(list, native_one(g, &g->choices[i]));
    return list;
}

const wire wire_native = {.id_prefix = "cmpl-", .what = "completion", .read = read_native, .begin = native_begin,
                          .piece = native_piece, .finish = native_finish, .whole = native_whole, .raw_prompt = true};
