/* Inside of the reader of JSON Schemas: what its files share (see schema.c). */
#ifndef PI__GRAMMAR_SCHEMA_H
#define PI__GRAMMAR_SCHEMA_H

#include "grammar/expr.h"

enum { /* types, as bits; a number that is whole is an integer, every number may be written as one */
    PI__T_NULL = 1, PI__T_FALSE_TRUE = 2, PI__T_OBJECT = 4, PI__T_LIST_OF = 8, PI__T_TEXT = 16, PI__T_WHOLE = 32,
        PI__T_REAL = 64,
    PI__T_ANY = 127,
};

enum { /* keywords of a schema that are left out */
    PI__SKIP_ANY_OF = 1, PI__SKIP_ONE_OF = 2,
    PI__FROM_PART = 4, /* not one of those that were asked for: it came from a part of one */
};

typedef struct pi__part { /* one of the schemas that a value has to meet */
    const pi__val *v;
    uint32_t skip; /* PI__SKIP_* */
    uint32_t from; /* 1 + the part whose $ref or allOf brought it, or 0 */
} pi__part;

typedef struct pi__parts { /* all of them */
    pi__part *p;
    size_t n, cap;
} pi__parts;

typedef struct pi__schema {
    pi__builder *b;
    const pi__val *doc;    /* the whole document, for $ref */
    const char *what;      /* its name in messages */
    pi__dict *known;       /* sets of parts, as bytes -> rule */
    struct pi__pending { uint32_t rule; pi__parts parts; } *pending; /* [n_pending] rules without a body yet */
    size_t n_pending, cap_pending;
    size_t work;           /* parts looked at */
    pi__dict *sets;        /* lists of values that were searched -> their sets (schema_value.c) */
    pi__expr *space;       /* white space between things; NULL: not made yet */
    pi__expr *any;         /* any value */
    pi__expr *chr, *key_chr; /* a character of a text, as JSON writes it; one of a key, without escapes */
} pi__schema;

/* NULL: not there, or v is no object. */
const pi__val *pi__member(const pi__val *v, const char *key);
int pi__schema_fail(pi__schema *s, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

void pi__parts_add(pi__schema *s, pi__parts *l, const pi__val *v, uint32_t skip);
/* The rule of values that meet all parts. */
pi__expr *pi__schema_of(pi__schema *s, const pi__parts *l);

/* ---- kinds of values (schema_text.c, schema_number.c, schema_list.c): of all parts that say something about them */
pi__expr *pi__schema_space(pi__schema *s);
pi__expr *pi__schema_scalar(pi__schema *s, const pi__val *v); /* a value that is no list or object, in JSON's plainest form */
pi__expr *pi__schema_text(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_other_key(pi__schema *s, const pi__str *not, size_t n); /* any key but these */
pi__expr *pi__schema_number(pi__schema *s, const pi__parts *l, bool whole);
pi__expr *pi__schema_list(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_object(pi__schema *s, const pi__parts *l);

/* A whole number that is not negative; false: it is not one, and the error says so. */
bool pi__schema_count(pi__schema *s, const pi__val *v, const char *key, uint32_t *out);

/* ---- values (schema_value.c) */
unsigned pi__type_of_value(const pi__val *v);
bool pi__json_equal(const pi__val *a, const pi__val *b);
/* Types that the part allows by its keyword type; ANY without it. */
unsigned pi__types_of(pi__schema *s, const pi__val *v);
/* v meets the part, by its keywords for values that are no lists or objects; *unknown: cannot be told. */
bool pi__value_meets(pi__schema *s, const pi__val *v, const pi__val *schema, bool *unknown);
/* No value meets both of these sets of parts. */
bool pi__schema_disjoint(pi__schema *s, const pi__parts *a, const pi__parts *b);
/* The values that the parts name with enum and const: *n of them; false: they do not. */
bool pi__schema_values(pi__schema *s, const pi__parts *l, const pi__val ***out, size_t *n);
/* Adds what v refers to ($ref) and consists of (allOf), and so on. */
void pi__parts_expand(pi__schema *s, pi__parts *l);

#endif
