/* Adapters in the public interface: checks names, and parses the options of engines and requests (see
 * pagedinfer.h). */
#include "api/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/error.h"

enum { NAME_BYTES = sizeof ((pi__lora_ask *) 0)->name };

static int check_name(const char *name, pi_error *err)
{
    if (!name || !*name || strlen(name) >= NAME_BYTES || strpbrk(name, ",:") || !strcmp(name, "none"))
        return pi__fail(err, PI_EINVAL, "an adapter's name is 1 to %d bytes without ',' and ':', and not \"none\"",
                        NAME_BYTES - 1);
    return PI_OK;
}

int pi_lora_load(pi_engine *e, const char *name, const char *path, float scale, pi_error *err)
{
    if (!e || !path || !isfinite(scale))
        return pi__fail(err, PI_EINVAL, "pi_lora_load: an engine, a file and a scale are needed");
    const int rc = check_name(name, err);
    return rc ? rc : pi__core_lora_load(e->core, name, path, scale, err);
}

int pi_lora_replace(pi_engine *e, const char *name, const char *path, pi_error *err)
{
    if (!e || !path) return pi__fail(err, PI_EINVAL, "pi_lora_replace: an engine and a file are needed");
    const int rc = check_name(name, err);
    return rc ? rc : pi__core_lora_replace(e->core, name, path, err);
}

int pi_lora_unload(pi_engine *e, const char *name, pi_error *err)
{
    if (!e || !name) return pi__fail(err, PI_EINVAL, "pi_lora_unload: an engine and a name are needed");
    return pi__core_lora_unload(e->core, name, err);
}

int pi_lora_scale(pi_engine *e, const char *name, float scale, pi_error *err)
{
    if (!e || !name || !isfinite(scale))
        return pi__fail(err, PI_EINVAL, "pi_lora_scale: an engine, a name and a scale are needed");
    return pi__core_lora_scale(e->core, name, scale, err);
}

int pi_lora_describe(pi_engine *e, size_t i, pi_lora *out)
{
    return e ? pi__core_lora_at(e->core, i, out) : PI_EINVAL;
}

/* --------------------------------------------------------------------------------------------------------- options */

/* Parses the next item of a comma-separated list, NAME or NAME:SCALE (or FILE:SCALE), and advances *list past it.
 * *n = bytes of the name, *scale = the scale or 1.
 * false = bad syntax, or the scale is too large for a float. */
static bool next_item(const char **list, size_t *n, float *scale)
{
    const char *p = *list;
    const size_t all = strcspn(p, ",");
    char text[32];
    double v = 1;
    *n = all;
    *list = p + all + (p[all] == ',');
    for (size_t i = all; i-- > 0;) {
        if (p[i] != ':') continue;
        const size_t digits = all - i - 1;
        if (!digits || digits >= sizeof text) return false;
        snprintf(text, sizeof text, "%.*s", (int) digits, p + i + 1);
        if (!pi__parse_float(text, false, &v)) return false;
        *n = i;
        break;
    }
    *scale = (float) v;
    return *n > 0 && isfinite(*scale);
}

int pi__lora_asked(const char *text, pi__gen_params *p, pi_error *err)
{
    pi__lora_ask *ask = NULL;
    size_t cap = 0, n;
    p->lora_given = *text != 0;
    if (!strcmp(text, "none")) return PI_OK;
    while (*text) {
        const char *name = text;
        float scale;
        if (!next_item(&text, &n, &scale) || n >= NAME_BYTES)
            return pi__fail(err, PI_EINVAL, "lora: '%.60s': expected NAME or NAME:SCALE, with commas between", name);
        if (!pi__grow(&ask, &cap, p->n_lora + 1, sizeof *ask)) return pi__fail_mem(err, "the request's adapters");
        ask[p->n_lora].scale = scale;
        snprintf(ask[p->n_lora++].name, NAME_BYTES, "%.*s", (int) n, name);
        p->lora = ask;
    }
    return PI_OK;
}

/* Loads the adapters of a comma-separated list of FILE or FILE:SCALE, each under its base name without .gguf. apply:
 * SCALE becomes the default scale; otherwise that is 0. */
static int load_files(pi_engine *e, const char *list, bool apply, pi_error *err)
{
    int rc = PI_OK;
    while (*list && !rc) {
        const char *file = list;
        float scale;
        size_t n;
        if (!next_item(&list, &n, &scale))
            return pi__fail(err, PI_EINVAL, "lora: '%.60s': expected FILE or FILE:SCALE, with commas between", file);
        char *path = pi__strndup(file, n), name[NAME_BYTES];
        if (!path) return pi__fail_mem(err, "an adapter's name");
        const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        const size_t len = strlen(base), tail = len > 5 && !strcmp(base + len - 5, ".gguf") ? 5 : 0;
        snprintf(name, sizeof name, "%.*s", (int) (len - tail), base);
        rc = pi_lora_load(e, name, path, apply ? scale : 0, err);
        pi__free(path);
    }
    return rc;
}

/* Loads an entry NAME=FILE of option lora-modules, with default scale 0. */
static int load_module(pi_engine *e, const char *text, pi_error *err)
{
    const char *is = strchr(text, '=');
    char name[NAME_BYTES];
    if (!is || is - text >= (ptrdiff_t) sizeof name)
        return pi__fail(err, PI_EINVAL, "lora-modules: '%.60s': expected NAME=FILE", text);
    snprintf(name, sizeof name, "%.*s", (int) (is - text), text);
    return pi_lora_load(e, name, is + 1, 0, err);
}

int pi__engine_open_lora(pi_engine *e, const pi_options *o, pi_error *err)
{
    const pi__opt_list *file = pi__opt_list_of(&o->set, PI__OPT_LORA_FILE),
                       *scaled = pi__opt_list_of(&o->set, PI__OPT_LORA_SCALED);
    const pi__opt_list *module = pi__opt_list_of(&o->set, PI__OPT_LORA_MODULES);
    const bool apply = !pi__opt_bool(&o->set, PI__OPT_LORA_NO_APPLY);
    int rc = PI_OK;
    for (size_t i = 0; i < file->n && !rc; i++) rc = load_files(e, file->item[i], apply, err);
    for (size_t i = 0; i < scaled->n && !rc; i++) rc = load_files(e, scaled->item[i], apply, err);
    for (size_t i = 0; i < module->n && !rc; i++) rc = load_module(e, module->item[i], err);
    return rc;
}

/* Returns the size of the file whose path is the first n bytes of text; 0 = no such file. */
static uint64_t file_bytes(const char *text, size_t n)
{
    char path[4096];
    struct stat st;
    if (n >= sizeof path) return 0;
    memcpy(path, text, n);
    path[n] = 0;
    return !stat(path, &st) && S_ISREG(st.st_mode) && st.st_size > 0 ? (uint64_t) st.st_size : 0;
}

uint64_t pi__lora_file_bytes(const pi_options *o)
{
    const pi__opt_list *list[] = {pi__opt_list_of(&o->set, PI__OPT_LORA_FILE),
                                  pi__opt_list_of(&o->set, PI__OPT_LORA_SCALED)};
    const pi__opt_list *module = pi__opt_list_of(&o->set, PI__OPT_LORA_MODULES);
    uint64_t all = 0;
    float scale;
    size_t n;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < list[k]->n; i++)
            for (const char *text = list[k]->item[i], *file = text; *text && next_item(&text, &n, &scale); file = text)
                all += file_bytes(file, n);
    for (size_t i = 0; i < module->n; i++) {
        const char *is = strchr(module->item[i], '=');
        if (is) all += file_bytes(is + 1, strlen(is + 1));
    }
    return all;
}
