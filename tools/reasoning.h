/* Tells the thoughts of a model from its answer while they stream in.
 *
 * A model that thinks does so first, between tags: "<think>...</think>", Gemma 4's channel and others. Where the prompt
 * ends with the opening tag the model is thinking already. What comes behind the thoughts is the answer, tags in it
 * included: a model may talk about tags. White space in front of either is dropped. */
#ifndef PAGEDINFER_REASONING_H
#define PAGEDINFER_REASONING_H

#include <stdbool.h>
#include <stddef.h>

typedef struct reasoning {
    int state;      /* before anything but white space, in thoughts, or in the answer */
    int pair;       /* which tags, in thoughts */
    bool text;      /* something other than white space came since the state changed */
    char hold[32];  /* bytes that may be the beginning of a tag */
    size_t n_hold;  /* how many */
} reasoning;

/* A piece of text that is thought or answer; called with n > 0, in order. */
typedef void (*reasoning_fn)(void *ud, bool thought, const char *text, size_t n);

void reasoning_start(reasoning *r, const char *prompt, size_t n);
void reasoning_feed(reasoning *r, const char *text, size_t n, reasoning_fn fn, void *ud);
/* What was held back is text after all. */
void reasoning_end(reasoning *r, reasoning_fn fn, void *ud);

#endif
