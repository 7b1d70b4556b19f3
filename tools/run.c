/* pagedinfer run: continues a prompt and streams the answer to standard output.
 *
 * --prompt-logprobs N prints a line of JSON first, {"prompt_logprobs": [...]} (probs.h), once for all copies.
 * --logprobs N prints a line {"logprobs": [...]} after each answer. --copies N runs the prompt N times concurrently;
 * the answers are printed one after another. With --image the prompt becomes the message of a user, in the format of
 * the chat template. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "interact.h"
#include "picture.h"
#include "probs.h"

struct answer { /* buffered text of a copy that is not yet printed */
    char *text;
    size_t n, cap;
    bool done;
    json_t *probs; /* of its tokens so far; NULL = none */
};

struct run {
    const cli *c;
    pi_engine *e;
    pi_request **r;   /* [n] */
    struct answer *a; /* [n] */
    size_t n;         /* copies */
    size_t printing;  /* index of the copy that is being printed */
    size_t n_done;    /* answers that ended */
    bool canceled;    /* a signal came */
    int code;         /* exit code so far */
};

static bool keep(struct answer *a, const char *text, size_t n)
{
    if (a->cap - a->n < n) {
        size_t cap = (a->n + n) * 2;
        char *p = realloc(a->text, cap);
        if (!p) return false;
        a->text = p;
        a->cap = cap;
    }
    memcpy(a->text + a->n, text, n);
    a->n += n;
    return true;
}

static void cancel_all(struct run *u)
{
    for (size_t i = 0; i < u->n; i++) pi_request_cancel(u->r[i]);
    u->canceled = true;
}

/* Prints {NAME: list} as a line of JSON and releases the list, NULL = out of memory. Returns false if that failed. */
static bool print_list(struct run *u, const char *name, json_t *list)
{
    json_t *root = list ? json_pack("{s:o}", name, list) : NULL;
    char *line = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(root);
    if (!line && !u->code) u->code = cli_error(u->c, CLI_OS, "out of memory");
    const bool ok = line && cli_text(stdout, line, strlen(line)) && cli_text(stdout, "\n", 1);
    free(line);
    return ok;
}

/* Ends the output of a copy: a newline, and the log-probabilities of its tokens. */
static bool end_answer(struct run *u, struct answer *a)
{
    json_t *probs = a->probs;
    a->probs = NULL;
    if (!cli_text(stdout, "\n", 1)) {
        json_decref(probs);
        return false;
    }
    return !probs || print_list(u, "logprobs", probs);
}

/* Prints the text of the current copy, and of later copies that are complete. */
static void print_text(struct run *u, size_t i, const char *text, size_t n)
{
    struct answer *a = &u->a[i];
    if (i != u->printing) {
        if (n && !keep(a, text, n)) u->code = cli_error(u->c, CLI_OS, "out of memory");
        return;
    }
    bool bad = !cli_text(stdout, text, n);
    while (u->printing < u->n && u->a[u->printing].done && !bad) {
        bad = !end_answer(u, &u->a[u->printing]);
        if (++u->printing == u->n) break;
        a = &u->a[u->printing];
        bad |= !cli_text(stdout, a->text, a->n);
    }
    if (bad && !u->code) {
        u->code = cli_flush(u->c);
        cancel_all(u);
    }
}

/* Prints the prompt's log-probabilities; called for the first copy before its text. */
static void print_probs(struct run *u, const pi_event *ev)
{
    if (print_list(u, "prompt_logprobs", probs_json(u->e, ev)) || u->code) return;
    u->code = cli_flush(u->c);
    cancel_all(u);
}

/* Adds the log-probabilities of an event's tokens to its copy. */
static void keep_probs(struct run *u, size_t i, const pi_event *ev)
{
    json_t *list = probs_json(u->e, ev);
    struct answer *a = &u->a[i];
    const bool ok = list && (a->probs || (a->probs = json_array())) && !json_array_extend(a->probs, list);
    json_decref(list);
    if (ok || u->code) return;
    u->code = cli_error(u->c, CLI_OS, "out of memory");
    cancel_all(u);
}

static void handle(struct run *u, const pi_event *ev)
{
    size_t i = 0;
    while (u->r[i] != ev->request) i++;
    if (ev->kind == PI_EVENT_PROGRESS) {
        fprintf(stderr, "prompt: %u of %u tokens, %u cached, %.0f ms\n", ev->n_computed, ev->n_prompt, ev->n_cached,
                ev->prompt_ms);
        return;
    }
    if (ev->kind == PI_EVENT_PROMPT) {
        if (!i) print_probs(u, ev);
        return;
    }
    if (ev->n_logprobs && ev->n_tokens) keep_probs(u, i, ev);
    if (ev->kind == PI_EVENT_DONE) {
        u->a[i].done = true;
        u->n_done++;
    }
    print_text(u, i, ev->text, ev->text_len);
    if (ev->kind != PI_EVENT_DONE || !ev->code || ev->finish_reason == PI_FINISH_CANCEL) return;
    pi_result res = {.size = sizeof res};
    pi_request_result(u->r[i], &res);
    if (!u->code) u->code = cli_error(u->c, cli_exit_code(ev->code), "%s", *res.msg ? res.msg : pi_strerror(ev->code));
}

static void loop(struct run *u)
{
    pi_event *ev[32];
    while (u->n_done < u->n) {
        if (cli_signal() && !u->canceled) cancel_all(u);
        int n = u->canceled ? pi_poll(u->e, ev, 32, -1) : cli_poll(u->e, ev, 32);
        if (n < 0) {
            u->code = cli_error(u->c, CLI_SOFTWARE, "%s", pi_strerror(n));
            return;
        }
        if (!n && u->canceled) return;
        for (int i = 0; i < n; i++) {
            handle(u, ev[i]);
            pi_event_release(ev[i]);
        }
    }
}

/* Returns the messages of a prompt with images; NULL = no images, or an error. */
static json_t *with_images(const struct run *u, const char *text, size_t len, int *code)
{
    json_t *parts = json_array(), *messages = NULL;
    *code = CLI_OK;
    if (!cli_n(u->c, "image")) {
        json_decref(parts);
        return NULL;
    }
    *code = parts ? picture_parts(u->c, parts) : cli_error(u->c, CLI_OS, "out of memory");
    if (!*code && !cli_is_utf8(u->c, "the prompt", text, len)) *code = CLI_DATA;
    if (!*code) messages = json_pack("[{s:s, s:o}]", "role", "user", "content", picture_content(parts, text, len));
    if (!*code && !messages) *code = cli_error(u->c, CLI_OS, "out of memory");
    json_decref(parts);
    return messages;
}

static int set_prompt(pi_request *r, const json_t *messages, const char *text, size_t len, pi_error *err)
{
    if (!messages) return pi_request_prompt_text(r, text, len, err);
    char *json = json_dumps(messages, 0);
    int rc = json ? picture_add(messages, r, err) : PI_ENOMEM;
    if (!rc) rc = pi_request_prompt_chat(r, json, NULL, NULL, err);
    free(json);
    return rc;
}

static int submit(struct run *u, const json_t *messages, const char *text, size_t len)
{
    pi_error err = {0};
    for (size_t i = 0; i < u->n; i++) {
        u->r[i] = pi_request_new(u->e);
        if (!u->r[i]) return cli_error(u->c, CLI_OS, "out of memory");
        int rc = set_prompt(u->r[i], messages, text, len, &err);
        if (!rc) rc = pi_request_submit(u->r[i], &err);
        if (rc && !err.code) err = (pi_error) {.code = rc, .msg = "out of memory"};
        if (rc) return cli_pi_error(u->c, &err);
    }
    return CLI_OK;
}

static int start(struct run *u, const char *text, size_t len)
{
    int code;
    json_t *messages = with_images(u, text, len, &code);
    if (!code) code = submit(u, messages, text, len);
    json_decref(messages);
    return code;
}

/* Sizes the engine for the number of copies, unless --parallel is given. */
static int set_parallel(const cli *c, pi_options *o)
{
    pi_error err = {0};
    if (cli_given(c, "parallel")) return CLI_OK;
    return pi_options_set(o, "parallel", cli_str(c, "copies"), &err) ? cli_pi_error(c, &err) : CLI_OK;
}

static int with_engine(struct run *u, const char *text, size_t len)
{
    if (cli_bool(u->c, "verbose-prompt")) cli_print_prompt(u->c, u->e, text, len);
    if (cli_bool(u->c, "display-prompt")) cli_text(stdout, text, len);
    int code = start(u, text, len);
    if (!code) {
        loop(u);
        code = u->code;
    }
    if (!code && cli_bool(u->c, "perf")) cli_print_speed(u->c, u->r, u->n);
    if (!code) code = cli_flush(u->c);
    if (!code && cli_signal()) code = 128 + cli_signal();
    for (size_t i = 0; i < u->n; i++) {
        pi_request_free(u->r[i]);
        free(u->a[i].text);
        json_decref(u->a[i].probs);
    }
    return code;
}

int cmd_run(const cli *c)
{
    struct run u = {.c = c, .n = (size_t) cli_int(c, "copies")};
    char *text = NULL;
    size_t len = 0;
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    if (interact_wanted(c)) return cmd_interact(c);
    int code = cli_prompt(c, false, &text, &len);
    pi_options *o = code ? NULL : cli_options(c, &code);
    u.r = calloc(u.n, sizeof *u.r);
    u.a = calloc(u.n, sizeof *u.a);
    if (!code && (!u.r || !u.a)) code = cli_error(c, CLI_OS, "out of memory");
    if (!code) code = set_parallel(c, o);
    if (!code) code = cli_open(c, o, &u.e);
    if (!code) code = with_engine(&u, text, len);
    cli_close(c, u.e);
    pi_options_free(o);
    free(u.r);
    free(u.a);
    free(text);
    return code;
}
