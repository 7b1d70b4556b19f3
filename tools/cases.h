/* cases.json of `pagedinfer eval --cases`: a list of {"name", "ids": [...], "n": 48, "rows": "last"}; instead of
 * "last", "rows" may be "all".
 *
 * The file is untrusted, so everything in it is checked: types, ranges, names that become file names. The parser has
 * no model; the caller checks ids against the vocabulary. */
#ifndef PAGEDINFER_CASES_H
#define PAGEDINFER_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct eval_case {
    char *name;     /* valid as a file name: no slash, no control character, no leading dot; unique in the file */
    int32_t *ids;   /* [n_ids] the prompt, each id >= 0 */
    size_t n_ids;   /* at least 1 */
    int32_t n;      /* tokens to generate */
    bool all_rows;  /* logits of all prompt positions instead of the last one */
} eval_case;

typedef struct cases {
    eval_case *item; /* [n] in file order */
    size_t n;
} cases;

enum { CASES_OK = 0, CASES_BAD = -1, CASES_NOMEM = -2 };
/* CASES_BAD: msg has the position and the reason. *out is empty after a failure; otherwise the caller frees it. */
int cases_parse(cases *out, const char *text, size_t len, char msg[256]);
void cases_free(cases *c);

#endif
