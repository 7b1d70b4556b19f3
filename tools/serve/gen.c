/* Generations (see gen.h): from a body to engine requests, and from engine events to pieces of a response.
 *
 * Memory: a generation holds its body, the tokens so far, and the text not yet written. If a client does not read its
 * stream, the text accumulates; at s->send_max bytes the generation is canceled. gen_event only stores an event.
 * Generations are pumped, and freed, after the last pending event, because events point to them. */
#include "serve/gen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "serve/log.h"
#include "serve/media.h"

enum {
    ROOM = 64 << 10,       /* limit of bytes queued for a client; more output stays in the generation */
    LARGE = 64 << 10,      /* larger responses are written, and larger bodies freed, on the pool; bytes */
};

/* ----------------------------------------------------------------------------------------------------- on the pool */

/* Clients may only request a priority within --priority-range. */
static int check_priority(gen *g, const param_option *o, pi_error *err)
{
    const server *s = g->s;
    const long long v = strtoll(o->value, NULL, 10);
    if (strcmp(cli_str(s->c, "policy"), "priority") || (v >= s->priority_lo && v <= s->priority_hi)) return PI_OK;
    return params_fail(&g->p, o->field, err, "'%s' is %lld; give %lld to %lld; lower numbers run first "
                       "(--priority-range)", o->field, v, (long long) s->priority_lo, (long long) s->priority_hi);
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
    if (!rc && g->ex->key) rc = pi_request_set(r, "tenant", g->ex->key, err);
    if (!rc && (g->is_chat || p->special)) /* tags of reasoning and calls; or the client wants control tokens */
        rc = pi_request_set(r, "special", "true", err);
    return rc;
}

/* The salt of the prefix cache: with --cache-salt-by-key the API key, then the client's own salt. */
static int make_salt(gen *g, pi_error *err)
{
    const char *own = g->p.cache_salt;
    bool by_key = g->ex->key && cli_bool(g->s->c, "cache-salt-by-key");
    if (!own && !by_key) return PI_OK;
    buf b = {0};
    if (by_key) {
        buf_str(&b, g->ex->key);
        buf_put(&b, "\n", 1); /* no key contains a newline */
    }
    if (own) buf_str(&b, own);
    g->salt = b.p;
    return b.failed ? params_no_memory(err) : PI_OK;
}

/* --deadline counts from the request's arrival. */
static int set_deadline(const gen *g, pi_request *r, pi_error *err)
{
    const double limit = cli_float(g->s->c, "timeout"), left = limit - (double) (uv_hrtime() - g->ex->began) / 1e9;
    char text[32];
    if (limit <= 0) return PI_OK;
    snprintf(text, sizeof text, "%.6f", left > 1e-3 ? left : 1e-3);
    return pi_request_set(r, "timeout", text, err);
}

static int make_request(gen *g, size_t i, pi_error *err)
{
    pi_request *r = g->r[i] = pi_request_new(g->s->e);
    if (!r) return params_no_memory(err);
    int rc = set_options(g, r, err);
    if (rc) return rc;
    if ((rc = set_deadline(g, r, err))) return rc;
    pi_request_set_work(r, g->prep.limit);
    pi_request_set_user(r, &g->choices[i * (size_t) g->p.n]);
    if (g->is_chat) {
        if (g->p.n_images) rc = media_add(g->s, &g->p, 0, g->p.n_images, "messages", r, g->prep.limit, err);
        if (rc) return rc;
        g->p.bad_field = "messages";
        return chat_prompt(&g->chat, r, err);
    }
    const prompt *pr = &g->p.prompts[i];
    if (pr->n_images) rc = media_add(g->s, &g->p, pr->image, pr->n_images, "prompt", r, g->prep.limit, err);
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
    const uint64_t tokens = p->max_tokens >= 0 ? (uint64_t) p->max_tokens : g->s->info.ctx_size;
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

static int read_body(gen *g, pi_error *err)
{
    buf *b = &g->ex->req.body;
    json_t *root = params_parse(b->p, b->n, err);
    if (g->prep.heavy) buf_free(b); /* light work may be restarted */
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
    g->p.reads_images = g->s->info.modalities & PI_MODALITY_VISION;
    if (!rc) rc = gen_adapters(g, err);
    if (!rc) rc = g->w->read(g, err);
    if (!rc && g->p.n_images && !g->prep.heavy) g->wants_heavy = true; /* decoding and fetching take long */
    if (g->wants_heavy && !g->prep.heavy) return PI_ETOOBIG;
    return rc ? rc : gen_vocab_fields(g, err);
}

/* A parser needs the end of the rendered prompt. So the parsers are created after the prompt and before the first
 * event. */
static int make_readers(gen *g, pi_error *err)
{
    if (!g->is_chat) return PI_OK;
    int rc = PI_OK;
    for (size_t i = 0; i < g->n_choices && !rc; i++) {
        rc = pi_work_check(g->prep.limit); /* each parser renders a small prompt */
        if (!rc) rc = chat_reader_new(&g->choices[i].reader, &g->chat, g->s->e, err);
    }
    return rc;
}

/* True if generation continues the last message (--prefill-assistant): it is the assistant's without tool calls, and
 * the client sets neither "continue_final_message" nor "add_generation_prompt". */
static bool goes_on(const server *s, const params *p)
{
    const json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1), *vars = p->template_vars;
    const char *role = json_string_value(json_object_get(last, "role"));
    const bool said = json_object_get(vars, "continue_final_message") || json_object_get(vars, "add_generation_prompt");
    return !said && role && !strcmp(role, "assistant") && !json_array_size(json_object_get(last, "tool_calls")) &&
           cli_bool(s->c, "prefill-assistant");
}

int gen_template_defaults(const server *s, params *p, pi_error *err)
{
    const char *said = cli_str(s->c, "reasoning"), *effort = cli_str(s->c, "reasoning-effort");
    const bool off = !strcmp(said, "off") || cli_int(s->c, "reasoning-budget") == 0, on = !strcmp(said, "on");
    bool ok = true;
    if (!p->template_vars && !(p->template_vars = json_object())) return params_no_memory(err);
    json_t *vars = p->template_vars;
    if ((on || off) && !json_object_get(vars, "enable_thinking"))
        ok = !json_object_set_new(vars, "enable_thinking", json_boolean(!off));
    if (*effort && strcmp(effort, "default") != 0 && !json_object_get(vars, "reasoning_effort"))
        ok &= !json_object_set_new(vars, "reasoning_effort", json_string(effort));
    if (goes_on(s, p)) ok &= !json_object_set_new(vars, "continue_final_message", json_true());
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
    const char *format = cli_str(g->s->c, "reasoning-format");
    if (!g->is_chat) return PI_OK;
    int rc = gen_template_defaults(g->s, &g->p, err);
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

/* Frees the engine requests, so that the engine sends no further events of them. */
static void free_requests(gen *g)
{
    for (size_t i = 0; i < g->n_r; i++) pi_request_free(g->r[i]);
    free(g->r);
    g->r = NULL;
    g->n_r = 0;
}

/* Frees everything that preparation created and resets the generation to its initial state. */
static void free_parts(gen *g)
{
    free_requests(g);
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

/* Prepares everything up to the first submit. May be repeated. */
static int make_all(gen *g, pi_error *err)
{
    int rc = read_body(g, err);
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

/* Submits all requests. The first submit compiles the shared parts. The later ones run without a budget, because
 * nothing can be repeated after the first submit. */
static int submit_all(gen *g, size_t *n, pi_error *err)
{
    int rc = PI_OK;
    for (*n = 0; *n < g->n_r && !rc; *n += !rc) {
        if (*n) pi_request_set_work(g->r[*n], NULL);
        rc = pi_request_submit(g->r[*n], err);
    }
    return rc;
}

static bool prepare(prep *p)
{
    gen *g = p->owner;
    pi_error err = {0};
    size_t n = 0;
    int rc = make_all(g, &err);
    if (!rc) rc = submit_all(g, &n, &err);
    if (rc && !n && (prep_spent(p) || (g->wants_heavy && !p->heavy))) {
        free_parts(g);
        return false;
    }
    g->over_budget = rc == PI_ETOOBIG && pi_work_check(p->limit) == rc;
    if (!rc) g->submitted = true;
    else if (!err.code) err.code = rc;
    if (rc && !*err.msg) snprintf(err.msg, sizeof err.msg, "%s", pi_strerror(rc));
    g->work_err = err; /* g->err belongs to the loop, which may already process events */
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ ends */

static bool free_on_pool(prep *p)
{
    free_parts(p->owner);
    return true;
}

static void freed(prep *p, int code)
{
    gen *g = p->owner;
    if (code) free_parts(g);
    g->s->n_jobs--;
    free(g);
}

/* Frees the generation; the exchange may be freed already. The parts of a large body are freed on the pool, because
 * they are too many for the loop. */
static void gen_free(gen *g)
{
    server *s = g->s;
    if (g->prev) g->prev->next = g->next;
    else s->gens = g->next;
    if (g->next) g->next->prev = g->prev;
    s->n_gens--;
    buf_free(&g->whole);
    free_requests(g);
    if (g->n_body > LARGE) {
        s->n_jobs++;
        g->prep = (prep) {.owner = g, .run = free_on_pool, .done = freed};
        prep_start_heavy(&g->prep, s, NULL, g->n_body);
        return;
    }
    free_parts(g);
    free(g);
}

static void cancel(gen *g, const char *why)
{
    if (g->canceled) return;
    g->canceled = true;
    g->abort_why = why;
    if (g->working) prep_cancel(&g->prep);
    for (size_t i = 0; !g->working && i < g->n_r; i++) pi_request_cancel(g->r[i]);
}

void gen_cancel_all(server *s, const char *why)
{
    for (gen *g = s->gens; g; g = g->next) cancel(g, why);
}

static void on_gone(exchange *ex)
{
    gen *g = ex->job;
    if (g->finished) return;
    g->s->metrics.gone_clients++;
    cancel(g, "the client disconnected");
    gen_pump(g); /* all events may have arrived already */
}

static void on_room(exchange *ex) { gen_pump(ex->job); }

static json_t *error_of(const gen *g, int status, const pi_error *err)
{
    const char *code = err->code == PI_ETOOBIG && !g->over_budget ? "context_length_exceeded" : NULL;
    return exchange_error(g->ex, status, err->code == PI_EINVAL ? g->p.bad_field : NULL, code, err->msg);
}

/* Writes the log line. Nothing is sent after this; the caller ends the exchange. */
static void end(gen *g)
{
    g->finished = true;
    log_generation(g);
}

static void fail(gen *g)
{
    g->status = status_of(g->err.code);
    exchange *ex = g->ex;
    end(g);
    if (g->streaming) {
        if (gen_send(g, "error", error_of(g, g->status, &g->err))) stream_end(ex);
        else exchange_abort(ex);
    } else {
        answer_json(ex, g->status, error_of(g, g->status, &g->err));
    }
    gen_free(g);
}

/* ---------------------------------------------------------------------------------------------------------- events */

static void count_token_bytes(choice *ch, int32_t id)
{
    bool special = ch->g->p.special || ch->g->is_chat;
    ch->token_bytes += server_token_count(ch->g->s, id, special, &ch->utf8, &ch->token_chars);
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
    gen *g = ch->g;
    metrics *m = &g->s->metrics;
    uint64_t now = uv_hrtime();
    if (!ev->n_tokens) return;
    if (!g->first_at) {
        g->first_at = now;
        histogram_add(&m->first_token, (double) (now - g->ex->began) / 1e9);
    } else if (ch->token_at) {
        double gap = (double) (now - ch->token_at) / 1e9 / (double) ev->n_tokens;
        for (size_t i = 0; i < ev->n_tokens; i++) histogram_add(&m->inter_token, gap);
    }
    ch->token_at = now;
}

static void take_end(choice *ch, const pi_event *ev)
{
    gen *g = ch->g;
    metrics *m = &g->s->metrics;
    ch->done = true;
    const bool ours = ch->over && ev->finish_reason == PI_FINISH_CANCEL;
    ch->finish = ours || (ch->cut && ev->finish_reason == PI_FINISH_STOP) ? PI_FINISH_LENGTH : ev->finish_reason;
    ch->res.size = sizeof ch->res;
    pi_request_sample(ev->request, ch->sample, &ch->res);
    ch->reason = ch->finish == PI_FINISH_LENGTH ? "length" : "stop";
    g->n_done++;
    m->ended[ch->finish == PI_FINISH_STOP ? END_STOP : ch->finish == PI_FINISH_LENGTH ? END_LENGTH
             : ch->finish == PI_FINISH_CANCEL ? END_ABORT : END_ERROR]++;
    const uint64_t tokens = (uint64_t) ch->res.prompt_tokens + ch->res.generated_tokens;
    if (tokens > m->max_answer_tokens) m->max_answer_tokens = tokens;
    if (ch->res.miss_reason) metrics_miss(m, ch->res.miss_reason);
    histogram_add(&m->queue, ch->res.queue_ms / 1e3);
    if (ch->res.generated_tokens) {
        histogram_add(&m->prefill, ch->res.prefill_ms / 1e3);
        histogram_add(&m->decode, ch->res.decode_ms / 1e3);
        m->prompt_seconds += ch->res.prefill_ms / 1e3;
        m->decode_seconds += ch->res.decode_ms / 1e3;
    }
    if (g->err.code || !g->ex->conn) return;
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
    if ((double) (uv_hrtime() - g->first_at) / 1e6 <= (double) g->p.max_ms) return;
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

/* Returns the approximate size of the choice's unwritten output, in bytes. */
static size_t waiting(const choice *ch) { return ch->text.n + (ch->n_ids - ch->ids_out) * (64 + 24 * ch->n_probs); }

gen *gen_event(const pi_event *ev)
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
    if (!ok) {
        if (!g->err.code) params_no_memory(&g->err);
        cancel(g, "out of memory");
    }
    if (waiting(ch) > g->s->send_max && g->p.stream && !g->canceled) {
        g->s->metrics.slow_clients++;
        g->too_slow = true;
        cancel(g, "the client reads too slowly");
    }
    return g;
}

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

static void no_memory(gen *g)
{
    if (!g->err.code) params_no_memory(&g->err);
    cancel(g, "out of memory");
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

static void pump_choice(choice *ch)
{
    if (ch->progress.fresh) ch->g->w->progress(ch->g, ch);
    ch->progress.fresh = false;
    size_t upto, k = aligned(ch, &upto);
    if (ch->ended || (k == ch->ids_out && upto == ch->text_out && !ch->done)) return;
    give(ch, k, upto);
}

/* Returns the approximate size of the response as JSON. Parts of the body may be repeated in it. */
static size_t answer_bytes(const gen *g)
{
    size_t n = g->n_body;
    for (size_t i = 0; i < g->n_choices; i++) {
        const choice *ch = &g->choices[i];
        n += ch->text_in + ch->n_ids * (8 + 100 * ch->n_probs) + ch->prompt.n * (8 + 100 * ch->prompt.row) +
             12 * ch->n_vector;
    }
    return n;
}

/* Returns the response as text; p == NULL if out of memory. */
static buf whole_text(gen *g)
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

static bool write_whole(prep *p)
{
    gen *g = p->owner;
    g->whole = whole_text(g);
    return true;
}

static void end_whole(gen *g, int code)
{
    exchange *ex = g->ex;
    buf text = g->whole;
    g->whole = (buf) {0};
    if (!text.p && ex->conn) {
        g->err = (pi_error) {.code = code ? code : PI_ENOMEM};
        snprintf(g->err.msg, sizeof g->err.msg, "%s", code ? "the answer was not written" : "out of memory");
        fail(g);
        return;
    }
    g->status = 200;
    end(g);
    answer_owned(ex, 200, text.p, text.n);
    gen_free(g);
}

static void written(prep *p, int code)
{
    gen *g = p->owner;
    g->working = false;
    g->ex->on_gone = g->ex->on_room = NULL;
    end_whole(g, code);
}

static void answer_whole(gen *g)
{
    const size_t n = g->ex->conn ? answer_bytes(g) : 0;
    if (n > LARGE) {
        g->working = true;
        g->prep = (prep) {.owner = g, .run = write_whole, .done = written};
        prep_start_heavy(&g->prep, g->s, NULL, n);
        return;
    }
    if (g->ex->conn) g->whole = whole_text(g);
    end_whole(g, PI_OK);
}

static void finish_stream(gen *g)
{
    exchange *ex = g->ex;
    g->finished = true;
    if (ex->conn) g->w->finish(g);
    if (g->err.code) {
        fail(g);
        return;
    }
    end(g);
    stream_end(ex);
    gen_free(g);
}

static void begin_stream(gen *g)
{
    g->streaming = true;
    g->status = 200;
    stream_begin(g->ex, g->w->json_lines ? "application/x-ndjson" : "text/event-stream");
    g->w->begin(g);
}

void gen_ping_all(server *s)
{
    const uint64_t now = uv_now(&s->loop);
    for (gen *g = s->gens, *next; g; g = next) {
        next = g->next;
        const int64_t each = g->p.ping_s == INT64_MIN ? s->ping_s : g->p.ping_s;
        if (g->working || g->finished || !g->submitted || g->pumping || g->err.code || g->canceled) continue;
        if (!g->p.stream || each < 1 || g->w->json_lines) continue; /* lines of JSON have no comments */
        if (!g->ex || !g->ex->conn || now - g->sent_at < (uint64_t) each * 1000) continue;
        g->pumping = true;
        if (!g->streaming) begin_stream(g);
        if (!g->err.code) stream_put(g->ex, ":\n\n", 3);
        g->sent_at = now;
        g->pumping = false;
        if (!g->ex->conn) gen_pump(g); /* the client disconnected meanwhile */
    }
}

void gen_pump(gen *g)
{
    if (g->working || g->finished || !g->submitted || g->pumping) return;
    g->pumping = true;
    bool begun = g->n_done > 0;
    for (size_t i = 0; i < g->n_choices && !begun; i++) begun = g->choices[i].n_ids > 0 || g->choices[i].progress.fresh;
    if (begun && g->p.stream && !g->streaming && !g->err.code) begin_stream(g);
    /* after an error there is no further output */
    for (size_t i = 0; i < g->n_choices && begun && !g->err.code; i++) {
        if (g->p.stream && stream_waiting(g->ex) > ROOM && !g->canceled) break;
        pump_choice(&g->choices[i]);
    }
    if (g->err.code) cancel(g, "it failed");
    g->pumping = false;
    if (g->n_done < g->n_choices) return;
    if (g->too_slow && g->ex->conn) {
        exchange *ex = g->ex;
        end(g);
        exchange_abort(ex);
        gen_free(g);
    } else if (g->err.code) {
        fail(g);
    } else if (g->n_ended == g->n_choices) {
        if (g->p.stream) finish_stream(g);
        else answer_whole(g);
    }
}

/* ----------------------------------------------------------------------------------------------------------- start */

/* Ends the preparation, on the loop. If a submit failed half way, the submitted requests are canceled and their events
 * dropped. */
static void prepared(prep *p, int code)
{
    gen *g = p->owner;
    g->working = false;
    g->sent_at = uv_now(&g->s->loop);
    if (g->work_err.code) g->err = g->work_err;
    if (code && !g->err.code) g->err = (pi_error) {code, "the preparation of the request took too long"};
    if (code == PI_ENOMEM) params_no_memory(&g->err);
    if (!g->submitted) {
        if (!g->err.code) params_no_memory(&g->err);
        fail(g);
        return;
    }
    if (g->canceled) {
        for (size_t i = 0; i < g->n_r; i++) pi_request_cancel(g->r[i]);
    }
    gen_pump(g);
}

void gen_start(server *s, exchange *ex, const wire *w)
{
    gen *g = calloc(1, sizeof *g);
    if (!g) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    *g = (gen) {.s = s, .ex = ex, .w = w, .created = (int64_t) time(NULL), .working = true, .is_chat = !w->raw_prompt};
    server_new_id(s, w->id_prefix, g->id);
    g->next = s->gens;
    if (s->gens) s->gens->prev = g;
    s->gens = g;
    s->n_gens++;
    ex->job = g;
    ex->on_gone = on_gone;
    ex->on_room = on_room;
    ex->generates = true;
    g->n_body = ex->req.body.n;
    g->prep = (prep) {.owner = g, .run = prepare, .done = prepared};
    prep_start(&g->prep, s, ex, g->n_body);
}

/* ------------------------------------------------------------------------------------------------------- for wires */

bool gen_send(gen *g, const char *event, json_t *root)
{
    char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
    buf b = {0};
    const bool whole = !text_failed() && text;
    json_decref(root);
    const bool lines = g->w->json_lines;
    if (event && whole && !lines) buf_fmt(&b, "event: %s\n", event);
    if (whole) {
        buf_str(&b, lines ? "" : "data: ");
        buf_str(&b, text);
        buf_str(&b, lines ? "\n" : "\n\n");
    }
    const bool ok = whole && !b.failed;
    if (ok) stream_put(g->ex, b.p, b.n);
    else if (!g->err.code) params_no_memory(&g->err);
    g->sent_at = uv_now(&g->s->loop);
    buf_free(&b);
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
        r.prefill_ms = g->first_at ? (double) (g->first_at - g->ex->began) / 1e6 : 0;
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

const char *gen_model(const gen *g) { return g->adapter ? g->adapter : g->s->alias; }
