/* Renders a template for check_templates.py: tool_chat_template TEMPLATE VARIABLES.JSON [NOW]
 *
 * Prints the output; on an error prints its text to standard error and exits with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "template/jinja.h"

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(8 << 20);
    if (!f || !text) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    *n = fread(text, 1, 8 << 20, f);
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    size_t n_template, n_vars;
    char *template = read_file(argv[1], &n_template), *vars = read_file(argv[2], &n_vars);
    pi_error err = {0};
    pi__zone zone;
    pi__val v;
    pi__text out = {.limit = 64 << 20};
    pi__jinja *t = NULL;
    pi__zone_init(&zone, (size_t) 256 << 20);
    const pi__jinja_env env = {.now = argc > 3 ? atoll(argv[3]) : 0};
    int rc = pi__json_read(&zone, vars, n_vars, "the variables", &v, &err);
    if (!rc && v.type != PI__V_MAP) return 2;
    if (!rc) rc = pi__jinja_parse(&t, template, n_template, &err);
    if (!rc) rc = pi__jinja_render(t, &zone, v.map, &env, &out, &err);
    if (rc) fprintf(stderr, "%s\n", err.msg);
    else if (out.n) fwrite(out.p, 1, out.n, stdout);
    pi__jinja_free(t);
    pi__zone_free(&zone);
    pi__free(out.p);
    free(template);
    free(vars);
    return rc != 0;
}
