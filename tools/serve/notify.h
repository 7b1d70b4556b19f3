/* systemd integration: readiness and watchdog over NOTIFY_SOCKET, and socket activation (LISTEN_FDS). Without systemd
 * the functions do nothing. */
#ifndef PAGEDINFER_SERVE_NOTIFY_H
#define PAGEDINFER_SERVE_NOTIFY_H

#include <stdint.h>

/* Sends "READY=1", "STOPPING=1", "WATCHDOG=1", or several of them separated by newlines. */
void notify(const char *what);
/* Returns the interval in microseconds within which "WATCHDOG=1" must be sent; 0 = no watchdog. */
uint64_t notify_watchdog(void);
/* Returns the number of passed sockets; their descriptors start at 3. */
int notify_sockets(void);

#endif
