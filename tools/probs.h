/* Log-probabilities of a prompt as JSON, for `run` and `eval --cases` (probs.c). */
#ifndef PAGEDINFER_PROBS_H
#define PAGEDINFER_PROBS_H

#include <jansson.h>

#include "pagedinfer.h"

/* Converts a PI_EVENT_PROMPT event to a JSON list with one object per token: {"id", "text", "logprob", "top": [{"id",
 * "text", "logprob"}, ...]}. The caller owns the list. Returns NULL if out of memory. */
json_t *probs_json(const pi_engine *e, const pi_event *ev);

#endif
