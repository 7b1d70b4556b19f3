/* Fuzzes chat templates and JSON. The input is TEMPLATE, a zero byte, VARIABLES as JSON; either may be anything.
 * Parsing and rendering return a text or an error with a message, within the bounds set here. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "template/jinja.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMORY = 4 << 20, OUTPUT = 1 << 20, STEPS = 300000 };

static const char default_vars[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi \\u00e9\"}, {\"role\": \"assistant\", \"content\": null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"x\": \"a,b,c\", \"n\": 3}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *) data : "", *zero = size ? memchr(text, 0, size) : NULL;
    size_t n = zero ? (size_t) (zero - text) : size;
    const char *json = zero ? zero + 1 : default_vars;
    size_t n_json = zero ? size - n - 1 : sizeof default_vars - 1;
    pi_error err = {0};
    pi__zone zone;
    pi__val vars = {0};
    pi__text out = {.limit = OUTPUT};
    pi__jinja *t = NULL;
    pi__zone_init(&zone, MEMORY);
    int rc = pi__json_read(&zone, json, n_json, "the variables", &vars, &err);
    if (rc ? rc != err.code || !err.msg[0] : vars.type == PI__V_UNDEFINED) __builtin_trap();
    if (rc || vars.type != PI__V_MAP) {
        zone.code = 0;
        if (!pi__val_new_map(&zone, &vars)) goto out;
    }
    err = (pi_error) {0};
    rc = pi__jinja_parse(&t, text, n, &err);
    if (rc ? rc != err.code || !err.msg[0] || t : !t) __builtin_trap();
    const pi__jinja_env env = {.now = 1770000000, .max_steps = STEPS};
    if (!rc) rc = pi__jinja_render(t, &zone, vars.map, &env, &out, &err);
    if (rc && (rc != err.code || !err.msg[0])) __builtin_trap();
    if (!rc && (out.n > OUTPUT || pi__utf8_valid(out.p, out.n) < out.n)) __builtin_trap();
out:
    pi__jinja_free(t);
    pi__zone_free(&zone);
    pi__free(out.p);
    return 0;
}
