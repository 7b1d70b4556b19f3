/* SIGINT and SIGTERM: the first signal is recorded, so that running work can end cleanly; the second one ends the
 * process (see cli.h). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

static volatile sig_atomic_t caught;
static int signal_pipe[2] = {-1, -1};

static void on_signal(int sig)
{
    int saved = errno;
    if (caught) { /* second signal */
        struct sigaction sa = {.sa_handler = SIG_DFL};
        sigemptyset(&sa.sa_mask);
        terminal_close();
        sigaction(sig, &sa, NULL);
        raise(sig); /* delivered when this handler returns */
        return;
    }
    caught = sig;
    if (write(signal_pipe[1], "", 1) < 0) errno = saved; /* the pipe is full, so it is readable */
    errno = saved;
}

static void catch_them(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int) SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

void cli_release_signals(void)
{
    if (signal_pipe[0] < 0) return;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    for (int i = 0; i < 2; i++) {
        close(signal_pipe[i]);
        signal_pipe[i] = -1;
    }
    caught = 0;
}

void cli_signal_reset(void)
{
    char b[16];
    if (!caught) return;
    while (read(signal_pipe[0], b, sizeof b) > 0) {}
    caught = 0;
}

int cli_catch_signals(void)
{
    if (signal_pipe[0] >= 0) return CLI_OK;
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK)) {
        fprintf(stderr, "pagedinfer: pipe: %s\n", strerror(errno));
        return CLI_OS;
    }
    catch_them();
    return CLI_OK;
}

int cli_signal(void) { return caught; }
int cli_signal_fd(void) { return signal_pipe[0]; }

int cli_poll(pi_engine *e, pi_event **ev, size_t cap)
{
    for (;;) {
        int n = pi_poll(e, ev, cap, 0);
        if (n || caught) return n;
        struct pollfd fds[2] = {{.fd = pi_poll_fd(e), .events = POLLIN}, {.fd = cli_signal_fd(), .events = POLLIN}};
        /* If the state is not READY, no further event may arrive: check again soon. */
        if (poll(fds, 2, pi_engine_state(e) == PI_STATE_READY ? -1 : 100) < 0 && errno != EINTR) return 0;
    }
}
