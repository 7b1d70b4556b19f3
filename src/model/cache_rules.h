/* The types of caches by rule: which layers' keys and values are of which type (option cache-type).
 *
 *     L0-1:f16,full.k:q8_0,full.v:tq3_0,window:q8_0,*:f16        the first rule that names a layer decides
 *
 *     rule    WHICH:TYPE; WHICH.k:TYPE and WHICH.v:TYPE are of keys, of values alone
 *     WHICH   *        all layers
 *             full     layers that see all tokens
 *             window   layers that see only a window
 *             L2 L0-3  layers by number, from 0 on
 *             first2   the first so many layers
 *             last2    the last so many
 *
 * Rows that are keys and values at once have the type of keys. No memory; pure functions, any thread. */
#ifndef PI__CACHE_RULES_H
#define PI__CACHE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__MAX_CACHE_RULES = 64 };

typedef struct pi__cache_rule {
    int kind;            /* PI__LAYERS_* */
    int32_t first, last; /* of LAYERS_NUMBERED; -1 is the last layer of the model, -2 the one before */
    bool k, v;           /* keys, values */
    int32_t type;        /* one of formats/cache_types.h */
    int32_t at;          /* byte of the text where it begins, for errors; -1: it is not from one */
} pi__cache_rule;

enum { PI__LAYERS_ALL, PI__LAYERS_FULL, PI__LAYERS_WINDOW, PI__LAYERS_NUMBERED };

typedef struct pi__cache_rules {
    pi__cache_rule rule[PI__MAX_CACHE_RULES]; /* [n] the first that names a layer decides */
    int32_t n;                                /* 0: none */
} pi__cache_rules;

/* Appends the rules of a text. PI_EINVAL: it is not one; err says where. */
int pi__cache_rules_parse(pi__cache_rules *r, const char *text, pi_error *err);
/* Appends a rule for all layers of a kind. */
void pi__cache_rules_add(pi__cache_rules *r, int kind, bool k, bool v, int32_t type);
/* The type of the keys (or values) of a layer, in a model of n_layer; -1: no rule names them. */
int32_t pi__cache_rules_type(const pi__cache_rules *r, int32_t layer, int32_t n_layer, bool window, bool v);
/* PI_EINVAL: a rule names a layer that a model of n_layer has not. */
int pi__cache_rules_check(const pi__cache_rules *r, int32_t n_layer, pi_error *err);

#endif
