/* Expressions: what the readers of grammars make, and what becomes a machine.
 *
 * An expression is a node of a tree in a zone; rules are expressions with a number, which others refer to. Errors
 * stick: after the first one every function returns an expression that can be used like any other, and the builder's
 * code says what went wrong, so that readers need not look after each call. One thread; memory: the zone's, which has a
 * limit. */
#ifndef PI__GRAMMAR_EXPR_H
#define PI__GRAMMAR_EXPR_H

#include "grammar/tokens.h"
#include "template/value.h"

enum pi__expr_kind {
    PI__X_NEVER,     /* no text */
    PI__X_BYTES,     /* these bytes; n 0: the empty text */
    PI__X_CLASS,     /* one character of the class */
    PI__X_CAT,       /* one after the other */
    PI__X_ALT,       /* one of them */
    PI__X_REP,       /* min to max times */
    PI__X_RULE,      /* a rule, by number */
    PI__X_TOKEN,     /* a token, by id */
    PI__X_NOT_TOKEN, /* any other token but those that end the text */
    PI__X_FREE,      /* any text and tokens, up to a trigger, then a rule; or to the end */
};

typedef struct pi__range { uint32_t lo, hi; } pi__range; /* characters lo to hi, both included */

typedef struct pi__class { /* sorted ranges that do not touch, without surrogates */
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
        struct { pi__expr *body; uint32_t min, max; } rep; /* REP; max PI__REP_INF: no limit; min to PI__MAX_MIN */
        uint32_t rule;   /* RULE, FREE */
        int32_t token;   /* TOKEN, NOT_TOKEN */
    };
};

enum { PI__REP_INF = UINT32_MAX, PI__MAX_RULES = 200000, PI__MAX_MIN = 10000000, PI__EXPR_DEPTH = 200 };

typedef struct pi__builder {
    pi__zone zone;       /* all expressions */
    pi_error *err;       /* the first error goes here */
    int code;            /* PI_OK until something is wrong */
    const pi__tokens *tokens; /* of the vocabulary */
    pi__expr **rule;     /* [n_rules] bodies; NULL: not defined yet */
    size_t n_rules, cap_rules;
    pi__str *name;       /* [n_rules] of rules that have one, for messages */
    size_t cap_names;
    pi__str *trigger;    /* [n_triggers] texts of FREE */
    size_t n_triggers;
    int thoughts;        /* PI__THOUGHTS_*, in front of them */
    size_t n_rows;       /* of automata that were made */
    uint32_t *class_slot; /* [PI__CLASS_SLOTS] 1 + automaton of a class, by the class's hash; NULL: none was made */
    pi__expr never;      /* what is given out after an error */
} pi__builder;

void pi__builder_init(pi__builder *b, const pi__tokens *t, pi_error *err);
void pi__builder_free(pi__builder *b);
/* Keeps the first error; returns the builder's code. */
int pi__builder_fail(pi__builder *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Counts n steps of work (base/work.h) against the zone's budget. false: leave, b->code is set. */
bool pi__builder_step(pi__builder *b, uint64_t n);
/* n zeroed bytes of the zone; NULL: b->code. */
void *pi__builder_take(pi__builder *b, size_t n);

pi__expr *pi__x_never(pi__builder *b);
pi__expr *pi__x_empty(pi__builder *b);
pi__expr *pi__x_bytes(pi__builder *b, const char *p, size_t n); /* copied */
pi__expr *pi__x_text(pi__builder *b, const char *text);
pi__expr *pi__x_class(pi__builder *b, pi__class c);
/* The class of n ranges in any order; inverted: all other characters. */
pi__class pi__class_of(pi__builder *b, const pi__range *r, size_t n, bool inverted);
pi__class pi__class_and(pi__builder *b, pi__class x, pi__class y);
bool pi__class_has(pi__class c, uint32_t cp);
/* A class by a list of pairs of characters, as "azAZ09". */
pi__expr *pi__x_chars(pi__builder *b, const char *pairs);
pi__expr *pi__x_cat(pi__builder *b);
pi__expr *pi__x_alt(pi__builder *b);
void pi__x_add(pi__builder *b, pi__expr *list, pi__expr *x); /* to a CAT or ALT */
pi__expr *pi__x_cat2(pi__builder *b, pi__expr *x, pi__expr *y);
pi__expr *pi__x_cat3(pi__builder *b, pi__expr *x, pi__expr *y, pi__expr *z);
pi__expr *pi__x_alt2(pi__builder *b, pi__expr *x, pi__expr *y);
pi__expr *pi__x_rep(pi__builder *b, pi__expr *body, uint32_t min, uint32_t max);
pi__expr *pi__x_token(pi__builder *b, int32_t id, bool inverted);
uint32_t pi__rule_new(pi__builder *b); /* without a body */
void pi__rule_set(pi__builder *b, uint32_t rule, pi__expr *body);
pi__expr *pi__x_rule(pi__builder *b, uint32_t rule);
/* A rule of this body, referred to. */
pi__expr *pi__x_shared(pi__builder *b, pi__expr *body);

/* ---- readers: each returns what the whole text is (sticky errors) */
pi__expr *pi__read_gbnf(pi__builder *b, const char *text, size_t n, const char *start); /* start: a rule's name */
pi__expr *pi__read_schema(pi__builder *b, const pi__val *schema);
pi__expr *pi__read_schema_text(pi__builder *b, const char *text, size_t n, const char *what);
pi__expr *pi__read_choice(pi__builder *b, const char *text, size_t n);

/* A regular expression. search: the text contains a match, instead of being one. map: makes the expression of a class
 * (JSON strings escape some characters); NULL: the class itself. */
typedef pi__expr *(*pi__class_fn)(pi__builder *b, pi__class c);
pi__expr *pi__read_regex(pi__builder *b, const char *text, size_t n, const char *what, bool search, pi__class_fn map);

#endif
