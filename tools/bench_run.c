/* One measurement of `pagedinfer bench`, and the table of concurrent requests (-npl).
 *
 * A test measures the same work as in llama-bench: ppN is the prefill of N tokens and one logits row, tgN is N decode
 * steps of one token. A request that generates n tokens takes n - 1 steps after its prompt, so tests with a prompt
 * generate one additional token. Times are measured in this process, from submit to the end or between two tokens. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec * 1e9 + (double) t.tv_nsec;
}

static int set(bench *b, pi_request *r, const char *key, const char *value)
{
    pi_error err = {0};
    return pi_request_set(r, key, value, &err) ? cli_pi_error(b->c, &err) : CLI_OK;
}

int bench_submit(bench *b, const int32_t *ids, size_t n, int32_t max_tokens, bool cache, const char *spec, void *user,
                 pi_request **out)
{
    char text[16];
    pi_error err = {0};
    pi_request *r = pi_request_new(b->e);
    if (!r) return cli_error(b->c, CLI_OS, "out of memory");
    snprintf(text, sizeof text, "%d", max_tokens);
    int code = set(b, r, "max-tokens", text);
    if (!code) code = set(b, r, "temp", "0");
    if (!code) code = set(b, r, "no-stop", "true");
    if (!code) code = set(b, r, "cache", cache ? "true" : "false");
    if (!code && spec) code = set(b, r, "spec-type", spec);
    pi_request_set_user(r, user);
    if (!code && pi_request_prompt_tokens(r, ids, n, &err)) code = cli_pi_error(b->c, &err);
    if (!code && pi_request_submit(r, &err)) code = cli_pi_error(b->c, &err);
    if (code) {
        pi_request_free(r);
        return code;
    }
    *out = r;
    return CLI_OK;
}

void bench_drop(pi_request *r)
{
    if (!r) return;
    pi_request_cancel(r);
    pi_request_wait(r, -1);
    pi_request_free(r);
}

/* Event times of a request. */
typedef struct timing {
    /* submit, first token, end, and the first event with at least BENCH_SKIP tokens; ns */
    double start, first, last, skipped;
    size_t n_tokens, n_skipped;         /* number of tokens in total, and up to `skipped` */
    bool done;
    pi_result res;
} timing;

static void note_event(timing *t, const pi_event *ev)
{
    double now = bench_now();
    if (ev->n_tokens && !t->n_tokens) t->first = now;
    t->n_tokens += ev->n_tokens;
    if (!t->n_skipped && t->n_tokens >= BENCH_SKIP) {
        t->n_skipped = t->n_tokens;
        t->skipped = now;
    }
    t->last = now;
    t->done |= ev->kind == PI_EVENT_DONE;
}

/* Waits for an event of any request and records it in the timing that its user pointer refers to. */
static int wait_event(bench *b, timing **which)
{
    pi_event *ev = NULL;
    int n = cli_poll(b->e, &ev, 1);
    if (cli_signal()) {
        if (n > 0) pi_event_release(ev);
        return 128 + cli_signal();
    }
    if (n <= 0) return cli_error(b->c, cli_exit_code(n ? n : PI_EINTERNAL), "the engine has no answer");
    *which = ev->user;
    note_event(*which, ev);
    pi_event_release(ev);
    return CLI_OK;
}

static int check_result(bench *b, pi_request *r, timing *t)
{
    t->res = (pi_result) {.size = sizeof t->res};
    int rc = pi_request_result(r, &t->res);
    if (rc || t->res.code)
        return cli_error(b->c, cli_exit_code(rc ? rc : t->res.code), "%s", rc ? pi_strerror(rc) : t->res.msg);
    return CLI_OK;
}

static int run_request(bench *b, const int32_t *ids, size_t n, int32_t max_tokens, bool cache, timing *t)
{
    pi_request *r = NULL;
    *t = (timing) {.start = bench_now()};
    int code = bench_submit(b, ids, n, max_tokens, cache, NULL, t, &r);
    while (!code && !t->done) {
        timing *which;
        code = wait_event(b, &which);
    }
    if (!code) code = check_result(b, r, t);
    if (!code) pi_request_free(r);
    else bench_drop(r);
    return code;
}

/* Returns a random prompt of n tokens; the first `depth` tokens are equal in every repetition. NULL = out of memory. */
static int32_t *make_prompt(bench *b, size_t depth, size_t n)
{
    int32_t *ids = malloc(n * sizeof *ids);
    uint64_t rng = b->rng;
    if (!ids) {
        cli_error(b->c, CLI_OS, "out of memory");
        return NULL;
    }
    b->rng = 7;
    for (size_t i = 0; i < n; i++) {
        if (i == depth) b->rng = rng;
        ids[i] = i == 0 && b->bos >= 0 ? b->bos : bench_token(b);
    }
    if (n <= depth) b->rng = rng;
    return ids;
}

int bench_measure(bench *b, const bench_test *t, double *ns, double *steady)
{
    size_t depth = (size_t) t->n_depth, n = depth + (size_t) t->n_prompt;
    bool from_one = n == 0; /* tgN without depth: the prompt's one token is the first of the N steps */
    int32_t *ids = make_prompt(b, depth, from_one ? 1 : n);
    timing m;
    int code = ids ? CLI_OK : CLI_OS;
    if (!code && depth && t->n_prompt) { /* computes the depth first; the test finds it in the cache */
        code = run_request(b, ids, depth, 0, true, &m);
    }
    int32_t max_tokens = t->n_gen ? t->n_gen + !from_one : 0;
    if (!code) code = run_request(b, ids, from_one ? 1 : n, max_tokens, depth > 0, &m);
    free(ids);
    if (code) return code;
    /* Without a prompt, the measured time begins with the first token. */
    *ns = depth && !t->n_prompt ? m.res.decode_ms * 1e6 : m.last - m.start;
    if (*ns < 1) *ns = 1;
    size_t n_steady = m.n_skipped ? m.n_tokens - m.n_skipped : 0;
    *steady = n_steady ? (double) n_steady / (m.last - m.skipped) * 1e9 : 0;
    if (depth && t->n_prompt && m.res.cached_tokens + 64 < depth)
        fprintf(stderr, "%s: only %u of %zu tokens of the depth were found in the cache; the time includes the rest\n",
                b->c->name, m.res.cached_tokens, depth);
    return CLI_OK;
}

/* ----------------------------------------------------------------------------------------------------- concurrency */

typedef struct batch {
    double pp_s, tg_s; /* prefill: until the last request has its first token; decode: from then to the end */
    size_t n_tg;       /* tokens of all requests within tg_s */
    uint64_t n_cached; /* prompt tokens found in the cache, not part of pp_s */
} batch;

/* The requests of a batch: prompts of n tokens, concatenated or one shared prompt; each generates max_tokens. */
typedef struct crowd {
    int32_t *ids;
    size_t n, stride;   /* tokens of a prompt; distance to the next prompt, 0 = shared */
    int32_t n_par;
    int32_t max_tokens;
    bool cache;         /* prompts use the prefix cache */
} crowd;

static int32_t *prompt_of(const crowd *w, int32_t i) { return w->ids + (size_t) i * w->stride; }

static int make_crowd(bench *b, const bench_test *t, int32_t n_par, crowd *w)
{
    const bool shared = cli_bool(b->c, "prompt-shared");
    const size_t n = (size_t) (t->n_prompt ? t->n_prompt : 1), n_prompts = shared ? 1 : (size_t) n_par;
    *w = (crowd) {
        .n = n, .stride = shared ? 0 : n, .n_par = n_par, .max_tokens = t->n_gen ? t->n_gen + 1 : 0, .cache = shared};
    w->ids = malloc(n_prompts * n * sizeof *w->ids);
    if (!w->ids) return cli_error(b->c, CLI_OS, "out of memory");
    for (size_t i = 0; i < n_prompts * n; i++) w->ids[i] = i % n == 0 && b->bos >= 0 ? b->bos : bench_token(b);
    return CLI_OK;
}

/* Runs all requests of w concurrently and stores their times and counts in *out. */
static int run_crowd(bench *b, const crowd *w, batch *out)
{
    const int32_t n_par = w->n_par;
    size_t waiting = (size_t) n_par, live = (size_t) n_par, total = 0;
    timing *m = calloc((size_t) n_par, sizeof *m);
    pi_request **r = calloc((size_t) n_par, sizeof *r);
    int code = m && r ? CLI_OK : cli_error(b->c, CLI_OS, "out of memory");
    double start = bench_now(), first = start, end = start;
    size_t at_first = 0;
    uint64_t n_cached = 0;
    for (int32_t i = 0; !code && i < n_par; i++)
        code = bench_submit(b, prompt_of(w, i), w->n, w->max_tokens, w->cache, NULL, &m[i], &r[i]);
    while (!code && live) {
        timing *which = NULL;
        code = wait_event(b, &which);
        if (code) break;
        end = which->last;
        live -= which->done;
        if (!which->n_tokens || which->first < which->last || --waiting) continue;
        first = end; /* the last request has its first token */
        for (int32_t i = 0; i < n_par; i++) at_first += m[i].n_tokens;
    }
    for (int32_t i = 0; i < n_par && m && r; i++) {
        if (!code) code = check_result(b, r[i], &m[i]);
        total += m[i].n_tokens;
        n_cached += m[i].res.cached_tokens;
        if (r[i] && m[i].done) pi_request_free(r[i]);
        else bench_drop(r[i]);
    }
    free(m);
    free(r);
    if (!w->max_tokens) first = end;
    *out = (batch) {(first - start) * 1e-9, (end - first) * 1e-9, total > at_first ? total - at_first : 0, n_cached};
    return code;
}

/* Computes all prompts concurrently into the cache, then generates the answers one request after another. Adds up the
 * times in *out. */
static int run_apart(bench *b, const crowd *w, batch *out)
{
    crowd prompts = *w;
    prompts.max_tokens = 0;
    prompts.cache = true;
    int code = run_crowd(b, &prompts, out);
    for (int32_t i = 0; !code && i < w->n_par && w->max_tokens; i++) {
        timing m;
        code = run_request(b, prompt_of(w, i), w->n, w->max_tokens, true, &m);
        out->tg_s += (m.last - m.first) * 1e-9;
        out->n_tg += m.n_tokens ? m.n_tokens - 1 : 0;
    }
    return code;
}

/* Makes the requests of test t and runs them: all concurrently, or with --gen-separate as in run_apart. */
static int run_batch(bench *b, const bench_test *t, int32_t n_par, batch *out)
{
    crowd w;
    int code = make_crowd(b, t, n_par, &w);
    if (code) return code;
    code = cli_bool(b->c, "gen-separate") ? run_apart(b, &w, out) : run_crowd(b, &w, out);
    free(w.ids);
    return code;
}

static void print_batch(const bench *b, const bench_test *t, int32_t n_par, const batch *m, bool jsonl)
{
    const bool shared = cli_bool(b->c, "prompt-shared"), apart = cli_bool(b->c, "gen-separate");
    int64_t pp = (int64_t) t->n_prompt * (shared ? 1 : n_par), tg = (int64_t) t->n_gen * n_par;
    double s_pp = m->pp_s > 0 ? (double) pp / m->pp_s : 0, s_tg = m->tg_s > 0 ? (double) m->n_tg / m->tg_s : 0;
    double all = m->pp_s + m->tg_s, speed = (double) (pp + tg) / all;
    if (!jsonl) {
        printf("|%6d | %6d | %4d | %6lld | %8.3f | %8.2f | %8.3f | %8.2f | %8.3f | %8.2f |\n", t->n_prompt, t->n_gen,
               n_par, (long long) (pp + tg), m->pp_s, s_pp, m->tg_s, s_tg, all, speed);
        return;
    }
    printf("{\"n_threads\": %u, \"is_pp_shared\": %d, \"is_tg_separate\": %d, \"pp\": %d, \"tg\": %d, \"pl\": %d, "
           "\"n_kv\": %lld, \"cached_tokens\": %llu, \"t_pp\": %f, \"speed_pp\": %f, \"t_tg\": %f, \"speed_tg\": %f, "
           "\"t\": %f, \"speed\": %f}\n", b->info.n_threads, shared, apart, t->n_prompt, t->n_gen, n_par,
           (long long) (pp + tg), (unsigned long long) m->n_cached, m->pp_s, s_pp, m->tg_s, s_tg, all, speed);
}

int bench_batched(bench *b)
{
    bool jsonl = !strcmp(cli_str(b->c, "output"), "jsonl");
    bench_test warm = b->test[0]; /* at most the sizes that the engine was opened for */
    if (warm.n_prompt > 16) warm.n_prompt = 16;
    if (warm.n_gen > 4) warm.n_gen = 4;
    batch m;
    int code = cli_bool(b->c, "warmup") ? run_batch(b, &warm, 1, &m) : CLI_OK;
    if (!jsonl && strcmp(cli_str(b->c, "output"), "md"))
        return cli_usage_error(b->c, "-npl: the output is md or jsonl");
    if (!code && !jsonl) {
        printf("|%6s | %6s | %4s | %6s | %8s | %8s | %8s | %8s | %8s | %8s |\n", "PP", "TG", "B", "N_KV", "T_PP s",
               "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s");
        printf("|-------|--------|------|--------|----------|----------|----------|----------|----------|"
               "----------|\n");
    }
    for (size_t i = 0; !code && i < b->n_test; i++) {
        for (size_t k = 0; !code && k < b->n_n_par; k++) {
            if (b->test[i].n_depth) return cli_usage_error(b->c, "-npl: omit --n-depth");
            code = bench_ops_restart(b);
            if (!code) code = run_batch(b, &b->test[i], b->n_par[k], &m);
            if (!code) print_batch(b, &b->test[i], b->n_par[k], &m, jsonl);
            if (!code) code = bench_ops_print(b);
            if (!code) code = cli_flush(b->c);
        }
    }
    return code;
}
