/* The side of a model's process that talks to its front end (model_process.h is the other side): lines on standard
 * output, commands on standard input. The end of standard input means that the front end is gone, so the process ends.
 *
 *     to the front end                          from the front end
 *     free BYTES       free memory; 0 = unknown
 *                                               limit BYTES   maximum planned memory; 0 = no limit
 *     memory BYTES     planned memory
 *                                               load
 *     progress PERCENT
 *     ready JSON       server_description
 *     adapters JSON    names of all adapters; before `ready`, and after each change
 *
 * Threads: the loop's, the loader's for supervised_plan and supervised_progress, and the pool's for
 * supervised_adapters. */
#ifndef PAGEDINFER_SERVE_SUPERVISED_H
#define PAGEDINFER_SERVE_SUPERVISED_H

#include <jansson.h>
#include <uv.h>

#include "pagedinfer.h"
#include "serve/service.h"

typedef struct supervised supervised;

/* Starts reading commands. on_end(ud) is called on the loop when standard input ends. NULL = out of memory, or standard
 * input is no pipe. */
supervised *supervised_open(uv_loop_t *loop, void (*on_end)(void *ud), void *ud);
/* Reports the planned memory of an engine with these options, and waits for permission to load. Shrinks a cache without
 * explicit size to the front end's limit. Returns PI_OK, PI_ECANCELED after supervised_cancel, or an error of the
 * plan. */
int supervised_plan(supervised *s, pi_options *o, pi_error *err);
/* Reports the progress of loading, when the percentage changes. */
void supervised_progress(supervised *s, uint64_t done, uint64_t total);
/* Reports that requests are accepted. Takes ownership of description. */
void supervised_ready(supervised *s, json_t *description);
/* Reports the names of the engine's adapters. s may be NULL. */
void supervised_adapters(supervised *s, const service *sv);
/* Ends the wait of supervised_plan. */
void supervised_cancel(supervised *s);
/* Closes the handle of standard input; supervised_free follows after the loop has ended. */
void supervised_close(supervised *s);
void supervised_free(supervised *s);

#endif
