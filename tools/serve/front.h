/* The server of several models: connections, signals and the end; the models are in router.h. */
#ifndef PAGEDINFER_SERVE_FRONT_H
#define PAGEDINFER_SERVE_FRONT_H

#include "cli.h"

/* True if the command line selects a front end: --models-dir, --models-preset, no model (the models of the cache), or
 * --sleep-idle-seconds. */
bool front_serves(const cli *c);
/* Runs the front end. Returns an exit code. */
int front_run(const cli *c);

#endif
