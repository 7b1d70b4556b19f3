/* systemd: readiness and watchdog over NOTIFY_SOCKET, and sockets that were opened for this process (LISTEN_FDS). Where
 * it was not started by systemd nothing happens. */
#ifndef PAGEDINFER_SERVE_NOTIFY_H
#define PAGEDINFER_SERVE_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STOPPING=1", "WATCHDOG=1", or several with newlines between. */
void notify(const char *what);
/* Microseconds within which "WATCHDOG=1" has to be said again; 0: nobody watches. */
uint64_t notify_watchdog(void);
/* Sockets that were passed on; they are numbered from 3. */
int notify_sockets(void);

#endif
