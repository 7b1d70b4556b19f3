/* pagedinfer eval --hellaswag, --winogrande, --multiple-choice: accuracy on multiple-choice tasks, scored like
 * llama-perplexity: the choice with the highest likelihood is the model's answer.
 *
 * Each choice is a request that generates no tokens. It returns the log-probabilities of its prompt from the first
 * token at which the choices of its task differ. The common prefix is computed once and found in the prefix cache by
 * the other choices. Tasks run in list order; a task's line is printed when all earlier tasks are done. */
#include "eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "choices.h"

enum { HELLASWAG, WINOGRANDE, MULTIPLE_CHOICE };
enum { AT_ONCE = 32 };      /* concurrent requests without --parallel */
/* Winogrande: if more than this many tokens follow from the first difference, the tokens of the choice itself are not
 * scored. */
enum { ENOUGH_BEHIND = 3 };

typedef struct sequence {
    int32_t *ids;   /* [n] */
    size_t n;       /* tokens */
    size_t n_head;  /* tokens up to the end of the choice */
    float *logp;    /* [n - from] log-probabilities of ids[from] and later */
    size_t from;    /* index of the first scored token */
    pi_request *r;  /* NULL = not started, or done */
    bool submitted; /* submitted to the engine */
    bool scored;    /* logp is filled */
} sequence;

typedef struct choosing {
    const cli *c;
    int kind;
    choice_list list;
    sequence **seq;     /* [list.n] choices of each task in progress; else NULL */
    size_t *n_left;     /* [list.n] unfinished choices */
    pi_engine *e;
    size_t longest;     /* maximum tokens of a sequence */
    size_t n_done, n_right, n_choices;
} choosing;

/* ------------------------------------------------------------------------------------------------------- sequences */

static int tokenize(const cli *c, const pi_vocab *v, const char *text, size_t len, int32_t **out, size_t *n)
{
    size_t cap = len / 2 + 16;
    int64_t got = 0;
    *out = NULL;
    do {
        if (got) cap = (size_t) got;
        free(*out);
        *out = malloc(cap * sizeof **out);
        if (!*out) return cli_error(c, CLI_OS, "out of memory");
        got = pi_vocab_tokenize(v, text, len, PI_TOK_BOS, *out, cap);
    } while (got > 0 && (size_t) got > cap);
    *n = got > 0 ? (size_t) got : 0;
    return got < 0 ? cli_error(c, cli_exit_code((int) got), "tokenizing: %s", pi_strerror((int) got)) : CLI_OK;
}

static int make_sequence(choosing *u, const pi_vocab *v, const choice *k, sequence *s)
{
    int code = tokenize(u->c, v, k->text, k->n, &s->ids, &s->n);
    s->n_head = s->n;
    if (code || k->n_head == k->n) return code;
    int32_t *head;
    code = tokenize(u->c, v, k->text, k->n_head, &head, &s->n_head);
    free(head);
    return code;
}

/* Returns the index of the first token that differs between the n choices of a task: at least 1, and at most the last
 * token of the shortest choice. */
static size_t common_prefix(const sequence *s, size_t n)
{
    size_t at = 0, least = s[0].n;
    for (size_t i = 1; i < n; i++) least = s[i].n < least ? s[i].n : least;
    for (bool same = true; same && at < least; at += same)
        for (size_t i = 1; same && i < n; i++) same = s[i].ids[at] == s[0].ids[at];
    if (at >= least) at = least - 1;
    return at ? at : 1;
}

static int make_task(choosing *u, const pi_vocab *v, size_t which)
{
    const choice_task *t = &u->list.task[which];
    sequence *s = u->seq[which] = calloc(t->n, sizeof *s);
    u->n_left[which] = t->n;
    if (!s) return cli_error(u->c, CLI_OS, "out of memory");
    for (size_t i = 0; i < t->n; i++) {
        int code = make_sequence(u, v, &t->choice[i], &s[i]);
        if (code) return code;
        if (s[i].n < 2) return cli_error(u->c, CLI_DATA, "task %zu: a text has less than two tokens", which + 1);
        if (s[i].n > u->longest) u->longest = s[i].n;
    }
    size_t from = common_prefix(s, t->n);
    for (size_t i = 0; i < t->n; i++) {
        s[i].from = from;
        s[i].logp = calloc(s[i].n - from, sizeof *s[i].logp);
        if (!s[i].logp) return cli_error(u->c, CLI_OS, "out of memory");
    }
    return CLI_OK;
}

static int make_tasks(choosing *u)
{
    pi_vocab *v = NULL;
    pi_error err = {0};
    u->seq = calloc(u->list.n, sizeof *u->seq);
    u->n_left = calloc(u->list.n, sizeof *u->n_left);
    if (!u->seq || !u->n_left) return cli_error(u->c, CLI_OS, "out of memory");
    if (pi_vocab_open(&v, cli_str(u->c, "model"), &err)) return cli_pi_error(u->c, &err);
    int code = CLI_OK;
    for (size_t i = 0; !code && i < u->list.n; i++) code = make_task(u, v, i);
    pi_vocab_free(v);
    return code;
}

/* Frees a completed task, or any task after an error. Waits until the engine has finished its requests. */
static void free_task(choosing *u, size_t which)
{
    sequence *s = u->seq ? u->seq[which] : NULL;
    for (size_t i = 0; s && i < u->list.task[which].n; i++) {
        if (s[i].submitted) {
            pi_request_cancel(s[i].r);
            pi_request_wait(s[i].r, -1);
        }
        pi_request_free(s[i].r);
        free(s[i].ids);
        free(s[i].logp);
    }
    free(s);
    if (u->seq) u->seq[which] = NULL;
}

/* --------------------------------------------------------------------------------------------------------- scoring */

/* Returns the mean log-probability of the scored tokens of a choice. Winogrande's sentences continue after the choice:
 * if the continuation is long enough, only it is scored. The last token, the full stop, is never scored. */
static double score(const choosing *u, const sequence *s, size_t n, size_t i)
{
    size_t from = s[i].from, to = s[i].n;
    double sum = 0;
    if (u->kind == WINOGRANDE) {
        bool skip = true;
        for (size_t k = 0; k < n; k++) skip &= s[k].n - s[k].from > ENOUGH_BEHIND;
        if (skip && s[i].n_head > from && s[i].n_head < to) from = s[i].n_head;
        if (to - from > 1) to--;
    }
    for (size_t k = from; k < to; k++) sum += (double) s[i].logp[k - s[i].from];
    return sum / (double) (to - from);
}

/* Prints the accuracy with its 95% confidence interval (Wilson). */
static void print_hellaswag(const choosing *u)
{
    const double z = 1.95996398454;
    double n = (double) u->n_done, p = (double) u->n_right / n, w = z * z / n;
    double half = w * sqrt(n * (4 * p * (1 - p) + w)) / (2 * z), low = (p + w / 2 - half) / (1 + w);
    printf("%zu\t%.8f%%\t[%.4f%%, %.4f%%]\n", u->n_done, 100 * p, 100 * low, 100 * (p + w / 2 + half) / (1 + w));
}

static int task_done(choosing *u, size_t which)
{
    const choice_task *t = &u->list.task[which];
    const sequence *s = u->seq[which];
    double v[MOST_CHOICES];
    size_t best = 0, right = 0;
    for (size_t i = 0; i < t->n; i++) {
        v[i] = score(u, s, t->n, i);
        if (v[i] > v[best]) best = i;
        if (t->choice[i].right) right = i;
    }
    if (u->kind == WINOGRANDE) best = !(v[0] > v[1]); /* equal scores: the second choice */
    u->n_done++;
    u->n_right += t->choice[best].right;
    u->n_choices += t->n;
    double percent = 100 * (double) u->n_right / (double) u->n_done;
    if (u->kind == HELLASWAG) print_hellaswag(u);
    else if (u->kind == MULTIPLE_CHOICE) printf("%zu\t%.8f\n", u->n_done, percent);
    else printf("%zu\t%.4f\t%10.6f  %10.6f  %zu  %zu\n", u->n_done, percent, v[0], v[1], best + 1, right + 1);
    return cli_flush(u->c);
}

static void print_final(const choosing *u)
{
    double n = (double) u->n_done, p = (double) u->n_right / n, chance = n / (double) u->n_choices;
    double d = n > 1 ? n - 1 : 1;
    printf("\n");
    if (u->kind == WINOGRANDE && u->n_done >= 100)
        printf("Final Winogrande score(%zu tasks): %.4f +/- %.4f\n", u->n_done, 100 * p, 100 * sqrt(p * (1 - p) / d));
    if (u->kind != MULTIPLE_CHOICE) return;
    printf("Final result: %.4f +/- %.4f\n", 100 * p, 100 * sqrt(p * (1 - p) / d));
    printf("Random chance: %.4f +/- %.4f\n", 100 * chance, 100 * sqrt(chance * (1 - chance) / d));
}

/* -------------------------------------------------------------------------------------------------------- requests */

static int submit(choosing *u, sequence *s)
{
    const cli *c = u->c;
    pi_error err = {0};
    char from[24];
    snprintf(from, sizeof from, "%zu", s->from - 1);
    s->r = pi_request_new(u->e);
    if (!s->r) return cli_error(c, CLI_OS, "out of memory");
    int code = eval_request_set(c, s->r, "max-tokens", "0");
    if (!code) code = eval_request_set(c, s->r, "temp", "0");
    if (!code) code = eval_request_set(c, s->r, "prompt-logprobs", "0");
    if (!code) code = eval_request_set(c, s->r, "logits-from", from);
    if (code) return code;
    pi_request_set_user(s->r, s);
    if (pi_request_prompt_tokens(s->r, s->ids, s->n, &err)) return cli_pi_error(c, &err);
    if (pi_request_submit(s->r, &err)) return cli_pi_error(c, &err);
    s->submitted = true;
    return CLI_OK;
}

static int submit_task(choosing *u, size_t which)
{
    int code = CLI_OK;
    for (size_t i = 0; !code && i < u->list.task[which].n; i++) code = submit(u, &u->seq[which][i]);
    return code;
}

static void take_probs(sequence *s, const pi_event *ev)
{
    if (ev->n_tokens != s->n - s->from || !ev->n_logprobs) return;
    for (size_t i = 0; i < ev->n_tokens; i++) s->logp[i] = ev->logprobs[i * ev->n_logprobs].logprob;
    s->scored = true;
}

/* Returns the task that contains the sequence, in [first, next); next if not found. */
static size_t task_of(const choosing *u, const sequence *s, size_t first, size_t next)
{
    for (size_t i = first; i < next; i++)
        if (u->seq[i] && s >= u->seq[i] && s < u->seq[i] + u->list.task[i].n) return i;
    return next;
}

static int sequence_done(choosing *u, sequence *s, size_t which)
{
    pi_result res = {.size = sizeof res};
    int rc = pi_request_result(s->r, &res);
    if (rc || res.code)
        return cli_error(u->c, cli_exit_code(rc ? rc : res.code), "task %zu: %s", which + 1,
                         rc ? pi_strerror(rc) : res.msg);
    if (!s->scored) return cli_error(u->c, CLI_SOFTWARE, "task %zu: a request has no log-probabilities", which + 1);
    s->submitted = false;
    pi_request_free(s->r);
    s->r = NULL;
    u->n_left[which]--;
    return CLI_OK;
}

static int run_tasks(choosing *u, size_t at_once)
{
    size_t first = 0, next = 0, in_flight = 0;
    int code = CLI_OK;
    while (!code && first < u->list.n) {
        if (next < u->list.n && in_flight < at_once) {
            in_flight += u->list.task[next].n;
            code = submit_task(u, next++);
            continue;
        }
        pi_event *ev[32];
        int n = cli_poll(u->e, ev, 32);
        if (n <= 0) code = eval_interrupted(u->c, n);
        for (int i = 0; i < n; i++) {
            sequence *s = ev[i]->user;
            if (ev[i]->kind == PI_EVENT_PROMPT) take_probs(s, ev[i]);
            bool done = ev[i]->kind == PI_EVENT_DONE;
            pi_event_release(ev[i]);
            if (code || !done) continue;
            code = sequence_done(u, s, task_of(u, s, first, next));
            in_flight--;
        }
        for (; !code && first < next && !u->n_left[first]; first++) {
            code = task_done(u, first);
            free_task(u, first);
        }
    }
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- job */

static int read_tasks(choosing *u)
{
    static const char *const limits[] = {"hellaswag-tasks", "winogrande-tasks", "multiple-choice-tasks"};
    const cli *c = u->c;
    size_t limit = (size_t) cli_int(c, limits[u->kind]), n = 0, n_bad = 0;
    const char *path = cli_str(c, "file");
    char *text = NULL, msg[160];
    if (!cli_given(c, "file")) return cli_usage_error(c, "no tasks: give --file FILE");
    int code = cli_read_file(c, path, &text, &n);
    if (code) return code;
    const char *what = u->kind == HELLASWAG  ? choices_hellaswag(text, n, limit, &u->list, msg)
                       : u->kind == WINOGRANDE ? choices_winogrande(text, n, limit, &u->list, &n_bad, msg)
                                             : choices_multiple(text, n, limit, &u->list, msg);
    free(text);
    if (what) return cli_error(c, CLI_DATA, "%s: %s", path, what);
    if (n_bad) fprintf(stderr, "%s: %s: %zu malformed lines were skipped\n", c->name, path, n_bad);
    if (cli_logs(c, PI_LOG_INFO)) fprintf(stderr, "%zu of %zu tasks\n", u->list.n, u->list.n_file);
    return CLI_OK;
}

/* Opens an engine for *at_once = --parallel concurrent requests, with a cache for that number of the longest
 * sequences, unless flags give other sizes. */
static int open_engine(choosing *u, pi_options *o, size_t *at_once)
{
    const cli *c = u->c;
    pi_info info;
    int64_t one = ((int64_t) u->longest + 1 + 63) / 64 * 64;
    int code = CLI_OK;
    *at_once = cli_given(c, "parallel") ? (size_t) strtoul(cli_str(c, "parallel"), NULL, 10) : AT_ONCE;
    if (!*at_once) *at_once = 1;
    if (!cli_given(c, "parallel")) code = eval_set_int(c, o, "parallel", AT_ONCE);
    if (!code && !cli_given(c, "ctx-size")) code = eval_set_int(c, o, "ctx-size", (int64_t) u->longest + 1);
    if (!code && !cli_given(c, "kv-cache-tokens") && !cli_given(c, "kv-cache-bytes") && !cli_given(c, "ctx-size"))
        code = eval_set_int(c, o, "kv-cache-tokens", (int64_t) *at_once * one);
    return code ? code : eval_open(c, o, &u->e, &info);
}

int eval_choices(const cli *c)
{
    choosing u = {.c = c};
    u.kind = cli_bool(c, "hellaswag") ? HELLASWAG : cli_bool(c, "winogrande") ? WINOGRANDE : MULTIPLE_CHOICE;
    size_t at_once = 1;
    int code = read_tasks(&u);
    if (!code) code = make_tasks(&u);
    pi_options *o = code ? NULL : cli_options(c, &code);
    if (!code) code = open_engine(&u, o, &at_once);
    if (!code && u.kind == HELLASWAG) printf("\ntask\tacc_norm\t95%% confidence interval\n");
    if (!code && u.kind == MULTIPLE_CHOICE) printf("\ntask\tacc_norm\n");
    if (!code) code = run_tasks(&u, at_once);
    if (!code) print_final(&u);
    for (size_t i = 0; i < u.list.n; i++) free_task(&u, i);
    cli_close(c, u.e);
    pi_options_free(o);
    free(u.seq);
    free(u.n_left);
    choices_free(&u.list);
    return code;
}
