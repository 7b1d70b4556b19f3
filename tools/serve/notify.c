/* systemd's protocols (see notify.h): environment variables and a datagram. */
#include "serve/notify.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify(const char *what)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (!n || n >= sizeof a.sun_path || (*path != '/' && *path != '@')) return;
    memcpy(a.sun_path, path, n);
    if (*path == '@') a.sun_path[0] = 0; /* abstract socket name */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    socklen_t len = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + n);
    /* systemd detects a missing message */
    if (sendto(fd, what, strlen(what), MSG_NOSIGNAL, (struct sockaddr *) &a, len) < 0) {}
    close(fd);
}

static long long number(const char *name)
{
    const char *v = getenv(name);
    return v ? strtoll(v, NULL, 10) : 0;
}

/* True if the variables are for this process, not for its parent. */
static int is_for_us(const char *pid_name, int when_absent)
{
    long long pid = number(pid_name);
    return pid ? pid == (long long) getpid() : when_absent;
}

uint64_t notify_watchdog(void)
{
    long long usec = number("WATCHDOG_USEC");
    return usec > 0 && is_for_us("WATCHDOG_PID", 1) ? (uint64_t) usec : 0;
}

int notify_sockets(void)
{
    long long n = number("LISTEN_FDS");
    if (n < 1 || n > 16 || !is_for_us("LISTEN_PID", 0)) return 0;
    for (int fd = 3; fd < 3 + (int) n; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
    return (int) n;
}
