/* Events from the step thread to callers (events.c). "lock": the engine's lock is held. */
#ifndef PI__EVENTS_H
#define PI__EVENTS_H

#include "api/objects.h"

int pi__events_init(pi_engine *e, pi_error *err);
/* Delivers what callbacks are still owed and ends the dispatch thread. */
void pi__dispatch_stop(pi_engine *e);
/* Frees every node. */
void pi__events_destroy(pi_engine *e);
/* Starts the dispatch thread where it does not run. */
int pi__dispatch_start(pi_engine *e, pi_error *err);
/* lock: appends a token, whose text has n bytes, to the sample's open TEXT event, or opens one. false: out of memory,
 * nothing changed. */
bool pi__event_text(pi__sample *s, const pi__token_out *t, const char *text, size_t n);
/* lock: how far the prompt is, in the request's queued PROGRESS event, or in a new one; without memory it is not told. */
void pi__event_progress(pi_request *r, uint32_t n_computed, uint32_t n_cached, double ms);
/* lock: queues r->prompt_event. Allocates nothing. */
void pi__event_prompt(pi_request *r);
/* lock: queues a sample's last event; text of n bytes is given to it (may be NULL). Allocates nothing. */
void pi__event_done(pi__sample *s, char *text, size_t n);
/* lock: forgets queued events of r. */
void pi__events_drop(pi_request *r);
/* lock: pollers look again whether anything is left to wait for. */
void pi__events_recheck(pi_engine *e);

#endif
