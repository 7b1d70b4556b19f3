/* pagedinfer pull, list, rm: downloads a model into the cache, lists the cached models, removes one. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "hub_cache.h"
#include "json.h"

/* ------------------------------------------------------------------------------------------------------------ pull */

int cmd_pull(const cli *c)
{
    const bool named = cli_given(c, "hf-repo") || cli_given(c, "model-url");
    if (!named && cli_n_args(c)) return cli_usage_error(c, "%s is a file of this machine; there is nothing to download",
                                                        cli_arg(c, 0));
    if (!named) return cli_usage_error(c, "no model: give USER/NAME[:QUANT] or an https:// URL");
    puts(cli_str(c, "model"));
    if (*cli_str(c, "mmproj")) fprintf(stderr, "%s: vision part: %s\n", c->name, cli_str(c, "mmproj"));
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ list */

/* Names of files may have any bytes: replaces all but printable ASCII in s by '?'. */
static void make_printable(char *s)
{
    for (; *s; s++)
        if ((unsigned char) *s < 0x20 || (unsigned char) *s > 0x7e) *s = '?';
}

/* Returns the text as JSON; bytes that are not UTF-8 become '?'. */
static json_t *text_json(const char *s)
{
    json_t *j = json_string(s);
    char *copy = j ? NULL : strdup(s);
    if (copy) make_printable(copy);
    if (copy) j = json_string(copy);
    free(copy);
    return j;
}

static int print_json(const cli *c, const cached_models *list)
{
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; i < list->n && ok; i++) {
        const cached_model *m = &list->m[i];
        json_t *row = json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "name", text_json(m->name), "repository",
                                *m->id ? text_json(m->id) : json_null(), "file", text_json(m->file), "quantization",
                                *m->quant ? text_json(m->quant) : json_null(), "bytes", (json_int_t) m->size,
                                "last_used", (json_int_t) m->used, "path", text_json(m->path), "mmproj",
                                m->mmproj ? text_json(m->mmproj) : json_null());
        ok = row && !json_array_append_new(rows, row);
    }
    ok = ok && !json_dumpf(rows, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    json_decref(rows);
    if (!ok) return cli_error(c, CLI_OS, "out of memory, or the JSON cannot be written");
    putchar('\n');
    return CLI_OK;
}

static int print_table(const cli *c, const cached_models *list)
{
    int width = 4;
    for (size_t i = 0; i < list->n; i++) {
        const size_t n = strlen(list->m[i].name);
        if (n < 100 && (int) n > width) width = (int) n;
    }
    printf("%-*s  %12s  %-10s  %s\n", width, "name", "size", "quant", "last used");
    for (size_t i = 0; i < list->n; i++) {
        const cached_model *m = &list->m[i];
        char size[32], date[32] = "?", *name = strdup(m->name);
        struct tm tm;
        if (!name) return cli_error(c, CLI_OS, "out of memory");
        make_printable(name);
        if (localtime_r(&m->used, &tm)) strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
        printf("%-*s  %12s  %-10s  %s%s\n", width, name, cli_bytes(m->size, size), *m->quant ? m->quant : "?", date,
               m->mmproj ? "  (reads images)" : "");
        free(name);
    }
    return CLI_OK;
}

int cmd_list(const cli *c)
{
    cached_models list;
    int code = cached_list(c, &list);
    if (!code) code = cli_bool(c, "list-json") ? print_json(c, &list) : print_table(c, &list);
    cached_free(&list);
    return code;
}

/* -------------------------------------------------------------------------------------------------------------- rm */

/* True if the argument names the model: by its name, repository, repository and quant or file, file, or path. */
static bool is_named(const cached_model *m, const char *arg)
{
    char id[257], quant[65];
    const size_t n = strlen(m->id);
    const hub_file f = {.path = m->file};
    if (!strcmp(arg, m->name) || !strcmp(arg, m->path)) return true;
    if (!n) return false;
    if (!strncmp(arg, m->id, n) && arg[n] == '/' && !strcmp(arg + n + 1, m->file)) return true;
    if (!hub_split_name(arg, id, quant) || strcmp(id, m->id)) return false;
    return !*quant || (hub_is_model(&f) && hub_has_quant(m->file, quant));
}

/* Prints an error and the candidates, or all models if there is no candidate. */
static int not_one(const cli *c, const cached_models *list, const char *arg, size_t n)
{
    if (n) cli_error(c, 0, "%zu cached models match '%.300s'; give one of these names:", n, arg);
    else cli_error(c, 0, "no cached model matches '%.300s'%s", arg, list->n ? "; there are:" : "");
    for (size_t i = 0; i < list->n; i++) {
        char *name = !n || is_named(&list->m[i], arg) ? strdup(list->m[i].name) : NULL;
        if (!name) continue;
        make_printable(name);
        fprintf(stderr, "  %s\n", name);
        free(name);
    }
    return CLI_NO_INPUT;
}

int cmd_rm(const cli *c)
{
    cached_models list;
    cached_model *m = NULL;
    const char *arg = cli_arg(c, 0);
    size_t n = 0;
    uint64_t freed;
    char bytes[32];
    if (!arg || !*arg) return cli_usage_error(c, "no model: give a name that 'pagedinfer list' prints");
    int code = cached_list(c, &list);
    for (size_t i = 0; i < list.n && !code; i++) {
        if (!is_named(&list.m[i], arg)) continue;
        m = &list.m[i];
        n++;
    }
    if (!code && n != 1) code = not_one(c, &list, arg, n);
    if (!code) code = cached_remove(c, m, &freed);
    if (!code) {
        make_printable(m->name);
        fprintf(stderr, "%s: removed %s, %s\n", c->name, m->name, cli_bytes(freed, bytes));
    }
    cached_free(&list);
    return code;
}
