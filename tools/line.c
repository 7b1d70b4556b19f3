/* Lines of standard input (see line.h). Reading waits for input and for a signal at once, so that Ctrl-C ends it.
 *
 * With libedit (PI_HAVE_LIBEDIT) a terminal gets line editing; its characters are fetched by the same waiting. */
#include "line.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#ifdef PI_HAVE_LIBEDIT
#include <histedit.h>
#endif

#include "cli.h"

struct line_input {
    const char *prompt; /* shown on a terminal */
    bool terminal;      /* standard input and error are one */
    char *buf;          /* [n] read and not yet taken; [0, taken) was the last line */
    size_t n, cap, taken;
    bool end;           /* of input */
#ifdef PI_HAVE_LIBEDIT
    EditLine *el;       /* NULL: no terminal, or it could not be set up */
    History *history;
    bool signal;        /* why fetch ended */
#endif
};

/* Waits for standard input; false: a signal came. */
static bool wait_input(void)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = cli_signal_fd(), .events = POLLIN}};
        if (cli_signal()) return false;
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return true; /* reading will say what is wrong */
        if (!cli_signal() && fds[0].revents) return true;
    }
}

/* ---------------------------------------------------------------------------------------------------------- libedit */

#ifdef PI_HAVE_LIBEDIT
static char *show_prompt(EditLine *el)
{
    line_input *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *) (size_t) l->prompt;
}

/* The next character for libedit: 1, 0 at the end, -1 when a signal came. */
static int fetch(EditLine *el, wchar_t *out)
{
    line_input *l = NULL;
    mbstate_t state = {0};
    el_get(el, EL_CLIENTDATA, &l);
    for (;;) {
        char c;
        if (!wait_input()) {
            l->signal = true;
            return -1;
        }
        ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int) n;
        size_t used = mbrtowc(out, &c, 1, &state);
        if (used == (size_t) -2) continue;
        if (used == (size_t) -1) *out = L'?';
        return 1;
    }
}

static void edit_open(line_input *l)
{
    HistEvent ev;
    l->history = history_init();
    l->el = l->history ? el_init("pagedinfer", stdin, stderr, stderr) : NULL;
    if (!l->el) return;
    history(l->history, &ev, H_SETSIZE, 1000);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, show_prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_GETCFN, fetch);
    el_source(l->el, NULL);
}

static int edit_read(line_input *l, const char **text, size_t *len)
{
    int n = 0;
    HistEvent ev;
    l->signal = false;
    const char *line = el_gets(l->el, &n);
    if (l->signal) fputc('\n', stderr);
    if (!line || n <= 0) return l->signal ? -1 : 0;
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

/* ------------------------------------------------------------------------------------------------------------ plain */

line_input *line_open(const char *prompt)
{
    line_input *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->prompt = prompt;
    l->terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
#ifdef PI_HAVE_LIBEDIT
    if (l->terminal) edit_open(l);
#endif
    return l;
}

void line_close(line_input *l)
{
    if (!l) return;
#ifdef PI_HAVE_LIBEDIT
    edit_close(l);
#endif
    free(l->buf);
    free(l);
}

bool line_is_terminal(const line_input *l) { return l->terminal; }

/* More input behind what is there: 1, 0 at the end, or as line_read. */
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
        if (!wait_input()) return -1;
        ssize_t got = read(STDIN_FILENO, l->buf + l->n, l->cap - l->n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        l->n += (size_t) got;
        return 1;
    }
}

int line_read(line_input *l, const char **text, size_t *len)
{
#ifdef PI_HAVE_LIBEDIT
    if (l->el) return edit_read(l, text, len);
#endif
    if (l->taken) memmove(l->buf, l->buf + l->taken, l->n - l->taken);
    l->n -= l->taken;
    l->taken = 0;
    if (l->terminal) fputs(l->prompt, stderr);
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
