/* The models of a front end (see model_list.h). */
#include "serve/model_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "hub_cache.h"
#include "options.h"
#include "serve/buf.h"

enum { MAX_MODELS = 4096, STOP_S = 10 };

static int no_memory(const cli *c) { return cli_error(c, CLI_OS, "out of memory"); }

void model_list_free_model(listed_model *m)
{
    free(m->name);
    free(m->aliases);
    free(m->path);
    free(m->mmproj);
    free(m->draft);
    cli_free(&m->settings);
}

void model_list_free(model_list *list)
{
    for (size_t i = 0; i < list->n + list->n_removed; i++) model_list_free_model(&list->m[i]);
    free(list->m);
    *list = (model_list) {0};
}

void model_list_drop(model_list *list, size_t i)
{
    model_list_free_model(&list->m[i]);
    list->n--;
    memmove(&list->m[i], &list->m[i + 1], (list->n + list->n_removed - i) * sizeof *list->m);
}

void model_list_unset_one(cli *c)
{
    static const char *const of_one[] = {"model", "hf-repo", "hf-file", "model-url", "mmproj", "mmproj-url", "alias"};
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++) cli_unset(c, of_one[i]);
}

/* Appends a model with the options of c. Takes ownership of name and path; NULL = out of memory. Returns NULL after an
 * error message. */
static listed_model *add(model_list *list, const cli *c, char *name, char *path, const char *source)
{
    listed_model m = {.name = name, .path = path, .source = source, .aliases = strdup(""), .idle_s = -1,
                      .stop_s = STOP_S};
    const bool full = list->n >= MAX_MODELS;
    bool ok = name && path && m.aliases && !full && grow(&list->m, &list->cap, list->n + 1, sizeof *list->m);
    if (ok) ok = cli_copy(&m.settings, c);
    if (ok && strcmp(source, "command_line")) model_list_unset_one(&m.settings);
    if (!ok) {
        m.settings = (cli) {0};
        model_list_free_model(&m);
        if (full) cli_error(c, 0, "more than %d models: give another --models-dir", MAX_MODELS);
        else no_memory(c);
        return NULL;
    }
    list->m[list->n] = m;
    return &list->m[list->n++];
}

/* ---------------------------------------------------------------------------------------------------------- folders */

/* Returns the name of a model's file without .gguf and without the number of its part; prefix comes before it. */
static char *name_of_file(const char *prefix, const char *file)
{
    static const char part[] = "-00001-of-00001";
    const size_t n_prefix = strlen(prefix);
    size_t n = strlen(file) - strlen(".gguf");
    if (hub_parts(file) > 1) n -= sizeof part - 1;
    char *name = malloc(n_prefix + n + 2);
    if (!name) return NULL;
    sprintf(name, "%s%s%.*s", prefix, *prefix ? "/" : "", (int) n, file);
    return name;
}

/* True for a drafter of a model in the same folder. */
static bool is_draft(const hub_file *f)
{
    return hub_is_gguf(f->path) && !hub_is_model(f) && hub_part_number(f->path) == 1 && !strstr(f->path, "mmproj") &&
           !strstr(f->path, "imatrix");
}

static uint64_t bytes_of(const hub_repo *r, const hub_file *first)
{
    uint64_t sum = 0;
    for (int i = 1; i <= hub_parts(first->path); i++) {
        const hub_file *f = hub_part(r, first, i);
        if (f && f->size != UINT64_MAX) sum += f->size;
    }
    return sum;
}

/* Adds the models of one folder. sub: its name, for names of models; "" = the folder of --models-dir itself. */
static int add_folder(model_list *list, const cli *c, const char *dir, const char *sub)
{
    hub_repo r = {0};
    size_t n_models = 0, n_drafts = 0;
    const hub_file *draft = NULL;
    int code = -1;
    if (!hub_list_folder(&r, dir)) code = cli_error(c, CLI_IO, "--models-dir: %s: %s", dir, strerror(errno));
    for (size_t i = 0; i < r.n; i++) {
        n_models += hub_is_model(&r.file[i]);
        if (is_draft(&r.file[i])) draft = &r.file[i], n_drafts++;
    }
    for (size_t i = 0; i < r.n && code < 0; i++) {
        const hub_file *f = &r.file[i];
        if (!hub_is_model(f) || *f->path == '.') continue;
        if (strchr(f->path, ',') || strchr(sub, ',')) {
            cli_error(c, 0, "%s/%s is left out: commas separate the names of a model; rename it", dir, f->path);
            continue;
        }
        char *name = *sub && n_models == 1 ? strdup(sub) : name_of_file(sub, f->path);
        listed_model *m = add(list, c, name, hub_join(dir, f->path), "models_dir");
        if (!m) code = CLI_OS;
        if (!m) break;
        const hub_file *vision = *sub ? hub_vision_part(&r, f) : NULL;
        if (vision && !(m->mmproj = hub_join(dir, vision->path))) code = no_memory(c);
        if (*sub && n_models == 1 && n_drafts == 1 && !(m->draft = hub_join(dir, draft->path))) code = no_memory(c);
        m->file_bytes = bytes_of(&r, f);
    }
    hub_clear(&r);
    return code;
}

static int add_dir(model_list *list, const cli *c, const char *dir)
{
    int code = add_folder(list, c, dir, "");
    DIR *d = code < 0 ? opendir(dir) : NULL;
    if (code < 0 && !d) code = cli_error(c, CLI_IO, "--models-dir: %s: %s", dir, strerror(errno));
    for (struct dirent *e; code < 0 && d && (e = readdir(d));) {
        struct stat st;
        if (*e->d_name == '.') continue;
        char *path = hub_join(dir, e->d_name);
        if (!path) code = no_memory(c);
        else if (!stat(path, &st) && S_ISDIR(st.st_mode)) code = add_folder(list, c, path, e->d_name);
        free(path);
    }
    if (d) closedir(d);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------ cache */

static int add_cache(model_list *list, const cli *c)
{
    cached_models cached;
    int code = cached_list(c, &cached);
    if (!code) code = -1;
    for (size_t i = 0; i < cached.n && code < 0; i++) {
        const cached_model *f = &cached.m[i];
        const hub_file file = {.path = f->file};
        if (!hub_is_model(&file)) continue;
        listed_model *m = add(list, c, strdup(f->name), strdup(f->path), "cache");
        if (!m) code = CLI_OS;
        if (!m) break;
        m->file_bytes = f->size;
        if (f->mmproj && !(m->mmproj = strdup(f->mmproj))) code = no_memory(c);
    }
    cached_free(&cached);
    return code;
}

/* --------------------------------------------------------------------------------------------------------- sections */

/* Returns a key of the model's section, or else of [*]; NULL = not given. */
static const char *value_of(const config *f, const char *section, const char *key)
{
    const char *v = f ? config_value(f, section, key) : NULL;
    return v || !f ? v : config_value(f, "*", key);
}

static int bool_key(const cli *c, const config *f, const char *section, const char *key, bool *out)
{
    const char *v = value_of(f, section, key);
    return !v || options_bool(v, out) ? -1 : cli_error(c, CLI_CONFIG, "[%s] %s = %s: give true or false", section, key,
                                                       v);
}

/* Reads the keys that the front end uses itself. */
static int read_own_keys(const cli *c, const config *f, listed_model *m)
{
    const char *stop = value_of(f, m->name, "stop-timeout"), *alias = f ? config_value(f, m->name, "alias") : NULL;
    int code = bool_key(c, f, m->name, "load-on-startup", &m->on_startup);
    if (code < 0) code = bool_key(c, f, m->name, "pin", &m->pinned);
    if (code < 0 && stop && (!options_int(stop, &m->stop_s) || m->stop_s < 0 || m->stop_s > 86400))
        code = cli_error(c, CLI_CONFIG, "[%s] stop-timeout = %s: give seconds, 0 to 86400", m->name, stop);
    if (!alias) return code;
    free(m->aliases);
    m->aliases = strdup(alias);
    return m->aliases ? code : no_memory(c);
}

/* Sets the model's files as options, unless its section has others. */
static int set_files(const cli *c, listed_model *m)
{
    cli *s = &m->settings;
    const bool given = *cli_str(s, "model") || *cli_str(s, "hf-repo") || *cli_str(s, "model-url");
    char id[257], quant[65];
    bool ok = true;
    if (!given && *m->path) ok = cli_set(s, "model", m->path);
    else if (!given && hub_split_name(m->name, id, quant)) ok = cli_set(s, "hf-repo", m->name);
    else if (!given) return cli_error(c, CLI_CONFIG, "%s: [%s] names no model: add model = FILE or hf-repo = "
                                      "USER/NAME", cli_str(c, "models-preset"), m->name);
    if (m->mmproj && !given && cli_bool(s, "mmproj-auto") && !*cli_str(s, "mmproj"))
        ok = ok && cli_set(s, "mmproj", m->mmproj);
    if (m->draft && !given && !*cli_str(s, "model-draft")) ok = ok && cli_set(s, "model-draft", m->draft);
    return ok ? -1 : no_memory(c);
}

static int configure(const cli *c, const config *f, listed_model *m)
{
    struct stat st;
    int code = -1;
    if (f) code = config_add(&m->settings, f, "*", CLI_FROM_FILE);
    if (f && code < 0) code = config_add(&m->settings, f, m->name, CLI_FROM_SECTION);
    if (code < 0) code = read_own_keys(c, f, m);
    if (code < 0) code = set_files(c, m);
    if (code < 0) code = cli_check(&m->settings);
    if (code >= 0) return code;
    m->idle_s = cli_int(&m->settings, "sleep-idle-seconds");
    if (!stat(cli_str(&m->settings, "model"), &st) && S_ISREG(st.st_mode)) {
        m->modified = st.st_mtime;
        if (!m->file_bytes) m->file_bytes = (uint64_t) st.st_size;
    }
    return -1;
}

/* Adds the sections that are no model of another source. */
static int add_sections(model_list *list, const cli *c, const config *f)
{
    const char *s;
    for (size_t i = 0; (s = config_section(f, i)); i++) {
        bool known = false;
        for (size_t k = 0; k < list->n && !known; k++) known = !strcmp(list->m[k].name, s);
        if (!known && !add(list, c, strdup(s), strdup(""), "preset")) return CLI_OS;
    }
    return -1;
}

/* ------------------------------------------------------------------------------------------------------------ names */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const listed_model *) a)->name, ((const listed_model *) b)->name);
}

static bool has_alias(const listed_model *m, const char *name, size_t n)
{
    for (const char *p = m->aliases; *p; p += strcspn(p, ","), p += *p == ',')
        if (n && n == strcspn(p, ",") && !memcmp(name, p, n)) return true;
    return false;
}

static size_t find(const model_list *list, const char *name, size_t n)
{
    for (size_t i = 0; i < list->n; i++)
        if (n == strlen(list->m[i].name) && !memcmp(list->m[i].name, name, n)) return i;
    for (size_t i = 0; i < list->n; i++)
        if (has_alias(&list->m[i], name, n)) return i;
    return list->n;
}

size_t model_list_find(const model_list *list, const char *name)
{
    static const char tag[] = ":latest";
    const size_t n = strlen(name), n_tag = sizeof tag - 1, i = find(list, name, n);
    if (i < list->n || n <= n_tag || strcmp(name + n - n_tag, tag)) return i;
    return find(list, name, n - n_tag);
}

bool model_list_differs(const listed_model *a, const listed_model *b)
{
    const cli *c = &a->settings, *d = &b->settings;
    if (c->n_val != d->n_val || a->file_bytes != b->file_bytes || a->modified != b->modified) return true;
    for (size_t i = 0; i < c->n_val; i++)
        if (c->val[i].opt != d->val[i].opt || strcmp(c->val[i].value, d->val[i].value)) return true;
    return false;
}

/* True if a list of FILE or FILE:SCALE, with commas between, has a file of this name, without .gguf. */
static bool has_adapter_file(const char *list, const char *name)
{
    const size_t n_name = strlen(name);
    for (const char *p = list; *p; p += *p == ',') {
        const char *end = p + strcspn(p, ","), *scale = end, *base = p;
        for (const char *q = p; q < end; q++) {
            if (*q == ':') scale = q;
        }
        for (const char *q = p; q < scale; q++) {
            if (*q == '/') base = q + 1;
        }
        size_t n = (size_t) (scale - base);
        if (n > 5 && !memcmp(base + n - 5, ".gguf", 5)) n -= 5;
        if (n == n_name && !memcmp(base, name, n)) return true;
        p = end;
    }
    return false;
}

bool model_list_has_adapter(const listed_model *m, const char *name)
{
    static const char *const of_files[] = {"lora-file", "lora-scaled"};
    const cli *c = &m->settings;
    const size_t n = strlen(name);
    for (int k = 0; n && k < 2; k++)
        for (size_t i = 0; i < cli_n(c, of_files[k]); i++)
            if (has_adapter_file(cli_nth(c, of_files[k], i), name)) return true;
    for (size_t i = 0; n && i < cli_n(c, "lora-modules"); i++) {
        const char *v = cli_nth(c, "lora-modules", i);
        if (!strncmp(v, name, n) && v[n] == '=') return true;
    }
    return false;
}

bool model_list_near(const model_list *list, const char *name, char out[64])
{
    int dist = 1 + (int) strlen(name) / 3;
    bool found = false;
    for (size_t i = 0; i < list->n; i++) {
        const char *s = list->m[i].name;
        if (!strchr(s, ' ') && strlen(s) < 64) found |= options_nearest_word(name, s, out, &dist);
    }
    return found;
}

/* Sorts the models. Each name must select one of them. */
static int check_names(const cli *c, model_list *list)
{
    qsort(list->m, list->n, sizeof *list->m, by_name);
    for (size_t i = 0; i < list->n; i++) {
        const listed_model *m = &list->m[i];
        if (i && !strcmp(m[-1].name, m->name))
            return cli_error(c, CLI_CONFIG, "two models have the name %s: rename a file, or give --no-models-cache",
                             m->name);
        for (const char *p = m->aliases; *p; p += strcspn(p, ","), p += *p == ',') {
            const size_t n = strcspn(p, ","), k = find(list, p, n);
            if (n && k != i)
                return cli_error(c, CLI_CONFIG, "alias %.*s of %s is also a name of %s: remove one", (int) n, p,
                                 m->name, list->m[k].name);
        }
    }
    return -1;
}

/* The only model is that of the command line: for --sleep-idle-seconds. */
static int add_given(model_list *list, const cli *c)
{
    const char *path = cli_str(c, "model"), *slash = strrchr(path, '/'), *alias = cli_str(c, "alias");
    const size_t n = strcspn(alias, ",");
    char *name = n ? strndup(alias, n) : strdup(slash ? slash + 1 : path);
    listed_model *m = add(list, c, name, strdup(path), "command_line");
    if (!m) return CLI_OS;
    m->on_startup = true;
    if (!alias[n]) return -1;
    free(m->aliases);
    m->aliases = strdup(alias + n + 1);
    return m->aliases ? -1 : no_memory(c);
}

int model_list_build(const cli *c, model_list *out)
{
    const char *dir = cli_str(c, "models-dir"), *preset = cli_str(c, "models-preset");
    config *f = NULL;
    int code = -1;
    *out = (model_list) {0};
    if (!*dir && !*preset && *cli_str(c, "model")) {
        code = add_given(out, c);
    } else {
        if (*preset) code = config_open(c, preset, &f);
        if (code < 0 && *dir) code = add_dir(out, c, dir);
        if (code < 0 && cli_bool(c, "models-cache")) code = add_cache(out, c);
        if (code < 0 && f) code = add_sections(out, c, f);
    }
    for (size_t i = 0; i < out->n && code < 0; i++) code = configure(c, f, &out->m[i]);
    if (code < 0) code = check_names(c, out);
    config_close(f);
    return code;
}
