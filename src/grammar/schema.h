/* Internals of the JSON Schema parser, shared by its files (see schema.c). */
#ifndef PI__GRAMMAR_SCHEMA_H
#define PI__GRAMMAR_SCHEMA_H

#include "grammar/expr.h"
#include "grammar/regular.h"

enum { /* bits of types; a number without a fraction is an integer, and every number may be written as one */
    PI__T_NULL = 1, PI__T_FALSE_TRUE = 2, PI__T_OBJECT = 4, PI__T_LIST_OF = 8, PI__T_TEXT = 16, PI__T_WHOLE = 32,
        PI__T_REAL = 64,
    PI__T_ANY = 127,
};

enum { /* flags of pi__part.skip: keywords of the part that are satisfied elsewhere */
    PI__SKIP_ANY_OF = 1, PI__SKIP_ONE_OF = 2,
    /* PI__K_HAS is required of an unnamed property; with HAS_MET a named property meets it already */
    PI__SKIP_HAS = 8, PI__HAS_MET = 16,
    PI__SKIP_ALL = 27,
    PI__FROM_PART = 4, /* not requested directly: a $ref, allOf or choice of another part added the part */
};

/* Keywords of schemas that the parser creates itself (schema_not.c). No document has them: they are not UTF-8. */
/* created schema: it does not imply types and does not forbid other properties */
#define PI__K_MADE "\xFF" "made"
#define PI__K_TYPES "\xFF" "types"           /* PI__T_*, as an integer */
#define PI__K_NOT "\xFF" "not"               /* a list: the value must not equal any of these */
#define PI__K_NO_PATTERN "\xFF" "noPattern"  /* a list: the text must not match any of these patterns */
#define PI__K_NO_FORMAT "\xFF" "noFormat"    /* the text must not be of this format */
#define PI__K_NO_MULTIPLE "\xFF" "noMultiple" /* the number must not be a multiple of this */
#define PI__K_HAS "\xFF" "has"               /* [name schema, value schema]: some property must meet both */

typedef struct pi__part { /* one of the schemas that a value must meet */
    const pi__val *v;
    uint32_t skip; /* PI__SKIP_* and other flags above */
    uint32_t from; /* 1 + index of the part that added it by $ref or allOf; 0 = requested directly */
} pi__part;

typedef struct pi__parts { /* all schemas that a value must meet */
    pi__part *p;
    size_t n, cap;
    pi__dict *places; /* schema -> its index in p; NULL while p is short and is searched linearly */
} pi__parts;

typedef struct pi__schema {
    pi__builder *b;
    const pi__val *doc;    /* the entire document, for $ref */
    const char *what;      /* name of the document in messages */
    bool has_ids;          /* some schema inside the document has an $id */
    pi__dict *known;       /* cache: set of parts, as bytes -> rule */
    pi__dict *made;        /* cache: (schema, method) as bytes -> pointer to the created schema */
    pi__dict *regs;        /* cache: patterns and formats -> pointer to their automaton, or their rule */
    struct pi__pending { uint32_t rule; pi__parts parts; } *pending; /* [n_pending] rules without a body yet */
    size_t n_pending, cap_pending;
    size_t work;           /* steps of work so far, limited by MAX_WORK in schema.c */
    pi__dict *sets;        /* cache: list of values -> its hash set (schema_value.c) */
    const char *lost;      /* a keyword that a negation could not express; NULL = none */
    int depth;             /* depth of nested negations */
    pi__expr *space;       /* white space between tokens of JSON; NULL = not made yet */
    pi__expr *any;         /* any JSON value; NULL = not made yet */
    pi__expr *chr, *key_chr; /* a character of a JSON string; a character of a key, without escapes; NULL = not made */
} pi__schema;

/* Returns v[key]; NULL if it is missing or v is not an object. Inline, so that key lengths are constants: a conversion
 * spends most of its time here. */
static inline const pi__val *pi__member(const pi__val *v, const char *key)
{
    const size_t n = __builtin_strlen(key);
    if (v->type != PI__V_MAP) return NULL;
    if (v->map->slot) return pi__dict_get(v->map, pi__val_str((pi__str) {key, n}));
    for (size_t i = 0; i < v->map->n; i++) {
        const pi__str *k = &v->map->e[i].key.s;
        if (k->n == n && !__builtin_memcmp(k->p, key, n)) return &v->map->e[i].value;
    }
    return NULL;
}

/* Fails with PI_E* `code` and a message. at: the schema concerned; its JSON pointer and key precede the message. at and
 * key may be NULL. */
int pi__schema_fail(pi__schema *s, const pi__val *at, const char *key, int code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Counts a step of work. False if the schema exceeds MAX_WORK; b->code is set. */
bool pi__schema_work(pi__schema *s);

/* Adds schema v to the parts with these flags (skip). A schema that is a part already gets the flags in addition; true
 * and {} are not added. */
void pi__parts_add(pi__schema *s, pi__parts *l, const pi__val *v, uint32_t skip);
/* Returns a reference to the rule of values that meet all parts; the same parts have the same rule. */
pi__expr *pi__schema_of(pi__schema *s, const pi__parts *l);
/* Returns the target of a part's $ref. NULL: b->code is set. */
const pi__val *pi__schema_refer(pi__schema *s, const pi__val *v, const pi__val *ref);

/* ---- kinds of values (schema_text.c, schema_number.c, schema_list.c, schema_object.c): each combines all parts */
pi__expr *pi__schema_space(pi__schema *s);
/* Returns the expression of a value that is not a list or object, in JSON's plainest form. */
pi__expr *pi__schema_scalar(pi__schema *s, const pi__val *v);
pi__expr *pi__schema_text(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_other_key(pi__schema *s, const pi__str *not, size_t n); /* any key except the n keys in `not` */
/* Returns a key: the texts of r with (mark & care) == want. */
pi__expr *pi__schema_key(pi__schema *s, const pi__reg *r, uint64_t care, uint64_t want);
pi__expr *pi__schema_number(pi__schema *s, const pi__parts *l, unsigned types);
pi__expr *pi__schema_list(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_object(pi__schema *s, const pi__parts *l);

/* Reads schema `at`'s non-negative integer `key` into *out; above 10^9: PI__REP_INF. Returns false and sets the error
 * if it is none. */
bool pi__schema_count(pi__schema *s, const pi__val *at, const char *key, uint32_t *out);

/* ---- languages of texts (schema_text.c, schema_format.c). NULL: b->code is set */
pi__reg *pi__schema_pattern(pi__schema *s, const pi__val *at, pi__str pattern);
pi__reg *pi__schema_format(pi__schema *s, pi__str format);
/* Returns the regular expression of an enforced format; NULL = the format is only an annotation. */
const char *pi__format_regex(const pi__val *format);
/* Returns the language of texts that meet all parts, as bit 0 of the marks. */
pi__reg *pi__schema_text_reg(pi__schema *s, const pi__parts *l);
/* Returns the language of a schema for texts; NULL = all texts, or b->code is set. */
pi__reg *pi__schema_language(pi__schema *s, const pi__val *schema);
pi__reg *pi__reg_of_values(pi__schema *s, const pi__val *v, size_t n);

/* ---- numbers (schema_number.c), compared by their decimal digits */
int pi__number_compare(const pi__val *a, const pi__val *b);
bool pi__number_is_integer(const pi__val *v);
bool pi__number_is_multiple(const pi__val *v, const pi__val *of);
/* Returns a bound: minimum (k 0) or exclusiveMinimum (k 1) if low, else maximum or exclusiveMaximum; also in draft 4
 * syntax. *open: the bound itself is excluded. NULL = no bound. */
const pi__val *pi__schema_bound(const pi__val *v, bool low, int k, bool *open);

/* ---- lists: gets the schemas of the first items (prefixItems, or items as a list) and of the rest; NULL = none */
void pi__schema_items(const pi__val *v, const pi__list **prefix, const pi__val **rest);

/* ---- values (schema_value.c) */
unsigned pi__type_of_value(const pi__val *v);
bool pi__json_equal(const pi__val *a, const pi__val *b);
/* Returns the types that the keyword `type` allows; ANY without the keyword. */
unsigned pi__types_of(pi__schema *s, const pi__val *v);
/* Returns 1 if value v meets the schema, 0 if not, -1 if that is unknown. depth: nesting of the call, which is
 * limited. */
int pi__value_meets(pi__schema *s, const pi__val *v, const pi__val *schema, int depth);
/* True if it is certain that no value meets both sets of parts. */
bool pi__schema_disjoint(pi__schema *s, const pi__parts *a, const pi__parts *b);
/* True if types and required properties show that no value meets all parts. */
bool pi__schema_is_empty(pi__schema *s, const pi__parts *l);
/* Stores pointers to the *n values of the first part with const or enum, unchecked against other parts; false = none
 * has these. */
bool pi__schema_values(pi__schema *s, const pi__parts *l, const pi__val ***out, size_t *n);
/* Adds the schemas that the parts refer to ($ref), consist of (allOf) or imply (not, if, dependencies), recursively. */
void pi__parts_expand(pi__schema *s, pi__parts *l);

/* ---- schemas derived from others (schema_not.c), each created once. NULL: b->code is set */
/* Returns a schema of values that do not meet v. It may allow fewer values than exact negation. If it allows none,
 * s->lost names the keyword responsible. */
const pi__val *pi__schema_not(pi__schema *s, const pi__val *v);
/* Returns the keywords if, then and else of v as one schema. */
const pi__val *pi__schema_if(pi__schema *s, const pi__val *v);
/* Returns the schema of an object in which the property of this name meets PI__K_HAS of v. */
const pi__val *pi__schema_has(pi__schema *s, const pi__val *v, pi__str name);
/* Returns a dependency keyword of v (dependentRequired, dependentSchemas or dependencies) as one schema. */
const pi__val *pi__schema_dependencies(pi__schema *s, const pi__val *v, const char *key);

#endif
