/* `pagedinfer weights`: shares a model's packed weights with other processes, until a signal. */
#include <poll.h>

#include "cli.h"

/* Waits for SIGINT or SIGTERM. */
static void wait_for_signal(void)
{
    struct pollfd p = {.fd = cli_signal_fd(), .events = POLLIN};
    while (!cli_signal()) (void) poll(&p, 1, -1);
}

int cmd_weights(const cli *c)
{
    int code = CLI_OK;
    pi_error err = {0};
    pi_weights *w = NULL;
    const char *socket = cli_str(c, "socket");
    if (!*socket) return cli_usage_error(c, "give the path of the socket: --socket PATH");
    pi_options *o = cli_options(c, &code);
    if (!o) return code;
    code = cli_catch_signals();
    if (code) {
        pi_options_free(o);
        return code;
    }
    int rc = pi_weights_open(&w, o, socket, &err);
    pi_options_free(o);
    if (rc) return cli_pi_error(c, &err);
    printf("sharing the weights with processes that use --weights-from %s\n", socket);
    code = cli_flush(c);
    if (!code) wait_for_signal();
    pi_weights_close(w);
    return code;
}
