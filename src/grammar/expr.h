/* Expressions: the parsers of GBNF, JSON Schema and regexes build them; program.c compiles them to a machine.
 *
 * An expression is a tree node in a zone. A rule is an expression with a number, by which others refer to it. Errors
 * are sticky: after the first one every function returns an expression that is safe to use, and the builder's `code`
 * holds the error. Parsers need not check each call. One thread. Memory comes from the zone, which has a limit. */
#ifndef PI__GRAMMAR_EXPR_H
#define PI__GRAMMAR_EXPR_H

#include "grammar/tokens.h"
#include "template/value.h"

enum pi__expr_kind {
    PI__X_NEVER,     /* matches no text, not even the empty one */
    PI__X_BYTES,     /* these bytes; n == 0: the empty text */
    PI__X_CLASS,     /* one character of the class */
    PI__X_CAT,       /* the list's elements in order */
    PI__X_ALT,       /* one of the list's elements */
    PI__X_REP,       /* the body, min to max times */
    PI__X_RULE,      /* a rule, by number */
    PI__X_TOKEN,     /* a token, by id */
    PI__X_NOT_TOKEN, /* any token except the named one and end-of-text tokens */
    PI__X_FREE,      /* any text and tokens; a trigger in it starts a rule; may end without a trigger */
};

typedef struct pi__range { uint32_t lo, hi; } pi__range; /* characters lo to hi, both inclusive */

typedef struct pi__class { /* sorted ranges that neither touch nor contain surrogates */
    const pi__range *r;
    size_t n;
} pi__class;

typedef struct pi__expr pi__expr;
struct pi__expr {
    uint8_t kind;        /* enum pi__expr_kind */
    union {
        pi__str bytes;   /* BYTES */
        pi__class cls;   /* CLASS */
        struct { pi__expr **v; size_t n, cap; } list; /* CAT, ALT */
        struct { pi__expr *body; uint32_t min, max; } rep; /* REP; max PI__REP_INF = unlimited; min <= PI__MAX_MIN */
        uint32_t rule;   /* RULE, FREE */
        int32_t token;   /* TOKEN, NOT_TOKEN */
    };
};

enum { PI__REP_INF = UINT32_MAX, PI__MAX_RULES = 200000, PI__MAX_MIN = 10000000, PI__EXPR_DEPTH = 200 };

typedef struct pi__builder {
    pi__zone zone;       /* all expressions */
    pi_error *err;       /* receives the first error */
    int code;            /* PI_OK, or the first error */
    const pi__tokens *tokens; /* tokens of the vocabulary */
    pi__expr **rule;     /* [n_rules] bodies; NULL = not defined yet */
    size_t n_rules, cap_rules;
    pi__str *name;       /* [n_rules] names of rules for messages; empty if the rule has no name */
    size_t cap_names;
    pi__str *trigger;    /* [n_triggers] trigger texts of FREE */
    size_t n_triggers;
    int thoughts;        /* PI__THOUGHTS_*: reasoning tags; triggers inside reasoning do not count */
    size_t n_rows;       /* total rows of all automata built so far, limited to PI__MAX_ROWS */
    uint32_t *class_slot; /* [PI__CLASS_SLOTS] 1 + automaton of a class, by the class's hash; NULL = no automaton yet */
    pi__expr never;      /* returned in place of any expression after an error */
} pi__builder;

void pi__builder_init(pi__builder *b, const pi__tokens *t, pi_error *err);
void pi__builder_free(pi__builder *b);
/* Records the first error; returns the builder's code. */
int pi__builder_fail(pi__builder *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Counts n steps of work against the budget of the zone (base/work.h). On false b->code is set, and the caller must
 * stop. */
bool pi__builder_step(pi__builder *b, uint64_t n);
/* Returns n zeroed bytes of the zone, or NULL with b->code set. */
void *pi__builder_take(pi__builder *b, size_t n);

pi__expr *pi__x_never(pi__builder *b);
pi__expr *pi__x_empty(pi__builder *b);
pi__expr *pi__x_bytes(pi__builder *b, const char *p, size_t n); /* copied */
pi__expr *pi__x_text(pi__builder *b, const char *text);
pi__expr *pi__x_class(pi__builder *b, pi__class c);
/* Returns the class of the characters in n ranges, given in any order; inverted: of all characters outside of them. */
pi__class pi__class_of(pi__builder *b, const pi__range *r, size_t n, bool inverted);
pi__class pi__class_and(pi__builder *b, pi__class x, pi__class y);
bool pi__class_has(pi__class c, uint32_t cp);
/* Returns an expression for one character of the ranges in `pairs`, for example "azAZ09". */
pi__expr *pi__x_chars(pi__builder *b, const char *pairs);
pi__expr *pi__x_cat(pi__builder *b);
pi__expr *pi__x_alt(pi__builder *b);
void pi__x_add(pi__builder *b, pi__expr *list, pi__expr *x); /* to a CAT or ALT */
pi__expr *pi__x_cat2(pi__builder *b, pi__expr *x, pi__expr *y);
pi__expr *pi__x_cat3(pi__builder *b, pi__expr *x, pi__expr *y, pi__expr *z);
pi__expr *pi__x_alt2(pi__builder *b, pi__expr *x, pi__expr *y);
pi__expr *pi__x_rep(pi__builder *b, pi__expr *body, uint32_t min, uint32_t max);
pi__expr *pi__x_token(pi__builder *b, int32_t id, bool inverted);
uint32_t pi__rule_new(pi__builder *b); /* returns the number of a new rule; pi__rule_set defines its body */
void pi__rule_set(pi__builder *b, uint32_t rule, pi__expr *body);
pi__expr *pi__x_rule(pi__builder *b, uint32_t rule);
/* Adds a rule with this body and returns a reference to it. */
pi__expr *pi__x_shared(pi__builder *b, pi__expr *body);

/* ---- parsers: each returns the expression of its complete text. Errors are sticky: they are in b->code. */
pi__expr *pi__read_gbnf(pi__builder *b, const char *text, size_t n, const char *start); /* start: rule's name */
pi__expr *pi__read_schema(pi__builder *b, const pi__val *schema);
pi__expr *pi__read_schema_text(pi__builder *b, const char *text, size_t n, const char *what);
pi__expr *pi__read_choice(pi__builder *b, const char *text, size_t n);

/* Parses a regular expression. search: a text matches if any part of it matches; otherwise all of it must match. map:
 * builds the expression of each class (JSON strings escape some characters); NULL = the class itself. what: the name of
 * the text in messages. */
typedef pi__expr *(*pi__class_fn)(pi__builder *b, pi__class c);
pi__expr *pi__read_regex(pi__builder *b, const char *text, size_t n, const char *what, bool search, pi__class_fn map);

#endif
