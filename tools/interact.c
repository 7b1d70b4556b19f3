/* pagedinfer run --interactive (see interact.h).
 *
 * The text is a list of tokens: the prompt's, the model's, and the user's input with --in-prefix before and
 * --in-suffix after it. Each turn submits all of it; the engine has cached everything except the end. The user's turn
 * begins when the model writes a reverse prompt, ends its text, has written --n-predict tokens, or is stopped by
 * Ctrl-C. An empty line returns the turn to the model. */
#include "interact.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "line.h"

enum { TAIL = 41 };

struct talk {
    const cli *c;
    pi_engine *e;
    line_input *in;
    int32_t *ids;       /* [n] the text so far */
    size_t n, cap;
    char tail[TAIL];    /* the last line on standard output, if it fits */
    size_t n_tail;      /* its bytes; TAIL or more = it does not fit */
    bool failed;        /* standard output is closed */
    char *typed;        /* [n_typed] the current input */
    size_t n_typed;
};

bool interact_wanted(const cli *c) { return cli_bool(c, "interactive") || cli_bool(c, "interactive-first"); }

static int no_memory(const struct talk *t) { return cli_error(t->c, CLI_OS, "out of memory"); }

/* ------------------------------------------------------------------------------------------------------------ text */

static int reserve(struct talk *t, size_t more)
{
    if (t->cap - t->n >= more) return CLI_OK;
    size_t cap = (t->n + more) * 2;
    int32_t *ids = realloc(t->ids, cap * sizeof *ids);
    if (!ids) return no_memory(t);
    t->ids = ids;
    t->cap = cap;
    return CLI_OK;
}

static int add_text(struct talk *t, const char *text, size_t n, int flags)
{
    int code = reserve(t, n + 8);
    int64_t got = code ? 0 : pi_tokenize(t->e, text, n, flags, t->ids + t->n, t->cap - t->n);
    if (got > (int64_t) (t->cap - t->n)) {
        code = reserve(t, (size_t) got);
        if (!code) got = pi_tokenize(t->e, text, n, flags, t->ids + t->n, t->cap - t->n);
    }
    if (got < 0) return cli_error(t->c, cli_exit_code((int) got), "tokenizing: %s", pi_strerror((int) got));
    if (!code) t->n += (size_t) got;
    return code;
}

static void show(struct talk *t, const char *text, size_t n)
{
    t->failed |= !cli_text(stdout, text, n);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            t->n_tail = 0;
        } else if (t->n_tail < TAIL) {
            t->tail[t->n_tail++] = text[i];
            if (text[i] < 32 || text[i] > 126) t->n_tail = TAIL; /* unknown width */
        }
    }
}

/* Returns a flag's text with escapes replaced; the caller frees it. NULL = out of memory. */
static char *flag_text(const cli *c, const char *key, size_t *n)
{
    char *s = strdup(cli_str(c, key));
    *n = s ? strlen(s) : 0;
    if (s && cli_bool(c, "escape")) *n = cli_unescape(s, *n);
    return s;
}

/* Handles --in-prefix or --in-suffix: shows it, or adds it to the text. */
static int add_flag(struct talk *t, const char *key, bool shown)
{
    size_t n;
    char *s = flag_text(t->c, key, &n);
    if (!s) return no_memory(t);
    if (shown) show(t, s, n);
    int code = shown || !n ? CLI_OK : add_text(t, s, n, PI_TOK_SPECIAL);
    free(s);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- typing */

/* Returns the prompt for the next line: the known text of the current terminal line, which an editor redraws. */
static const char *prompt_of(struct talk *t)
{
    if (!line_is_terminal(t->in)) return "";
    if (!cli_shares_terminal(stdout) || t->n_tail >= TAIL) {
        cli_new_line();
        return "> ";
    }
    t->tail[t->n_tail] = 0;
    fputc('\r', stderr);
    return t->tail;
}

/* Reads the user's input into t->typed. Returns 1, 0 at the end of input, or an error as line_read. */
static int read_typed(struct talk *t)
{
    const char *line, *prompt = prompt_of(t);
    size_t n;
    bool more = true;
    t->n_typed = 0;
    for (int rc; more; prompt = "") {
        rc = line_read(t->in, prompt, &line, &n);
        if (rc <= 0) return !rc && t->n_typed ? 1 : rc;
        if (line_is_terminal(t->in)) t->n_tail = 0; /* Enter was echoed */
        more = line_goes_on(cli_bool(t->c, "multiline-input"), line, &n);
        char *p = realloc(t->typed, t->n_typed + n + 2);
        if (!p) return -2;
        t->typed = p;
        memcpy(p + t->n_typed, line, n);
        t->n_typed += n;
        if (more) p[t->n_typed++] = '\n';
        p[t->n_typed] = 0;
    }
    return 1;
}

/* Handles the user's turn. *end: end of input. */
static int take_typed(struct talk *t, bool *end)
{
    int code = add_flag(t, "in-prefix", true), rc = code ? 0 : read_typed(t);
    *end = rc <= 0;
    if (code || !rc) return code;
    if (rc == -2) return no_memory(t);
    if (rc < 0) return 128 + cli_signal();
    if (!t->n_typed || !cli_is_utf8(t->c, "the line is not used", t->typed, t->n_typed)) return CLI_OK;
    if (cli_bool(t->c, "escape")) t->n_typed = cli_unescape(t->typed, t->n_typed);
    if (cli_bool(t->c, "in-prefix-bos")) {
        pi_info info = {.size = sizeof info};
        code = reserve(t, 1);
        if (!code && !pi_engine_info(t->e, &info) && info.bos >= 0) t->ids[t->n++] = info.bos;
    }
    if (!code) code = add_flag(t, "in-prefix", false);
    if (!code) code = add_text(t, t->typed, t->n_typed, 0);
    if (!code) code = add_flag(t, "in-suffix", false);
    if (!code) code = add_flag(t, "in-suffix", true);
    return code;
}

/* ----------------------------------------------------------------------------------------------------- the model's */

/* Shows the model's output until it ends or a signal stops it. */
static int stream(struct talk *t, pi_request *r)
{
    for (bool done = false, canceled = false; !done;) {
        pi_event *ev = NULL;
        if (!canceled && (cli_signal() || t->failed)) {
            pi_request_cancel(r);
            canceled = true;
        }
        int n = canceled ? pi_poll(t->e, &ev, 1, -1) : cli_poll(t->e, &ev, 1);
        if (n < 0) return cli_error(t->c, CLI_SOFTWARE, "%s", pi_strerror(n));
        if (!n && canceled) break;
        if (!n) continue;
        if (ev->kind != PI_EVENT_PROMPT) show(t, ev->text, ev->text_len);
        done = ev->kind == PI_EVENT_DONE;
        pi_event_release(ev);
    }
    return t->failed ? cli_flush(t->c) : CLI_OK;
}

/* If the model ended its text, adds the first reverse prompt as if the model had written it. */
static int after_end(struct talk *t)
{
    show(t, "\n", 1);
    if (!cli_n(t->c, "stop")) return CLI_OK;
    const char *first = cli_nth(t->c, "stop", 0);
    show(t, first, strlen(first));
    return add_text(t, first, strlen(first), PI_TOK_SPECIAL);
}

static int finish(struct talk *t, pi_request *r)
{
    pi_result res = {.size = sizeof res};
    int rc = pi_request_result(r, &res);
    if (!rc && res.finish_reason == PI_FINISH_CANCEL) rc = PI_OK;
    else if (!rc) rc = res.code;
    if (rc) return cli_error(t->c, cli_exit_code(rc), "%s", *res.msg ? res.msg : pi_strerror(rc));
    size_t n = pi_request_tokens(r, NULL, 0);
    int code = reserve(t, n);
    if (code) return code;
    t->n += pi_request_tokens(r, t->ids + t->n, n);
    if (*res.stop) show(t, res.stop, strlen(res.stop));
    else if (res.finish_reason == PI_FINISH_STOP) code = after_end(t);
    return code;
}

static int take_turn(struct talk *t)
{
    pi_error err = {0};
    pi_request *r = pi_request_new(t->e);
    if (!r) return no_memory(t);
    int code = pi_request_prompt_tokens(r, t->ids, t->n, &err) || pi_request_submit(r, &err) ? cli_pi_error(t->c, &err)
                                                                                             : CLI_OK;
    if (!code) code = stream(t, r);
    if (!code) code = finish(t, r);
    pi_request_free(r);
    if (!code && cli_signal() && (cli_signal() != 2 || !line_is_terminal(t->in))) code = 128 + cli_signal();
    cli_signal_reset();
    return code;
}

/* ------------------------------------------------------------------------------------------------------------- job */

/* True if the text ends with a reverse prompt: the user's turn is next. */
static bool ends_with_reverse(const cli *c, const char *text, size_t n)
{
    for (size_t i = 0; i < cli_n(c, "stop"); i++) {
        const char *s = cli_nth(c, "stop", i);
        size_t len = strlen(s);
        if (len && len <= n && !memcmp(text + n - len, s, len)) return true;
    }
    return false;
}

static int talk(struct talk *t, const char *prompt, size_t len)
{
    bool typing = cli_bool(t->c, "interactive-first") || !len || ends_with_reverse(t->c, prompt, len), end = false;
    int code = cli_catch_signals();
    if (!code) code = add_text(t, prompt, len, PI_TOK_BOS | PI_TOK_SPECIAL);
    if (!code && (!cli_given(t->c, "display-prompt") || cli_bool(t->c, "display-prompt"))) show(t, prompt, len);
    for (; !code; typing = true) {
        if (typing) code = take_typed(t, &end);
        if (end || code) break;
        if (!t->n) continue; /* no text to continue yet */
        code = take_turn(t);
    }
    if (t->n_tail && (code || !line_is_terminal(t->in))) show(t, "\n", 1);
    return code;
}

int cmd_interact(const cli *c)
{
    struct talk t = {.c = c};
    char *prompt = NULL;
    size_t len = 0;
    pi_error err = {0};
    bool given = cli_given(c, "prompt") || cli_given(c, "file");
    if (cli_int(c, "copies") > 1) return cli_usage_error(c, "--interactive: omit --copies");
    if (cli_n(c, "image")) return cli_usage_error(c, "--interactive: omit --image, or use 'pagedinfer chat'");
    int code = given ? cli_prompt(c, false, &prompt, &len) : CLI_OK;
    pi_options *o = code ? NULL : cli_options(c, &code);
    if (!code && !cli_given(c, "parallel") && pi_options_set(o, "parallel", "1", &err)) code = cli_pi_error(c, &err);
    if (!code && !(t.in = line_open(cli_bool(c, "simple-io"), cli_color(c, STDERR_FILENO), NULL))) code = no_memory(&t);
    if (!code) code = cli_open(c, o, &t.e);
    if (!code) code = talk(&t, prompt ? prompt : "", len);
    cli_close(c, t.e);
    line_close(t.in);
    pi_options_free(o);
    free(prompt);
    free(t.ids);
    free(t.typed);
    return code;
}
