/* Log-probabilities of a prompt as JSON, for `run` and `eval --cases` (probs.c). */
#ifndef PAGEDINFER_PROBS_H
#define PAGEDINFER_PROBS_H

#include <jansson.h>

#include "pagedinfer.h"

/* Of a PI_EVENT_PROMPT: a list with an object for each token, {"id", "text", "logprob", "top": [{"id", "text",
 * "logprob"}, ...]}. NULL: out of memory. */
json_t *probs_json(const pi_engine *e, const pi_event *ev);

#endif
