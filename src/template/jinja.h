/* Jinja templates, as much of the language as chat templates use: parsed once, rendered any number of times.
 *
 * The language is Jinja 2 as Hugging Face's transformers sets it up: trim_blocks and lstrip_blocks on, no escaping,
 * break and continue, {% generation %}, tojson without HTML escapes, raise_exception and strftime_now. Not there:
 * inheritance, include and import, recursive loops, *args, extensions. Lists can be appended to, which transformers
 * forbids and templates do.
 *
 * A template is hostile until it has run to its end: nesting, steps, memory and output are bounded, and each bound ends
 * the rendering with an error. A parsed template is immutable: any number of threads may render it at a time. A thread
 * that renders needs 1 MiB of stack. */
#ifndef PI__JINJA_H
#define PI__JINJA_H

#include "template/value.h"

typedef struct pi__jinja pi__jinja;

/* text is copied. PI_EINVAL: not a template (err names the line), PI_ENOMEM, PI_ETOOBIG. */
int pi__jinja_parse(pi__jinja **out, const char *text, size_t n, pi_error *err);
void pi__jinja_free(pi__jinja *t);
/* True where the template's text contains word. */
bool pi__jinja_mentions(const pi__jinja *t, const char *word);
/* The template's text, as long as t. */
pi__str pi__jinja_text(const pi__jinja *t);

typedef struct pi__jinja_env {
    int64_t now;        /* seconds since 1970, for strftime_now */
    uint64_t max_steps; /* nodes visited, and every 64 bytes of text handled; 0: PI__JINJA_STEPS */
    uint64_t *used;     /* where it is not NULL, the steps taken are added to it */
} pi__jinja_env;
enum { PI__JINJA_STEPS = 100000000 }; /* a few seconds */

/* Where z keeps trust (value.h), the template's own text is trusted, and so are its bytes in out, if that keeps it too.
 * Appends the template's output to out, whose limit bounds it. vars: the variables, names to values; they are not
 * changed, unless the template appends to a list in them. z: where everything is made that the rendering needs, with a
 * limit of its own. PI_EINVAL: the template failed (err names the line, or has the words of raise_exception),
 * PI_ETOOBIG: a bound was hit, PI_ENOMEM. */
int pi__jinja_render(const pi__jinja *t, pi__zone *z, const pi__dict *vars, const pi__jinja_env *env, pi__text *out,
                     pi_error *err);

#endif
