/* Parses and checks cases.json (see cases.h). The caller owns the result; jansson's tree is freed on return. */
#include "cases.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { NAME_MAX_BYTES = 200 }; /* with ".f32" appended, still valid on all file systems */

static int bad(char *msg, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(char *msg, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, 256, fmt, ap);
    va_end(ap);
    return CASES_BAD;
}

static int no_memory(char *msg)
{
    bad(msg, "out of memory");
    return CASES_NOMEM;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a fraction", "true", "false", "null"};
    if (json_number_text(v)) return "a number of too many digits";
    return v ? names[json_typeof(v)] : "missing";
}

static int parse_name(eval_case *e, const json_t *v, size_t i, char *msg)
{
    if (!json_is_string(v)) return bad(msg, "case %zu: \"name\" must be a string, it is %s", i, type_name(v));
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (n == 0 || n > NAME_MAX_BYTES)
        return bad(msg, "case %zu: \"name\" must have 1 to %d bytes, it has %zu", i, NAME_MAX_BYTES, n);
    if (s[0] == '.') return bad(msg, "case %zu: \"name\" must not start with a dot: it becomes a file name", i);
    for (size_t j = 0; j < n; j++) {
        if (s[j] == '/' || (unsigned char) s[j] < 32 || s[j] == 127)
            return bad(msg, "case %zu: \"name\" must have no slash or control character: it becomes a file name", i);
    }
    e->name = strdup(s);
    return e->name ? CASES_OK : no_memory(msg);
}

static int parse_ids(eval_case *e, const json_t *v, char *msg)
{
    if (!json_is_array(v)) return bad(msg, "case \"%s\": \"ids\" must be an array, it is %s", e->name, type_name(v));
    e->n_ids = json_array_size(v);
    if (e->n_ids == 0) return bad(msg, "case \"%s\": \"ids\" is empty, a prompt has at least one token", e->name);
    e->ids = calloc(e->n_ids, sizeof *e->ids);
    if (!e->ids) return no_memory(msg);
    for (size_t j = 0; j < e->n_ids; j++) {
        const json_t *id = json_array_get(v, j);
        if (!json_is_integer(id))
            return bad(msg, "case \"%s\": \"ids\"[%zu] must be a token id, it is %s", e->name, j, type_name(id));
        json_int_t x = json_integer_value(id);
        if (x < 0 || x > INT32_MAX)
            return bad(msg, "case \"%s\": \"ids\"[%zu] is %" JSON_INTEGER_FORMAT ", not a token id", e->name, j, x);
        e->ids[j] = (int32_t) x;
    }
    return CASES_OK;
}

static int parse_case(eval_case *e, const json_t *v, size_t i, char *msg)
{
    if (!json_is_object(v)) return bad(msg, "case %zu must be an object, it is %s", i, type_name(v));
    int rc = parse_name(e, json_object_get(v, "name"), i, msg);
    if (rc) return rc;
    rc = parse_ids(e, json_object_get(v, "ids"), msg);
    if (rc) return rc;
    const json_t *n = json_object_get(v, "n"), *rows = json_object_get(v, "rows");
    if (!json_is_integer(n))
        return bad(msg, "case \"%s\": \"n\" must be a number of tokens, it is %s", e->name, type_name(n));
    json_int_t x = json_integer_value(n);
    if (x < 0 || x > INT32_MAX)
        return bad(msg, "case \"%s\": \"n\" is %" JSON_INTEGER_FORMAT ", it must be 0..%d", e->name, x, INT32_MAX);
    e->n = (int32_t) x;
    const char *r = rows ? json_string_value(rows) : "last";
    if (!r || (strcmp(r, "last") && strcmp(r, "all")))
        return bad(msg, "case \"%s\": \"rows\" must be \"last\" or \"all\"", e->name);
    e->all_rows = !strcmp(r, "all");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *) (uintptr_t) v, key, value) {
        if (strcmp(key, "name") && strcmp(key, "ids") && strcmp(key, "n") && strcmp(key, "rows"))
            return bad(msg, "case \"%s\": unknown member \"%.60s\"", e->name, key);
    }
    return CASES_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Refuses duplicate names: two cases would write one file. */
static int check_unique(const cases *c, char *msg)
{
    char **names = calloc(c->n ? c->n : 1, sizeof *names);
    int rc = names ? CASES_OK : no_memory(msg);
    for (size_t i = 0; names && i < c->n; i++) names[i] = c->item[i].name;
    if (names) qsort(names, c->n, sizeof *names, by_name);
    for (size_t i = 1; !rc && i < c->n; i++) {
        if (!strcmp(names[i - 1], names[i])) rc = bad(msg, "two cases have the name \"%s\"", names[i]);
    }
    free(names);
    return rc;
}

int cases_parse(cases *out, const char *text, size_t len, char msg[256])
{
    *out = (cases) {0};
    msg[0] = 0;
    json_fault at;
    json_t *root = json_read(text, len, &at);
    if (!root && at.no_memory) return no_memory(msg);
    if (!root) return bad(msg, "line %zu, column %zu: %s", at.line, at.column, at.what);
    int rc = CASES_OK;
    if (!json_is_array(root)) {
        rc = bad(msg, "must be an array of cases, it is %s", type_name(root));
        goto out;
    }
    size_t n = json_array_size(root);
    out->item = calloc(n ? n : 1, sizeof *out->item);
    if (!out->item) {
        rc = no_memory(msg);
        goto out;
    }
    for (size_t i = 0; !rc && i < n; i++) {
        out->n++;
        rc = parse_case(&out->item[i], json_array_get(root, i), i, msg);
    }
    if (!rc) rc = check_unique(out, msg);
out:
    json_decref(root);
    if (rc) cases_free(out);
    return rc;
}

void cases_free(cases *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->item[i].name);
        free(c->item[i].ids);
    }
    free(c->item);
    *c = (cases) {0};
}
