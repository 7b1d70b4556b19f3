/* The command line: flags from the option list (options.h), environment variables, values and messages (see cli.h).
 *
 * Memory: a growing list of values; texts point into argv and the environment. Not thread-safe, except the log
 * function. */
#include "cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "environment.h"
#include "options.h"
#include "vllm.h"

/* True if word is one of the space-separated words of list. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; n && (p = strstr(p, word)); p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    }
    return false;
}

bool cli_has_section(const cli_command *cmd, const char *section)
{
    return !strcmp(section, "compat") || has_word(cmd->sections, section);
}

/* ------------------------------------------------------------------------------------------------------- messages */

static void say(const cli *c, const char *kind, const char *fmt, va_list ap)
{
    flockfile(stderr);
    cli_new_line();
    fprintf(stderr, "%s: %s", c->name, kind);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    funlockfile(stderr);
}

int cli_usage_error(const cli *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(c, "", fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try '%s --help'.\n", c->name);
    return CLI_USAGE;
}

int cli_error(const cli *c, int exit_code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(c, "", fmt, ap);
    va_end(ap);
    return exit_code;
}

static void __attribute__((format(printf, 2, 3))) warn(const cli *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(c, "warning: ", fmt, ap);
    va_end(ap);
}

int cli_exit_code(int pi_code)
{
    switch (pi_code) {
    case PI_OK: return CLI_OK;
    case PI_EINVAL:
    case PI_ETOOBIG: return CLI_CONFIG;
    case PI_ENOMEM: return CLI_OS;
    case PI_EIO: return CLI_IO;
    case PI_ENOENT: return CLI_NO_INPUT;
    case PI_EFORMAT: return CLI_DATA;
    case PI_EUNSUPPORTED:
    case PI_EDEVICE: return CLI_UNAVAILABLE;
    case PI_EBUSY:
    case PI_ETIMEDOUT: return CLI_TEMPFAIL;
    default: return CLI_SOFTWARE;
    }
}

int cli_pi_error(const cli *c, const pi_error *err)
{
    return cli_error(c, cli_exit_code(err->code), "%s", *err->msg ? err->msg : pi_strerror(err->code));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

/* Writes a log line in the format of llama.cpp's tools, to the log's destination. If the text is not UTF-8 (a file
 * name, for example), its non-ASCII bytes become '?'. */
static void log_json(const cli *c, int level, const char *msg)
{
    static const char *const kind[] = {"info", "error", "warn", "info", "debug"};
    char *copy = strdup(msg), *text = NULL;
    json_t *v = copy ? json_string(copy) : NULL;
    for (char *p = copy; copy && !v && *p; p++)
        if ((unsigned char) *p >= 0x80) *p = '?';
    if (copy && !v) v = json_string(copy);
    if (v) text = json_dumps(v, JSON_ENCODE_ANY);
    fprintf(c->log, "{\"type\":\"log\",\"time\":%llu,\"level\":\"%s\",\"msg\":%s}\n",
            (unsigned long long) ((now() - c->log_start) * 1e6), kind[level], text ? text : "\"\"");
    free(text);
    free(copy);
    json_decref(v);
}

/* Writes "0.01.234.567 W text": minutes, seconds, milliseconds and microseconds since the start, and the level's
 * letter, if enabled. Each line is one stdio call, because several threads log. */
static void log_line(void *ud, int level, const char *msg)
{
    static const char *const kind[] = {"", "error: ", "warning: ", "", ""}, *const letter[] = {"", "E ", "W ", "I ",
                                                                                               "D "};
    static const char *const color[] = {"", "\033[31m", "\033[33m", "", "\033[2m"};
    const cli *c = ud;
    char time[48] = "";
    if (level < 0 || level > PI_LOG_DEBUG) level = 0;
    if (c->log_times) {
        unsigned long long us = (unsigned long long) ((now() - c->log_start) * 1e6);
        snprintf(time, sizeof time, "%llu.%02llu.%03llu.%03llu ", us / 60000000, us / 1000000 % 60, us / 1000 % 1000,
                 us % 1000);
    }
    const char *on = c->log_colors ? color[level] : "";
    flockfile(c->log);
    if (c->log == stderr) cli_new_line();
    if (c->log_jsonl) log_json(c, level, msg);
    else
        fprintf(c->log, "%s%s%s%s%s\n", on, time, c->log_prefix ? letter[level] : kind[level], msg,
                *on ? "\033[0m" : "");
    funlockfile(c->log);
}

/* --------------------------------------------------------------------------------------------------------- values */

/* Takes ownership of owned, which then is the value, and of where (see struct cli_value). */
static bool add_value(cli *c, size_t opt, const char *value, char *owned, enum cli_source source, char *where)
{
    if (c->n_val == c->cap_val) {
        size_t cap = c->cap_val ? c->cap_val * 2 : 32;
        struct cli_value *v = realloc(c->val, cap * sizeof *v);
        if (!v) {
            free(owned);
            free(where);
            return false;
        }
        c->val = v;
        c->cap_val = cap;
    }
    c->val[c->n_val++] = (struct cli_value) {opt, owned ? owned : value, owned, source, where};
    return true;
}

/* Returns the index of a key in the table. Keys in this program are literals, so an unknown key is a bug and is
 * reported. */
static size_t key_index(const char *key, pi_option_info *info)
{
    for (size_t i = 0; options_at(i, info); i++) {
        if (!strcmp(info->key, key)) return i;
    }
    fprintf(stderr, "pagedinfer: no option named %s in the table\n", key);
    memset(info, 0, sizeof *info);
    info->def = "";
    return SIZE_MAX;
}

/* A value counts only if no source with precedence sets the option. */
static bool counts(const cli *c, const struct cli_value *v)
{
    for (size_t k = 0; v->source < CLI_FROM_ARGV && k < c->n_val; k++) {
        if (c->val[k].opt == v->opt && c->val[k].source > v->source) return false;
    }
    return true;
}

const char *cli_value_of(const cli *c, size_t opt, size_t i, size_t *n, enum cli_source *source)
{
    const char *last = NULL;
    size_t count = 0;
    for (size_t k = 0; k < c->n_val; k++) {
        if (c->val[k].opt != opt || !counts(c, &c->val[k])) continue;
        if (i == SIZE_MAX || count == i) last = c->val[k].value;
        if (source) *source = c->val[k].source; /* the same for all values that count */
        count++;
    }
    if (n) *n = count;
    return last;
}

static const char *value_of(const cli *c, size_t opt, size_t i, size_t *n) { return cli_value_of(c, opt, i, n, NULL); }

bool cli_given(const cli *c, const char *key) { return cli_n(c, key) > 0; }

bool cli_is_weak(const cli *c, const char *key)
{
    pi_option_info info;
    const size_t opt = key_index(key, &info);
    bool found = false;
    for (size_t i = 0; i < c->n_val; i++) {
        if (c->val[i].opt == opt && c->val[i].source == CLI_FROM_ARGV) return false;
        found |= c->val[i].opt == opt;
    }
    return found;
}

void cli_unset(cli *c, const char *key)
{
    pi_option_info info;
    const size_t opt = key_index(key, &info);
    size_t n = 0;
    for (size_t i = 0; i < c->n_val; i++) {
        if (c->val[i].opt == opt) free(c->val[i].owned), free(c->val[i].where);
        else c->val[n++] = c->val[i];
    }
    c->n_val = n;
}

bool cli_set(cli *c, const char *key, const char *value)
{
    pi_option_info info;
    char *own = strdup(value);
    if (!own) return false;
    cli_unset(c, key);
    return add_value(c, key_index(key, &info), NULL, own, CLI_FROM_ARGV, NULL);
}

const char *cli_str(const cli *c, const char *key)
{
    pi_option_info info;
    const char *v = value_of(c, key_index(key, &info), SIZE_MAX, NULL);
    return v ? v : info.def;
}

bool cli_bool(const cli *c, const char *key)
{
    bool v;
    return options_bool(cli_str(c, key), &v) && v;
}

int64_t cli_int(const cli *c, const char *key)
{
    int64_t v;
    return options_int(cli_str(c, key), &v) ? v : 0;
}

double cli_float(const cli *c, const char *key) { return strtod(cli_str(c, key), NULL); }

size_t cli_n(const cli *c, const char *key)
{
    pi_option_info info;
    size_t n;
    value_of(c, key_index(key, &info), SIZE_MAX, &n);
    return n;
}

const char *cli_nth(const cli *c, const char *key, size_t i)
{
    pi_option_info info;
    return value_of(c, key_index(key, &info), i, NULL);
}

size_t cli_n_args(const cli *c) { return c->n_arg; }
const char *cli_arg(const cli *c, size_t i) { return i < c->n_arg ? c->arg[i] : NULL; }

/* -------------------------------------------------------------------------------------------------------- spelling */

enum match { NO_MATCH, TAKES_VALUE, MAY_TAKE, FIXED, NEGATED };

/* Compares one spelling of the table ("-fa?on", "--no-mmap=read") with name (n characters). *fixed is the text after =
 * or ?. */
static enum match match_spelling(const char *sp, size_t len, const char *name, size_t n, const pi_option_info *info,
                                 const char **fixed, size_t *fixed_len)
{
    size_t end = 0;
    while (end < len && sp[end] != '=' && sp[end] != '?') end++;
    *fixed = sp + end + (end < len);
    *fixed_len = len - end - (end < len);
    bool is_bool = !strcmp(info->type, "bool");
    if (end == n && !memcmp(sp, name, n)) {
        if (end < len) return sp[end] == '=' ? FIXED : MAY_TAKE;
        if (!is_bool) return TAKES_VALUE;
        *fixed = "true";
        *fixed_len = 4;
        return FIXED;
    }
    if (!is_bool || end != len || end <= 2 || sp[1] != '-') return NO_MATCH;
    return n == end + 3 && !memcmp(name, "--no-", 5) && !memcmp(name + 5, sp + 2, end - 2) ? NEGATED : NO_MATCH;
}

struct found {
    enum match how;      /* NO_MATCH = not found */
    size_t opt;          /* index into the table */
    const char *fixed;   /* the value of FIXED and MAY_TAKE */
    size_t fixed_len;    /* bytes in fixed */
    pi_option_info info; /* of opt */
};

static void look_in(const pi_option_info *info, size_t opt, const char *name, size_t n, struct found *f)
{
    for (const char *p = info->flags; *p;) {
        size_t len = strcspn(p, " ");
        const char *fixed;
        size_t fixed_len;
        enum match m = match_spelling(p, len, name, n, info, &fixed, &fixed_len);
        if (m != NO_MATCH) {
            *f = (struct found) {m, opt, fixed, fixed_len, *info};
            return;
        }
        p += len + (p[len] == ' ');
    }
}

/* Finds the option with spelling `name` for this subcommand; its own section has precedence. *elsewhere: an option
 * that only other subcommands have. */
static struct found find_flag(const cli_command *cmd, const char *name, size_t n, struct found *elsewhere)
{
    struct found own = {0}, shared = {0};
    pi_option_info info;
    *elsewhere = (struct found) {0};
    for (size_t i = 0; options_at(i, &info); i++) {
        struct found f = {0};
        look_in(&info, i, name, n, &f);
        if (f.how == NO_MATCH) continue;
        if (!strcmp(info.section, cmd->name)) own = own.how ? own : f;
        else if (cli_has_section(cmd, info.section)) shared = shared.how ? shared : f;
        else *elsewhere = f;
    }
    return own.how ? own : shared;
}

/* Returns the refused row of a name, or NULL. If another subcommand has the flag, it is refused only if the row names
 * this subcommand. */
static const refused_option *find_refused(const cli_command *cmd, const char *name, bool elsewhere)
{
    for (size_t i = 0; options_refused(i); i++) {
        const refused_option *r = options_refused(i);
        if (has_word(r->flags, name) && (!elsewhere || has_word(r->commands, cmd->name))) return r;
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- arguments */

/* True if word is a valid value of info or, for subcommands with lists, a list of valid values. Used only for flags
 * with an optional value. */
static bool acceptable(const cli *c, const pi_option_info *info, const char *word)
{
    if (!word || word[0] == '-') return false;
    pi_options *o = pi_options_new();
    pi_error err;
    bool ok = o != NULL;
    for (const char *p = word; ok; p++) {
        char one[64];
        size_t n = c->cmd->lists ? strcspn(p, ",") : strlen(p);
        if (n < sizeof one) snprintf(one, sizeof one, "%.*s", (int) n, p);
        ok = options_check(o, info, n < sizeof one ? one : p, &err) == PI_OK;
        p += n;
        if (!*p) break;
    }
    pi_options_free(o);
    return ok;
}

/* llama-bench accepts "-nkvo 0,1" where other tools have flags without a value. Returns word as values of a bool
 * option, inverted for a negated spelling; NULL if word is not a list of booleans. */
static char *truth_list(const char *word, bool inverted)
{
    char *out = word ? malloc(6 * strlen(word) + 1) : NULL;
    size_t n = 0;
    for (const char *p = word; out; p++) {
        char one[16];
        bool v;
        size_t len = strcspn(p, ",");
        snprintf(one, sizeof one, "%.*s", (int) len, p);
        if (len >= sizeof one || !options_bool(one, &v)) {
            free(out);
            return NULL;
        }
        n += (size_t) sprintf(out + n, "%s%s", n ? "," : "", v != inverted ? "true" : "false");
        p += len;
        if (!*p) break;
    }
    return out;
}

static bool of_command(const void *ud, const pi_option_info *row)
{
    return cli_has_section(ud, row->section) && strcmp(row->section, "compat");
}

static int unknown_flag(const cli *c, const char *word, const char *name, const struct found *elsewhere)
{
    const refused_option *r = find_refused(c->cmd, name, elsewhere->how != NO_MATCH);
    char near[64];
    if (r && r->later) return cli_usage_error(c, "%s is not built yet: %s", word, r->why);
    if (r) return cli_usage_error(c, "%s has no meaning here: %s", word, r->why);
    if (elsewhere->how)
        return cli_usage_error(c, "%s belongs to the %s options, which '%s' does not accept", word,
                               elsewhere->info.section, c->cmd->name);
    bool found = options_nearest(name + strspn(name, "-"), of_command, c->cmd, near);
    return cli_usage_error(c, "unknown option %s%s%s", word, found ? "; the nearest known one is " : "", near);
}

/* Gets the value of f: after =, from the next argument (advances *i), or implied by the spelling. Returns an exit
 * code, or -1 to continue. */
static int flag_value(const cli *c, const struct found *f, int argc, char **argv, int *i, const char **value,
                      char **owned)
{
    const char *word = argv[*i], *eq = strncmp(word, "--", 2) ? NULL : strchr(word, '=');
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    bool is_bool = !strcmp(f->info.type, "bool"), fixed_false = f->how == NEGATED || *f->fixed == 'f';
    *value = eq ? eq + 1 : NULL;
    if (!eq && is_bool && c->cmd->lists && (*owned = truth_list(next, fixed_false))) {
        ++*i;
        return -1;
    }
    switch (f->how) {
    case NO_MATCH: break;
    case NEGATED: *value = eq ? NULL : "false"; break;
    case FIXED:
        if (eq && !is_bool) *value = NULL;
        else if (!eq && !(*owned = strndup(f->fixed, f->fixed_len))) return cli_error(c, CLI_OS, "out of memory");
        break;
    case MAY_TAKE:
        if (eq) break;
        if (acceptable(c, &f->info, next)) *value = argv[++*i];
        else if (!(*owned = strndup(f->fixed, f->fixed_len))) return cli_error(c, CLI_OS, "out of memory");
        break;
    case TAKES_VALUE:
        if (!eq && !next) return cli_usage_error(c, "%s needs a value", word);
        if (!eq) *value = argv[++*i];
        break;
    }
    if (*value || *owned) return -1;
    return cli_usage_error(c, "%.*s takes no value", (int) (eq ? eq - word : (ptrdiff_t) strlen(word)), word);
}

/* Takes further values of a flag of vLLM, which follow as words of their own. Values of a STRING are joined by commas.
 * Returns an exit code, or -1 to continue. */
static int more_values(cli *c, const struct found *f, const char *name, int argc, char **argv, int *i)
{
    const bool is_list = !strcmp(f->info.type, "list");
    while (*i + 1 < argc && argv[*i + 1][0] != '-' &&
           vllm_more_values(name, argv[*i + 1], c->n_arg || cli_given(c, "model"))) {
        const char *word = argv[++*i];
        struct cli_value *last = &c->val[c->n_val - 1];
        const size_t n = strlen(last->value) + strlen(word) + 2;
        char *joined = is_list ? NULL : malloc(n);
        if (is_list ? !add_value(c, f->opt, word, NULL, CLI_FROM_ARGV, NULL) : !joined)
            return cli_error(c, CLI_OS, "out of memory");
        if (is_list) continue;
        snprintf(joined, n, "%s,%s", last->value, word);
        free(last->owned);
        last->value = last->owned = joined;
    }
    return -1;
}

/* Parses flag number *i and its value. When called by a llama.cpp tool name, flags of other subcommands are accepted,
 * because those tools share one parser. */
static int parse_flag(cli *c, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *eq = strncmp(word, "--", 2) ? NULL : strchr(word, '=');
    size_t n = eq ? (size_t) (eq - word) : strlen(word);
    char name[128], *owned = NULL;
    struct found elsewhere = {0};
    if (n >= sizeof name) return cli_usage_error(c, "unknown option %s", word);
    for (size_t k = 0; k < n; k++) name[k] = k > 1 && word[k] == '_' ? '-' : word[k];
    name[n] = 0;
    struct found f = find_flag(c->cmd, name, n, &elsewhere);
    bool no_effect = !f.how && elsewhere.how && *c->called && !find_refused(c->cmd, name, true);
    if (no_effect) f = elsewhere;
    if (!f.how) return unknown_flag(c, word, name, &elsewhere);
    const char *value = NULL;
    int code = flag_value(c, &f, argc, argv, i, &value, &owned);
    if (code >= 0) return code;
    if (!no_effect) {
        if (!add_value(c, f.opt, value, owned, CLI_FROM_ARGV, NULL)) return cli_error(c, CLI_OS, "out of memory");
        return more_values(c, &f, name, argc, argv, i);
    }
    free(owned);
    fprintf(stderr, "%s: %s has no effect here\n", c->name, name);
    return -1;
}

/* Writes the value that a file gives to flag f in *value: for a flag without a value the text is true or false. *value
 * == NULL: the flag has no effect. Returns false if the text is neither. */
static bool file_value(const cli *c, const struct found *f, const char *name, const char *text, const char **value)
{
    const bool is_bool = !strcmp(f->info.type, "bool");
    char no[80];
    bool on = true;
    *value = text;
    if (f->how == TAKES_VALUE || (f->how == MAY_TAKE && *text)) return true;
    if (*text && !options_bool(text, &on)) return false;
    if (f->how == NEGATED) *value = on ? "false" : "true";
    else if (is_bool) *value = (*f->fixed == 'f') == on ? "false" : "true";
    else if (on) *value = f->fixed;
    else {
        struct found elsewhere;
        const int n = snprintf(no, sizeof no, "--no-%.60s", name);
        const struct found off = find_flag(c->cmd, no, (size_t) n, &elsewhere);
        *value = off.how == FIXED ? off.fixed : NULL;
    }
    return true;
}

/* Writes a flag's spelling for its name in a file: "ctx-size", "c" or "LLAMA_ARG_CTX_SIZE". */
static struct found find_named(const cli *c, const char *name, char flag[80], struct found *elsewhere)
{
    static const char *const prefix[] = {"LLAMA_ARG_", "PAGEDINFER_"};
    struct found f = {0}, other = {0};
    const char *p = name;
    bool env = false;
    for (size_t i = 0; i < 2 && !env; i++)
        if ((env = !strncmp(name, prefix[i], strlen(prefix[i])))) p = name + strlen(prefix[i]);
    for (int dashes = 2; dashes && !f.how; dashes--) {
        size_t n = (size_t) snprintf(flag, 80, "%.*s%.70s", dashes, "--", p);
        for (size_t k = (size_t) dashes; k < n; k++) {
            if (flag[k] == '_') flag[k] = '-';
            else if (env && flag[k] >= 'A' && flag[k] <= 'Z') flag[k] |= 32;
        }
        f = find_flag(c->cmd, flag, n, elsewhere);
        if (dashes == 2) other = *elsewhere;
    }
    if (!f.how) snprintf(flag, 80, "--%.70s", p);
    if (!elsewhere->how) *elsewhere = other;
    return f;
}

int cli_add_named(cli *c, const char *name, const char *value, enum cli_source source, const char *where)
{
    char flag[80], near[64];
    struct found elsewhere = {0};
    const struct found f = find_named(c, name, flag, &elsewhere);
    const char *text = NULL;
    if (!f.how) {
        const refused_option *r = find_refused(c->cmd, flag, elsewhere.how != NO_MATCH);
        if (r) return cli_error(c, CLI_CONFIG, "%s: %s %s: %s", where, name,
                                r->later ? "is not built yet" : "has no meaning here", r->why);
        if (elsewhere.how) return -1;
        const bool found = options_nearest(name, of_command, c->cmd, near);
        return cli_error(c, CLI_CONFIG, "%s: unknown key %s%s%s", where, name,
                         found ? "; the nearest known one is " : "", found ? near + strspn(near, "-") : "");
    }
    if (!file_value(c, &f, name, value, &text))
        return cli_error(c, CLI_CONFIG, "%s: %s: '%.60s' is neither true nor false", where, name, value);
    if (!text) return -1;
    char *own = f.how == FIXED && text == f.fixed ? strndup(f.fixed, f.fixed_len) : strdup(text), *at = strdup(where);
    if (own && at) return add_value(c, f.opt, NULL, own, source, at) ? -1 : cli_error(c, CLI_OS, "out of memory");
    free(own);
    free(at);
    return cli_error(c, CLI_OS, "out of memory");
}

bool cli_name_of(const cli *c, size_t opt, char out[64])
{
    pi_option_info info;
    if (!options_at(opt, &info) || !cli_has_section(c->cmd, info.section)) return false;
    for (const char *p = info.flags; *p;) {
        const size_t len = strcspn(p, " "), n = strcspn(p, " =?");
        struct found elsewhere;
        if (n > 2 && n < 64 && p[1] == '-' && p[n] != '=' && find_flag(c->cmd, p, n, &elsewhere).opt == opt) {
            snprintf(out, 64, "%.*s", (int) n - 2, p + 2);
            return true;
        }
        p += len + (p[len] == ' ');
    }
    return false;
}

/* True if environment variables set the option of this command. */
static bool env_applies(const cli_command *cmd, const pi_option_info *info)
{
    return cli_has_section(cmd, info->section) && env_sets(info);
}

static bool runs_a_model(const cli_command *cmd) { return has_word(cmd->sections, "generation"); }

/* Reports a variable that sets a refused flag to anything but off. */
static int refuse_env(const cli *c)
{
    for (size_t i = 0; options_refused(i); i++) {
        const refused_option *r = options_refused(i);
        char var[ENV_NAME];
        size_t n;
        bool on, here = *r->commands ? has_word(r->commands, c->cmd->name) : runs_a_model(c->cmd);
        const char *v = here ? env_value(r->flags, r->env, var, &n) : NULL;
        if (!v || (options_bool(v, &on) && !on) || !strcmp(v, "none") || !strcmp(v, "-1")) continue;
        struct found elsewhere;
        size_t first = strcspn(r->flags, " ");
        if (find_flag(c->cmd, r->flags, first, &elsewhere).how) continue;
        return cli_error(c, CLI_CONFIG, "environment variable %s %s: %s", var,
                         r->later ? "sets an option that is not built yet" : "has no meaning here", r->why);
    }
    return -1;
}

static int parse_env(cli *c)
{
    pi_option_info info;
    char var[ENV_NAME];
    size_t n;
    for (size_t i = 0; options_at(i, &info); i++) {
        const char *v = env_applies(c->cmd, &info) ? env_value(info.flags, info.env, var, &n) : NULL;
        if (!v) continue;
        char *name = strdup(var), *value = strndup(v, n);
        if (name && value) {
            if (add_value(c, i, NULL, value, CLI_FROM_ENV, name)) continue;
        } else {
            free(name);
            free(value);
        }
        return cli_error(c, CLI_OS, "out of memory");
    }
    return refuse_env(c);
}

/* Warns about each variable with the name PAGEDINFER_* that nothing reads. */
static void check_env(const cli *c)
{
    static const char own[] = "PAGEDINFER_";
    char name[ENV_NAME], near[ENV_NAME];
    for (char **e = environ; cli_logs(c, PI_LOG_WARN) && *e; e++) {
        const size_t n = strcspn(*e, "=");
        if (strncmp(*e, own, sizeof own - 1) || n >= sizeof name) continue;
        memcpy(name, *e, n);
        name[n] = 0;
        switch (env_find(name, near)) {
        case ENV_KNOWN: break;
        case ENV_NO_VAR:
            warn(c, "environment variable %s has no effect: give %s on the command line", name, near);
            break;
        case ENV_UNKNOWN:
            warn(c, "environment variable %s is unknown and has no effect%s%s", name,
                 *near ? "; the nearest known one is " : "", near);
            break;
        }
    }
}

/* Sets defaults that a llama.cpp tool has and the matching subcommand does not. */
static int defaults_by_name(cli *c)
{
    pi_option_info info;
    if (strcmp(c->called, "llama-completion")) return -1;
    return add_value(c, key_index("display-prompt", &info), "true", NULL, CLI_FROM_NAME, NULL)
               ? -1 : cli_error(c, CLI_OS, "out of memory");
}

/* Checks every value against its row, so that errors are reported before a model is loaded. */
int cli_check(const cli *c)
{
    int code = -1;
    pi_options *o = pi_options_new();
    if (!o) return cli_error(c, CLI_OS, "out of memory");
    for (size_t i = 0; i < c->n_val && code < 0; i++) {
        const struct cli_value *v = &c->val[i];
        pi_option_info info;
        pi_error err = {0};
        if (!options_at(v->opt, &info) || (c->cmd->lists && v->source == CLI_FROM_ARGV)) continue;
        if (!options_check(o, &info, v->value, &err)) continue;
        code = err.code == PI_ENOMEM ? cli_error(c, CLI_OS, "%s", err.msg)
               : v->where            ? cli_error(c, CLI_CONFIG, "%s%s: %s",
                                                 v->source == CLI_FROM_ENV ? "environment variable " : "", v->where,
                                                 err.msg)
                                     : cli_usage_error(c, "%s", err.msg);
    }
    pi_options_free(o);
    return code;
}

/* Prints a line for each flag that is accepted and has no effect. */
static void note_compat(const cli *c)
{
    for (size_t i = 0; i < c->n_val; i++) {
        pi_option_info info;
        bool again = false;
        for (size_t k = 0; k < i; k++) again |= c->val[k].opt == c->val[i].opt;
        if (again || !options_at(c->val[i].opt, &info) || strcmp(info.section, "compat")) continue;
        fprintf(stderr, "%s: %s is not needed: %s\n", c->name, info.key, info.help);
    }
}

static int open_log(cli *c)
{
    c->log_level = PI_LOG_WARN;
    if (cli_given(c, "log-level")) {
        const char *v = cli_str(c, "log-level");
        c->log_level = strchr("newid", v[0] | 32) ? (int) (strchr("newid", v[0] | 32) - "newid") : PI_LOG_WARN;
    }
    if (cli_given(c, "verbosity")) {
        int64_t v = cli_int(c, "verbosity");
        c->log_level = v > PI_LOG_DEBUG ? PI_LOG_DEBUG : (int) v;
    }
    if (cli_bool(c, "verbose")) {
        int v = PI_LOG_WARN + (int) cli_n(c, "verbose");
        if (v > c->log_level) c->log_level = v > PI_LOG_DEBUG ? PI_LOG_DEBUG : v;
    }
    if (cli_bool(c, "log-disable")) c->log_level = PI_LOG_NONE;
    c->log = stderr;
    c->log_start = now();
    c->log_prefix = cli_bool(c, "log-prefix");
    c->log_times = cli_bool(c, "log-timestamps");
    c->log_jsonl = cli_bool(c, "log-jsonl");
    const char *colors = cli_str(c, "log-colors");
    bool plain = !isatty(STDERR_FILENO) || *cli_str(c, "log-file") || getenv("NO_COLOR");
    if (!options_bool(colors, &c->log_colors)) c->log_colors = !plain;
    if (!*cli_str(c, "log-file")) return -1;
    c->log = fopen(cli_str(c, "log-file"), "a");
    if (c->log) return -1;
    c->log = stderr;
    return cli_error(c, CLI_IO, "%s: %s", cli_str(c, "log-file"), strerror(errno));
}

static void list_devices(void)
{
    pi_device d = {.size = sizeof d};
    for (size_t i = 0; !pi_device_describe(i, &d); i++, d.size = sizeof d) {
        char memory[32];
        printf("%s:", d.name);
        if (*d.desc) printf(" %s", d.desc);
        if (d.memory_bytes) printf(", %s", cli_bytes(d.memory_bytes, memory));
        if (*d.lacks) printf("%s %s%s", *d.desc ? ";" : "", d.usable ? "cannot run " : "not usable: ", d.lacks);
        printf("\n");
    }
}

/* Handles --help and similar flags, which print and exit. */
static int parse_answers(cli *c)
{
    const size_t max_args = c->cmd->takes_model && *c->called ? 0 : (size_t) c->cmd->max_args;
    const char *extra = c->n_arg > max_args ? c->arg[max_args] : NULL;
    if (cli_given(c, "help")) {
        const char *what = cli_str(c, "help");
        if (strcmp(what, "common") && strcmp(what, "all") && !cli_has_section(c->cmd, what)) {
            return cli_usage_error(c, "no help section '%s'; sections are: all %s compat", what, c->cmd->sections);
        }
        cli_help(stdout, c->cmd, what);
        return cli_flush(c);
    }
    if (extra) return cli_usage_error(c, "unexpected argument '%s'", extra);
    if (cli_bool(c, "version")) printf("pagedinfer %s\n", pi_version());
    else if (cli_bool(c, "list-devices")) list_devices();
    else return -1;
    return cli_flush(c);
}

/* As in llama.cpp, --escape also applies to reverse prompts, which often begin with a newline. */
static int unescape_stops(cli *c)
{
    pi_option_info info;
    if (!cli_has_section(c->cmd, "prompt") || !cli_bool(c, "escape")) return -1;
    for (size_t i = 0; i < c->n_val; i++) {
        struct cli_value *v = &c->val[i];
        if (!options_at(v->opt, &info) || strcmp(info.key, "stop") || !strchr(v->value, '\\')) continue;
        if (!v->owned && !(v->owned = strdup(v->value))) return cli_error(c, CLI_OS, "out of memory");
        cli_unescape(v->owned, strlen(v->owned));
        v->value = v->owned;
    }
    return -1;
}

int cli_parse(cli *c, const cli_command *cmd, int argc, char **argv)
{
    c->cmd = cmd;
    c->log = stderr;
    if (!c->called) c->called = "";
    c->arg = malloc((size_t) (argc + 1) * sizeof *c->arg);
    if (!c->arg) return cli_error(c, CLI_OS, "out of memory");
    int code = parse_env(c);
    if (code < 0) code = defaults_by_name(c);
    bool flags = true;
    for (int i = 1; i < argc && code < 0; i++) {
        if (flags && !strcmp(argv[i], "--")) flags = false;
        else if (flags && argv[i][0] == '-' && argv[i][1]) code = parse_flag(c, argc, argv, &i);
        else c->arg[c->n_arg++] = argv[i];
    }
    if (code < 0 && *cli_str(c, "config")) code = config_read(c);
    if (code < 0) note_compat(c);
    if (code < 0) code = parse_answers(c);
    if (code < 0) code = vllm_options(c);
    if (code < 0) code = cli_check(c);
    if (code < 0) code = unescape_stops(c);
    if (code < 0) code = open_log(c);
    if (code < 0 && *cli_str(c, "download-dir") && setenv("LLAMA_CACHE", cli_str(c, "download-dir"), 1))
        code = cli_error(c, CLI_OS, "out of memory");
    if (code < 0) check_env(c);
    return code;
}

bool cli_copy(cli *out, const cli *c)
{
    *out = *c;
    out->log = stderr;
    out->val = NULL;
    out->arg = NULL;
    out->n_val = out->cap_val = out->n_arg = 0;
    for (size_t i = 0; i < c->n_val; i++) {
        const struct cli_value *v = &c->val[i];
        char *own = strdup(v->value), *where = v->where ? strdup(v->where) : NULL;
        const bool whole = own && (where || !v->where);
        if (whole && add_value(out, v->opt, NULL, own, v->source, where)) continue;
        if (!whole) free(own), free(where);
        cli_free(out);
        return false;
    }
    return true;
}

void cli_clear_env(const cli *c)
{
    pi_option_info info;
    char var[ENV_NAME];
    size_t n;
    for (size_t i = 0; options_at(i, &info); i++)
        while (env_applies(c->cmd, &info) && env_value(info.flags, info.env, var, &n))
            if (unsetenv(var)) break;
}

void cli_free(cli *c)
{
    for (size_t i = 0; i < c->n_val; i++) {
        free(c->val[i].owned);
        free(c->val[i].where);
    }
    free(c->val);
    free(c->arg);
    if (c->log && c->log != stderr) fclose(c->log);
}

/* --------------------------------------------------------------------------------------------------------- options */

bool cli_logs(const cli *c, int level) { return level <= c->log_level; }

void cli_set_log(const cli *c, pi_options *o) { pi_options_set_log(o, log_line, (void *) c, c->log_level); }

/* --prompt-cache FILE: stores the prefixes in a directory of that name. */
static int set_prompt_cache(const cli *c, pi_options *o)
{
    const char *path = cli_has_section(c->cmd, "run") ? cli_str(c, "prompt-cache") : "";
    struct stat st;
    pi_error err = {0};
    if (!*path || cli_given(c, "prefix-cache-dir")) return CLI_OK;
    if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        return cli_error(c, CLI_CONFIG, "--prompt-cache: %s is a file; llama.cpp's state files are not supported: "
                         "give the name of a directory", path);
    return pi_options_set(o, "prefix-cache-dir", path, &err) ? cli_pi_error(c, &err) : CLI_OK;
}

/* Sets a library option from the content of a file. */
static int set_from_file(const cli *c, const char *file, const char *key, pi_options *o)
{
    char *text;
    size_t n;
    pi_error err = {0};
    if (!cli_given(c, file)) return CLI_OK;
    int code = cli_read_file(c, cli_str(c, file), &text, &n);
    if (code) return code;
    if (memchr(text, 0, n)) code = cli_usage_error(c, "--%s: %s has a NUL byte", file, cli_str(c, file));
    else if (pi_options_set(o, key, text, &err)) code = cli_pi_error(c, &err);
    free(text);
    return code;
}

/* Converts --n-cpu-ffn N to a rule of --override-tensor. */
static int set_cpu_ffn(const cli *c, pi_options *o)
{
    int64_t n = cli_has_section(c->cmd, "model") ? cli_int(c, "n-cpu-ffn") : 0;
    size_t size = 64 + 6 * (size_t) n, len = 0;
    char *rule = n > 0 ? malloc(size) : NULL;
    pi_error err = {0};
    if (n <= 0) return CLI_OK;
    if (!rule) return cli_error(c, CLI_OS, "out of memory");
    for (int64_t i = 0; i < n; i++)
        len += (size_t) snprintf(rule + len, size - len, "%s%d", i ? "|" : "^blk\\.(", (int) i);
    snprintf(rule + len, size - len, ")\\.ffn_(gate|up|down)\\.=cpu");
    int rc = pi_options_set(o, "override-tensor", rule, &err);
    free(rule);
    return rc ? cli_pi_error(c, &err) : CLI_OK;
}

pi_options *cli_options(const cli *c, int *code)
{
    pi_options *o = pi_options_new();
    if (!o) {
        *code = cli_error(c, CLI_OS, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < c->n_val; i++) {
        const struct cli_value *v = &c->val[i];
        pi_option_info info;
        pi_error err = {0};
        if (!options_at(v->opt, &info) || info.scope == PI_SCOPE_TOOL || !counts(c, v)) continue;
        if (!pi_options_set(o, info.key, v->value, &err)) continue;
        *code = cli_pi_error(c, &err);
        pi_options_free(o);
        return NULL;
    }
    cli_set_log(c, o);
    *code = set_from_file(c, "grammar-file", "grammar", o);
    if (!*code) *code = set_from_file(c, "json-schema-file", "json-schema", o);
    if (!*code) *code = set_prompt_cache(c, o);
    if (!*code) *code = set_cpu_ffn(c, o);
    if (!*code) return o;
    pi_options_free(o);
    return NULL;
}
