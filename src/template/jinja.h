/* Jinja templates: the subset of the language that chat templates use. Parsed once, rendered any number of times.
 *
 * The language is Jinja 2 with the settings of Hugging Face's transformers: trim_blocks and lstrip_blocks on, no
 * escaping, break and continue, {% generation %}, tojson without HTML escapes, raise_exception and strftime_now. Not
 * supported: inheritance, include and import, recursive loops, *args, extensions. Unlike in transformers, lists can be
 * appended to, because templates do this.
 *
 * Templates are untrusted: nesting, steps, memory and output are bounded, and exceeding a bound ends the rendering with
 * an error. A parsed template is immutable: any number of threads may render it in parallel. A rendering thread needs
 * 1 MiB of stack. */
#ifndef PI__JINJA_H
#define PI__JINJA_H

#include "template/value.h"

typedef struct pi__jinja pi__jinja;

/* Parses and copies text. PI_EINVAL: not a template (err has the line), PI_ENOMEM, PI_ETOOBIG. */
int pi__jinja_parse(pi__jinja **out, const char *text, size_t n, pi_error *err);
void pi__jinja_free(pi__jinja *t);
/* True if the template's text contains word. */
bool pi__jinja_mentions(const pi__jinja *t, const char *word);
/* Returns the template's text, valid as long as t. */
pi__str pi__jinja_text(const pi__jinja *t);

typedef struct pi__jinja_env {
    int64_t now;        /* seconds since 1970, for strftime_now */
    uint64_t max_steps; /* limit of nodes visited plus 64-byte units of text handled; 0 = PI__JINJA_STEPS */
    uint64_t *used;     /* the number of steps is added to it; NULL = not counted */
} pi__jinja_env;
enum { PI__JINJA_STEPS = 100000000 }; /* a few seconds */

/* Appends the template's output to out, whose limit bounds it. vars: map from names to values, unchanged unless the
 * template appends to a list in it. z: memory for the rendering, with its own limit. If z keeps trust (value.h), the
 * template's own text is trusted, and so are its bytes in out if out keeps trust too. PI_EINVAL: the template failed
 * (err has the line, or the message of raise_exception). PI_ETOOBIG: a bound was exceeded. PI_ENOMEM. */
int pi__jinja_render(const pi__jinja *t, pi__zone *z, const pi__dict *vars, const pi__jinja_env *env, pi__text *out,
                     pi_error *err);

#endif
