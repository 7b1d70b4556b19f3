/* cases.json of `pagedinfer eval --cases`: [{"name", "ids": [...], "n": 48, "rows": "last"|"all"}, ...].
 *
 * The file may come from anywhere, so everything in it is checked: types, ranges, names that become file names. Parsing
 * knows no model: whether an id is in the vocabulary is for the caller to check. */
#ifndef PAGEDINFER_CASES_H
#define PAGEDINFER_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct eval_case {
    char *name;     /* usable as a file name: no slash, no control character, no dot in front; unique in the file */
    int32_t *ids;   /* [n_ids] the prompt, each >= 0 */
    size_t n_ids;   /* at least 1 */
    int32_t n;      /* tokens to generate */
    bool all_rows;  /* logits of all prompt positions instead of the last */
} eval_case;

typedef struct cases {
    eval_case *item; /* [n] in the order of the file */
    size_t n;
} cases;

enum { CASES_OK = 0, CASES_BAD = -1, CASES_NOMEM = -2 };
/* CASES_BAD: msg says where and why. *out is empty after a failure; else free it. */
int cases_parse(cases *out, const char *text, size_t len, char msg[256]);
void cases_free(cases *c);

#endif
