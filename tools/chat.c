/* pagedinfer chat: a line-oriented conversation.
 *
 * Every turn renders the complete conversation through the model's chat template and submits all of it; the engine
 * reuses computed tokens from its cache. The answer goes to standard output, reasoning and everything else to standard
 * error. Ctrl-C ends the current answer, which stays in the conversation. At an empty prompt it ends the program; a
 * message that is being typed is kept in the history instead. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "conversation.h"
#include "json.h"
#include "line.h"
#include "markdown.h"
#include "picture.h"
#include "recall.h"

static const char help[] =
    "  /clear        clear the conversation, except the system prompt\n"
    "  /regen        regenerate the last answer\n"
    "  /system TEXT  replace the system prompt; without TEXT remove it\n"
    "  /read FILE    begin the next message with the file's text\n"
    "  /image FILE   begin the next message with an image (needs --mmproj)\n"
    "  /save FILE    write the conversation as JSON\n"
    "  /load FILE    continue a saved conversation\n"
    "  /exit         end (also Ctrl-D, or Ctrl-C at an empty prompt)\n"
    "A line that ends in \\ continues on the next one, and a paste of several lines is one message. A line that\n"
    "begins with // is a message that begins with one slash. Ctrl-C ends the current answer.\n";

struct text {
    char *p;
    size_t n, cap;
};

struct chat {
    const cli *c;
    pi_engine *e;
    json_t *messages;          /* the conversation */
    char *options;             /* options of pi_chat_render as JSON, or NULL; freed at the end */
    bool multiline;            /* --multiline-input */
    line_input *in;
    struct text draft;         /* the message being written */
    json_t *images;            /* its images, as parts of a message */
    struct text answer, thoughts; /* of the current turn */
    pi_chat_parser *parser;    /* for the answer of the current turn */
    bool split, hide;          /* separate reasoning from the answer; hide reasoning */
    bool dimmed;               /* the terminal uses the reasoning style */
    markdown *view;            /* shows the answer of the current turn; NULL = the text is printed unchanged */
    bool color;                /* dim the reasoning: standard error is a terminal with colors */
    bool failed;               /* out of memory, or standard output is closed */
};

static bool append(struct text *t, const char *p, size_t n)
{
    if (t->cap - t->n <= n) {
        size_t cap = (t->n + n + 1) * 2;
        char *q = realloc(t->p, cap);
        if (!q) return false;
        t->p = q;
        t->cap = cap;
    }
    if (n) memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
    return true;
}

static int no_memory(const struct chat *u) { return cli_error(u->c, CLI_OS, "out of memory"); }

/* Appends a message to the conversation. The texts are UTF-8, checked at input. Returns false if out of memory. */
static bool add_message(struct chat *u, const char *role, const struct text *t, const struct text *thoughts)
{
    return conversation_add(u->messages, role, t->p, t->n, thoughts ? thoughts->p : NULL, thoughts ? thoughts->n : 0);
}

/* Appends the user's message, with the pending images. Returns false if out of memory. */
static bool add_user(struct chat *u, const struct text *t)
{
    if (!add_message(u, "user", t, NULL)) return false;
    if (!json_array_size(u->images)) return true;
    const bool ok = conversation_set_content(u->messages, picture_content(u->images, t->p, t->n));
    json_array_clear(u->images);
    return ok;
}

/* ---------------------------------------------------------------------------------------------------------- output */

static void show_thought(struct chat *u, const char *text, size_t n)
{
    if (u->hide) return;
    if (u->color && !u->dimmed) fputs("\033[2m", stderr);
    u->dimmed = true;
    cli_text(stderr, text, n);
}

static void end_thought(struct chat *u)
{
    if (!u->dimmed) return;
    if (u->color) fputs("\033[0m", stderr);
    cli_text(stderr, "\n", 1);
    u->dimmed = false;
}

static void take_text(struct chat *u, bool thought, const char *text, size_t n)
{
    /* skips white space at the start of the answer */
    while (n && !thought && !u->answer.n && strchr(" \n\r\t", *text) && *text) text++, n--;
    if (!n) return;
    u->failed |= !append(thought ? &u->thoughts : &u->answer, text, n);
    if (thought) {
        show_thought(u, text, n);
        return;
    }
    end_thought(u);
    u->failed |= u->view ? !markdown_feed(u->view, text, n) : !cli_text(stdout, text, n);
}

static bool put_view(void *ud, const char *text, size_t n)
{
    (void) ud;
    return cli_text(stdout, text, n);
}

/* Prepares the output of a turn's answer. Returns false if out of memory. */
static bool open_view(struct chat *u)
{
    struct winsize w = {0};
    if (!isatty(STDOUT_FILENO) || !cli_bool(u->c, "markdown")) return true;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w)) w.ws_col = 0;
    u->view = markdown_new(w.ws_col, cli_color(u->c, STDOUT_FILENO), put_view, NULL);
    return u->view != NULL;
}

static void close_view(struct chat *u)
{
    if (u->view) u->failed |= !markdown_end(u->view);
    markdown_free(u->view);
    u->view = NULL;
}

/* Prints the parser's new reasoning and content, and appends them to the current turn. */
static void take_deltas(struct chat *u)
{
    pi_chat_delta d = {.size = sizeof d};
    while (pi_chat_parser_next(u->parser, &d))
        if (d.kind == PI_CHAT_CONTENT || d.kind == PI_CHAT_REASONING)
            take_text(u, d.kind == PI_CHAT_REASONING, d.text, d.text_len);
}

static void take_event(struct chat *u, const pi_event *ev)
{
    if (!u->split && ev->text_len) take_text(u, false, ev->text, ev->text_len);
    if (!u->split) return;
    u->failed |= pi_chat_parser_feed(u->parser, ev->text, ev->text_len) != PI_OK;
    take_deltas(u);
}

/* ----------------------------------------------------------------------------------------------------------- turns */

/* Shows events of r until the request ends. A signal or a closed output cancels r. Returns PI_OK or a PI_E* code. */
static int stream(struct chat *u, pi_request *r)
{
    pi_event *ev[32];
    bool done = false, canceled = false;
    int code = PI_OK;
    while (!done) {
        if (!canceled && (cli_signal() || u->failed)) {
            pi_request_cancel(r);
            canceled = true;
        }
        int n = canceled ? pi_poll(u->e, ev, 32, -1) : cli_poll(u->e, ev, 32);
        if (n < 0) return n;
        for (int i = 0; i < n; i++) {
            take_event(u, ev[i]);
            done |= ev[i]->kind == PI_EVENT_DONE;
            if (ev[i]->kind == PI_EVENT_DONE && ev[i]->finish_reason != PI_FINISH_CANCEL) code = ev[i]->code;
            pi_event_release(ev[i]);
        }
        if (!n && canceled) done = true;
    }
    if (u->split) {
        u->failed |= pi_chat_parser_end(u->parser, PI_FINISH_STOP) < 0;
        take_deltas(u);
    }
    end_thought(u);
    return code;
}

static int ask(struct chat *u, pi_request **out, pi_error *err)
{
    char *json = json_write(u->messages, 0);
    pi_request *r = *out = json ? pi_request_new(u->e) : NULL;
    int rc = r ? picture_add(u->messages, r, err) : PI_ENOMEM;
    if (!rc) rc = pi_request_prompt_chat(r, json, NULL, u->options, err);
    free(json);
    if (!rc && u->split) rc = pi_chat_parser_new(&u->parser, u->e, NULL, u->options, err);
    /* Reasoning tags may be control tokens. */
    if (!rc && u->split && !cli_given(u->c, "special")) rc = pi_request_set(r, "special", "true", err);
    return rc ? rc : pi_request_submit(r, err);
}

static int turn_error(const struct chat *u, int rc, pi_error *err)
{
    if (!err->code) err->code = rc;
    return cli_pi_error(u->c, err);
}

static int print_prompt(const struct chat *u, pi_error *err)
{
    char *prompt;
    size_t len = 0;
    int rc = conversation_render(u->e, u->messages, u->options, &prompt, &len, err);
    if (!rc) cli_print_prompt(u->c, u->e, prompt, len);
    free(prompt);
    return rc;
}

/* Generates the answer to the conversation. Returns an exit code. */
static int take_turn(struct chat *u)
{
    pi_error err = {0};
    pi_request *r = NULL;
    u->answer.n = u->thoughts.n = 0;
    int rc = cli_bool(u->c, "verbose-prompt") ? print_prompt(u, &err) : PI_OK;
    if (!rc && !open_view(u)) rc = PI_ENOMEM;
    if (!rc) rc = ask(u, &r, &err);
    if (!rc) {
        rc = stream(u, r);
        close_view(u);
        cli_text(stdout, "\n", 1);
        pi_result res = {.size = sizeof res};
        pi_request_result(r, &res);
        if (rc) snprintf(err.msg, sizeof err.msg, "%s", *res.msg ? res.msg : pi_strerror(rc));
        else if (cli_bool(u->c, "perf")) cli_print_speed(u->c, &r, 1);
    }
    close_view(u);
    pi_request_free(r);
    pi_chat_parser_free(u->parser);
    u->parser = NULL;
    if (rc) return turn_error(u, rc, &err);
    int code = cli_flush(u->c);
    if (!code && (u->failed || !add_message(u, "assistant", &u->answer, &u->thoughts))) code = no_memory(u);
    return code;
}

/* ---------------------------------------------------------------------------------------------------------- typing */

enum typed { TYPED_MESSAGE, TYPED_AGAIN, TYPED_NOTHING, TYPED_END, TYPED_FAILED };

static enum typed read_file(struct chat *u, const char *path)
{
    char *text;
    size_t n;
    if (cli_read_file(u->c, path, &text, &n)) return TYPED_NOTHING;
    bool text_ok = cli_is_utf8(u->c, path, text, n);
    bool ok = !text_ok || (append(&u->draft, text, n) && append(&u->draft, "\n", 1));
    free(text);
    if (ok && text_ok) fprintf(stderr, "%s: %zu bytes\n", path, n);
    return ok ? TYPED_NOTHING : TYPED_FAILED;
}

static enum typed clear(struct chat *u, const char *arg)
{
    (void) arg;
    conversation_clear(u->messages);
    fputs("The conversation is empty.\n", stderr);
    return TYPED_NOTHING;
}

static enum typed answer_again(struct chat *u, const char *arg)
{
    (void) arg;
    if (conversation_last_is(u->messages, "assistant")) conversation_drop_last(u->messages);
    if (conversation_last_is(u->messages, "user")) return TYPED_AGAIN;
    fputs("No message to answer yet.\n", stderr);
    return TYPED_NOTHING;
}

static enum typed set_system(struct chat *u, const char *text)
{
    if (!conversation_set_system(u->messages, text, strlen(text))) return TYPED_FAILED;
    fputs(*text ? "The system prompt has changed.\n" : "The system prompt is removed.\n", stderr);
    return TYPED_NOTHING;
}

static enum typed save(struct chat *u, const char *path)
{
    if (!conversation_save(u->c, u->messages, path))
        fprintf(stderr, "%s: %zu messages\n", path, json_array_size(u->messages));
    return TYPED_NOTHING;
}

/* Replaces the conversation by the one in the file. If the template refuses that one, the current one is kept. */
static enum typed load(struct chat *u, const char *path)
{
    json_t *list;
    char *text;
    size_t len;
    pi_error err = {0};
    if (conversation_load(u->c, path, &list)) return TYPED_NOTHING;
    int rc = conversation_render(u->e, list, u->options, &text, &len, &err);
    free(text);
    if (rc) {
        turn_error(u, rc, &err);
    } else {
        json_t *old = u->messages;
        u->messages = json_incref(list);
        json_decref(old);
        fprintf(stderr, "%s: %zu messages\n", path, json_array_size(list));
    }
    json_decref(list);
    return TYPED_NOTHING;
}

static enum typed leave(struct chat *u, const char *arg)
{
    (void) u;
    (void) arg;
    return TYPED_END;
}

static enum typed show_help(struct chat *u, const char *arg)
{
    (void) u;
    (void) arg;
    fputs(help, stderr);
    return TYPED_NOTHING;
}

static enum typed add_image(struct chat *u, const char *path)
{
    pi_info info = {.size = sizeof info};
    if (pi_engine_info(u->e, &info) || !(info.modalities & PI_MODALITY_VISION))
        fputs("This model reads no images: start with --mmproj FILE, the GGUF of its vision part.\n", stderr);
    else if (!picture_part(u->c, path, u->images))
        fprintf(stderr, "%s: image %zu of the next message\n", path, json_array_size(u->images));
    return TYPED_NOTHING;
}

static enum typed refuse_media(struct chat *u, const char *arg)
{
    (void) u;
    (void) arg;
    fputs("Only text and images are supported, no audio or video. /read FILE reads a text file.\n", stderr);
    return TYPED_NOTHING;
}

enum argument { NONE, MAY_HAVE, NEEDS_FILE };

static const struct {
    const char *name;
    enum argument arg;
    enum typed (*run)(struct chat *u, const char *arg);
} commands[] = {
    {"/clear", NONE, clear}, {"/regen", NONE, answer_again}, {"/system", MAY_HAVE, set_system},
    {"/read", NEEDS_FILE, read_file}, {"/save", NEEDS_FILE, save}, {"/load", NEEDS_FILE, load}, {"/exit", NONE, leave},
    {"/quit", NONE, leave}, {"/help", NONE, show_help}, {"/?", NONE, show_help}, {"/image", NEEDS_FILE, add_image},
    {"/audio", MAY_HAVE, refuse_media}, {"/video", MAY_HAVE, refuse_media}};

/* Runs a command. Trailing spaces of line are ignored. */
static enum typed command(struct chat *u, char *line)
{
    size_t n = strcspn(line, " "), len = strlen(line);
    while (len && line[len - 1] == ' ') line[--len] = 0;
    const char *arg = line + n + strspn(line + n, " ");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strlen(commands[i].name) != n || strncmp(line, commands[i].name, n)) continue;
        if (*arg ? commands[i].arg != NONE : commands[i].arg != NEEDS_FILE) return commands[i].run(u, arg);
        fprintf(stderr, "%s %s\n", commands[i].name, *arg ? "accepts no text after it." : "needs a file name.");
        return TYPED_NOTHING;
    }
    fprintf(stderr, "Unknown command %.40s; type // for a message that begins with /. Commands:\n", line);
    return show_help(u, NULL);
}

/* True if the text is a command: one line that begins with a single slash. */
static bool is_command(const char *line, size_t n)
{
    return n && line[0] == '/' && !(n > 1 && line[1] == '/') && !memchr(line, '\n', n);
}

/* Reads the next line: a command, a message, or a part of a message, which is appended to the draft. */
static enum typed next_line(struct chat *u, bool *more)
{
    const char *line;
    size_t n;
    bool first = !*more;
    int rc = line_read(u->in, first ? "> " : "| ", &line, &n);
    if (rc == -2) return TYPED_FAILED;
    *more = false;
    if (rc == -1 && cli_signal() == 2 && line_was_kept(u->in)) { /* Ctrl-C drops the message; the history keeps it */
        fputs("The message is not sent; arrow up brings it back. Ctrl-C again, or Ctrl-D, ends.\n", stderr);
        cli_signal_reset();
        u->draft.n = 0;
        return TYPED_NOTHING;
    }
    /* A message ended by the end of input counts as complete. */
    if (rc <= 0) return !rc && u->draft.n ? TYPED_MESSAGE : TYPED_END;
    if (!cli_is_utf8(u->c, "the line is not sent", line, n)) {
        u->draft.n = 0; /* drops the previous lines of the message too */
        return TYPED_NOTHING;
    }
    if (first && is_command(line, n)) {
        struct text t = {0};
        enum typed what = append(&t, line, n) ? command(u, t.p) : TYPED_FAILED;
        free(t.p);
        return what;
    }
    size_t skip = first && n > 1 && line[0] == '/' && line[1] == '/';
    *more = line_goes_on(u->multiline, line, &n);
    bool ok = append(&u->draft, line + skip, n - skip) && (!*more || append(&u->draft, "\n", 1));
    return !ok ? TYPED_FAILED : *more || !u->draft.n ? TYPED_NOTHING : TYPED_MESSAGE;
}

/* Reads the next message. *end: end of input, or an error (the exit code). */
static int next_message(struct chat *u, bool *end)
{
    bool more = false;
    enum typed what = TYPED_NOTHING;
    if (line_is_terminal(u->in)) fputc('\n', stderr);
    while (what == TYPED_NOTHING) what = next_line(u, &more);
    *end = what == TYPED_END || what == TYPED_FAILED;
    if (what == TYPED_FAILED) return no_memory(u);
    if (what == TYPED_END && cli_signal()) return 128 + cli_signal();
    if (what != TYPED_MESSAGE) return CLI_OK;
    while (u->draft.n && u->draft.p[u->draft.n - 1] == '\n') u->draft.n--;
    const bool ok = add_user(u, &u->draft);
    u->draft.n = 0;
    return ok ? CLI_OK : no_memory(u);
}

/* ---------------------------------------------------------------------------------------------------- conversation */

/* Runs turns until the end. In an interactive conversation, a failed turn (for example one that exceeds the context)
 * does not end it. */
static int converse(struct chat *u, bool first)
{
    bool single = cli_bool(u->c, "single-turn"), end = false;
    int code = CLI_OK;
    for (bool ready = first; !end; ready = false) {
        if (!ready) code = next_message(u, &end);
        if (end || code) break;
        code = take_turn(u);
        if (u->failed) break;
        if (cli_signal() && cli_signal() != 2) return 128 + cli_signal();
        if (cli_signal() && (single || !line_is_terminal(u->in))) return 128 + cli_signal();
        cli_signal_reset();
        if (code && conversation_last_is(u->messages, "user")) conversation_drop_last(u->messages);
        if (single || (code && !line_is_terminal(u->in))) break;
        code = CLI_OK;
    }
    return code;
}

/* Reads --system-prompt or its file, and --prompt or --file. *first: there is a message to answer. */
static int first_messages(struct chat *u, bool *first)
{
    struct text t = {0};
    int code = CLI_OK;
    *first = false;
    if (cli_given(u->c, "system-prompt-file")) {
        code = cli_read_file(u->c, cli_str(u->c, "system-prompt-file"), &t.p, &t.n);
    } else if (cli_given(u->c, "system-prompt")) {
        const char *s = cli_str(u->c, "system-prompt");
        if (!append(&t, s, strlen(s))) return no_memory(u);
        if (cli_bool(u->c, "escape")) t.n = cli_unescape(t.p, t.n);
    }
    if (!code && !cli_is_utf8(u->c, "the system prompt", t.p, t.n)) code = CLI_DATA;
    if (!code && t.n && !add_message(u, "system", &t, NULL)) code = no_memory(u);
    free(t.p);
    if (!code) code = picture_parts(u->c, u->images);
    if (code || (!cli_given(u->c, "prompt") && !cli_given(u->c, "file"))) return code;
    t = (struct text) {0};
    code = cli_prompt(u->c, false, &t.p, &t.n);
    if (!code && !cli_is_utf8(u->c, "the prompt", t.p, t.n)) code = CLI_DATA;
    if (!code && !add_user(u, &t)) code = no_memory(u);
    free(t.p);
    *first = !code;
    return code;
}

/* Sets the template variables that flags imply. */
static int make_options(struct chat *u)
{
    const char *reasoning = cli_str(u->c, "reasoning");
    bool off = !strcmp(reasoning, "off") || cli_int(u->c, "reasoning-budget") == 0;
    const char *effort = cli_str(u->c, "reasoning-effort");
    bool on = !strcmp(reasoning, "on"), any = *effort && strcmp(effort, "default") != 0;
    if (!off && !on && !any) return CLI_OK;
    json_t *o = json_pack("{s:s*}", "reasoning_effort", any ? effort : NULL);
    bool ok = o && (!(off || on) || !json_object_set_new(o, "enable_thinking", json_boolean(on && !off)));
    u->options = ok ? json_write(o, 0) : NULL;
    json_decref(o);
    return u->options ? CLI_OK : no_memory(u);
}

static void show_banner(const struct chat *u)
{
    pi_info info = {.size = sizeof info};
    if (!pi_engine_info(u->e, &info))
        fprintf(stderr, "%s%s%s on %s, context of %u tokens.\n", info.name, *info.name ? ", " : "", info.type_desc,
                info.device, info.ctx_size);
    fputs("Type a message, or /help.\n", stderr);
}

static int with_engine(struct chat *u)
{
    bool first;
    const char *format = cli_str(u->c, "reasoning-format");
    int code = make_options(u);
    u->messages = json_array();
    u->images = json_array();
    u->split = strcmp(format, "none") != 0;
    u->hide = !strcmp(format, "hidden");
    u->multiline = cli_bool(u->c, "multiline-input");
    if (!code && (!u->messages || !u->images)) code = no_memory(u);
    if (!code) code = first_messages(u, &first);
    if (!code && line_is_terminal(u->in)) show_banner(u);
    if (!code) code = converse(u, first);
    json_decref(u->messages);
    json_decref(u->images);
    free(u->options);
    free(u->draft.p);
    free(u->answer.p);
    free(u->thoughts.p);
    return code;
}

/* Handles a model without a template: completes the prompt unless a conversation was requested. */
static int without_template(struct chat *u, const pi_error *err)
{
    const cli *c = u->c;
    bool prompt = cli_given(c, "prompt") || cli_given(c, "file") || !isatty(STDIN_FILENO);
    if (!cli_given(c, "conversation") && prompt) {
        fprintf(stderr, "%s: %s; completing the prompt without a template\n", c->name, err->msg);
        return cmd_run(c);
    }
    cli_pi_error(c, err);
    fputs("This model continues texts: 'pagedinfer run -m FILE -p TEXT'. For a conversation, give a "
          "template with --chat-template or --chat-template-file.\n", stderr);
    return CLI_UNAVAILABLE;
}

int cmd_chat(const cli *c)
{
    struct chat u = {.c = c, .color = cli_color(c, STDERR_FILENO)};
    pi_error err = {0};
    int code = CLI_OK;
    if (!cli_bool(c, "conversation")) return cmd_run(c);
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    if (cli_given(c, "in-prefix") || cli_given(c, "in-suffix") || cli_given(c, "in-prefix-bos"))
        fprintf(stderr, "%s: --in-prefix and --in-suffix are ignored: the chat template formats a "
                        "message\n", c->name);
    pi_options *o = cli_options(c, &code);
    if (o && !cli_given(c, "parallel") && pi_options_set(o, "parallel", "1", &err)) code = cli_pi_error(c, &err);
    /* Opened first: keys typed while the model loads are kept for the prompt. */
    char *history = recall_path(cli_str(c, "history-file"));
    if (o && !code && !(u.in = line_open(cli_bool(c, "simple-io"), u.color, history))) code = no_memory(&u);
    free(history);
    if (o && !code) code = cli_open(c, o, &u.e);
    static const char probe[] = "[{\"role\":\"user\",\"content\":\"\"}]";
    bool no_template = u.e && pi_chat_render(u.e, probe, NULL, NULL, NULL, 0, &err) == PI_EUNSUPPORTED;
    if (u.e && !no_template) code = with_engine(&u);
    cli_close(c, u.e);
    pi_options_free(o);
    line_close(u.in);
    return no_template ? without_template(&u, &err) : code;
}
