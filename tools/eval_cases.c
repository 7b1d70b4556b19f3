/* pagedinfer eval --cases: runs cases.json greedily and prints one JSON line per case, in file order.
 *
 * Up to --parallel cases are submitted at the same time (one by default). The engine's thread writes each logits row
 * to its position in the output file. The engine is batch-invariant: the output does not depend on the batch. */
#include "eval.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "probs.h"

typedef struct job {
    const eval_case *k;
    pi_request *r;      /* NULL = not started, or done */
    bool submitted;     /* submitted to the engine */
    char *line;         /* its output line, until it is printed */
    json_t *probs;      /* of its prompt (--prompt-logprobs), or NULL */
    int fd;             /* NAME.f32; -1 = none */
    size_t n_rows;      /* rows written; owned by the engine's thread until the case is done */
    int write_errno;    /* errno of a failed write */
} job;

static void write_row(void *ud, uint32_t pos, const float *logits, size_t n_vocab)
{
    job *j = ud;
    const base_file f = {.fd = j->fd};
    size_t bytes = n_vocab * sizeof *logits;
    if (j->write_errno) return;
    uint64_t at = j->k->all_rows ? (uint64_t) pos * bytes : 0;
    if (!base_pwrite(&f, logits, bytes, at)) j->write_errno = errno ? errno : EIO;
    j->n_rows++;
}

static int open_logits(const cli *c, job *j)
{
    const char *dir = cli_str(c, "logits-dir");
    if (!*dir) return CLI_OK;
    size_t n = strlen(dir) + strlen(j->k->name) + 8;
    char *path = malloc(n);
    if (!path) return cli_error(c, CLI_OS, "out of memory");
    snprintf(path, n, "%s/%s.f32", dir, j->k->name);
    j->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int code = j->fd < 0 ? cli_error(c, CLI_IO, "%s: %s", path, strerror(errno)) : CLI_OK;
    free(path);
    return code;
}

static int submit(const cli *c, pi_engine *e, job *j)
{
    pi_error err = {0};
    char n[16];
    int code = open_logits(c, j);
    if (code) return code;
    j->r = pi_request_new(e);
    if (!j->r) return cli_error(c, CLI_OS, "out of memory");
    snprintf(n, sizeof n, "%d", j->k->n);
    code = eval_request_set(c, j->r, "max-tokens", n);
    if (!code) code = eval_request_set(c, j->r, "temp", "0");
    if (!code) code = eval_request_set(c, j->r, "no-stop", "true");
    if (!code && j->fd >= 0) code = eval_request_set(c, j->r, "logits", j->k->all_rows ? "all" : "last");
    if (code) return code;
    pi_request_set_user(j->r, j);
    if (j->fd >= 0) pi_request_on_logits(j->r, write_row, j);
    int rc = pi_request_prompt_tokens(j->r, j->k->ids, j->k->n_ids, &err);
    if (!rc) rc = pi_request_submit(j->r, &err);
    if (rc) return cli_error(c, cli_exit_code(rc), "case \"%s\": %s", j->k->name, err.msg);
    j->submitted = true;
    return CLI_OK;
}

static char *answer_line(job *j, const pi_result *res, const int32_t *ids, size_t n)
{
    json_t *root = json_object(), *greedy = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(greedy, json_integer(ids[i]));
    json_object_set_new(root, "name", json_string(j->k->name));
    json_object_set_new(root, "greedy", greedy);
    json_object_set_new(root, "prompt_tokens", json_integer(res->prompt_tokens));
    json_object_set_new(root, "cached_tokens", json_integer(res->cached_tokens));
    json_object_set_new(root, "drafted", json_integer(res->n_drafted));
    json_object_set_new(root, "accepted", json_integer(res->n_accepted));
    size_t n_keys = 6 + (j->probs != NULL);
    if (j->probs) json_object_set_new(root, "prompt_logprobs", j->probs);
    j->probs = NULL;
    /* A failed allocation leaves fields out; the line must be complete. */
    bool whole = json_object_size(root) == n_keys && json_array_size(json_object_get(root, "greedy")) == n;
    char *line = whole ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    return line;
}

static int finish(const cli *c, job *j)
{
    pi_result res = {.size = sizeof res};
    const char *name = j->k->name;
    int rc = pi_request_result(j->r, &res);
    if (rc || res.code)
        return cli_error(c, cli_exit_code(rc ? rc : res.code), "case \"%s\": %s", name, rc ? pi_strerror(rc) : res.msg);
    if (j->write_errno) return cli_error(c, CLI_IO, "logits of case \"%s\": %s", name, strerror(j->write_errno));
    size_t rows = j->fd < 0 ? 0 : j->k->all_rows ? j->k->n_ids : 1;
    if (j->n_rows != rows)
        return cli_error(c, CLI_SOFTWARE, "case \"%s\": %zu of %zu logits rows", name, j->n_rows, rows);
    if (j->fd >= 0 && close(j->fd)) return cli_error(c, CLI_IO, "logits of case \"%s\": %s", name, strerror(errno));
    j->fd = -1;
    size_t n = pi_request_tokens(j->r, NULL, 0);
    int32_t *ids = malloc((n ? n : 1) * sizeof *ids);
    if (ids) {
        pi_request_tokens(j->r, ids, n);
        j->line = answer_line(j, &res, ids, n);
    }
    free(ids);
    if (!j->line) return cli_error(c, CLI_OS, "out of memory");
    if (n != (size_t) j->k->n) return cli_error(c, CLI_SOFTWARE, "case \"%s\": %zu of %d tokens", name, n, j->k->n);
    pi_request_free(j->r);
    j->r = NULL;
    return CLI_OK;
}

static int wait_one(const cli *c, pi_engine *e)
{
    for (;;) {
        pi_event *ev = NULL;
        int n = cli_poll(e, &ev, 1);
        if (n <= 0) return eval_interrupted(c, n);
        bool done = ev->kind == PI_EVENT_DONE, scored = ev->kind == PI_EVENT_PROMPT;
        job *j = ev->user;
        if (scored) j->probs = probs_json(e, ev);
        scored = scored && !j->probs;
        pi_event_release(ev);
        if (scored) return cli_error(c, CLI_OS, "out of memory");
        if (done) return finish(c, j);
    }
}

static int run_jobs(const cli *c, pi_engine *e, job *jobs, size_t n_jobs)
{
    size_t width = 1, next = 0, printed = 0, n_live = 0;
    if (cli_given(c, "parallel")) width = (size_t) strtoul(cli_str(c, "parallel"), NULL, 10);
    if (width < 1) width = 1;
    int code = CLI_OK;
    while (!code && printed < n_jobs) {
        if (next < n_jobs && n_live < width) {
            code = submit(c, e, &jobs[next++]);
            n_live++;
            continue;
        }
        code = wait_one(c, e);
        n_live--;
        for (; printed < n_jobs && jobs[printed].line; printed++) {
            printf("%s\n", jobs[printed].line);
            free(jobs[printed].line);
            jobs[printed].line = NULL;
            fflush(stdout);
        }
    }
    for (size_t i = 0; i < n_jobs; i++) { /* after an error: wait until the engine has finished its rows */
        if (jobs[i].r && jobs[i].submitted) {
            pi_request_cancel(jobs[i].r);
            pi_request_wait(jobs[i].r, -1);
        }
        pi_request_free(jobs[i].r);
        if (jobs[i].fd >= 0) close(jobs[i].fd);
        free(jobs[i].line);
        json_decref(jobs[i].probs);
    }
    return code;
}

static int check_ids(const cli *c, const cases *cs, const pi_info *info)
{
    for (size_t i = 0; i < cs->n; i++) {
        const eval_case *k = &cs->item[i];
        for (size_t t = 0; t < k->n_ids; t++) {
            if ((uint32_t) k->ids[t] >= info->n_vocab)
                return cli_error(c, CLI_DATA, "%s: case \"%s\": \"ids\"[%zu] is %d; the vocabulary has %u tokens",
                                 cli_str(c, "cases"), k->name, t, k->ids[t], info->n_vocab);
        }
    }
    return CLI_OK;
}

static int load(const cli *c, cases *cs)
{
    char *text = NULL, msg[256];
    size_t len = 0;
    int code = cli_read_file(c, cli_str(c, "cases"), &text, &len);
    if (code) return code;
    int rc = cases_parse(cs, text, len, msg);
    free(text);
    if (rc == CASES_NOMEM) return cli_error(c, CLI_OS, "%s: %s", cli_str(c, "cases"), msg);
    return rc ? cli_error(c, CLI_DATA, "%s: %s", cli_str(c, "cases"), msg) : CLI_OK;
}

int eval_cases(const cli *c)
{
    cases cs = {0};
    pi_options *o = NULL;
    pi_engine *e = NULL;
    pi_info info;
    job *jobs = NULL;
    const char *dir = cli_str(c, "logits-dir");
    int code = load(c, &cs);
    if (!code && *dir && mkdir(dir, 0777) && errno != EEXIST)
        code = cli_error(c, CLI_IO, "%s: %s", dir, strerror(errno));
    if (!code) o = cli_options(c, &code);
    if (!code) code = eval_open(c, o, &e, &info);
    if (!code) code = check_ids(c, &cs, &info);
    if (!code) {
        jobs = calloc(cs.n ? cs.n : 1, sizeof *jobs);
        if (!jobs) code = cli_error(c, CLI_OS, "out of memory");
    }
    for (size_t i = 0; !code && i < cs.n; i++) jobs[i] = (job) {.k = &cs.item[i], .fd = -1};
    if (!code) code = run_jobs(c, e, jobs, cs.n);
    free(jobs);
    cli_close(c, e);
    pi_options_free(o);
    cases_free(&cs);
    return code;
}
