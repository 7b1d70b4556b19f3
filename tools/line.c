/* Reads lines of standard input (see line.h). Reading waits for input and for a signal, so that Ctrl-C ends it.
 *
 * Terminal input is passed byte by byte to libedit (PI_HAVE_LIBEDIT) or to the editor. Input after the end of a line
 * stays in the buffer for the next line, as with pipes. */
#include "line.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#ifdef PI_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "cli.h"
#include "editor.h"
#include "recall.h"
#include "terminal.h"

enum { PROMPT = 96 };

struct line_input {
    bool terminal;      /* standard input and error are terminals */
    bool color;
    char prompt[PROMPT]; /* as written, with colors */
    char *buf;          /* [n] bytes read; [0, taken) are consumed */
    size_t n, cap, taken;
    bool end;           /* of input */
    bool kept;          /* see line_was_kept */
    char *file;         /* the history; NULL = none, or it failed */
    editor *editor;     /* NULL = no terminal, or libedit is used */
#ifdef PI_HAVE_LIBEDIT
    EditLine *el;       /* NULL = no terminal, setup failed, or --simple-io */
    History *history;
    int why;            /* result of a failed fetch, as line_read */
#endif
};

static void redraw(line_input *l);

/* Waits for standard input; returns false after a signal. SIGCONT is unblocked only during the wait. Otherwise a
 * pending redraw would wait for the next key. */
static bool wait_input(line_input *l)
{
    sigset_t held, before;
    bool more, done = false;
    sigemptyset(&held);
    sigaddset(&held, SIGCONT);
    pthread_sigmask(SIG_BLOCK, &held, &before);
    while ((more = !cli_signal()) && !done) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = cli_signal_fd(), .events = POLLIN}};
        if (l->terminal && terminal_continued()) redraw(l);
        done = ppoll(fds, 2, NULL, &before) < 0 ? errno != EINTR : fds[0].revents != 0; /* read reports the error */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return more;
}

/* Reads more input into the buffer. Returns 1, 0 at the end, or an error as line_read. */
static int read_more(line_input *l)
{
    if (l->cap - l->n < 4096) {
        size_t cap = l->cap ? l->cap * 2 : 8192;
        char *p = realloc(l->buf, cap);
        if (!p) return -2;
        l->buf = p;
        l->cap = cap;
    }
    for (;;) {
        if (!wait_input(l)) return -1;
        ssize_t got = read(STDIN_FILENO, l->buf + l->n, l->cap - l->n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        l->n += (size_t) got;
        return 1;
    }
}

/* Returns the next byte. On failure *why is 0, -1 or -2 as in line_read. */
static bool next_byte(line_input *l, unsigned char *byte, int *why)
{
    if (l->taken == l->n) {
        l->taken = l->n = 0;
        int rc = read_more(l);
        if (rc <= 0) {
            *why = rc;
            return false;
        }
    }
    *byte = (unsigned char) l->buf[l->taken++];
    return true;
}

/* --------------------------------------------------------------------------------------------------------- history */

/* Adds a line of n bytes to the file; after a failure the file is not used any more. */
static void save(line_input *l, const char *text, size_t n)
{
    const char *why = l->file ? recall_add(l->file, text, n) : NULL;
    if (!why) return;
    fprintf(stderr, "pagedinfer: %s: %s; lines are not saved (--history-file)\n", l->file, why);
    free(l->file);
    l->file = NULL;
}

/* Adds a line to the editor's history. */
static void remember(void *ud, const char *text)
{
    line_input *l = ud;
    if (l->editor) editor_remember(l->editor, text);
#ifdef PI_HAVE_LIBEDIT
    HistEvent ev;
    if (l->el) history(l->history, &ev, H_ENTER, text);
#endif
}

/* Keeps n typed bytes in the history, because a signal ended the input. */
static void keep(line_input *l, const char *typed, size_t n)
{
    char *text = n ? strndup(typed, n) : NULL;
    if (!text) return;
    remember(l, text);
    save(l, text, n);
    l->kept = true;
    free(text);
}

static void load(line_input *l, const char *path)
{
    if (!path || !(l->file = strdup(path))) return;
    const char *why = recall_load(path, remember, l);
    if (!why) return;
    fprintf(stderr, "pagedinfer: %s: %s; earlier lines are not available (--history-file)\n", path, why);
    free(l->file);
    l->file = NULL;
}

bool line_was_kept(const line_input *l) { return l->kept; }

/* --------------------------------------------------------------------------------------------------------- libedit */

#ifdef PI_HAVE_LIBEDIT
static line_input *of(EditLine *el)
{
    line_input *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return l;
}

static char *show_prompt(EditLine *el) { return of(el)->prompt; }

/* Returns the next character to libedit: 1, 0 at the end, -1 after a signal. */
static int fetch(EditLine *el, wchar_t *out)
{
    line_input *l = of(el);
    mbstate_t state = {0};
    for (;;) {
        unsigned char byte;
        if (!next_byte(l, &byte, &l->why)) return l->why ? -1 : 0;
        size_t used = mbrtowc(out, (const char *) &byte, 1, &state);
        if (used == (size_t) -2) continue;
        if (used == (size_t) -1) *out = L'?';
        return 1;
    }
}

/* Called after the start marker of a paste: inserts everything up to the end marker as text. */
static unsigned char take_paste(EditLine *el, wint_t key)
{
    line_input *l = of(el);
    paste p = {0};
    unsigned char byte, what = CC_REFRESH;
    int rc = 0;
    (void) key;
    while (!rc && next_byte(l, &byte, &l->why)) rc = paste_feed(&p, byte);
    if (rc < 0) l->why = -2;
    if (rc <= 0) what = CC_EOF;
    else if (p.n && el_insertstr(el, p.text)) what = CC_ERROR;
    free(p.text);
    return what;
}

static void edit_open(line_input *l)
{
    HistEvent ev;
    l->history = history_init();
    l->el = l->history ? el_init("pagedinfer", stdin, stderr, stderr) : NULL;
    if (!l->el) return;
    history(l->history, &ev, H_SETSIZE, 1000);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_GETCFN, fetch);
    el_wset(l->el, EL_ADDFN, L"insert-paste", L"Insert a paste", take_paste); /* el_set leaks */
    el_source(l->el, NULL);
    el_set(l->el, EL_BIND, "\\e[200~", "insert-paste", NULL);
    /* The terminal must not echo between two lines, and the line ends of a paste must arrive unchanged. */
    el_set(l->el, EL_SETTY, "-x", "-icanon", "-echo", "-iexten", "-icrnl", "-inlcr", NULL);
    el_set(l->el, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL);
}

static int edit_read(line_input *l, const char **text, size_t *len)
{
    int n = 0;
    HistEvent ev;
    l->why = 0;
    el_resize(l->el);
    const char *line = el_gets(l->el, &n);
    if (l->why == -2) return -2;
    if (l->why == -1) {
        const LineInfo *typed = el_line(l->el);
        keep(l, typed->buffer, (size_t) (typed->lastchar - typed->buffer));
    }
    if (!line || n <= 0) {
        fputc('\n', stderr);
        return l->why;
    }
    *len = (size_t) n;
    while (*len && (line[*len - 1] == '\n' || line[*len - 1] == '\r')) --*len;
    if (*len) history(l->history, &ev, H_ENTER, line);
    *text = line;
    return 1;
}

static void edit_close(line_input *l)
{
    if (l->el) el_end(l->el);
    if (l->history) history_end(l->history);
}
#endif

/* ----------------------------------------------------------------------------------------------------------- plain */

static void redraw(line_input *l)
{
#ifdef PI_HAVE_LIBEDIT
    if (l->el) el_set(l->el, EL_REFRESH);
#endif
    if (l->editor) editor_redraw(l->editor);
}

static int plain_read(line_input *l, size_t columns, const char **text, size_t *len)
{
    int what = EDITOR_MORE, why = 0;
    unsigned char byte;
    editor_start(l->editor, l->prompt, columns);
    while (what == EDITOR_MORE) {
        if (!next_byte(l, &byte, &why)) {
            size_t n;
            const char *typed = editor_text(l->editor, &n);
            if (why == -1) keep(l, typed, n);
            fputc('\n', stderr);
            return why;
        }
        what = editor_feed(l->editor, byte);
    }
    if (what == EDITOR_END) fputc('\n', stderr);
    if (what != EDITOR_LINE) return what == EDITOR_END ? 0 : -2;
    *text = editor_text(l->editor, len);
    while (*len && (*text)[*len - 1] == '\n') --*len;
    return 1;
}

static int pipe_read(line_input *l, const char **text, size_t *len)
{
    if (l->taken) memmove(l->buf, l->buf + l->taken, l->n - l->taken);
    l->n -= l->taken;
    l->taken = 0;
    for (size_t from = 0;;) {
        char *nl = l->n > from ? memchr(l->buf + from, '\n', l->n - from) : NULL;
        if (nl || (l->end && l->n)) {
            *text = l->buf;
            *len = nl ? (size_t) (nl - l->buf) : l->n;
            l->taken = *len + (nl != NULL);
            if (*len && l->buf[*len - 1] == '\r') --*len;
            return 1;
        }
        if (l->end) return 0;
        from = l->n;
        int rc = read_more(l);
        if (rc < 0) return rc;
        l->end = rc == 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------- either */

line_input *line_open(bool simple, bool color, const char *file)
{
    line_input *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->color = color && terminal_has_escapes();
    l->terminal = terminal_find();
    if (!l->terminal) return l;
    /* Input is UTF-8, regardless of the locale's encoding. */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
#ifdef PI_HAVE_LIBEDIT
    if (!simple) edit_open(l);
    terminal_open();
    if (l->el) {
        load(l, file);
        return l;
    }
#else
    (void) simple;
    terminal_open();
#endif
    l->editor = editor_new(stderr, terminal_has_escapes(), terminal_size);
    if (l->editor) {
        load(l, file);
        return l;
    }
    line_close(l);
    return NULL;
}

void line_close(line_input *l)
{
    if (!l) return;
#ifdef PI_HAVE_LIBEDIT
    edit_close(l);
#endif
    editor_free(l->editor);
    if (l->terminal) terminal_close();
    free(l->buf);
    free(l->file);
    free(l);
}

bool line_is_terminal(const line_input *l) { return l->terminal; }

int line_read(line_input *l, const char *prompt, const char **text, size_t *len)
{
    if (!l->terminal) return pipe_read(l, text, len);
    const char *mark = l->editor ? "" : "\1"; /* marks zero-width text for libedit; ignored at the end */
    int n = (int) strlen(prompt);
    if (l->color && n > 1)
        snprintf(l->prompt, PROMPT, "%s\033[1;32m%s%.*s%s\033[0m%s%s", mark, mark, n - 1, prompt, mark, mark,
                 prompt + n - 1);
    else snprintf(l->prompt, PROMPT, "%s", prompt);
    terminal_continued(); /* clears the flag: nothing to redraw yet */
    l->kept = false;
    int rc;
#ifdef PI_HAVE_LIBEDIT
    rc = l->el ? edit_read(l, text, len) : plain_read(l, strlen(prompt), text, len);
#else
    rc = plain_read(l, strlen(prompt), text, len);
#endif
    if (rc == 1) save(l, *text, *len);
    return rc;
}

bool line_goes_on(bool multiline, const char *line, size_t *n)
{
    bool marked = *n && line[*n - 1] == '\\';
    *n -= marked;
    return marked != multiline;
}
