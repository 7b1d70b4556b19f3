/* Inside of the reader of JSON Schemas: what its files share (see schema.c). */
#ifndef PI__GRAMMAR_SCHEMA_H
#define PI__GRAMMAR_SCHEMA_H

#include "grammar/expr.h"
#include "grammar/regular.h"

enum { /* types, as bits; a number that is whole is an integer, every number may be written as one */
    PI__T_NULL = 1, PI__T_FALSE_TRUE = 2, PI__T_OBJECT = 4, PI__T_LIST_OF = 8, PI__T_TEXT = 16, PI__T_WHOLE = 32,
        PI__T_REAL = 64,
    PI__T_ANY = 127,
};

enum { /* keywords of a schema that are left out */
    PI__SKIP_ANY_OF = 1, PI__SKIP_ONE_OF = 2,
    PI__SKIP_HAS = 8, PI__HAS_MET = 16, /* PI__K_HAS is left to a property that is not named; a named one meets it */
    PI__SKIP_ALL = 27,
    PI__FROM_PART = 4, /* not one of those that were asked for: it came from a part of one */
};

/* Keywords of schemas that the reader makes itself (schema_not.c). No document has them: they are not UTF-8. */
/* such a schema: it says nothing about which types and properties there are */
#define PI__K_MADE "\xFF" "made"
#define PI__K_TYPES "\xFF" "types"           /* PI__T_*, as an integer */
#define PI__K_NOT "\xFF" "not"               /* a list: none of these values */
#define PI__K_NO_PATTERN "\xFF" "noPattern"  /* a text without a match */
#define PI__K_NO_FORMAT "\xFF" "noFormat"    /* a text that is not of the format */
#define PI__K_NO_MULTIPLE "\xFF" "noMultiple" /* no multiple of a number */
#define PI__K_HAS "\xFF" "has"               /* a property: [schema of its name, schema of its value] */

typedef struct pi__part { /* one of the schemas that a value has to meet */
    const pi__val *v;
    uint32_t skip; /* PI__SKIP_* */
    uint32_t from; /* 1 + the part whose $ref or allOf brought it, or 0 */
} pi__part;

typedef struct pi__parts { /* all of them */
    pi__part *p;
    size_t n, cap;
    pi__dict *places; /* schema -> its index in p, where there are many; else NULL */
} pi__parts;

typedef struct pi__schema {
    pi__builder *b;
    const pi__val *doc;    /* the whole document, for $ref */
    const char *what;      /* its name in messages */
    bool has_ids;          /* there are schemas with an $id inside of the document */
    pi__dict *known;       /* sets of parts, as bytes -> rule */
    pi__dict *made;        /* (schema, how) as bytes -> pointer to the schema made of it */
    pi__dict *regs;        /* patterns and formats -> pointer to their automaton, or their rule */
    struct pi__pending { uint32_t rule; pi__parts parts; } *pending; /* [n_pending] rules without a body yet */
    size_t n_pending, cap_pending;
    size_t work;           /* parts looked at */
    pi__dict *sets;        /* lists of values that were searched -> their sets (schema_value.c) */
    const char *lost;      /* a keyword that a negation could not express, or NULL */
    int depth;             /* negations in each other */
    pi__expr *space;       /* white space between things; NULL: not made yet */
    pi__expr *any;         /* any value */
    pi__expr *chr, *key_chr; /* a character of a text, as JSON writes it; one of a key, without escapes */
} pi__schema;

/* NULL: not there, or v is no object. Inline, so that keys have constant lengths: a conversion spends its time here. */
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

/* at: the schema that the message is about; its place is named in front of it, with key. Both may be NULL. */
int pi__schema_fail(pi__schema *s, const pi__val *at, const char *key, int code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Counts a piece of work. false: the schema has used up what it may take, b->code. */
bool pi__schema_work(pi__schema *s);

void pi__parts_add(pi__schema *s, pi__parts *l, const pi__val *v, uint32_t skip);
/* The rule of values that meet all parts. */
pi__expr *pi__schema_of(pi__schema *s, const pi__parts *l);
/* What a part's $ref leads to. NULL: b->code. */
const pi__val *pi__schema_refer(pi__schema *s, const pi__val *v, const pi__val *ref);

/* ---- kinds of values (schema_text.c, schema_number.c, schema_list.c, schema_object.c): of all parts that say
 * something about them */
pi__expr *pi__schema_space(pi__schema *s);
/* a value that is no list or object, in JSON's plainest form */
pi__expr *pi__schema_scalar(pi__schema *s, const pi__val *v);
pi__expr *pi__schema_text(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_other_key(pi__schema *s, const pi__str *not, size_t n); /* any key but these */
/* A key: the texts of r whose mark, of the bits in care, is want. */
pi__expr *pi__schema_key(pi__schema *s, const pi__reg *r, uint64_t care, uint64_t want);
pi__expr *pi__schema_number(pi__schema *s, const pi__parts *l, unsigned types);
pi__expr *pi__schema_list(pi__schema *s, const pi__parts *l);
pi__expr *pi__schema_object(pi__schema *s, const pi__parts *l);

/* A whole number that is not negative; false: it is not one, and the error says so. More than 10^9: PI__REP_INF. */
bool pi__schema_count(pi__schema *s, const pi__val *at, const char *key, uint32_t *out);

/* ---- languages of texts (schema_text.c, schema_format.c). NULL: b->code */
pi__reg *pi__schema_pattern(pi__schema *s, const pi__val *at, pi__str pattern);
pi__reg *pi__schema_format(pi__schema *s, pi__str format);
/* The regular expression of a format that is kept to; NULL: an annotation. */
const char *pi__format_regex(const pi__val *format);
/* The texts that meet all parts: bit 0 of its marks. */
pi__reg *pi__schema_text_reg(pi__schema *s, const pi__parts *l);
/* The language of a schema for texts; NULL: all of them, or b->code. */
pi__reg *pi__schema_language(pi__schema *s, const pi__val *schema);
pi__reg *pi__reg_of_values(pi__schema *s, const pi__val *v, size_t n);

/* ---- numbers (schema_number.c), by their decimal digits */
int pi__number_compare(const pi__val *a, const pi__val *b);
bool pi__number_is_whole(const pi__val *v);
bool pi__number_is_multiple(const pi__val *v, const pi__val *of);
/* minimum and exclusiveMinimum (low), or maximum and exclusiveMaximum, also as draft 4 writes them; *open: the bound
 * itself is out. NULL: there is none. k: 0 or 1, of the two. */
const pi__val *pi__schema_bound(const pi__val *v, bool low, int k, bool *open);

/* ---- lists: schemas of the first items (prefixItems, or items as a list), and of those that follow, or NULL */
void pi__schema_items(const pi__val *v, const pi__list **prefix, const pi__val **rest);

/* ---- values (schema_value.c) */
unsigned pi__type_of_value(const pi__val *v);
bool pi__json_equal(const pi__val *a, const pi__val *b);
/* Types that the part allows by its keyword type; ANY without it. */
unsigned pi__types_of(pi__schema *s, const pi__val *v);
/* v meets the schema: 1, it does not: 0, it cannot be told: -1. */
int pi__value_meets(pi__schema *s, const pi__val *v, const pi__val *schema, int depth);
/* No value meets both of these sets of parts. */
bool pi__schema_disjoint(pi__schema *s, const pi__parts *a, const pi__parts *b);
/* No value meets all of these, as their types and required properties show. */
bool pi__schema_is_empty(pi__schema *s, const pi__parts *l);
/* The values that the parts name with enum and const: *n of them; false: they do not. */
bool pi__schema_values(pi__schema *s, const pi__parts *l, const pi__val ***out, size_t *n);
/* Adds what v refers to ($ref) and consists of (allOf), and so on. */
void pi__parts_expand(pi__schema *s, pi__parts *l);

/* ---- schemas that are made of others (schema_not.c); each once. NULL: b->code */
/* Values that do not meet v. It may allow fewer of them than there are; where it allows none, s->lost says why. */
const pi__val *pi__schema_not(pi__schema *s, const pi__val *v);
/* The keywords if, then and else of v, as one schema. */
const pi__val *pi__schema_if(pi__schema *s, const pi__val *v);
/* An object that has PI__K_HAS of v by the property of this name. */
const pi__val *pi__schema_has(pi__schema *s, const pi__val *v, pi__str name);
/* dependentRequired, dependentSchemas and dependencies of v. */
const pi__val *pi__schema_dependencies(pi__schema *s, const pi__val *v, const char *key);

#endif
