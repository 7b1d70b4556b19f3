/* `pagedinfer bench --spec`: compares decoding with drafters and without, on real text.
 *
 * The prompts are parts of a text (or all of it); the answers are greedy and run concurrently. In each repetition the
 * same requests run without a drafter and with each drafter. The order is reversed in every other repetition, so that
 * other load on the machine affects all of them equally. CPU time is also reported; other load changes it less (with
 * -t 1 --poll 0 hardly at all). A measurement starts when all requests have their first token and ends when all have
 * ended. Reported times are medians; the speed-up is the median of the per-repetition ratios. The answers must be
 * equal. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { MOST_KINDS = 8, MOST_PARALLEL = 4096 };

/* One run of the requests with one drafter. */
typedef struct spec_run {
    double ms;                 /* decode time: from the last request's first token to the end of all requests, ms */
    double cpu_ms;             /* CPU time of this process from then on, ms */
    uint64_t tokens, steps, drafted, accepted;
    double step_ms, draft_ms;  /* sum of step times; the part of it used by drafters */
} spec_run;

typedef struct spec_bench {
    bench *b;
    const bench_test *t;
    int32_t *ids;              /* [n_ids] the text */
    size_t n_ids;
    char kinds[MOST_KINDS][24]; /* [n_kinds] "none", then the drafters to measure */
    size_t n_kinds;
    spec_run *run;             /* [repetitions, n_kinds] */
    double *cpu;               /* [repetitions] scratch for medians */
    int32_t *answer;           /* [n_par, n_gen + 1] reference answers of a repetition */
    bool differ;               /* an answer differs from the reference */
} spec_bench;

/* A running request. */
typedef struct speaker {
    pi_request *r;
    size_t n_tokens;           /* so far */
    bool done;
} speaker;

static int wait_event(bench *b, speaker **who, size_t *n)
{
    pi_event *ev = NULL;
    const int got = cli_poll(b->e, &ev, 1);
    if (cli_signal() || got <= 0) {
        if (got > 0) pi_event_release(ev);
        if (cli_signal()) return 128 + cli_signal();
        return cli_error(b->c, cli_exit_code(got ? got : PI_EINTERNAL), "the engine has no answer");
    }
    *who = ev->user;
    *n = ev->n_tokens;
    (*who)->n_tokens += ev->n_tokens;
    (*who)->done |= ev->kind == PI_EVENT_DONE;
    pi_event_release(ev);
    return CLI_OK;
}

/* Returns the CPU time of this process in milliseconds. */
static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec * 1e-6;
}

/* Waits until all requests have ended. Sets the time since all had their first token, and the tokens from then on. */
static int speak(spec_bench *s, speaker *all, size_t n, spec_run *run)
{
    size_t silent = n, live = n, early = 0;
    double from = bench_now(), cpu = cpu_now();
    while (live) {
        speaker *who = NULL;
        size_t new = 0;
        const int code = wait_event(s->b, &who, &new);
        if (code) return code;
        live -= who->done;
        if (new && who->n_tokens == new && !--silent) {
            from = bench_now();
            cpu = cpu_now();
            for (size_t i = 0; i < n; i++) early += all[i].n_tokens;
        }
    }
    run->ms = (bench_now() - from) * 1e-6;
    run->cpu_ms = cpu_now() - cpu;
    for (size_t i = 0; i < n; i++) run->tokens += all[i].n_tokens;
    run->tokens -= early;
    return CLI_OK;
}

/* Collects counts and answers of the ended requests. keep: store the answers as the reference; else compare with
 * it. */
static int collect(spec_bench *s, speaker *all, size_t n, bool keep, spec_run *run)
{
    const size_t n_gen = (size_t) s->t->n_gen + 1;
    int32_t *mine = malloc(n_gen * sizeof *mine);
    int code = mine ? CLI_OK : cli_error(s->b->c, CLI_OS, "out of memory");
    for (size_t i = 0; i < n && !code; i++) {
        pi_result res = {.size = sizeof res};
        if (pi_request_result(all[i].r, &res) || res.code) code = cli_error(s->b->c, cli_exit_code(res.code), "%s", res.msg);
        run->drafted += res.n_drafted;
        run->accepted += res.n_accepted;
        memset(mine, 0, n_gen * sizeof *mine);
        pi_request_tokens(all[i].r, mine, n_gen);
        if (keep) memcpy(s->answer + i * n_gen, mine, n_gen * sizeof *mine);
        else s->differ |= memcmp(s->answer + i * n_gen, mine, n_gen * sizeof *mine) != 0;
    }
    free(mine);
    return code;
}

/* Runs n_par concurrent requests of repetition rep. */
static int run_once(spec_bench *s, size_t n_par, size_t rep, const char *kind, bool keep, spec_run *run)
{
    const size_t n_prompt = s->t->n_prompt ? (size_t) s->t->n_prompt : s->n_ids, room = s->n_ids - n_prompt + 1;
    speaker *all = calloc(n_par, sizeof *all);
    int code = all ? CLI_OK : cli_error(s->b->c, CLI_OS, "out of memory");
    pi_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    pi_engine_stats(s->b->e, &before);
    *run = (spec_run) {0};
    for (size_t i = 0; i < n_par && !code; i++) {
        const int32_t *from = s->ids + (rep * n_par + i) * n_prompt % room;
        code = bench_submit(s->b, from, n_prompt, s->t->n_gen + 1, false, kind, &all[i], &all[i].r);
    }
    if (!code) code = speak(s, all, n_par, run);
    if (!code) code = collect(s, all, n_par, keep, run);
    pi_engine_stats(s->b->e, &after);
    run->steps = after.n_steps - before.n_steps;
    run->step_ms = after.step_total_ms - before.step_total_ms;
    run->draft_ms = after.draft_total_ms - before.draft_total_ms;
    for (size_t i = 0; i < n_par && all; i++) bench_drop(all[i].r);
    free(all);
    return code;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print_row(const spec_bench *s, size_t n_par, size_t kind, size_t reps, bool jsonl)
{
    double *ratio = s->b->sample_ns, *speed = s->b->steady, *cpu = s->cpu; /* scratch of [repetitions] elements */
    uint64_t tokens = 0, steps = 0, drafted = 0, accepted = 0;
    double step_ms = 0, draft_ms = 0;
    for (size_t rep = 0; rep < reps; rep++) {
        const spec_run *none = &s->run[rep * s->n_kinds], *r = none + kind;
        ratio[rep] = none->ms / r->ms;
        speed[rep] = (double) r->tokens * 1e3 / r->ms;
        cpu[rep] = none->cpu_ms / (r->cpu_ms > 0 ? r->cpu_ms : 1);
        tokens += r->tokens, steps += r->steps, drafted += r->drafted, accepted += r->accepted;
        step_ms += r->step_ms, draft_ms += r->draft_ms;
    }
    const double each = steps ? (double) tokens / (double) steps / (double) n_par : 0;
    const double share = step_ms > 0 ? draft_ms / step_ms : 0, right = drafted ? (double) accepted / (double) drafted : 0;
    const double t_s = median(speed, reps), gain = median(ratio, reps), by_cpu = median(cpu, reps);
    if (jsonl)
        printf("{\"spec\": \"%s\", \"pp\": %d, \"tg\": %d, \"pl\": %zu, \"speed_tg\": %f, \"speedup\": %f, "
               "\"cpu_speedup\": %f, \"drafted\": %llu, \"accepted\": %llu, \"tokens_per_step\": %f, \"draft_share\": %f}\n",
               s->kinds[kind], s->t->n_prompt, s->t->n_gen, n_par, t_s, gain, by_cpu, (unsigned long long) drafted,
               (unsigned long long) accepted, each, share);
    else
        printf("| %-10s | %6d | %6d | %4zu | %8.2f | %7.3f | %7.3f | %8llu | %7.1f%% | %8.2f | %7.2f%% |\n",
               s->kinds[kind], s->t->n_prompt,
               s->t->n_gen, n_par, t_s, gain, by_cpu, (unsigned long long) drafted, 100 * right, each, 100 * share);
}

/* Measures one concurrency. */
static int measure(spec_bench *s, size_t n_par, bool jsonl)
{
    const size_t reps = (size_t) cli_int(s->b->c, "repetitions");
    int code = CLI_OK;
    spec_run warm;
    s->answer = calloc(n_par * ((size_t) s->t->n_gen + 1), sizeof *s->answer);
    if (!s->answer) return cli_error(s->b->c, CLI_OS, "out of memory");
    for (size_t k = 0; k < s->n_kinds && !code && cli_bool(s->b->c, "warmup"); k++)
        code = run_once(s, n_par, reps, s->kinds[k], true, &warm);
    for (size_t rep = 0; rep < reps && !code; rep++)
        for (size_t i = 0; i < s->n_kinds && !code; i++) { /* the first run of a repetition is the reference */
            const size_t k = rep % 2 ? s->n_kinds - 1 - i : i;
            code = run_once(s, n_par, rep, s->kinds[k], i == 0, &s->run[rep * s->n_kinds + k]);
        }
    for (size_t k = 0; k < s->n_kinds && !code; k++) print_row(s, n_par, k, reps, jsonl);
    free(s->answer);
    s->answer = NULL;
    if (!code && s->differ) code = cli_error(s->b->c, CLI_SOFTWARE, "an answer differs with drafts");
    return code ? code : cli_flush(s->b->c);
}

/* Lists the drafters of --spec after "none". */
static int list_kinds(spec_bench *s)
{
    snprintf(s->kinds[s->n_kinds++], sizeof s->kinds[0], "none");
    for (const char *p = cli_str(s->b->c, "spec"); *p;) {
        const size_t n = strcspn(p, ",");
        if (s->n_kinds == MOST_KINDS || n >= sizeof s->kinds[0])
            return cli_usage_error(s->b->c, "--spec: at most %d drafters", MOST_KINDS - 1);
        snprintf(s->kinds[s->n_kinds++], sizeof s->kinds[0], "%.*s", (int) n, p);
        p += n + (p[n] == ',');
    }
    return CLI_OK;
}

static int tokenize(spec_bench *s)
{
    const int64_t n = pi_tokenize(s->b->e, s->b->spec.text, s->b->spec.len, PI_TOK_BOS, NULL, 0);
    s->ids = n > 0 ? malloc((size_t) n * sizeof *s->ids) : NULL;
    if (!s->ids || pi_tokenize(s->b->e, s->b->spec.text, s->b->spec.len, PI_TOK_BOS, s->ids, (size_t) n) != n)
        return cli_error(s->b->c, CLI_DATA, "--spec: the text cannot be tokenized");
    s->n_ids = (size_t) n;
    if (s->n_ids < (size_t) s->t->n_prompt)
        return cli_usage_error(s->b->c, "--spec: the text has %zu tokens, less than a prompt of %d: lower -p", s->n_ids,
                               s->t->n_prompt);
    return CLI_OK;
}

int bench_spec(bench *b)
{
    const bool jsonl = !strcmp(cli_str(b->c, "output"), "jsonl");
    spec_bench s = {.b = b, .t = &b->test[0]};
    int code = list_kinds(&s);
    if (!code) code = tokenize(&s);
    s.run = calloc((size_t) cli_int(b->c, "repetitions") * MOST_KINDS, sizeof *s.run);
    s.cpu = calloc((size_t) cli_int(b->c, "repetitions"), sizeof *s.cpu);
    if (!code && (!s.run || !s.cpu)) code = cli_error(b->c, CLI_OS, "out of memory");
    if (!code && !jsonl)
        printf("| spec       |     PP |     TG |    B | S_TG t/s | speedup | by CPU  | drafts   | right    | per step | drafting |\n"
               "|------------|--------|--------|------|----------|---------|---------|----------|----------|----------|----------"
               "|\n");
    for (size_t k = 0; k < b->n_n_par && !code; k++) code = measure(&s, (size_t) b->n_par[k], jsonl);
    free(s.run);
    free(s.cpu);
    free(s.ids);
    return code;
}
