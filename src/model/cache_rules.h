/* Cache types by rule: the types of keys and values of each layer (option cache-type).
 *
 *     L0-1:f16,full.k:q8_0,full.v:tq3_0,window:q8_0,*:f16        the first rule that matches a layer decides
 *
 *     rule    WHICH:TYPE; WHICH.k:TYPE is for keys only; WHICH.v:TYPE is for values only.
 *     WHICH   *        all layers
 *             full     layers with full attention
 *             window   layers with a sliding window
 *             L2 L0-3  layers by number, from 0
 *             first2   the first 2 layers
 *             last2    the last 2 layers
 *
 * Rows that are keys and values at once use the type of keys. Memory: none. Threads: pure functions, any thread. */
#ifndef PI__CACHE_RULES_H
#define PI__CACHE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__MAX_CACHE_RULES = 64 };

typedef struct pi__cache_rule {
    int kind;            /* PI__LAYERS_* */
    /* with PI__LAYERS_NUMBERED: first and last layer; -1 = the last layer of the model, -2 = the one before it */
    int32_t first, last;
    bool k, v;           /* the rule applies to keys; to values */
    int32_t type;        /* cache type, see formats/cache_types.h */
    int32_t at;          /* byte offset of the rule in the option's text, for errors; -1 = not from a text */
} pi__cache_rule;

enum { PI__LAYERS_ALL, PI__LAYERS_FULL, PI__LAYERS_WINDOW, PI__LAYERS_NUMBERED };

typedef struct pi__cache_rules {
    pi__cache_rule rule[PI__MAX_CACHE_RULES]; /* [n] the first match decides */
    int32_t n;                                /* 0 = no rules */
} pi__cache_rules;

/* Appends the rules in text to r. Returns PI_EINVAL on a syntax error or if there are too many; err gives the
 * position. */
int pi__cache_rules_parse(pi__cache_rules *r, const char *text, pi_error *err);
/* Appends a rule for all layers of a kind (PI__LAYERS_*): `type` for their keys if k, for their values if v. */
void pi__cache_rules_add(pi__cache_rules *r, int kind, bool k, bool v, int32_t type);
/* Returns the type of layer's keys (or with v: values) in a model of n_layer layers; -1 = no rule matches. window:
 * the layer has a sliding window. */
int32_t pi__cache_rules_type(const pi__cache_rules *r, int32_t layer, int32_t n_layer, bool window, bool v);
/* Returns PI_EINVAL if a rule names a layer that a model of n_layer layers does not have. */
int pi__cache_rules_check(const pi__cache_rules *r, int32_t n_layer, pi_error *err);

#endif
