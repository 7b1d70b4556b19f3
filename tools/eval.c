/* pagedinfer eval: the verification harness. Selects the job; contains the parts that jobs share.
 *
 * A text is split into chunks. Each chunk is a request that generates no tokens. Logits rows are processed as the
 * engine computes them, so a job never holds more than one row. */
#include "eval.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_eval(const cli *c)
{
    static const char *const jobs[] = {"cases", "kl-divergence", "concurrency-suite", "hellaswag", "winogrande",
                                       "multiple-choice"};
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    bool cases = *cli_str(c, "cases") != 0, kl = cli_bool(c, "kl-divergence"), suite = cli_bool(c, "concurrency-suite");
    bool choices = cli_bool(c, "hellaswag") || cli_bool(c, "winogrande") || cli_bool(c, "multiple-choice");
    size_t n_jobs = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) n_jobs += i ? cli_bool(c, jobs[i]) : cases;
    if (n_jobs > 1)
        return cli_usage_error(c, "give only one of --cases, --kl-divergence, --concurrency-suite, --hellaswag, "
                                  "--winogrande and --multiple-choice");
    bool text = cli_given(c, "file") || cli_given(c, "prompt"), base = *cli_str(c, "kl-divergence-base") != 0;
    if (cases && (text || base)) return cli_usage_error(c, "--cases: omit the text and --kl-divergence");
    if (!cases && *cli_str(c, "logits-dir")) return cli_usage_error(c, "--logits-dir needs --cases");
    if (kl && !base) return cli_usage_error(c, "--kl-divergence needs --kl-divergence-base FILE");
    if (suite && (text || base))
        return cli_usage_error(c, "--concurrency-suite: omit the text and --kl-divergence");
    int code = cli_catch_signals();
    if (code) return code;
    if (choices) return eval_choices(c);
    return suite ? eval_suite(c) : cases ? eval_cases(c) : kl ? eval_kl(c) : eval_perplexity(c);
}

int eval_set(const cli *c, pi_options *o, const char *key, const char *value)
{
    pi_error err = {0};
    return pi_options_set(o, key, value, &err) ? cli_pi_error(c, &err) : CLI_OK;
}

int eval_set_int(const cli *c, pi_options *o, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long) value);
    return eval_set(c, o, key, text);
}

int eval_request_set(const cli *c, pi_request *r, const char *key, const char *value)
{
    pi_error err = {0};
    return pi_request_set(r, key, value, &err) ? cli_pi_error(c, &err) : CLI_OK;
}

int eval_open(const cli *c, pi_options *o, pi_engine **e, pi_info *info)
{
    int code = cli_open(c, o, e);
    if (code) return code;
    *info = (pi_info) {.size = sizeof *info};
    int rc = pi_engine_info(*e, info);
    return rc ? cli_error(c, cli_exit_code(rc), "%s", pi_strerror(rc)) : CLI_OK;
}

int eval_interrupted(const cli *c, int n)
{
    if (cli_signal()) return 128 + cli_signal();
    if (n < 0) return cli_error(c, cli_exit_code(n), "waiting for the engine: %s", pi_strerror(n));
    return cli_error(c, CLI_SOFTWARE, "the engine is idle, but requests are unfinished");
}

/* ---------------------------------------------------------------------------------------------------------- chunks */

int eval_open_chunks(const cli *c, int32_t *n_ctx, pi_options **o, pi_engine **e, pi_info *info)
{
    int code = CLI_OK;
    pi_error err = {0};
    pi_plan plan = {.size = sizeof plan};
    *e = NULL;
    *o = cli_options(c, &code);
    if (!*o) return code;
    if (cli_has_section(c->cmd, "imatrix")) {
        code = eval_set(c, *o, "imatrix-file", cli_str(c, "imatrix-output"));
        if (!code && !cli_given(c, "imatrix-dataset")) code = eval_set(c, *o, "imatrix-dataset", cli_str(c, "file"));
        if (!code && !cli_given(c, "device")) code = eval_set(c, *o, "device", "cpu");
        if (code) return code;
    }
    if (*n_ctx) code = eval_set_int(c, *o, "ctx-size", *n_ctx);
    else if (!cli_given(c, "ctx-size")) code = eval_set(c, *o, "ctx-size", "512");
    if (code) return code;
    if (pi_engine_plan(*o, &plan, &err)) return cli_pi_error(c, &err);
    if (*n_ctx && (int64_t) plan.ctx_size < *n_ctx)
        return cli_error(c, CLI_CONFIG, "chunks of %d tokens do not fit the context of %u", *n_ctx, plan.ctx_size);
    if (plan.ctx_size < 4) return cli_usage_error(c, "--ctx-size: give at least 4 tokens");
    if (plan.ctx_size > INT32_MAX / 2) return cli_usage_error(c, "--ctx-size is too large");
    *n_ctx = (int32_t) plan.ctx_size;
    /* Enough requests to fill every step, and a cache for exactly this number of requests. */
    int64_t n_seq = 1024 / *n_ctx + 2, room = n_seq * ((*n_ctx + 63) / 64 * 64);
    if (!cli_given(c, "parallel")) code = eval_set_int(c, *o, "parallel", n_seq);
    if (!code && !cli_given(c, "kv-cache-tokens") && !cli_given(c, "kv-cache-bytes"))
        code = eval_set_int(c, *o, "kv-cache-tokens", room);
    return code ? code : eval_open(c, *o, e, info);
}

int eval_bos(const cli *c, const pi_engine *e, const pi_info *info, int32_t *bos)
{
    int32_t ids[8];
    int64_t n = pi_tokenize(e, "", 0, PI_TOK_BOS, ids, 8);
    if (n < 0) return cli_error(c, cli_exit_code((int) n), "tokenizing: %s", pi_strerror((int) n));
    *bos = n > 0 && info->bos >= 0 && ids[0] == info->bos ? info->bos : -1;
    if (n > (*bos >= 0) && n <= 8 && ids[n - 1] == info->eos)
        return cli_error(c, CLI_CONFIG, "this model needs EOS at the end of a text, which chunks do not have");
    return CLI_OK;
}

/* A chunk in flight. */
typedef struct slot {
    const chunk_run *run;
    size_t chunk;    /* chunk number */
    pi_request *r;   /* NULL = free slot */
    bool submitted;  /* submitted to the engine */
    bool done;       /* completed without error */
    int32_t n_rows;  /* rows passed on so far; owned by the engine's thread until done */
} slot;

static int32_t n_rows(const chunk_run *run) { return run->n_ctx - 1 - run->first; }

static void take_row(void *ud, uint32_t pos, const float *logits, size_t n_vocab)
{
    slot *s = ud;
    int64_t i = (int64_t) pos - s->run->first;
    if (i != s->n_rows || i >= n_rows(s->run)) return; /* rows arrive in order, starting before `first` */
    s->run->row(s->run->ud, s->chunk, (int32_t) i, logits, n_vocab);
    s->n_rows++;
}

/* Starts a chunk. Its last token is only a target: nothing is computed for it, unless run->every. */
static int start_chunk(slot *s, const chunk_run *run, size_t chunk, int32_t *ids)
{
    const cli *c = run->c;
    pi_error err = {0};
    char from[16];
    *s = (slot) {.run = run, .chunk = chunk, .r = pi_request_new(run->e)};
    if (!s->r) return cli_error(c, CLI_OS, "out of memory");
    memcpy(ids, run->tokens + chunk * run->step, (size_t) run->n_ctx * sizeof *ids);
    if (run->bos >= 0) ids[0] = run->bos;
    snprintf(from, sizeof from, "%d", run->every ? 0 : run->first);
    int code = eval_request_set(c, s->r, "max-tokens", "0");
    if (!code) code = eval_request_set(c, s->r, "temp", "0");
    if (!code) code = eval_request_set(c, s->r, "cache", "false");
    if (!code) code = eval_request_set(c, s->r, "logits", "all");
    if (!code) code = eval_request_set(c, s->r, "logits-from", from);
    if (code) return code;
    pi_request_set_user(s->r, s);
    pi_request_on_logits(s->r, take_row, s);
    if (pi_request_prompt_tokens(s->r, ids, (size_t) run->n_ctx - !run->every, &err)) return cli_pi_error(c, &err);
    if (pi_request_submit(s->r, &err)) return cli_pi_error(c, &err);
    s->submitted = true;
    return CLI_OK;
}

/* Waits until one request has ended. */
static int wait_chunk(const chunk_run *run)
{
    for (;;) {
        pi_event *ev = NULL;
        int n = cli_poll(run->e, &ev, 1);
        if (n <= 0) return eval_interrupted(run->c, n);
        bool done = ev->kind == PI_EVENT_DONE;
        slot *s = ev->user;
        pi_event_release(ev);
        if (!done) continue;
        pi_result res = {.size = sizeof res};
        int rc = pi_request_result(s->r, &res);
        if (rc || res.code)
            return cli_error(run->c, cli_exit_code(rc ? rc : res.code), "chunk %zu: %s", s->chunk + 1,
                             rc ? pi_strerror(rc) : res.msg);
        if (s->n_rows != n_rows(run))
            return cli_error(run->c, CLI_SOFTWARE, "chunk %zu: %d rows of logits of %d", s->chunk + 1, s->n_rows,
                             n_rows(run));
        s->done = true;
        return CLI_OK;
    }
}

int eval_chunks(const chunk_run *run)
{
    enum { MAX_SLOTS = 64 };
    slot slots[MAX_SLOTS] = {{0}};
    size_t n_slots = 1024 / (size_t) run->n_ctx + 2, next = 0, head = 0;
    if (n_slots > MAX_SLOTS) n_slots = MAX_SLOTS;
    int code = CLI_OK;
    int32_t *ids = malloc((size_t) run->n_ctx * sizeof *ids);
    if (!ids) return cli_error(run->c, CLI_OS, "out of memory");
    while (!code && head < run->n_chunk) {
        if (next < run->n_chunk && next < head + n_slots) {
            code = start_chunk(&slots[next % n_slots], run, next, ids);
            next++;
            continue;
        }
        code = wait_chunk(run);
        for (slot *s; !code && head < next && (s = &slots[head % n_slots])->done; head++) {
            pi_request_free(s->r);
            *s = (slot) {0};
            code = run->done(run->ud, head);
        }
    }
    for (size_t i = 0; i < n_slots; i++) { /* after an error: wait until the engine has finished its rows */
        if (slots[i].submitted) {
            pi_request_cancel(slots[i].r);
            pi_request_wait(slots[i].r, -1);
        }
        pi_request_free(slots[i].r);
    }
    free(ids);
    return code;
}

/* ------------------------------------------------------------------------------------------------ base-logits file */

bool base_pread(const base_file *b, void *p, size_t n, uint64_t at)
{
    char *to = p;
    while (n) {
        ssize_t got = pread(b->fd, to, n, (off_t) at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0;
        if (got <= 0) return false;
        to += got;
        at += (uint64_t) got;
        n -= (size_t) got;
    }
    return true;
}

bool base_pwrite(const base_file *b, const void *p, size_t n, uint64_t at)
{
    const char *from = p;
    while (n) {
        ssize_t put = pwrite(b->fd, from, n, (off_t) at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        from += put;
        at += (uint64_t) put;
        n -= (size_t) put;
    }
    return true;
}
