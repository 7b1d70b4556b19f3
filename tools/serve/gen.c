/* Generations (see gen.h): from a body to engine requests, and from engine events to pieces of a response.
 *
 * Memory: a generation holds its body, the tokens so far, and the text not yet given to the wire. If a client does not
 * read its stream, the text accumulates; the owner limits it by gen_waiting. */
#include "serve/gen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "serve/media.h"

uint64_t gen_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

void gen_init(gen *g, service *sv, const wire *w, const gen_sink *sink, void *owner)
{
    *g = (gen) {.sv = sv, .w = w, .sink = sink, .owner = owner, .created = (int64_t) time(NULL), .began = gen_now(),
                .is_chat = !w->raw_prompt};
    service_new_id(sv, w->id_prefix, g->id);
}

/* ------------------------------------------------------------------------------------------------------- preparing */

/* Clients may only request a priority within --priority-range. */
static int check_priority(gen *g, const param_option *o, pi_error *err)
{
    const service *sv = g->sv;
    const long long v = strtoll(o->value, NULL, 10);
    if (!sv->limits_priority || (v >= sv->priority_lo && v <= sv->priority_hi)) return PI_OK;
    return params_fail(&g->p, o->field, err, "'%s' is %lld; give %lld to %lld; lower numbers run first "
                       "(--priority-range)", o->field, v, (long long) sv->priority_lo, (long long) sv->priority_hi);
}

static int set_option(gen *g, pi_request *r, const param_option *o, pi_error *err)
{
    int rc = strcmp(o->key, "priority") ? PI_OK : check_priority(g, o, err);
    if (!rc) rc = pi_request_set(r, o->key, o->value, err);
    if (rc) g->p.bad_field = o->field;
    return rc;
}

static int set_number(pi_request *r, const char *key, int64_t v, pi_error *err)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return pi_request_set(r, key, text, err);
}

static int set_options(gen *g, pi_request *r, pi_error *err)
{
    const params *p = &g->p;
    int rc = PI_OK;
    for (size_t i = 0; i < p->n_option && !rc; i++) rc = set_option(g, r, &p->option[i], err);
    if (!rc && p->max_tokens != INT64_MIN) {
        rc = set_number(r, "max-tokens", p->max_tokens, err);
        if (rc) g->p.bad_field = "max_tokens";
    }
    if (!rc && p->n > 1) rc = set_number(r, "n", p->n, err);
    if (!rc && p->logprobs >= 0) rc = set_number(r, "logprobs", p->logprobs, err);
    const int of_prompt = p->echo && p->logprobs > p->prompt_logprobs ? p->logprobs : p->prompt_logprobs;
    if (!rc && of_prompt >= 0) rc = set_number(r, "prompt-logprobs", of_prompt, err);
    if (!rc && p->drawn) rc = pi_request_set(r, "logprobs-mode", "processed", err);
    if (!rc && p->progress && g->w->progress) rc = pi_request_set(r, "prompt-progress", "true", err);
    if (!rc && g->salt) rc = pi_request_set(r, "cache-salt", g->salt, err);
    if (!rc && g->key) rc = pi_request_set(r, "tenant", g->key, err);
    if (!rc && (g->is_chat || p->special)) /* tags of reasoning and calls; or the client wants control tokens */
        rc = pi_request_set(r, "special", "true", err);
    return rc;
}

/* The salt of the prefix cache: with --cache-salt-by-key the API key, then the client's own salt. */
static int make_salt(gen *g, pi_error *err)
{
    const char *own = g->p.cache_salt;
    bool by_key = g->key && g->sv->salt_by_key;
    if (!own && !by_key) return PI_OK;
    buf b = {0};
    if (by_key) {
        buf_str(&b, g->key);
        buf_put(&b, "\n", 1); /* no key contains a newline */
    }
    if (own) buf_str(&b, own);
    g->salt = b.p;
    return b.failed ? params_no_memory(err) : PI_OK;
}

/* --deadline counts from the request's arrival. */
static int set_deadline(const gen *g, pi_request *r, pi_error *err)
{
    const double limit = g->sv->timeout, left = limit - (double) (gen_now() - g->began) / 1e9;
    char text[32];
    if (limit <= 0) return PI_OK;
    snprintf(text, sizeof text, "%.6f", left > 1e-3 ? left : 1e-3);
    return pi_request_set(r, "timeout", text, err);
}

static int make_request(gen *g, size_t i, pi_error *err)
{
    pi_request *r = g->r[i] = pi_request_new(g->sv->e);
    if (!r) return params_no_memory(err);
    int rc = set_options(g, r, err);
    if (rc) return rc;
    if ((rc = set_deadline(g, r, err))) return rc;
    pi_request_set_work(r, g->work);
    pi_request_set_user(r, &g->choices[i * (size_t) g->p.n]);
    if (g->is_chat) {
        if (g->p.n_images) rc = media_add(g->sv, &g->p, 0, g->p.n_images, "messages", r, g->work, err);
        if (rc) return rc;
        g->p.bad_field = "messages";
        return chat_prompt(&g->chat, r, err);
    }
    const prompt *pr = &g->p.prompts[i];
    if (pr->n_images) rc = media_add(g->sv, &g->p, pr->image, pr->n_images, "prompt", r, g->work, err);
    if (rc) return rc;
    g->p.bad_field = "prompt";
    if (pr->query) return pi_request_prompt_rank(r, pr->query, pr->query_len, pr->text, pr->len, err);
    return pr->ids ? pi_request_prompt_tokens(r, pr->ids, pr->n_ids, err)
                   : pi_request_prompt_text(r, pr->text, pr->len, err);
}

/* Limits the memory and size of logprobs. Up to FEW alternatives are allowed at any length. More alternatives are
 * limited by their total number, because the response needs some 100 bytes for each. */
static int check_probs(gen *g, size_t n_choices, pi_error *err)
{
    enum { FEW = 64, MAX_ENTRIES = 1 << 18 };
    const params *p = &g->p;
    const uint64_t tokens = p->max_tokens >= 0 ? (uint64_t) p->max_tokens : g->sv->info.ctx_size;
    const uint64_t per_token = (uint64_t) (p->logprobs + 1) * n_choices;
    if (p->logprobs <= FEW || per_token * tokens <= MAX_ENTRIES) return PI_OK;
    return params_fail(&g->p, "logprobs", err,
                       "%d alternatives for each of %" PRIu64 " tokens are too many: set 'max_tokens' "
                       "to at most %" PRIu64 ", or ask for at most %d",
                       p->logprobs, tokens * n_choices, MAX_ENTRIES / per_token, FEW);
}

static int make_choices(gen *g, pi_error *err)
{
    const size_t n = (size_t) g->p.n, n_r = g->is_chat ? 1 : g->p.n_prompts;
    int rc = check_probs(g, n_r * n, err);
    if (rc) return rc;
    g->r = calloc(n_r, sizeof *g->r);
    g->choices = calloc(n_r * n, sizeof *g->choices);
    if (!g->r || !g->choices) return params_no_memory(err);
    g->n_r = n_r;
    g->n_choices = n_r * n;
    for (size_t i = 0; i < g->n_choices; i++) {
        choice *ch = &g->choices[i];
        ch->g = g;
        ch->index = (uint32_t) i;
        ch->sample = (uint32_t) (i % n);
        ch->n_probs = g->p.logprobs >= 0 ? (size_t) g->p.logprobs + 1 : 0;
        ch->block = -1;
    }
    return PI_OK;
}

static int read_body(gen *g, buf *b, pi_error *err)
{
    json_t *root = params_parse(b->p, b->n, err);
    if (!g->light) buf_free(b); /* light work may be restarted */
    if (!root) return err->code;
    if (g->w->translate) {
        json_t *out = NULL;
        int code = g->w->translate(g, root, &out, err);
        json_decref(root);
        if (code) {
            json_decref(out);
            return code;
        }
        root = out;
    }
    int rc = params_read(&g->p, root, g->w->api, err);
    g->p.reads_images = g->sv->info.modalities & PI_MODALITY_VISION;
    if (!rc) rc = gen_adapters(g, err);
    if (!rc) rc = g->w->read(g, err);
    if (!rc && g->p.n_images && g->light) g->wants_heavy = true; /* decoding and fetching take long */
    if (g->wants_heavy && g->light) return PI_ETOOBIG;
    return rc ? rc : gen_vocab_fields(g, err);
}

/* A parser needs the end of the rendered prompt. So the parsers are created after the prompt and before the first
 * event. */
static int make_readers(gen *g, pi_error *err)
{
    if (!g->is_chat) return PI_OK;
    int rc = PI_OK;
    for (size_t i = 0; i < g->n_choices && !rc; i++) {
        rc = pi_work_check(g->work); /* each parser renders a small prompt */
        if (!rc) rc = chat_reader_new(&g->choices[i].reader, &g->chat, g->sv->e, err);
    }
    return rc;
}

/* True if generation continues the last message (--prefill-assistant): it is the assistant's without tool calls, and
 * the client sets neither "continue_final_message" nor "add_generation_prompt". */
static bool goes_on(const service *sv, const params *p)
{
    const json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1), *vars = p->template_vars;
    const char *role = json_string_value(json_object_get(last, "role"));
    const bool said = json_object_get(vars, "continue_final_message") || json_object_get(vars, "add_generation_prompt");
    return !said && role && !strcmp(role, "assistant") && !json_array_size(json_object_get(last, "tool_calls")) &&
           sv->prefill_assistant;
}

int gen_template_defaults(const service *sv, params *p, pi_error *err)
{
    const char *said = sv->reasoning, *effort = sv->reasoning_effort;
    const bool off = !strcmp(said, "off") || sv->no_reasoning, on = !strcmp(said, "on");
    bool ok = true;
    if (!p->template_vars && !(p->template_vars = json_object())) return params_no_memory(err);
    json_t *vars = p->template_vars;
    if ((on || off) && !json_object_get(vars, "enable_thinking"))
        ok = !json_object_set_new(vars, "enable_thinking", json_boolean(!off));
    if (*effort && strcmp(effort, "default") != 0 && !json_object_get(vars, "reasoning_effort"))
        ok &= !json_object_set_new(vars, "reasoning_effort", json_string(effort));
    if (goes_on(sv, p)) ok &= !json_object_set_new(vars, "continue_final_message", json_true());
    return ok ? PI_OK : params_no_memory(err);
}

/* True if an option constrains the content (structured output). */
static bool has_format(const params *p)
{
    static const char *const keys[] = {"json-schema", "grammar", "regex", "choice"};
    for (size_t i = 0; i < p->n_option; i++)
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (!strcmp(p->option[i].key, keys[k])) return true;
    return false;
}

/* Sets the template defaults and --reasoning-format, if the client does not set them. */
static int reasoning_defaults(gen *g, pi_error *err)
{
    const char *format = g->sv->reasoning_format;
    if (!g->is_chat) return PI_OK;
    int rc = gen_template_defaults(g->sv, &g->p, err);
    if (!rc) rc = params_string(&g->p, g->p.root, "reasoning_format", &format, err);
    if (!rc && !strcmp(format, "none") && json_object_set_new(g->p.template_vars, "parse_reasoning", json_false()))
        rc = params_no_memory(err);
    g->hide_thoughts = g->p.hide_thoughts || !strcmp(format, "hidden");
    if (!rc && has_format(&g->p) && json_object_set_new(g->p.template_vars, "answer_format", json_true()))
        rc = params_no_memory(err);
    return rc;
}

static void free_choice(choice *ch)
{
    buf_free(&ch->text);
    buf_free(&ch->content);
    buf_free(&ch->reasoning);
    buf_free(&ch->block_text);
    for (size_t i = 0; i < ch->n_calls; i++) {
        buf_free(&ch->calls[i].id);
        buf_free(&ch->calls[i].name);
        buf_free(&ch->calls[i].args);
    }
    free(ch->calls);
    free(ch->ids);
    free(ch->end);
    free(ch->chars);
    free(ch->probs);
    free(ch->prompt.ids);
    free(ch->prompt.probs);
    free(ch->vector);
    free(ch->shown);
    chat_reader_free(ch->reader);
}

void gen_free_requests(gen *g)
{
    for (size_t i = 0; i < g->n_r; i++) pi_request_free(g->r[i]);
    free(g->r);
    g->r = NULL;
    g->n_r = 0;
}

void gen_free_parts(gen *g)
{
    gen_free_requests(g);
    for (size_t i = 0; i < g->n_choices; i++) free_choice(&g->choices[i]);
    free(g->choices);
    chat_state_free(&g->chat);
    params_free(&g->p);
    free(g->salt);
    g->choices = NULL;
    g->n_choices = 0;
    g->chat = (chat_state) {0};
    g->p = (params) {0};
    g->salt = NULL;
    g->adapter = NULL;
}

int gen_prepare(gen *g, buf *body, pi_error *err)
{
    int rc = read_body(g, body, err);
    if (!rc) rc = reasoning_defaults(g, err);
    if (!rc && g->is_chat) rc = chat_prepare(&g->chat, g->p.messages, g->p.tools, g->p.template_vars, err);
    if (!rc) rc = make_salt(g, err);
    if (!rc) rc = make_choices(g, err);
    for (size_t i = 0; i < g->n_r && !rc; i++) rc = make_request(g, i, err);
    if (!rc) rc = make_readers(g, err);
    if (text_failed()) rc = params_no_memory(err); /* an apparent error may only be a failed allocation */
    if (!rc) g->p.bad_field = NULL;
    for (size_t i = 0; i < g->n_choices && !rc; i++) g->choices[i].r = g->r[i / (size_t) g->p.n];
    return rc;
}

int gen_submit(gen *g, size_t *n, pi_error *err)
{
    int rc = PI_OK;
    for (*n = 0; *n < g->n_r && !rc; *n += !rc) {
        if (*n) pi_request_set_work(g->r[*n], NULL);
        rc = pi_request_submit(g->r[*n], err);
    }
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------ ends */

void gen_cancel(gen *g, const char *why)
{
    if (g->canceled) return;
    g->canceled = true;
    g->abort_why = why;
    for (size_t i = 0; !g->working && i < g->n_r; i++) pi_request_cancel(g->r[i]);
}

/* Records that memory is missing, and cancels the generation. */
static void no_memory(gen *g)
{
    if (!g->err.code) params_no_memory(&g->err);
    gen_cancel(g, "out of memory");
}

const char *gen_error_code(const gen *g, const pi_error *err)
{
    return err->code == PI_ETOOBIG && !g->over_budget ? "context_length_exceeded" : NULL;
}

const char *gen_error_field(const gen *g, const pi_error *err)
{
    return err->code == PI_EINVAL ? g->p.bad_field : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- events */

static void count_token_bytes(choice *ch, int32_t id)
{
    bool special = ch->g->p.special || ch->g->is_chat;
    ch->token_bytes += service_token_count(ch->g->sv, id, special, &ch->utf8, &ch->token_chars);
}

static bool add_tokens(choice *ch, const pi_event *ev)
{
    size_t n = ch->n_ids + ev->n_tokens, row = ev->n_logprobs;
    if (!grow(&ch->ids, &ch->cap_ids, n, sizeof *ch->ids) || !grow(&ch->end, &ch->cap_end, n, sizeof *ch->end) ||
        !grow(&ch->chars, &ch->cap_chars, n, sizeof *ch->chars)) {
        return false;
    }
    if (row && !grow(&ch->probs, &ch->cap_probs, n * row, sizeof *ch->probs)) return false;
    if (row) {
        ch->n_probs = row;
        memcpy(ch->probs + ch->n_ids * row, ev->logprobs, ev->n_tokens * row * sizeof *ch->probs);
    }
    for (size_t i = 0; i < ev->n_tokens; i++) {
        count_token_bytes(ch, ev->tokens[i]);
        ch->chars[ch->n_ids] = ch->token_chars;
        ch->end[ch->n_ids] = ch->utf8.n ? SIZE_MAX : ch->token_bytes;
        ch->ids[ch->n_ids++] = ev->tokens[i];
    }
    return !text_failed();
}

static void take_times(choice *ch, const pi_event *ev)
{
    if (!ev->n_tokens) return;
    ch->token_at = gen_now();
    if (!ch->g->first_at) ch->g->first_at = ch->token_at;
}

static void take_end(choice *ch, const pi_event *ev)
{
    gen *g = ch->g;
    ch->done = true;
    const bool ours = ch->over && ev->finish_reason == PI_FINISH_CANCEL;
    ch->finish = ours || (ch->cut && ev->finish_reason == PI_FINISH_STOP) ? PI_FINISH_LENGTH : ev->finish_reason;
    ch->res.size = sizeof ch->res;
    pi_request_sample(ev->request, ch->sample, &ch->res);
    ch->reason = ch->finish == PI_FINISH_LENGTH ? "length" : "stop";
    g->n_done++;
    if (g->err.code || g->gone) return;
    if (ch->finish == PI_FINISH_CANCEL) {
        g->err.code = PI_ECLOSED;
        snprintf(g->err.msg, sizeof g->err.msg, "the answer was canceled: %s", g->abort_why ? g->abort_why : "");
    }
    if (ev->finish_reason != PI_FINISH_ERROR) return;
    g->err = (pi_error) {.code = ev->code ? ev->code : PI_EINTERNAL};
    snprintf(g->err.msg, sizeof g->err.msg, "%s", *ch->res.msg ? ch->res.msg : pi_strerror(g->err.code));
}

static bool take_prompt(choice *ch, const pi_event *ev)
{
    size_t n = ev->n_tokens * ev->n_logprobs;
    prompt_probs *pp = &ch->prompt;
    pp->ids = malloc((ev->n_tokens + 1) * sizeof *pp->ids);
    pp->probs = malloc((n + 1) * sizeof *pp->probs);
    if (!pp->ids || !pp->probs) return false;
    memcpy(pp->ids, ev->tokens, ev->n_tokens * sizeof *pp->ids);
    memcpy(pp->probs, ev->logprobs, n * sizeof *pp->probs);
    pp->n = ev->n_tokens;
    pp->row = ev->n_logprobs;
    return true;
}

static bool take_vector(choice *ch, const pi_event *ev)
{
    ch->n_vectors = ev->n_embeddings;
    ch->n_vector = ev->n_embd * ev->n_embeddings;
    if (!(ch->vector = malloc(ch->n_vector * sizeof *ch->vector))) return false;
    memcpy(ch->vector, ev->embedding, ch->n_vector * sizeof *ch->vector);
    return true;
}

/* Cancels the choice's request if its text contains a newline and t_max_predict_ms has passed since the generation's
 * first token. All samples of the request end with it. */
static void end_late(choice *ch)
{
    gen *g = ch->g;
    if (g->p.max_ms <= 0 || !ch->has_line || ch->done || ch->over) return;
    if ((double) (gen_now() - g->first_at) / 1e6 <= (double) g->p.max_ms) return;
    for (size_t i = 0; i < g->n_choices; i++)
        if (g->choices[i].r == ch->r) g->choices[i].over = true;
    pi_request_cancel(ch->r);
}

/* Returns the number of bytes of new text before the first line that begins with fewer than n_indent blanks; n if
 * there is none. The first line does not count. Updates the choice's state of its current line. */
static size_t indented(choice *ch, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool blank = text[i] == ' ' || text[i] == '\t';
        if (!ch->in_line && !blank && ch->indent_counts && ch->indent < ch->g->p.n_indent) return i;
        if (!ch->in_line) ch->indent += blank;
        ch->in_line |= !blank;
        if (text[i] != '\n') continue;
        ch->in_line = false;
        ch->indent_counts = true;
        ch->indent = 0;
    }
    return n;
}

/* Cuts the choice at this point: later tokens are dropped. Cancels its request when all samples of the request have
 * ended or are cut. */
static void cut_line(choice *ch)
{
    const gen *g = ch->g;
    ch->cut = true;
    for (size_t i = 0; i < g->n_choices; i++)
        if (g->choices[i].r == ch->r && !g->choices[i].cut && !g->choices[i].done) return;
    for (size_t i = 0; i < g->n_choices; i++)
        if (g->choices[i].r == ch->r) g->choices[i].over = true;
    pi_request_cancel(ch->r);
}

static bool take_text(choice *ch, const pi_event *ev)
{
    const size_t n = ch->g->p.n_indent > 0 ? indented(ch, ev->text, ev->text_len) : ev->text_len;
    bool ok = add_tokens(ch, ev);
    if (ev->calls_bound && !ch->bound) ch->bound_at = ch->text_in;
    ch->bound |= ev->calls_bound;
    if (n) buf_put(&ch->text, ev->text, n);
    ok &= !ch->text.failed;
    ch->text_in += n;
    ch->has_line |= n && memchr(ev->text, '\n', n);
    if (n < ev->text_len) cut_line(ch);
    return ok;
}

void gen_take(const pi_event *ev)
{
    choice *ch = (choice *) ev->user + ev->index;
    gen *g = ch->g;
    bool ok = true;
    if (ev->kind == PI_EVENT_PROGRESS) {
        ch->progress = (prompt_progress) {ev->n_prompt, ev->n_cached, ev->n_computed, ev->prompt_ms, true};
    } else if (ev->kind == PI_EVENT_PROMPT) {
        ok = take_prompt(ch, ev);
    } else if (ev->kind == PI_EVENT_EMBEDDING) {
        ok = take_vector(ch, ev);
    } else {
        take_times(ch, ev);
        if (!ch->cut) ok = take_text(ch, ev);
        if (ev->kind == PI_EVENT_DONE) {
            take_end(ch, ev);
            const size_t n = g->p.keep_stop && !ch->cut && ch->res.stop ? strlen(ch->res.stop) : 0;
            if (n) buf_put(&ch->text, ch->res.stop, n);
            ch->text_in += n;
        }
        end_late(ch);
    }
    if (!ok) no_memory(g);
}

size_t gen_waiting(const choice *ch) { return ch->text.n + (ch->n_ids - ch->ids_out) * (64 + 24 * ch->n_probs); }

/* ---------------------------------------------------------------------------------------------------------- pieces */

static bool keep_call(choice *ch, const chat_delta *d)
{
    size_t n = (size_t) d->call + 1;
    if (n > ch->n_calls) {
        if (!grow(&ch->calls, &ch->cap_calls, n, sizeof *ch->calls)) return false;
        memset(ch->calls + ch->n_calls, 0, (n - ch->n_calls) * sizeof *ch->calls);
        ch->n_calls = n;
    }
    tool_call *t = &ch->calls[d->call];
    if (d->kind == DELTA_CALL) {
        buf_str(&t->id, d->id);
        buf_str(&t->name, d->name);
    } else {
        buf_put(&t->args, d->text, d->n);
    }
    return !t->id.failed && !t->name.failed && !t->args.failed;
}

/* Appends the piece to ch's content, reasoning and calls, for complete responses and for streams that repeat the text
 * in their last event (/v1/responses). Returns false if out of memory. */
static bool keep(choice *ch, const piece *pc)
{
    bool ok = true;
    for (size_t i = 0; i < pc->n_deltas; i++) {
        const chat_delta *d = &pc->delta[i];
        if (d->kind == DELTA_CONTENT) buf_put(&ch->content, d->text, d->n);
        else if (d->kind == DELTA_REASONING) buf_put(&ch->reasoning, d->text, d->n);
        else ok &= keep_call(ch, d);
    }
    return ok && !ch->content.failed && !ch->reasoning.failed;
}

/* Returns the number of tokens, from the start, with text that has arrived completely; *upto is the end of that text in
 * bytes, where a token ends too. */
static size_t aligned(const choice *ch, size_t *upto)
{
    size_t k = ch->ids_out;
    *upto = ch->text_out;
    if (ch->done || ch->text_in > ch->token_bytes + 8) { /* second condition: the text differs from the tokens' text */
        *upto = ch->text_in;
        return ch->n_ids;
    }
    for (size_t i = ch->ids_out; i < ch->n_ids && (ch->end[i] == SIZE_MAX || ch->end[i] <= ch->text_in); i++) {
        if (ch->end[i] == SIZE_MAX) continue;
        k = i + 1;
        *upto = ch->end[i];
    }
    return k;
}

/* Replaces the piece's deltas by a copy without reasoning, for hidden reasoning. Returns false if out of memory. */
static bool drop_thoughts(choice *ch, piece *pc)
{
    size_t n = 0;
    if (!grow(&ch->shown, &ch->cap_shown, pc->n_deltas, sizeof *ch->shown)) {
        pc->n_deltas = 0;
        return false;
    }
    for (size_t i = 0; i < pc->n_deltas; i++) {
        if (pc->delta[i].kind != DELTA_REASONING) ch->shown[n++] = pc->delta[i];
    }
    pc->delta = ch->shown;
    pc->n_deltas = n;
    return true;
}

static void give(choice *ch, size_t k, size_t upto)
{
    gen *g = ch->g;
    size_t n = upto - ch->text_out;
    chat_delta plain = {.kind = DELTA_CONTENT, .text = ch->text.p, .n = n};
    piece pc = {.delta = &plain, .n_deltas = n > 0, .text_at = ch->text_out, .last = ch->done};
    const int end = ch->done ? ch->finish : 0;
    /* complete responses wait for complete calls */
    const bool bound = g->p.stream && ch->bound && upto > ch->bound_at;
    bool ok = !ch->reader || !chat_read(ch->reader, ch->text.p ? ch->text.p : "", n, bound, end,
                                        ch->done && *ch->res.stop, &pc.delta, &pc.n_deltas);
    if (ch->done && ch->reader && chat_called(ch->reader)) ch->reason = "tool_calls";
    if (ch->done && ch->reader) ch->cut_call = chat_cut(ch->reader);
    if (g->hide_thoughts) ok &= drop_thoughts(ch, &pc);
    pc.ids = ch->ids ? ch->ids + ch->ids_carry : NULL;
    pc.n_ids = k - ch->ids_carry;
    pc.probs = ch->n_probs ? ch->probs + ch->ids_carry * ch->n_probs : NULL;
    const bool some = pc.n_deltas || pc.last;
    if (some) ok &= keep(ch, &pc);
    if (!ok) no_memory(g);
    if (some) {
        if (g->p.stream && !g->err.code) g->w->piece(g, ch, &pc);
        ch->ids_carry = k;
    }
    ch->ids_out = k;
    ch->text_out = upto;
    buf_drop(&ch->text, n);
    if (!ch->done) return;
    ch->ended = true;
    g->n_ended++;
}

bool gen_begun(const gen *g)
{
    bool begun = g->n_done > 0;
    for (size_t i = 0; i < g->n_choices && !begun; i++) begun = g->choices[i].n_ids > 0 || g->choices[i].progress.fresh;
    return begun;
}

void gen_pump(choice *ch)
{
    if (ch->progress.fresh) ch->g->w->progress(ch->g, ch);
    ch->progress.fresh = false;
    size_t upto, k = aligned(ch, &upto);
    if (ch->ended || (k == ch->ids_out && upto == ch->text_out && !ch->done)) return;
    give(ch, k, upto);
}

buf gen_whole(gen *g)
{
    buf b = {0};
    if (g->w->write) {
        if (g->w->write(g, &b) && !b.failed && !text_failed()) return b;
    } else {
        json_t *root = g->w->whole(g);
        char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
        json_decref(root);
        b = (buf) {.p = text, .n = text ? strlen(text) : 0};
        if (!text_failed()) return b;
    }
    buf_free(&b);
    return (buf) {0};
}

/* ------------------------------------------------------------------------------------------------------- for wires */

bool gen_send(gen *g, const char *event, json_t *root)
{
    char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
    const bool whole = !text_failed() && text;
    json_decref(root);
    const bool ok = whole && g->sink->event(g, event, text, strlen(text));
    if (!ok && !g->err.code) params_no_memory(&g->err);
    free(text);
    return ok;
}

json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(a, json_integer(ids[i]));
    return a;
}

usage gen_usage(const gen *g)
{
    usage u = {0};
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        pi_result res = {.size = sizeof res};
        if (ch->done) res = ch->res;
        else if (ch->r) pi_request_sample(ch->r, ch->sample, &res);
        u.completion += res.generated_tokens;
        u.drafted += res.n_drafted;
        u.accepted += res.n_accepted;
        if (ch->sample) continue;
        u.prompt += res.prompt_tokens;
        u.cached += res.cached_tokens;
    }
    return u;
}

json_t *progress_json(const choice *ch)
{
    const prompt_progress *pp = &ch->progress;
    return json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t) pp->n, "cache", (json_int_t) pp->cached, "processed",
                     (json_int_t) pp->computed, "time_ms", pp->ms);
}

json_t *gen_timings(const choice *ch)
{
    pi_result r = {.size = sizeof r};
    const gen *g = ch->g;
    if (ch->done) {
        r = ch->res;
    } else if (ch->r) {
        pi_request_sample(ch->r, ch->sample, &r);
        r.prefill_ms = g->first_at ? (double) (g->first_at - g->began) / 1e6 : 0;
        r.decode_ms = ch->token_at > g->first_at ? (double) (ch->token_at - g->first_at) / 1e6 : 0;
    }
    const double n_prompt = (double) r.prompt_tokens - (double) r.cached_tokens, n = r.generated_tokens;
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t) r.cached_tokens,
                     "prompt_n", (json_int_t) n_prompt, "prompt_ms", r.prefill_ms, "prompt_per_token_ms",
                     n_prompt > 0 ? r.prefill_ms / n_prompt : 0, "prompt_per_second",
                     r.prefill_ms > 0 ? n_prompt / r.prefill_ms * 1e3 : 0, "predicted_n",
                     (json_int_t) r.generated_tokens, "predicted_ms", r.decode_ms, "predicted_per_token_ms",
                     n > 0 ? r.decode_ms / n : 0, "predicted_per_second",
                     r.decode_ms > 0 ? n / r.decode_ms * 1e3 : 0);
}

const char *gen_model(const gen *g) { return g->adapter ? g->adapter : g->sv->alias; }
