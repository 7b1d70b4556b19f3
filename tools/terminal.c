/* The terminal's modes (see terminal.h). No allocations. Signal handlers run on any thread that does not block the
 * signal; handlers and their callees use only async-signal-safe functions. */
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios original, quiet;
static struct termios resumed; /* modes set by on_continue: the modes at suspension */
static volatile sig_atomic_t is_open, pastes, continued;

static void say(const char *s, size_t n)
{
    while (n) {
        ssize_t put = write(STDERR_FILENO, s, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return;
        s += put;
        n -= (size_t) put;
    }
}

static void bracket_pastes(bool on)
{
    if (pastes) say(on ? "\033[?2004h" : "\033[?2004l", 8);
}

/* True if this process may change the terminal's modes. In the background another process group owns the terminal, and
 * changing it would stop this process. Also true if the terminal controls no session. */
static bool in_foreground(void)
{
    pid_t group = tcgetpgrp(STDIN_FILENO);
    return group < 0 || group == getpgrp();
}

void terminal_close(void)
{
    int saved = errno;
    if (is_open && in_foreground()) {
        bracket_pastes(false);
        tcsetattr(STDIN_FILENO, TCSANOW, &original);
    }
    is_open = 0;
    errno = saved;
}

/* Performs the default action of sig. */
static void default_action(int sig)
{
    struct sigaction sa = {.sa_handler = SIG_DFL};
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
    raise(sig);
}

static void on_end(int sig)
{
    terminal_close();
    default_action(sig);
}

static void on_continue(int sig)
{
    int saved = errno;
    (void) sig;
    if (is_open && in_foreground()) {
        tcsetattr(STDIN_FILENO, TCSANOW, &resumed);
        bracket_pastes(true);
    }
    resumed = quiet;
    continued = 1;
    errno = saved;
}

/* Restores the original modes for the shell before suspension. raise returns after the process was continued. */
static void on_stop(int sig)
{
    int saved = errno;
    if (is_open && in_foreground() && !tcgetattr(STDIN_FILENO, &resumed)) {
        bracket_pastes(false);
        tcsetattr(STDIN_FILENO, TCSANOW, &original);
    }
    default_action(sig);
    struct sigaction sa = {.sa_handler = on_stop, .sa_flags = (int) SA_NODEFER | SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
    errno = saved;
}

/* Installs a handler. Signals that the parent process set to be ignored stay ignored. */
static void handle(int sig, void (*fn)(int), int flags)
{
    struct sigaction old, sa = {.sa_handler = fn, .sa_flags = flags | (int) SA_RESTART};
    sigemptyset(&sa.sa_mask);
    if (!sigaction(sig, NULL, &old) && old.sa_handler == SIG_DFL) sigaction(sig, &sa, NULL);
}

bool terminal_find(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !tcgetattr(STDIN_FILENO, &original);
}

void terminal_open(void)
{
    static bool at_exit;
    quiet = original;
    quiet.c_lflag &= ~(tcflag_t) (ICANON | ECHO | IEXTEN);
    quiet.c_iflag &= ~(tcflag_t) (ICRNL | INLCR | IGNCR);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    resumed = quiet;
    pastes = terminal_has_escapes();
    is_open = 1;
    if (!at_exit) atexit(terminal_close);
    at_exit = true;
    handle(SIGTSTP, on_stop, (int) SA_NODEFER);
    handle(SIGCONT, on_continue, 0);
    handle(SIGINT, on_end, 0); /* until cli_catch_signals */
    handle(SIGTERM, on_end, 0);
    handle(SIGHUP, on_end, 0);
    handle(SIGQUIT, on_end, 0);
    if (!in_foreground()) return; /* on_continue sets the modes later */
    tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    bracket_pastes(true);
}

bool terminal_continued(void)
{
    bool was = continued;
    continued = 0;
    return was;
}

bool terminal_has_escapes(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

void terminal_size(size_t *rows, size_t *columns)
{
    struct winsize w;
    bool known = !ioctl(STDERR_FILENO, TIOCGWINSZ, &w);
    *rows = known && w.ws_row ? w.ws_row : 24;
    *columns = known && w.ws_col ? w.ws_col : 80;
}
