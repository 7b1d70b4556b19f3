/* `pagedinfer bench --shared-prefix`: many tenants with a common prompt prefix, with and without the prefix cache.
 *
 * All tenants share their first tokens; each has its own tail and answer. The requests run concurrently, then
 * sequentially. Each order runs without and with reuse, in one engine whose cache is cleared in between. The table
 * shows the computed prompt tokens (total minus cached) and the peak of used blocks, sampled every millisecond by this
 * thread. Bytes are blocks times the plan's bytes per block. The answers of both runs must be equal. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

typedef struct tenant {
    pi_request *r;
    bool done;
} tenant;

/* A row of the table. */
typedef struct shared_run {
    bool at_once, cache;
    uint64_t prompt, cached, generated, preempted; /* tokens, tokens, tokens, number of preemptions */
    double seconds;                                /* first submit to last answer */
    uint64_t peak_bytes;                           /* maximum bytes in use */
    uint64_t peak_blocks[8];                       /* blocks by group at that moment */
    int32_t *answer;                               /* [tenants * tokens] */
} shared_run;

static int32_t n_tokens_each(const bench *b) { return b->shared.n_prefix + b->shared.n_tail; }

static void note_peak(const bench *b, shared_run *run)
{
    pi_stats st = {.size = sizeof st};
    uint64_t bytes = 0;
    if (pi_engine_stats(b->e, &st)) return;
    for (uint32_t i = 0; i < st.n_groups; i++) bytes += st.group[i].n_used * b->plan.group[i].block_bytes;
    if (bytes <= run->peak_bytes) return;
    run->peak_bytes = bytes;
    for (uint32_t i = 0; i < st.n_groups; i++) run->peak_blocks[i] = st.group[i].n_used;
}

/* Waits until an answer is complete and samples the used blocks. */
static int wait_done(bench *b, shared_run *run)
{
    for (;;) {
        pi_event *ev = NULL;
        note_peak(b, run);
        if (cli_signal()) return 128 + cli_signal();
        int n = pi_poll(b->e, &ev, 1, 0);
        if (n > 0) {
            tenant *t = ev->user;
            t->done = ev->kind == PI_EVENT_DONE;
            bool done = t->done;
            pi_event_release(ev);
            if (done) return CLI_OK;
            continue;
        }
        if (n < 0 || pi_engine_state(b->e) != PI_STATE_READY)
            return cli_error(b->c, cli_exit_code(n ? n : PI_EINTERNAL), "the engine has no answer");
        struct pollfd fds[2] = {{.fd = pi_poll_fd(b->e), .events = POLLIN}, {.fd = cli_signal_fd(), .events = POLLIN}};
        if (poll(fds, 2, 1) < 0 && errno != EINTR) return cli_error(b->c, CLI_OS, "poll: %s", strerror(errno));
    }
}

/* Adds the numbers of a tenant's request to the row and keeps its answer. */
static int count(bench *b, shared_run *run, const tenant *t, int32_t which)
{
    pi_result res = {.size = sizeof res};
    size_t n_gen = (size_t) b->shared.n_gen;
    int rc = pi_request_result(t->r, &res);
    if (rc || res.code)
        return cli_error(b->c, cli_exit_code(rc ? rc : res.code), "%s", rc ? pi_strerror(rc) : res.msg);
    if (pi_request_tokens(t->r, run->answer + (size_t) which * n_gen, n_gen) != n_gen)
        return cli_error(b->c, CLI_SOFTWARE, "an answer has %u tokens, not %zu", res.generated_tokens, n_gen);
    run->prompt += res.prompt_tokens;
    run->cached += res.cached_tokens;
    run->generated += res.generated_tokens;
    run->preempted += res.n_preempted;
    return CLI_OK;
}

/* Runs all tenants once; ids [tenants * tokens each] are their prompts. */
static int run_tenants(bench *b, const int32_t *ids, shared_run *run)
{
    size_t n = (size_t) b->shared.n_tenants, each = (size_t) n_tokens_each(b), ended = 0;
    tenant *t = calloc(n, sizeof *t);
    int code = t ? CLI_OK : cli_error(b->c, CLI_OS, "out of memory");
    if (!code && pi_engine_cache_clear(b->e, NULL)) code = cli_error(b->c, CLI_SOFTWARE, "the cache cannot be cleared");
    double start = bench_now();
    for (size_t i = 0; !code && i < n; i++) {
        code = bench_submit(b, ids + i * each, each, b->shared.n_gen, run->cache, NULL, &t[i], &t[i].r);
        if (!code && !run->at_once) code = wait_done(b, run);
    }
    for (; !code && run->at_once && ended < n; ended++) code = wait_done(b, run);
    run->seconds = (bench_now() - start) * 1e-9;
    for (size_t i = 0; t && i < n; i++) {
        if (!code) code = count(b, run, &t[i], (int32_t) i);
        bench_drop(t[i].r);
    }
    free(t);
    if (!code && run->preempted)
        fprintf(stderr, "%s: requests were preempted %llu times because the cache is small; tokens were recomputed\n",
                b->c->name, (unsigned long long) run->preempted);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- output */

static const char *order_name(const shared_run *run) { return run->at_once ? "at once" : "in turn"; }

static void print_head(const bench *b)
{
    printf("| %-7s | %-12s | %7s | %9s | %9s | %10s |", "order", "prefix cache", "tenants", "prompt t", "cached t",
           "computed t");
    for (uint32_t i = 0; i < b->plan.n_groups; i++) printf(" %8s blocks |", b->plan.group[i].name);
    printf(" %11s | %8s | %9s |\n", "peak cache", "T s", "S t/s");
    printf("|---------|--------------|---------|-----------|-----------|------------|");
    for (uint32_t i = 0; i < b->plan.n_groups; i++) printf("-----------------|");
    printf("-------------|----------|-----------|\n");
}

static void print_md(const bench *b, const shared_run *run)
{
    char bytes[32];
    printf("| %-7s | %-12s | %7d | %9llu | %9llu | %10llu |", order_name(run), run->cache ? "on" : "off",
           b->shared.n_tenants, (unsigned long long) run->prompt, (unsigned long long) run->cached,
           (unsigned long long) (run->prompt - run->cached));
    for (uint32_t i = 0; i < b->plan.n_groups; i++) printf(" %15llu |", (unsigned long long) run->peak_blocks[i]);
    printf(" %11s | %8.3f | %9.2f |\n", cli_bytes(run->peak_bytes, bytes), run->seconds,
           (double) (run->prompt + run->generated) / run->seconds);
}

static void put_ratio(int width, double a, double of)
{
    char text[32];
    snprintf(text, sizeof text, of > 0 ? "%.1fx" : "-", of > 0 ? a / of : 0);
    printf(" %*s |", width, text);
}

/* Prints the ratios of the first row to the second. */
static void print_ratio(const bench *b, const shared_run *off, const shared_run *on)
{
    printf("| %-7s | %-12s | %7s | %9s | %9s |", order_name(on), "off / on", "", "", "");
    put_ratio(10, (double) (off->prompt - off->cached), (double) (on->prompt - on->cached));
    for (uint32_t i = 0; i < b->plan.n_groups; i++)
        put_ratio(15, (double) off->peak_blocks[i], (double) on->peak_blocks[i]);
    put_ratio(11, (double) off->peak_bytes, (double) on->peak_bytes);
    put_ratio(8, off->seconds, on->seconds);
    printf(" %9s |\n", "");
}

static void print_json(const bench *b, const shared_run *run, const char *before)
{
    printf("%s{\"order\": \"%s\", \"prefix_cache\": %s, \"tenants\": %d, \"n_prefix\": %d, \"n_tail\": %d, "
           "\"n_gen\": %d, \"prompt_tokens\": %llu, \"cached_tokens\": %llu, \"computed_tokens\": %llu, "
           "\"generated_tokens\": %llu, \"peak_bytes\": %llu, \"peak_blocks\": {",
           before, order_name(run), run->cache ? "true" : "false", b->shared.n_tenants, b->shared.n_prefix,
           b->shared.n_tail, b->shared.n_gen, (unsigned long long) run->prompt, (unsigned long long) run->cached,
           (unsigned long long) (run->prompt - run->cached), (unsigned long long) run->generated,
           (unsigned long long) run->peak_bytes);
    for (uint32_t i = 0; i < b->plan.n_groups; i++)
        printf("%s\"%s\": %llu", i ? ", " : "", b->plan.group[i].name, (unsigned long long) run->peak_blocks[i]);
    printf("}, \"n_preempted\": %llu, \"t\": %f, \"speed\": %f}", (unsigned long long) run->preempted, run->seconds,
           (double) (run->prompt + run->generated) / run->seconds);
}

static int print_run(bench *b, const shared_run *run, const shared_run *off)
{
    const char *format = cli_str(b->c, "output");
    if (!strcmp(format, "md")) {
        print_md(b, run);
        if (run->cache) print_ratio(b, off, run);
    } else if (!strcmp(format, "json")) {
        print_json(b, run, b->any_output ? ",\n  " : "  ");
    } else {
        print_json(b, run, "");
        putchar('\n');
    }
    b->any_output = true;
    return cli_flush(b->c);
}

/* --------------------------------------------------------------------------------------------------------- running */

/* Makes the prompts of all tenants, random except for the shared prefix. */
static int32_t *make_prompts(bench *b)
{
    int32_t each = n_tokens_each(b);
    size_t n = (size_t) b->shared.n_tenants * (size_t) each;
    int32_t *ids = malloc(n * sizeof *ids);
    for (size_t i = 0; ids && i < n; i++) {
        size_t at = i % (size_t) each;
        bool shared = i >= (size_t) each && at < (size_t) b->shared.n_prefix;
        ids[i] = shared ? ids[at] : i == 0 && b->bos >= 0 ? b->bos : bench_token(b);
    }
    return ids;
}

int bench_shared(bench *b)
{
    size_t n_answer = (size_t) b->shared.n_tenants * (size_t) b->shared.n_gen;
    shared_run run[2] = {{0}};
    int code = CLI_OK;
    int32_t *ids = make_prompts(b);
    for (int i = 0; i < 2; i++) run[i].answer = calloc(n_answer + 1, sizeof *run[i].answer);
    if (!ids || !run[0].answer || !run[1].answer) code = cli_error(b->c, CLI_OS, "out of memory");
    if (!code && !strcmp(cli_str(b->c, "output"), "md")) print_head(b);
    for (int i = 0; !code && i < 4; i++) {
        shared_run *r = &run[i % 2];
        *r = (shared_run) {.at_once = i < 2, .cache = i % 2, .answer = r->answer};
        code = run_tenants(b, ids, r);
        if (!code) code = print_run(b, r, &run[0]);
        if (!code && r->cache && memcmp(run[0].answer, run[1].answer, n_answer * sizeof *r->answer))
            code = cli_error(b->c, CLI_SOFTWARE, "the answers differ with the prefix cache");
    }
    free(ids);
    free(run[0].answer);
    free(run[1].answer);
    return code;
}
