/* The start of a server, with an engine or as a front end: access keys, certificates, listeners, limits. Runs on the
 * loop's thread. */
#ifndef PAGEDINFER_SERVE_START_H
#define PAGEDINFER_SERVE_START_H

#include "serve/server.h"

/* Sets the fields of s that follow from the command line alone, and the callbacks of its connections. */
void start_configure(server *s, const cli *c);
/* Reads the API keys and the certificate. Returns an exit code. */
int start_access(server *s);
/* Reads them again, after SIGHUP. After an error the old ones stay in use. */
void start_reload(server *s);
/* Opens all listeners, or takes those of systemd. Returns an exit code. */
int start_listen(server *s);

#endif
