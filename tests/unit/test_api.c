/* The public interface from model file to text, on a tiny random model: requests in any order and from many threads,
 * errors, closing the engine, and failure of each allocation in turn. */
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "pagedinfer.h"
#include "tokenizer/vocab.h"
#include "random_model.h"

static char model[256], vocab[256];

static int setup(void **state)
{
    (void) state;
    const tiny_spec s = {.vocab_only = true};
    return tiny_write(tiny_path(model, "api"), NULL, NULL) || tiny_write(tiny_path(vocab, "api-vocab"), &s, NULL);
}

static int teardown(void **state)
{
    (void) state;
    return unlink(model) | unlink(vocab);
}

/* Builds options from "key=value" strings, ended by NULL. */
static pi_options *options_of(const char *const *kv)
{
    pi_options *o = pi_options_new();
    pi_error err = {0};
    int rc = o ? pi_options_set(o, "model", model, &err) | pi_options_set(o, "threads", "2", &err) : PI_ENOMEM;
    for (; kv && *kv && !rc; kv++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int) strcspn(*kv, "="), *kv);
        rc = pi_options_set(o, key, strchr(*kv, '=') + 1, &err);
    }
    if (rc) fail_msg("%s", err.msg);
    return o;
}

#define LIST(...) ((const char *const[]) {__VA_ARGS__, NULL})

static pi_engine *open_with(const char *const *kv)
{
    pi_options *o = options_of(kv);
    pi_error err = {0};
    pi_engine *e = NULL;
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static pi_request *request_of(pi_engine *e, const char *prompt, const char *const *kv)
{
    pi_request *r = pi_request_new(e);
    pi_error err = {0};
    assert_non_null(r);
    int rc = pi_request_prompt_text(r, prompt, strlen(prompt), &err);
    for (; kv && *kv && !rc; kv++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int) strcspn(*kv, "="), *kv);
        rc = pi_request_set(r, key, strchr(*kv, '=') + 1, &err);
    }
    if (rc) fail_msg("%s", err.msg);
    return r;
}

static pi_request *start(pi_engine *e, const char *prompt, const char *const *kv)
{
    pi_request *r = request_of(e, prompt, kv);
    pi_error err = {0};
    if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    return r;
}

static pi_result result_of(pi_request *r)
{
    pi_result s = {.size = sizeof s};
    assert_int_equal(pi_request_wait(r, 60000), PI_OK);
    assert_int_equal(pi_request_result(r, &s), PI_OK);
    return s;
}

/* ----------------------------------------------------------------------------------------------------------- tests */

/* Options reach the samplers with state: each setting changes the tokens of a seed, reproducibly, also in a batch. */
static void samplers_with_a_state(void **state)
{
    (void) state;
    enum { N = 40 };
    static const char *const set[][3] = {{"mirostat=0"},
                                         {"mirostat=1", "mirostat-ent=2"},
                                         {"mirostat=2", "mirostat-ent=2"},
                                         {"mirostat=2", "mirostat-ent=2", "mirostat-lr=1"},
                                         {"dynatemp-range=0.7"},
                                         {"dynatemp-range=0.7", "dynatemp-exp=30"},
                                         {"samplers=top_k;adaptive_p", "adaptive-target=0.2"},
                                         {"samplers=top_k;adaptive_p", "adaptive-target=0.2", "adaptive-decay=0"}};
    enum { SETS = sizeof set / sizeof *set };
    pi_engine *e = open_with(LIST("kv-cache-tokens=2048", "ctx-size=128"));
    int32_t alone[SETS][N], again[N];
    pi_request *r[SETS];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SETS; i++) {
            r[i] = start(e, "the and you", LIST("seed=5", "no-stop=true", "max-tokens=40", set[i][0],
                                                set[i][1] ? set[i][1] : "seed=5", set[i][2] ? set[i][2] : "seed=5"));
            if (!round) result_of(r[i]);
        }
        for (int i = 0; i < SETS; i++) {
            if (round) result_of(r[i]);
            assert_int_equal(pi_request_tokens(r[i], round ? again : alone[i], N), N);
            if (round) assert_memory_equal(again, alone[i], sizeof again);
            for (int k = 0; k < i; k++) assert_memory_not_equal(alone[i], alone[k], sizeof again);
            pi_request_free(r[i]);
        }
    }
    pi_request *end = start(e, "the and you", LIST("max-tokens=100000", "no-stop=true"));
    assert_int_equal(result_of(end).finish_reason, PI_FINISH_LENGTH);
    pi_result s = result_of(end);
    assert_int_equal(s.prompt_tokens + s.generated_tokens, 128);
    pi_request_free(end);
    pi_engine_close(e);
}

static void plan_and_facts(void **state)
{
    (void) state;
    pi_options *o = options_of(LIST("kv-cache-tokens=1024", "ctx-size=256"));
    pi_plan p = {.size = sizeof p};
    pi_error err = {0};
    assert_int_equal(pi_engine_plan(o, &p, &err), PI_OK);
    assert_true(p.total_bytes == p.weights_bytes + p.kv_bytes + p.scratch_bytes && p.weights_bytes > 0);
    assert_true(p.kv_tokens >= 1024 && p.ctx_size == 256 && p.n_groups == 2);
    uint64_t kv = 0;
    for (uint32_t i = 0; i < p.n_groups; i++) kv += p.group[i].n_blocks * p.group[i].block_bytes;
    assert_int_equal(kv, p.kv_bytes);
    pi_plan small = {.size = offsetof(pi_plan, kv_bytes)};
    small.kv_bytes = 42;
    assert_int_equal(pi_engine_plan(o, &small, &err), PI_OK);
    assert_true(small.weights_bytes == p.weights_bytes && small.kv_bytes == 42);
    pi_engine *e;
    assert_int_equal(pi_engine_open(&e, o, &err), PI_OK);
    pi_options_free(o); /* no longer needed */
    pi_info i = {.size = sizeof i};
    assert_int_equal(pi_engine_info(e, &i), PI_OK);
    assert_string_equal(i.arch, "gemma3");
    assert_string_equal(i.name, "tiny");
    assert_true(i.n_vocab == TINY_VOCAB && i.ctx_size == 256 && i.n_layer == 3);
    assert_true(i.bos == TINY_BOS && i.eos == TINY_EOS);
    assert_true(strstr(i.device, "cpu") && i.n_threads == 2 && i.chat_template);
    pi_stats s = {.size = sizeof s};
    assert_int_equal(pi_engine_stats(e, &s), PI_OK);
    assert_true(s.n_groups == 2 && s.group[0].n_blocks == p.group[0].n_blocks && s.group[0].n_used == 0);
    assert_int_equal(pi_engine_state(e), PI_STATE_READY);
    pi_engine_close(e);
}

static void text_both_ways(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    int32_t ids[32];
    char text[64];
    const char *in = "the \xF0\x9F\x98\x80 and you\x01";
    int64_t n = pi_tokenize(e, in, strlen(in), PI_TOK_BOS, ids, 32);
    assert_true(n > 4 && ids[0] == TINY_BOS);
    assert_int_equal(pi_tokenize(e, in, strlen(in), PI_TOK_BOS, NULL, 0), n);
    int64_t len = pi_detokenize(e, ids + 1, (size_t) n - 1, 0, text, sizeof text);
    assert_true(len == (int64_t) strlen(in) && !memcmp(text, in, (size_t) len));
    assert_int_equal(pi_detokenize(e, ids, 1, PI_TOK_SPECIAL, text, sizeof text), 5);
    assert_int_equal(pi_tokenize(e, NULL, 1, 0, ids, 32), PI_EINVAL);
    assert_int_equal(pi_tokenize(NULL, "", 0, 0, ids, 32), PI_EINVAL);
    pi_engine_close(e);
}

/* Collects all text of a request's events until its end. */
static void collect(pi_engine *e, char *text, size_t cap, int32_t *ids, size_t *n_ids)
{
    size_t n = 0;
    bool done = false;
    *n_ids = 0;
    while (!done) {
        pi_event *ev[3];
        int k = pi_poll(e, ev, 3, 60000);
        assert_true(k > 0);
        for (int i = 0; i < k; i++) {
            assert_true(n + ev[i]->text_len < cap);
            memcpy(text + n, ev[i]->text, ev[i]->text_len);
            n += ev[i]->text_len;
            for (size_t t = 0; t < ev[i]->n_tokens; t++) ids[(*n_ids)++] = ev[i]->tokens[t];
            done = ev[i]->kind == PI_EVENT_DONE;
            pi_event_release(ev[i]);
        }
    }
    text[n] = 0;
}

/* Returns the text of ids with invalid bytes replaced, as in events. */
static char *as_shown(pi_engine *e, const int32_t *ids, size_t n)
{
    char raw[1024], *out = calloc(4096, 1);
    int64_t len = pi_detokenize(e, ids, n, 0, raw, sizeof raw);
    pi__utf8_hold hold = {0};
    assert_true(out && len >= 0 && len <= (int64_t) sizeof raw);
    size_t k = pi__utf8_feed(&hold, raw, (size_t) len, out);
    pi__utf8_flush(&hold, out + k);
    return out;
}

static void events_tokens_and_result_agree(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    pi_request *r = start(e, "the and you", LIST("max-tokens=40", "temp=0", "ignore-eos=true"));
    char text[1024];
    int32_t ids[64], same[64];
    size_t n;
    collect(e, text, sizeof text, ids, &n);
    pi_result s = result_of(r);
    assert_true(n == 40 && s.generated_tokens == 40 && s.finish_reason == PI_FINISH_LENGTH && s.prompt_tokens > 1);
    assert_true(s.prefill_ms > 0 && s.decode_ms > 0 && s.queue_ms >= 0 && s.cached_tokens == 0);
    assert_int_equal(pi_request_tokens(r, same, 64), 40);
    assert_memory_equal(ids, same, 40 * sizeof *ids);
    char *from_bytes = as_shown(e, ids, n);
    assert_string_equal(text, from_bytes);
    free(from_bytes);
    pi_request_free(r);
    r = start(e, "the and you", LIST("max-tokens=0"));
    s = result_of(r);
    assert_true(s.generated_tokens == 0 && s.finish_reason == PI_FINISH_LENGTH);
    pi_request_free(r);
    pi_engine_close(e);
}

static void batch_composition_changes_nothing(void **state)
{
    (void) state;
    enum { N = 12, LEN = 30 };
    pi_engine *e = open_with(LIST("parallel=8", "ubatch-size=16", "kv-cache-tokens=2048"));
    int32_t alone[N][LEN], concurrency[LEN];
    pi_request *r[N];
    char prompt[N][64];
    for (int i = 0; i < N; i++) {
        char seed[32];
        snprintf(prompt[i], sizeof prompt[i], "the %c and on and on %d you", 'a' + i, i * 37);
        snprintf(seed, sizeof seed, "seed=%d", i);
        r[i] = start(e, prompt[i], LIST("max-tokens=30", i % 2 ? "temp=0.9" : "temp=0", seed, "ignore-eos=true",
                                        "cache=false"));
        assert_int_equal(pi_request_wait(r[i], 60000), PI_OK);
        assert_int_equal(pi_request_tokens(r[i], alone[i], LEN), LEN);
        pi_request_free(r[i]);
    }
    for (int i = 0; i < N; i++) {
        char seed[32];
        snprintf(seed, sizeof seed, "seed=%d", i);
        r[i] = start(e, prompt[i], LIST("max-tokens=30", i % 2 ? "temp=0.9" : "temp=0", seed, "ignore-eos=true"));
    }
    for (int i = 0; i < N; i++) {
        result_of(r[i]);
        assert_int_equal(pi_request_tokens(r[i], concurrency, LEN), LEN);
        assert_memory_equal(concurrency, alone[i], sizeof concurrency);
        pi_request_free(r[i]);
    }
    pi_engine_close(e);
}

static void a_second_request_finds_the_prefix(void **state)
{
    (void) state;
    pi_engine *e = open_with(LIST("block-size=16"));
    const char *prompt = "and on and on and on and on and on and on and on and on the you in ing over and out and in";
    int32_t a[16], b[16];
    pi_request *r = start(e, prompt, LIST("max-tokens=16", "temp=0", "ignore-eos=true"));
    assert_int_equal(result_of(r).cached_tokens, 0);
    pi_request_tokens(r, a, 16);
    pi_request_free(r);
    r = start(e, prompt, LIST("max-tokens=16", "temp=0", "ignore-eos=true"));
    pi_result s = result_of(r);
    assert_true(s.cached_tokens >= 16 && s.cached_tokens < s.prompt_tokens);
    pi_request_tokens(r, b, 16);
    assert_memory_equal(a, b, sizeof a);
    pi_request_free(r);
    /* clears the prefixes of one salt, then all prefixes */
    for (int i = 0; i < 4; i++) {
        const char *clear[] = {NULL, "other", "salt", NULL};
        if (i) assert_int_equal(pi_engine_cache_clear(e, clear[i]), PI_OK);
        r = start(e, prompt, LIST("max-tokens=1", "temp=0", "cache-salt=salt"));
        assert_true((result_of(r).cached_tokens > 0) == (i == 1));
        pi_request_free(r);
        r = start(e, prompt, LIST("max-tokens=1", "temp=0"));
        assert_true((result_of(r).cached_tokens > 0) == (i < 3));
        pi_request_free(r);
    }
    assert_int_equal(pi_engine_cache_clear(NULL, NULL), PI_EINVAL);
    r = start(e, prompt, LIST("max-tokens=1", "temp=0"));
    pi_request_free(r);
    pi_engine_close(e);
}

static void stop_strings_and_tokens(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    char text[1024], set[64];
    int32_t ids[64];
    size_t n;
    pi_request *r = start(e, "you and the", LIST("max-tokens=40", "temp=0", "ignore-eos=true"));
    collect(e, text, sizeof text, ids, &n);
    pi_request_free(r);
    size_t len = strlen(text);
    assert_true(len > 8);
    size_t from = len, to = len; /* the two characters before the last */
    for (int k = 0; k < 3; k++) {
        do from--;
        while ((text[from] & 0xC0) == 0x80);
        if (!k) to = from;
    }
    char stop[16] = "";
    memcpy(stop, text + from, to - from);
    snprintf(set, sizeof set, "stop=%s", stop);
    r = start(e, "you and the", LIST("max-tokens=40", "temp=0", "ignore-eos=true", set));
    char cut[1024];
    collect(e, cut, sizeof cut, ids, &n);
    pi_result s = result_of(r);
    char *where = strstr(text, stop);
    assert_true(where && strlen(cut) == (size_t) (where - text) && !memcmp(cut, text, strlen(cut)));
    assert_int_equal(s.finish_reason, PI_FINISH_STOP);
    assert_string_equal(s.stop, stop);
    pi_request_free(r);
    snprintf(set, sizeof set, "stop-token=%d", ids[0]);
    r = start(e, "you and the", LIST("max-tokens=40", "temp=0", "ignore-eos=true", set));
    s = result_of(r);
    assert_true(s.generated_tokens == 1 && s.finish_reason == PI_FINISH_STOP && !*s.stop);
    pi_request_free(r);
    pi_engine_close(e);
}

typedef struct rows { /* logits received */
    pthread_mutex_t lock;
    uint32_t pos[64];
    int32_t best[64];
    size_t n;
} rows;

static void take_row(void *ud, uint32_t pos, const float *x, size_t n)
{
    rows *w = ud;
    pthread_mutex_lock(&w->lock);
    if (w->n < 64) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
        w->pos[w->n] = pos;
        w->best[w->n++] = (int32_t) best;
    }
    pthread_mutex_unlock(&w->lock);
}

static void logits_and_logprobs(void **state)
{
    (void) state;
    static const struct { const char *which; size_t n; } cases[] = {
        {"logits=none", 0}, {"logits=last", 1}, {"logits=all", 0}, {"logits=generated", 6}};
    pi_engine *e = open_with(LIST("ubatch-size=4"));
    for (size_t i = 0; i < 4; i++) {
        rows w = {.lock = PTHREAD_MUTEX_INITIALIZER};
        pi_request *r = request_of(e, "the you and", LIST("max-tokens=6", "temp=0", "ignore-eos=true", "logprobs=2",
                                                         "cache=false", cases[i].which));
        pi_request_on_logits(r, take_row, &w);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
        pi_result s = result_of(r);
        int32_t ids[6];
        assert_int_equal(pi_request_tokens(r, ids, 6), 6);
        assert_int_equal(w.n, i == 2 ? s.prompt_tokens : cases[i].n);
        if (i == 1) assert_true(w.pos[0] == s.prompt_tokens - 1 && w.best[0] == ids[0]);
        if (i == 2) assert_true(w.pos[0] == 0 && w.pos[w.n - 1] == s.prompt_tokens - 1);
        for (size_t k = 0; i == 3 && k < 6; k++) {
            assert_true(w.pos[k] == s.prompt_tokens - 1 + k && w.best[k] == ids[k]);
        }
        pi_event *ev[32];
        int n = pi_poll(e, ev, 32, 1000);
        size_t at = 0;
        for (int k = 0; k < n; k++) {
            if (ev[k]->n_tokens) assert_int_equal(ev[k]->n_logprobs, 3);
            for (size_t t = 0; t < ev[k]->n_tokens; t++, at++) {
                const pi_token_prob *p = ev[k]->logprobs + t * 3;
                /* greedy: the most likely token */
                assert_true(p[0].id == ids[at] && p[1].id == ids[at] && p[0].logprob == p[1].logprob);
                assert_true(p[0].logprob < 0 && p[2].logprob <= p[1].logprob && isfinite(p[2].logprob));
            }
            pi_event_release(ev[k]);
        }
        assert_int_equal(at, 6);
        pi_request_free(r);
    }
    pi_engine_close(e);
}

typedef struct scores { /* log-probabilities of the prompt's tokens, computed from full logits rows */
    const int32_t *ids; /* [n_ids] the prompt; fewer than 64 ids */
    uint32_t n_ids;
    double logprob[64]; /* [position] */
    size_t n;           /* rows received */
} scores;

static void score_row(void *ud, uint32_t pos, const float *x, size_t n)
{
    scores *w = ud;
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++) sum += exp(x[i] - max);
    if (pos + 1 < w->n_ids) w->logprob[pos + 1] = x[w->ids[pos + 1]] - max - log(sum);
    w->n++;
}

/* Expects the PROMPT event of r first; writes its entries to out and returns their number. */
static size_t prompt_probs(pi_engine *e, pi_request *r, pi_token_prob *out, size_t cap, size_t n_each)
{
    size_t n = 0;
    bool first = true, done = false;
    while (!done) {
        pi_event *ev;
        assert_int_equal(pi_poll(e, &ev, 1, 60000), 1);
        assert_ptr_equal(ev->request, r);
        assert_true((ev->kind == PI_EVENT_PROMPT) == first);
        if (first) {
            n = ev->n_tokens;
            assert_true(ev->n_logprobs == n_each && n * n_each <= cap);
            for (size_t i = 0; i < n; i++) assert_int_equal(ev->logprobs[i * n_each].id, ev->tokens[i]);
            memcpy(out, ev->logprobs, n * n_each * sizeof *out);
        }
        first = false;
        done = ev->kind == PI_EVENT_DONE;
        pi_event_release(ev);
    }
    return n;
}

typedef struct progress {
    uint32_t n, n_prompt, n_cached, last; /* number of events, and the values of the last one */
    bool text;
    atomic_bool done;
} progress;

static void note_progress(void *ud, const pi_event *ev)
{
    progress *p = ud;
    if (ev->kind == PI_EVENT_PROGRESS) {
        assert_true(!p->text && ev->index == 0 && ev->n_computed > p->last && ev->n_computed <= ev->n_prompt);
        assert_true(ev->n_cached < ev->n_computed && ev->prompt_ms >= 0 && ev->text_len == 0 && ev->n_tokens == 0);
        p->n++, p->n_prompt = ev->n_prompt, p->n_cached = ev->n_cached, p->last = ev->n_computed;
    } else {
        p->text |= ev->index == 0;
        if (ev->kind == PI_EVENT_DONE && !ev->n_left) atomic_store(&p->done, true);
    }
}

/* Each step produces at most one progress event; unpolled events of several steps are merged into one. */
static void the_prompt_is_followed(void **state)
{
    (void) state;
    static const char text[] = "and on and on the you in ing over and out and in the and on";
    pi_engine *e = open_with(LIST("ubatch-size=5", "block-size=16"));
    uint32_t n_prompt = 0;
    for (int polled = 0; polled < 2; polled++) {
        progress p = {0};
        pi_request *r = request_of(e, text, LIST("max-tokens=3", "n=2", "ignore-eos=true", "prompt-progress=true"));
        if (!polled) pi_request_on_event(r, note_progress, &p);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
        const pi_result res = result_of(r);
        while (!polled && !atomic_load(&p.done)) usleep(100);
        for (pi_event *ev; polled && !p.done && pi_poll(e, &ev, 1, 60000) == 1; pi_event_release(ev))
            note_progress(&p, ev);
        pi_request_free(r);
        assert_true(p.n_prompt == res.prompt_tokens && p.last == p.n_prompt && p.n_cached == res.cached_tokens);
        if (polled) assert_true(p.n == 1 && p.n_cached >= 16 && p.n_prompt == n_prompt);
        else assert_true(p.n >= 1 && p.n <= p.n_prompt && p.n_cached == 0 && (n_prompt = p.n_prompt) > 20);
    }
    progress p = {0};
    pi_request *r = request_of(e, text, LIST("max-tokens=3", "cache=false"));
    pi_request_on_event(r, note_progress, &p);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    while (!atomic_load(&p.done)) usleep(100);
    pi_request_free(r);
    assert_int_equal(p.n, 0); /* prompt-progress is not set */
    pi_engine_close(e);
}

/* Prompt scores match a reference from full logits rows. They are bitwise identical for a single request, in chunks,
 * in a batch, with a prefix cache, and with two samples. */
static void the_prompt_is_scored(void **state)
{
    (void) state;
    enum { EACH = 4 };
    const char *text = "and on and on the you in ing over and out and in the and on";
    int32_t ids[64];
    pi_token_prob want[64 * EACH], got[64 * EACH];
    scores w = {.ids = ids};
    pi_engine *e = open_with(NULL);
    int64_t n = pi_tokenize(e, text, strlen(text), PI_TOK_BOS | PI_TOK_SPECIAL, ids, 64);
    assert_true(n > 20 && n < 60);
    w.n_ids = (uint32_t) n;
    pi_request *r = request_of(e, text, LIST("max-tokens=0", "prompt-logprobs=3", "logits=all"));
    pi_request_on_logits(r, score_row, &w);
    assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    assert_int_equal(prompt_probs(e, r, want, 64 * EACH, EACH), n - 1);
    assert_int_equal(w.n, n);
    for (int64_t i = 1; i < n; i++) {
        const pi_token_prob *p = want + (i - 1) * EACH;
        assert_true(p[0].id == ids[i] && fabs((double) p[0].logprob - w.logprob[i]) < 1e-5);
        for (int k = 2; k < EACH; k++) assert_true(p[k].logprob <= p[k - 1].logprob);
        assert_true(p[1].logprob >= p[0].logprob);
    }
    pi_request_free(r);
    pi_engine_close(e);
    static const char *const how[][2] = {
        {"ubatch-size=5", "n=1"}, {"ubatch-size=64", "n=2"}, {"prefix-cache=false", "n=1"}};
    for (size_t i = 0; i < 3; i++) {
        e = open_with(LIST(how[i][0]));
        /* the last iteration requests only positions from `logits-from` on */
        for (int again = 0; again < 3; again++) {
            int from = again == 2 ? 20 : 0;
            r = start(e, text, LIST("max-tokens=3", "prompt-logprobs=3", how[i][1], from ? "logits-from=20" : "n=1"));
            assert_int_equal(pi_request_wait(r, 60000), PI_OK);
            size_t m = prompt_probs(e, r, got, 64 * EACH, EACH);
            assert_int_equal(m, n - 1 - from);
            assert_memory_equal(got, want + from * EACH, m * EACH * sizeof *got);
            for (pi_event *ev; pi_poll(e, &ev, 1, 0) == 1;) pi_event_release(ev);
            pi_request_free(r);
        }
        pi_engine_close(e);
    }
}

static void refusals_say_why(void **state)
{
    (void) state;
    pi_error err = {0};
    pi_engine *e = (pi_engine *) &err;
    static const struct { const char *key, *value; int code; } opens[] = {
        {"model", "/no/such/file.gguf", PI_ENOENT}, {"model", "", PI_EINVAL}, {"device", "cuda", PI_EUNSUPPORTED},
        {"kv-cache-tokens", "8", PI_EINVAL}, {"model", vocab, PI_EFORMAT}};
    for (size_t i = 0; i < sizeof opens / sizeof *opens; i++) {
        pi_options *o = options_of(NULL);
        assert_int_equal(pi_options_set(o, opens[i].key, opens[i].value, &err), PI_OK);
        err = (pi_error) {0};
        int rc = pi_engine_open(&e, o, &err);
        if (rc != opens[i].code || err.code != rc || !*err.msg || e) fail_msg("%s: %d %s", opens[i].value, rc, err.msg);
        pi_options_free(o);
    }
    assert_int_equal(pi_engine_open(NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_engine_open(&e, NULL, &err), PI_EINVAL);

    e = open_with(LIST("ctx-size=32", "parallel=1", "max-queue=1"));
    char longer[400];
    memset(longer, 'z', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    pi_request *r = request_of(e, longer, NULL);
    assert_int_equal(pi_request_submit(r, &err), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "31")); /* the largest prompt that fits */
    pi_request_free(r);
    /* the first item is valid */
    static const char *const adapters[] = {"lora=a:1,b:", "lora=a:1,,b", "lora=a,b:1e39"};
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        r = request_of(e, "the", LIST(adapters[i]));
        assert_int_equal(pi_request_submit(r, &err), PI_EINVAL);
        assert_non_null(strstr(err.msg, "NAME:SCALE"));
        pi_request_free(r);
    }
    pi_request *many[8];
    int busy = 0;
    for (int i = 0; i < 8; i++) {
        many[i] = request_of(e, "the", LIST("max-tokens=20", "ignore-eos=true"));
        int rc = pi_request_submit(many[i], &err);
        assert_true(rc == PI_OK || rc == PI_EBUSY);
        busy += rc == PI_EBUSY;
    }
    assert_true(busy > 0);
    for (int i = 0; i < 8; i++) pi_request_free(many[i]);
    r = request_of(e, "the", NULL);
    assert_int_equal(pi_engine_drain(e, -1), PI_OK);
    assert_int_equal(pi_engine_state(e), PI_STATE_DRAINING);
    assert_int_equal(pi_request_submit(r, &err), PI_ECLOSED);
    pi_request_free(r);
    pi_engine_close(e);
}

static void deadlines_and_cancels(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    pi_request *r = start(e, "the", LIST("timeout=0.02", "ignore-eos=true", "max-tokens=400"));
    pi_result s = result_of(r);
    if (s.finish_reason != PI_FINISH_LENGTH) { /* a fast machine may finish before the deadline */
        assert_true(s.code == PI_ETIMEDOUT && s.finish_reason == PI_FINISH_ERROR && *s.msg);
    }
    pi_request_free(r);
    r = start(e, "you", LIST("ignore-eos=true"));
    pi_request_cancel(r);
    s = result_of(r);
    assert_true(s.finish_reason == PI_FINISH_CANCEL && s.code == PI_ECANCELED);
    pi_request_cancel(r);
    pi_request_free(r);
    pi_engine_close(e);
}

/* --------------------------------------------------------------------------------------------------------- samples */

static const char *const long_prompt =
    "and on and on and on and on and on and on and on and on the you in ing over and out and in";

enum { N_SAMPLES = 4, SAMPLE_LEN = 16 };

/* Computes the tokens of single-sample requests with these seeds. */
static void alone(pi_engine *e, const char *temp, int64_t seed, int32_t ids[N_SAMPLES][SAMPLE_LEN])
{
    for (int i = 0; i < N_SAMPLES; i++) {
        char set[32];
        snprintf(set, sizeof set, "seed=%lld", (long long) seed + i);
        pi_request *r = start(e, long_prompt, LIST("max-tokens=16", temp, set, "ignore-eos=true", "cache=false"));
        result_of(r);
        assert_int_equal(pi_request_tokens(r, ids[i], SAMPLE_LEN), SAMPLE_LEN);
        pi_request_free(r);
    }
}

/* Each sample equals a single request with the same seed, and the prompt is computed once. */
static void samples_share_the_prompt(void **state)
{
    (void) state;
    static const struct { const char *temp, *seed, *cache; int64_t first; } cases[] = {
        {"temp=0", "seed=-1", "cache=true", 0}, {"temp=0", "seed=5", "cache=false", 5},
        {"temp=0.9", "seed=11", "cache=true", 11}, {"temp=0.9", "seed=9223372036854775807", "cache=false", -1}};
    for (size_t c = 0; c < 4; c++) {
        pi_engine *e = open_with(LIST("block-size=16", "ubatch-size=32"));
        int32_t want[N_SAMPLES][SAMPLE_LEN], got[SAMPLE_LEN];
        if (cases[c].first >= 0) alone(e, cases[c].temp, cases[c].first, want);
        pi_stats s0 = {.size = sizeof s0}, s1 = s0;
        pi_engine_stats(e, &s0);
        pi_request *r = start(e, long_prompt, LIST("n=4", "max-tokens=16", cases[c].temp, cases[c].seed,
                                                   "ignore-eos=true", cases[c].cache));
        pi_result all = result_of(r), s = {.size = sizeof s};
        uint32_t shared = (all.prompt_tokens - 1) / 16 * 16;
        assert_true(shared >= 32 && all.cached_tokens == 0 && all.generated_tokens == N_SAMPLES * SAMPLE_LEN);
        assert_true(all.finish_reason == PI_FINISH_LENGTH && all.code == PI_OK);
        for (uint32_t i = 0; i < N_SAMPLES; i++) {
            assert_int_equal(pi_request_sample(r, i, &s), PI_OK);
            assert_int_equal(s.cached_tokens, i ? shared : 0);
            assert_int_equal(s.generated_tokens, SAMPLE_LEN);
            assert_int_equal(pi_request_sample_tokens(r, i, got, SAMPLE_LEN), SAMPLE_LEN);
            if (cases[c].first >= 0) assert_memory_equal(got, want[i], sizeof got);
        }
        pi_engine_stats(e, &s1);
        assert_int_equal(s1.prompt_tokens - s0.prompt_tokens, N_SAMPLES * all.prompt_tokens);
        assert_int_equal(s1.cached_tokens - s0.cached_tokens, (N_SAMPLES - 1) * shared);
        assert_int_equal(s1.n_finished - s0.n_finished, N_SAMPLES);
        pi_request_free(r);
        r = start(e, long_prompt, LIST("max-tokens=1"));
        assert_int_equal(result_of(r).cached_tokens, strcmp(cases[c].cache, "cache=true") ? 0 : shared);
        pi_request_free(r);
        pi_engine_close(e);
    }
}

/* The step histogram counts each step; a caller with an older, smaller pi_stats gets only the fields that fit. */
static void steps_are_counted_by_duration(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    pi_request *r = start(e, long_prompt, LIST("max-tokens=9", "ignore-eos=true"));
    assert_int_equal(result_of(r).generated_tokens, 9);
    pi_request_free(r);
    pi_stats s = {.size = sizeof s};
    uint64_t n = 0;
    for (int tries = 0; tries < 1000 && n < 9; tries++) { /* the last step is counted after its events */
        usleep(tries ? 1000 : 0);
        assert_int_equal(pi_engine_stats(e, &s), PI_OK);
        n = s.n_steps;
    }
    assert_true(n >= 9 && s.step_total_ms > 0);
    for (int i = 0; i <= PI_N_STEP_BOUNDS; i++) n -= s.step_count[i];
    assert_int_equal(n, 0);
    for (int i = 1; i < PI_N_STEP_BOUNDS; i++) assert_true(s.step_bound_ms[i] > s.step_bound_ms[i - 1]);
    pi_stats old;
    memset(&old, 0xA5, sizeof old);
    old.size = offsetof(pi_stats, step_total_ms);
    assert_int_equal(pi_engine_stats(e, &old), PI_OK);
    assert_true(old.n_steps == s.n_steps && old.step_count[0] == UINT64_C(0xA5A5A5A5A5A5A5A5));
    pi_engine_close(e);
}

static void a_random_seed_differs_for_each_sample(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    int32_t ids[2 * N_SAMPLES][SAMPLE_LEN];
    for (int k = 0; k < 2; k++) {
        pi_request *r = start(e, "the", LIST("n=4", "max-tokens=16", "temp=2", "top-k=0", "ignore-eos=true"));
        result_of(r);
        for (uint32_t i = 0; i < N_SAMPLES; i++) pi_request_sample_tokens(r, i, ids[4 * k + (int) i], SAMPLE_LEN);
        pi_request_free(r);
    }
    for (int i = 0; i < 2 * N_SAMPLES; i++) {
        for (int k = 0; k < i; k++) assert_memory_not_equal(ids[i], ids[k], sizeof ids[i]);
    }
    pi_engine_close(e);
}

/* Collects the text of every sample of e's only request from events. */
static void collect_samples(pi_engine *e, char text[N_SAMPLES][512])
{
    uint32_t left = 1;
    memset(text, 0, N_SAMPLES * sizeof *text);
    while (left) {
        pi_event *ev[3];
        int k = pi_poll(e, ev, 3, 60000);
        assert_true(k > 0);
        for (int i = 0; i < k; i++) {
            assert_true(ev[i]->index < N_SAMPLES);
            strncat(text[ev[i]->index], ev[i]->text, 511 - strlen(text[ev[i]->index]));
            if (ev[i]->kind == PI_EVENT_DONE) left = ev[i]->n_left;
            pi_event_release(ev[i]);
        }
    }
}

static void a_stop_string_ends_its_sample_only(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    char whole[N_SAMPLES][512], cut[N_SAMPLES][512], set[16];
    pi_request *r = start(e, "you", LIST("n=4", "seed=3", "max-tokens=30", "temp=1", "top-k=20", "ignore-eos=true"));
    collect_samples(e, whole);
    pi_request_free(r);
    int n_cut = 0, best = 0;
    char stop[3] = "";
    /* find two letters that occur in some samples, but not in all */
    for (size_t at = 0; whole[2][at] && whole[2][at + 1]; at++) {
        char two[3] = {whole[2][at], whole[2][at + 1], 0};
        int n = 0;
        for (int i = 0; i < N_SAMPLES; i++) n += strstr(whole[i], two) != NULL;
        if ((two[0] | two[1]) & 0x80 || n == N_SAMPLES || n <= best) continue;
        best = n;
        memcpy(stop, two, sizeof stop);
    }
    assert_true(best > 0);
    snprintf(set, sizeof set, "stop=%s", stop);
    r = start(e, "you", LIST("n=4", "seed=3", "max-tokens=30", "temp=1", "top-k=20", "ignore-eos=true", set));
    collect_samples(e, cut);
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        pi_result s = {.size = sizeof s};
        assert_int_equal(pi_request_sample(r, i, &s), PI_OK);
        const char *at = strstr(whole[i], stop);
        if (at) whole[i][at - whole[i]] = 0;
        n_cut += at != NULL;
        assert_string_equal(cut[i], whole[i]);
        assert_int_equal(s.finish_reason, at ? PI_FINISH_STOP : PI_FINISH_LENGTH);
        assert_string_equal(s.stop, at ? stop : "");
    }
    assert_int_equal(n_cut, best);
    pi_request_free(r);
    pi_engine_close(e);
}

static void wait_for_gate(void *ud, uint32_t pos, const float *x, size_t n)
{
    (void) pos, (void) x, (void) n;
    while (!atomic_load((atomic_int *) ud)) usleep(100);
}

static void samples_are_queued_and_canceled_together(void **state)
{
    (void) state;
    pi_engine *e = open_with(LIST("max-queue=3", "parallel=2"));
    pi_error err = {0};
    atomic_int gate = 0;
    pi_request *slow = request_of(e, "the", LIST("logits=last", "max-tokens=1", "n=1"));
    pi_request_on_logits(slow, wait_for_gate, &gate);
    assert_int_equal(pi_request_submit(slow, &err), PI_OK);
    pi_request *r = request_of(e, "the", LIST("n=4", "ignore-eos=true", "max-tokens=300"));
    assert_int_equal(pi_request_submit(r, &err), PI_ETOOBIG);
    assert_non_null(strstr(err.msg, "max-queue"));
    assert_int_equal(pi_request_set(r, "n", "3", &err), PI_OK);
    int rc = PI_EBUSY;
    for (int i = 0; i < 10000 && rc == PI_EBUSY; i++, usleep(1000)) rc = pi_request_submit(r, &err);
    assert_int_equal(rc, PI_OK); /* the slow request is in a step that does not end, so it is no longer queued */
    pi_request *one = request_of(e, "the", NULL);
    assert_int_equal(pi_request_submit(one, &err), PI_EBUSY);
    pi_request_cancel(r);
    atomic_store(&gate, 1);
    result_of(slow);
    pi_result s = result_of(r);
    assert_true(s.code == PI_ECANCELED && s.finish_reason == PI_FINISH_CANCEL);
    pi_stats st = {.size = sizeof st};
    pi_engine_stats(e, &st);
    assert_int_equal(st.n_finished, 4);
    pi_request_free(r);
    pi_request_free(one);
    pi_request_free(slow);
    pi_engine_close(e);
}

/* More samples than can run at once are canceled and freed at any moment, with other requests in the batch. */
static void samples_come_and_go(void **state)
{
    (void) state;
    pi_engine *e = open_with(LIST("parallel=2", "kv-cache-tokens=1024"));
    int32_t want[N_SAMPLES][SAMPLE_LEN], ids[SAMPLE_LEN];
    alone(e, "temp=0.9", 1, want);
    for (unsigned i = 0; i < 12; i++) {
        const char *cache = i % 2 ? "cache=false" : "cache=true";
        pi_request *r = start(e, "and on and on and on and on", LIST("n=5", "ignore-eos=true", cache));
        pi_request *b = start(e, long_prompt, LIST("n=4", "max-tokens=16", "temp=0.9", "seed=1", "ignore-eos=true",
                                                   cache));
        usleep(i * 500);
        if (i % 3) pi_request_cancel(r);
        if (i % 3 == 1) assert_int_equal(result_of(r).code, PI_ECANCELED);
        pi_request_free(r);
        assert_int_equal(result_of(b).generated_tokens, N_SAMPLES * SAMPLE_LEN);
        for (uint32_t k = 0; k < N_SAMPLES; k++) {
            pi_request_sample_tokens(b, k, ids, SAMPLE_LEN);
            assert_memory_equal(ids, want[k], sizeof ids);
        }
        pi_request_free(b);
    }
    pi_engine_close(e);
}

/* ------------------------------------------------------------------------------------------------ life and threads */

static void close_with_running_requests(void **state)
{
    (void) state;
    for (int i = 0; i < 6; i++) {
        pi_engine *e = open_with(LIST("parallel=2"));
        for (int k = 0; k < 5; k++) {
            pi_request *r = start(e, "and on", LIST("ignore-eos=true", k == 3 ? "n=3" : "n=1", "cache=false"));
            if (i % 2) usleep(500);
            pi_request_free(r);
        }
        pi_engine_close(e);
    }
}

static atomic_int n_freed;

static void free_at_end(void *ud, const pi_event *ev)
{
    pi_engine *e = ud;
    int32_t ids[8];
    pi_stats s = {.size = sizeof s};
    pi_tokenize(e, "the", 3, 0, ids, 8); /* functions that a callback may call */
    pi_engine_stats(e, &s);
    if (ev->kind != PI_EVENT_DONE) return;
    pi_request_free(ev->request);
    n_freed++;
}

static void close_delivers_last_events(void **state)
{
    (void) state;
    n_freed = 0;
    pi_engine *e = open_with(LIST("parallel=2"));
    for (int k = 0; k < 6; k++) {
        pi_request *r = request_of(e, "the", LIST("ignore-eos=true"));
        pi_request_on_event(r, free_at_end, e);
        assert_int_equal(pi_request_submit(r, NULL), PI_OK);
    }
    pi_engine_close(e);
    assert_int_equal(n_freed, 6);
}

typedef struct worker {
    pi_engine *e;
    int number;
    atomic_int *n_ok;
} worker;

static void count_done(void *ud, const pi_event *ev)
{
    if (ev->kind == PI_EVENT_DONE) ++*(atomic_int *) ud;
}

static void *work(void *ud)
{
    worker *w = ud;
    for (int i = 0; i < 12; i++) {
        char prompt[64], seed[24];
        snprintf(prompt, sizeof prompt, "the %d and %d you", w->number, i);
        snprintf(seed, sizeof seed, "seed=%d", i);
        unsigned n = i % 6 == 5 ? 3 : 1; /* number of samples */
        pi_request *r = request_of(w->e, prompt, LIST("max-tokens=8", "ignore-eos=true", seed, n > 1 ? "n=3" : "n=1",
                                                      i % 12 == 11 ? "cache=false" : "cache=true"));
        atomic_int done = 0;
        if (i % 3) pi_request_on_event(r, count_done, &done);
        pi_error err = {0};
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        if (i % 4 == 3) pi_request_cancel(r);
        if (i % 5 != 4) {
            pi_result s = {.size = sizeof s};
            if (pi_request_wait(r, 60000) || pi_request_result(r, &s)) return NULL;
            if (i % 4 != 3 && s.generated_tokens != 8 * n) return NULL;
            while (i % 3 && done < (int) n) usleep(100);
        }
        pi_stats s = {.size = sizeof s};
        pi_engine_stats(w->e, &s);
        pi_request_free(r);
        ++*w->n_ok;
    }
    return NULL;
}

static void *drain_polls(void *ud)
{
    worker *w = ud;
    pi_event *ev[8];
    while (*w->n_ok < 48) {
        int n = pi_poll(w->e, ev, 8, 2);
        for (int i = 0; i < n; i++) pi_event_release(ev[i]);
        if (!n) usleep(200);
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void) state;
    atomic_int n_ok = 0;
    pi_engine *e = open_with(LIST("parallel=6", "kv-cache-tokens=512"));
    pthread_t t[5];
    worker w[5];
    for (int i = 0; i < 5; i++) {
        w[i] = (worker) {e, i, &n_ok};
        pthread_create(&t[i], NULL, i < 4 ? work : drain_polls, &w[i]);
    }
    for (int i = 0; i < 5; i++) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 120;
        if (pthread_timedjoin_np(t[i], NULL, &limit)) fail_msg("thread %d hangs; %d of 48 requests are done", i, n_ok);
    }
    assert_int_equal(n_ok, 48);
    pi_engine_close(e);
}

static void descriptor_with_poll(void **state)
{
    (void) state;
    pi_engine *e = open_with(NULL);
    pi_request *r = start(e, "the", LIST("max-tokens=20", "ignore-eos=true"));
    struct pollfd p = {.fd = pi_poll_fd(e), .events = POLLIN};
    bool done = false;
    while (!done) {
        assert_int_equal(poll(&p, 1, 60000), 1);
        pi_event *ev[4];
        int n = pi_poll(e, ev, 4, 0);
        for (int i = 0; i < n; i++) {
            done = ev[i]->kind == PI_EVENT_DONE;
            pi_event_release(ev[i]);
        }
    }
    assert_int_equal(poll(&p, 1, 0), 0);
    pi_request_free(r);
    pi_engine_close(e);
}

/* --------------------------------------------------------------------------------------------------- out of memory */

static pthread_mutex_t alloc_lock = PTHREAD_MUTEX_INITIALIZER; /* the counting allocator is single-threaded */
static counting_alloc counts;

#define LOCKED(call) pthread_mutex_lock(&alloc_lock); call; pthread_mutex_unlock(&alloc_lock)
static void *l_malloc(void *ud, size_t n) { void *p; LOCKED(p = counting_malloc(ud, n)); return p; }
static void *l_realloc(void *ud, void *q, size_t n) { void *p; LOCKED(p = counting_realloc(ud, q, n)); return p; }
static void *l_map(void *ud, size_t n) { void *p; LOCKED(p = counting_map(ud, n)); return p; }
static void l_free(void *ud, void *p) { LOCKED(counting_free(ud, p)); }
static void l_unmap(void *ud, void *p, size_t n) { LOCKED(counting_unmap(ud, p, n)); }

/* Opens an engine, runs a request by events, closes. Returns the first error; *ended = a submitted request got its
 * last event. */
static int whole_run(const char *n_samples, const char *pooling, bool *ended)
{
    pi_error err = {0};
    pi_engine *e = NULL;
    pi_request *r = NULL;
    pi_options *o = pi_options_new();
    int rc = o ? pi_options_set(o, "model", model, &err) : PI_ENOMEM;
    if (!rc) rc = pi_options_set(o, "threads", "1", &err);
    if (!rc) rc = pi_options_set(o, "ctx-size", "128", &err);
    if (!rc) rc = pi_options_set(o, "ubatch-size", "16", &err);
    if (!rc) rc = pi_options_set(o, "parallel", "2", &err);
    if (!rc) rc = pi_engine_open(&e, o, &err);
    if (!rc && !(r = pi_request_new(e))) rc = PI_ENOMEM;
    if (!rc) rc = pi_request_set(r, "max-tokens", "8", &err);
    if (!rc) rc = pi_request_set(r, "ignore-eos", "1", &err);
    if (!rc) rc = pi_request_set(r, "pooling", pooling, &err);
    if (!rc) rc = pi_request_set(r, "logprobs", strcmp(pooling, "off") ? "-1" : "1", &err);
    if (!rc) rc = pi_request_set(r, "n", n_samples, &err);
    if (!rc) rc = pi_request_set(r, "cache", "0", &err);
    if (!rc) rc = pi_request_prompt_text(r, "the and you", 11, &err);
    if (!rc) rc = pi_request_submit(r, &err);
    *ended = rc != PI_OK;
    bool submitted = !rc;
    for (int n = 1; submitted && n > 0;) {
        pi_event *ev[2];
        n = pi_poll(e, ev, 2, 60000);
        for (int i = 0; i < n; i++) {
            if (ev[i]->kind == PI_EVENT_DONE && !ev[i]->n_left) *ended = true;
            if (ev[i]->kind == PI_EVENT_DONE && !rc) rc = ev[i]->code;
            pi_event_release(ev[i]);
        }
    }
    pi_request_free(r);
    pi_engine_close(e);
    pi_options_free(o);
    return rc;
}

static void every_allocation_fails(const char *n_samples, const char *pooling)
{
    long failed = 0;
    bool clean = false;
    for (long i = 0; !clean && i < 20000; i++) {
        bool ended;
        counting_use(&counts, i);
        const pi_allocator hooks = {sizeof hooks, &counts, l_malloc, l_realloc, l_free, l_map, l_unmap};
        assert_int_equal(pi_set_allocator(&hooks), PI_OK);
        int rc = whole_run(n_samples, pooling, &ended);
        if (rc && rc != PI_ENOMEM) fail_msg("allocation %ld: %s", i, pi_err_name(rc));
        if (!ended) fail_msg("allocation %ld: the end of a request was lost", i);
        if (counts.live) fail_msg("allocation %ld: %ld blocks are left", i, counts.live);
        failed += rc == PI_ENOMEM;
        clean = rc == PI_OK && counts.count <= i;
    }
    pi_set_allocator(NULL);
    if (!clean || failed <= 80) fail_msg("%ld failed, clean: %d", failed, clean);
}

static void every_allocation_fails_once(void **state)
{
    (void) state;
    every_allocation_fails("1", "off");
}

static void every_allocation_fails_once_with_samples(void **state)
{
    (void) state;
    every_allocation_fails("2", "off");
}

static void every_allocation_fails_once_with_vectors(void **state)
{
    (void) state;
    every_allocation_fails("1", "mean");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_and_facts),
        cmocka_unit_test(text_both_ways),
        cmocka_unit_test(events_tokens_and_result_agree),
        cmocka_unit_test(batch_composition_changes_nothing),
        cmocka_unit_test(a_second_request_finds_the_prefix),
        cmocka_unit_test(stop_strings_and_tokens),
        cmocka_unit_test(logits_and_logprobs),
        cmocka_unit_test(the_prompt_is_scored),
        cmocka_unit_test(the_prompt_is_followed),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(deadlines_and_cancels),
        cmocka_unit_test(steps_are_counted_by_duration),
        cmocka_unit_test(samples_share_the_prompt),
        cmocka_unit_test(a_random_seed_differs_for_each_sample),
        cmocka_unit_test(a_stop_string_ends_its_sample_only),
        cmocka_unit_test(samples_are_queued_and_canceled_together),
        cmocka_unit_test(samplers_with_a_state),
        cmocka_unit_test(samples_come_and_go),
        cmocka_unit_test(close_with_running_requests),
        cmocka_unit_test(close_delivers_last_events),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(descriptor_with_poll),
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(every_allocation_fails_once_with_samples),
        cmocka_unit_test(every_allocation_fails_once_with_vectors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
