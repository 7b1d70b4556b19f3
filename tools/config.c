/* Options from a file (see config.h), in the format of llama.cpp's presets:
 *
 *     threads = 8              ; for all models, like the section [*]
 *     [*]
 *     ctx-size = 8192          ; a long flag without dashes, a short one, or the name of a variable
 *     [gemma]                  ; the model's name on the command line, its file, or its repository
 *     hf-repo = ggml-org/gemma-3-1b-it-GGUF
 *     no-mmap = true           ; a flag without a value: true or false
 *
 * A comment begins with ; or # at the start of a line or after a space. A value in double quotes may have these
 * characters, \", \\ and \n. A line that ends with \ continues on the next one. The key `version` has no effect; the
 * keys in `own` are for a server of several models, which reads them with config_value.
 *
 * Memory: the text of the file until config_close. Not thread-safe. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "hub_names.h"
#include "options.h"

enum { MAX_FILE = 1 << 20, MAX_NAME = 256 };

typedef struct entry {
    const char *section; /* "*" = for all models */
    const char *key;     /* NULL = the start of the section */
    const char *value;
    size_t line;         /* from 1 */
} entry;

struct config {
    char *path;
    char *text;          /* content of the file; entries point into it */
    entry *e;            /* [n] */
    size_t n, cap;
};

static const char own[] = "version load-on-startup stop-timeout dedup-cache-models pin";

static int fault(const cli *c, const config *f, size_t line, const char *what)
{
    return cli_error(c, CLI_CONFIG, "%s:%zu: %s", f->path, line, what);
}

static bool add(config *f, entry e)
{
    if (f->n == f->cap) {
        const size_t cap = f->cap ? f->cap * 2 : 64;
        entry *p = realloc(f->e, cap * sizeof *p);
        if (!p) return false;
        f->e = p;
        f->cap = cap;
    }
    f->e[f->n++] = e;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- syntax */

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static char *skip_space(char *p)
{
    while (is_space(*p)) p++;
    return p;
}

static void trim_end(char *s)
{
    size_t n = strlen(s);
    while (n && is_space(s[n - 1])) n--;
    s[n] = 0;
}

/* True if only space and a comment follow. */
static bool only_comment(char *p)
{
    p = skip_space(p);
    return !*p || *p == ';' || *p == '#';
}

/* Removes the quotes and escapes of the value at p. Returns an error text, or NULL. */
static const char *unquote(char *p)
{
    char *out = p, *in = p + 1;
    for (; *in && *in != '"'; in++) {
        if (*in == '\\' && (in[1] == '"' || in[1] == '\\')) in++;
        else if (*in == '\\' && in[1] == 'n') *in = '\n', in[1] = '\n', in++;
        *out++ = *in;
    }
    if (*in != '"') return "the closing \" is missing";
    if (!only_comment(in + 1)) return "text follows the closing \"; write \\\" inside of quotes";
    *out = 0;
    return NULL;
}

/* Cuts the comment off a value without quotes. */
static void cut_comment(char *value)
{
    for (char *p = value; *p; p++) {
        if ((*p == ';' || *p == '#') && (p == value || is_space(p[-1]))) {
            *p = 0;
            break;
        }
    }
    trim_end(value);
}

/* Ends the line at *at with a NUL, joins lines that end with a backslash, and advances *at and *line. */
static char *next_line(char **at, char *end, size_t *line)
{
    char *start = *at, *out = *at, *p = *at;
    ++*line;
    for (; p < end; p++) {
        if (*p == '\r' && p[1] == '\n') continue;
        if (*p == '\n' && out > start && out[-1] == '\\') out[-1] = '\n', ++*line;
        else if (*p == '\n') break;
        else *out++ = *p;
    }
    *at = p < end ? p + 1 : end;
    *out = 0;
    return start;
}

static const char *parse_section(char *p, const char **section)
{
    char *end = strchr(p, ']');
    if (!end || !only_comment(end + 1)) return "expected [NAME]";
    *end = 0;
    p = skip_space(p + 1);
    trim_end(p);
    if (!*p || strlen(p) >= MAX_NAME) return "the name of the section is empty or too long";
    *section = strcmp(p, "default") ? p : "*";
    return NULL;
}

static const char *parse_pair(char *p, entry *e)
{
    char *eq = strchr(p, '=');
    if (!eq) return "expected KEY = VALUE or [SECTION]";
    *eq = 0;
    p += strspn(p, "-");
    trim_end(p);
    if (!*p || strlen(p) >= 64 || p[strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")])
        return "the key has invalid characters, or is too long";
    char *value = skip_space(eq + 1);
    e->key = p;
    e->value = value;
    if (*value == '"') return unquote(value);
    cut_comment(value);
    return NULL;
}

static int parse(const cli *c, config *f, size_t n)
{
    char *at = f->text, *end = f->text + n;
    const char *section = "*";
    size_t line = 0;
    if (n >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3)) at += 3;
    while (at < end) {
        const size_t first = line + 1;
        char *p = skip_space(next_line(&at, end, &line));
        entry e = {.line = first};
        const char *what = NULL;
        if (only_comment(p)) continue;
        what = *p == '[' ? parse_section(p, &section) : parse_pair(p, &e);
        e.section = section;
        if (what) return fault(c, f, first, what);
        if (!add(f, e)) return cli_error(c, CLI_OS, "out of memory");
    }
    return -1;
}

/* -------------------------------------------------------------------------------------------------------- sections */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* True if the section's name is the model's name, its file, or its file without .gguf. */
static bool names_model(const char *section, const char *model)
{
    const char *base = base_name(model);
    const size_t n = strlen(section), len = strlen(base);
    if (!*model) return false;
    if (!strcmp(section, model) || !strcmp(section, base)) return true;
    return len == n + 5 && !memcmp(base, section, n) && !strcmp(base + n, ".gguf");
}

static const char *const MODEL_KEYS[] = {"model", "hf-repo", "model-url"};
enum { N_MODEL_KEYS = sizeof MODEL_KEYS / sizeof *MODEL_KEYS };

static const char *argument(const cli *c)
{
    return c->cmd->takes_model && !*c->called && c->n_arg ? c->arg[0] : "";
}

/* True if the command line or the environment names a model. */
static bool has_model(const cli *c)
{
    bool has = *argument(c);
    for (size_t i = 0; i < N_MODEL_KEYS; i++) has |= *cli_str(c, MODEL_KEYS[i]) != 0;
    return has;
}

const char *config_section(const config *f, size_t i)
{
    for (size_t k = 0; k < f->n; k++) {
        const char *s = f->e[k].section;
        bool again = !strcmp(s, "*");
        for (size_t j = 0; j < k && !again; j++) again = !strcmp(f->e[j].section, s);
        if (!again && !i--) return s;
    }
    return NULL;
}

const char *config_value(const config *f, const char *section, const char *key)
{
    for (size_t i = f->n; i-- > 0;)
        if (f->e[i].key && !strcmp(f->e[i].section, section) && !strcmp(f->e[i].key, key)) return f->e[i].value;
    return NULL;
}

/* Returns the section of the model that the command line or the environment names; NULL = none. */
static const char *find_section(const cli *c, const config *f)
{
    const char *s;
    for (size_t i = 0; (s = config_section(f, i)); i++) {
        bool hit = names_model(s, argument(c)) || !strcmp(s, cli_str(c, "alias"));
        for (size_t k = 0; k < N_MODEL_KEYS; k++) hit |= names_model(s, cli_str(c, MODEL_KEYS[k]));
        if (hit) return s;
    }
    return NULL;
}

static int choose_one(const cli *c, const config *f)
{
    const char *s;
    cli_error(c, 0, "%s has several models: name one, as in '%s NAME --config FILE'%s:", f->path, c->name,
              cli_has_section(c->cmd, "serve") ? ", or serve all with --models-preset FILE" : "");
    for (size_t i = 0; (s = config_section(f, i)); i++) fprintf(stderr, "  %s\n", s);
    return CLI_CONFIG;
}

int config_add(cli *c, const config *f, const char *section, enum cli_source source)
{
    int code = -1;
    for (size_t i = 0; i < f->n && code < 0; i++) {
        const entry *e = &f->e[i];
        char where[512];
        if (!e->key || strcmp(e->section, section)) continue;
        const char *skip = strstr(own, e->key);
        const size_t n = strlen(e->key);
        if (skip && (skip == own || skip[-1] == ' ') && (!skip[n] || skip[n] == ' ')) continue;
        snprintf(where, sizeof where, "%.490s:%zu", f->path, e->line);
        code = cli_add_named(c, e->key, e->value, source, where);
    }
    return code;
}

/* The section's name is the model, unless a key names it, and the server's name for the model. */
static int use_name(cli *c, const config *f, const char *section)
{
    char id[257], quant[65];
    bool given = false;
    int code = -1;
    for (size_t i = 0; i < N_MODEL_KEYS; i++) given |= *cli_str(c, MODEL_KEYS[i]) != 0;
    if (given && !strcmp(argument(c), section)) c->n_arg = 0;
    if (!given && !*argument(c) && c->cmd->takes_model && hub_split_name(section, id, quant))
        code = cli_add_named(c, "hf-repo", section, CLI_FROM_SECTION, f->path);
    if (code < 0 && cli_has_section(c->cmd, "serve") && !cli_given(c, "alias") && !strpbrk(section, "/,"))
        code = cli_add_named(c, "alias", section, CLI_FROM_SECTION, f->path);
    return code;
}

/* True if the command serves the models of a folder or file: no section of --config is the model. */
static bool serves_several(const cli *c)
{
    return cli_has_section(c->cmd, "serve") && (*cli_str(c, "models-dir") || *cli_str(c, "models-preset"));
}

static int apply(cli *c, const config *f)
{
    const char *section;
    int code = config_add(c, f, "*", CLI_FROM_FILE);
    if (code >= 0) return code;
    section = find_section(c, f);
    if (!section && c->cmd->takes_model && !has_model(c) && !serves_several(c)) {
        section = config_section(f, 0);
        if (section && config_section(f, 1)) return choose_one(c, f);
    }
    if (!section) return -1;
    code = config_add(c, f, section, CLI_FROM_SECTION);
    return code < 0 ? use_name(c, f, section) : code;
}

int config_open(const cli *c, const char *path, config **out)
{
    config *f = calloc(1, sizeof *f);
    size_t n = 0;
    *out = NULL;
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return cli_error(c, CLI_OS, "out of memory");
    }
    int code = cli_read_file(c, path, &f->text, &n);
    if (!code && n > MAX_FILE) code = cli_error(c, CLI_CONFIG, "%s: a file of more than 1 MiB is not read", path);
    else if (!code && memchr(f->text, 0, n)) code = cli_error(c, CLI_CONFIG, "%s has a NUL byte", path);
    else if (!code) code = parse(c, f, n);
    if (code < 0) *out = f;
    else config_close(f);
    return code;
}

void config_close(config *f)
{
    if (!f) return;
    free(f->path);
    free(f->e);
    free(f->text);
    free(f);
}

int config_read(cli *c)
{
    config *f;
    int code = config_open(c, cli_str(c, "config"), &f);
    if (code < 0) code = apply(c, f);
    config_close(f);
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- print */

static bool is_secret(const char *key) { return !strcmp(key, "api-key") || !strcmp(key, "hf-token"); }

/* True if the value cannot be written without quotes. */
static bool needs_quotes(const char *v)
{
    const size_t n = strlen(v);
    if (!n) return false;
    if (is_space(*v) || is_space(v[n - 1]) || strchr("\";#", *v) || v[n - 1] == '\\') return true;
    return strchr(v, '\n') || strstr(v, " ;") || strstr(v, " #") || strstr(v, "\t;") || strstr(v, "\t#");
}

/* Returns the number of characters written. */
static int put_value(FILE *out, const char *v)
{
    int n = 0;
    if (!needs_quotes(v)) return fprintf(out, "%s", v);
    n += fprintf(out, "\"");
    for (; *v; v++) {
        if (*v == '\n') n += fprintf(out, "\\n");
        else n += fprintf(out, "%s%c", *v == '"' || *v == '\\' ? "\\" : "", *v);
    }
    return n + fprintf(out, "\"");
}

/* A default is a comment, so that the output as --config sets nothing else. */
static void put_setting(const char *name, const char *value, const char *source)
{
    int n = printf("%s%s = ", strcmp(source, "default") ? "" : "; ", name);
    n += put_value(stdout, value);
    printf("%*s; %s\n", n < 40 ? 40 - n : 1, "", source);
}

int config_print(const cli *c)
{
    static const char *const sources[] = {[CLI_FROM_NAME] = "program name", [CLI_FROM_FILE] = "file",
                                          [CLI_FROM_SECTION] = "file", [CLI_FROM_ENV] = "environment",
                                          [CLI_FROM_ARGV] = "command line"};
    static const char *const omitted[] = {"help", "version", "list-devices", "config", "print-config", "dry-run"};
    pi_option_info info;
    char name[64];
    printf("; %s: settings and their sources\n[*]\n", c->name);
    for (size_t i = 0; options_at(i, &info); i++) {
        bool skip = !strcmp(info.section, "compat") || !cli_name_of(c, i, name);
        for (size_t k = 0; k < sizeof omitted / sizeof *omitted; k++) skip |= !strcmp(info.key, omitted[k]);
        if (skip) continue;
        enum cli_source source = CLI_FROM_NAME;
        const bool is_list = !strcmp(info.type, "list");
        size_t n = 0;
        const char *last = cli_value_of(c, i, SIZE_MAX, &n, &source);
        if (!n) put_setting(name, info.def, "default");
        else if (is_secret(info.key)) printf("; %s is set: %s\n", name, sources[source]);
        else if (!is_list) put_setting(name, last, sources[source]);
        else
            for (size_t k = 0; k < n; k++) put_setting(name, cli_value_of(c, i, k, NULL, NULL), sources[source]);
    }
    return cli_flush(c);
}

bool config_save(const cli *c, FILE *out, const char *skip)
{
    pi_option_info info;
    char name[64];
    for (size_t i = 0; options_at(i, &info); i++) {
        size_t n = 0;
        const char *at = strstr(skip, info.key);
        const size_t len = strlen(info.key);
        while (at && !((at == skip || at[-1] == ' ') && (!at[len] || at[len] == ' '))) at = strstr(at + 1, info.key);
        if (at || !strcmp(info.section, "compat") || !cli_name_of(c, i, name)) continue;
        cli_value_of(c, i, SIZE_MAX, &n, NULL);
        for (size_t k = strcmp(info.type, "list") && n ? n - 1 : 0; k < n; k++) {
            fprintf(out, "%s = ", name);
            put_value(out, cli_value_of(c, i, k, NULL, NULL));
            fputc('\n', out);
        }
    }
    return !ferror(out);
}
