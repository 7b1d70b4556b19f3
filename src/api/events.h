/* Events from the step thread to callers (events.c). "lock" = the engine's lock is held. */
#ifndef PI__EVENTS_H
#define PI__EVENTS_H

#include "api/objects.h"

/* Initializes the engine's lock, its condition variables and the descriptor of pi_poll_fd. */
int pi__events_init(pi_engine *e, pi_error *err);
/* Waits until the dispatch thread has delivered all queued events of callbacks, and ends it. */
void pi__dispatch_stop(pi_engine *e);
/* Frees all queued and taken events, closes the descriptor, and destroys the lock and the condition variables. */
void pi__events_destroy(pi_engine *e);
/* Starts the dispatch thread if it does not run. */
int pi__dispatch_start(pi_engine *e, pi_error *err);
/* lock: appends a token with n bytes of text to the sample's open TEXT event, or creates one. false = out of memory,
 * nothing changed. */
bool pi__event_text(pi__sample *s, const pi__token_out *t, const char *text, size_t n);
/* lock: updates the request's queued PROGRESS event, or queues a new one. Out of memory: the event is dropped. */
void pi__event_progress(pi_request *r, uint32_t n_computed, uint32_t n_cached, double ms);
/* lock: queues r->prompt_event. Allocates nothing. */
void pi__event_prompt(pi_request *r);
/* lock: queues a sample's last event, which takes ownership of text (n bytes, may be NULL). Allocates nothing. */
void pi__event_done(pi__sample *s, char *text, size_t n);
/* lock: frees the queued events of r; events that pi_poll has returned stay valid. */
void pi__events_drop(pi_request *r);
/* lock: wakes the threads in pi_poll if no unfinished request is left for pi_poll. */
void pi__events_recheck(pi_engine *e);

#endif
