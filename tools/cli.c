/* The command line: flags looked up in the list of options (options.h), environment, values, and messages (see cli.h).
 *
 * Memory: a growing list of values; texts point into argv and the environment. One thread, but for the log function. */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

/* True when word is one of the words in list, which are separated by spaces. */
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

static void log_line(void *ud, int level, const char *msg)
{
    static const char *const kind[] = {"", "error: ", "warning: ", "", ""};
    const cli *c = ud;
    flockfile(c->log);
    if (c->log == stderr) cli_new_line();
    fprintf(c->log, "%s%s\n", level >= 0 && level <= PI_LOG_DEBUG ? kind[level] : "", msg);
    funlockfile(c->log);
}

/* --------------------------------------------------------------------------------------------------------- values */

static bool add_value(cli *c, size_t opt, const char *value, char *owned, bool from_env)
{
    if (c->n_val == c->cap_val) {
        size_t cap = c->cap_val ? c->cap_val * 2 : 32;
        struct cli_value *v = realloc(c->val, cap * sizeof *v);
        if (!v) {
            free(owned);
            return false;
        }
        c->val = v;
        c->cap_val = cap;
    }
    c->val[c->n_val++] = (struct cli_value) {opt, owned ? owned : value, owned, from_env};
    return true;
}

/* Index of a key in the table. Keys in this program are literals that exist: a wrong one is said aloud. */
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

/* A variable of the environment counts only where the command line says nothing. */
static bool counts(const cli *c, const struct cli_value *v)
{
    for (size_t k = 0; v->from_env && k < c->n_val; k++) {
        if (c->val[k].opt == v->opt && !c->val[k].from_env) return false;
    }
    return true;
}

/* Value number i (the last one when i is SIZE_MAX) of option opt, NULL: not given so often. *n: how often it was. */
static const char *value_of(const cli *c, size_t opt, size_t i, size_t *n)
{
    const char *last = NULL;
    size_t count = 0;
    for (size_t k = 0; k < c->n_val; k++) {
        if (c->val[k].opt != opt || !counts(c, &c->val[k])) continue;
        if (i == SIZE_MAX || count == i) last = c->val[k].value;
        count++;
    }
    if (n) *n = count;
    return last;
}

bool cli_given(const cli *c, const char *key) { return cli_n(c, key) > 0; }

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

/* Does one spelling of the table ("-fa?on", "--no-mmap=read") match name (n characters)? *fixed is what follows = or ?.
 * */
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
    enum match how;      /* NO_MATCH: none */
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

/* The option that name is a spelling of, for this subcommand: its own section first. *elsewhere is set when only other
 * subcommands know it. */
static struct found find_flag(const cli_command *cmd, const char *name, size_t n, const char **elsewhere)
{
    struct found own = {0}, shared = {0};
    pi_option_info info;
    *elsewhere = NULL;
    for (size_t i = 0; options_at(i, &info); i++) {
        struct found f = {0};
        look_in(&info, i, name, n, &f);
        if (f.how == NO_MATCH) continue;
        if (!strcmp(info.section, cmd->name)) own = own.how ? own : f;
        else if (cli_has_section(cmd, info.section)) shared = shared.how ? shared : f;
        else *elsewhere = info.section;
    }
    return own.how ? own : shared;
}

/* ------------------------------------------------------------------------------------------------------- arguments */

/* Is word a value that info takes? Asked only where a value may be left out. */
static bool acceptable(const pi_option_info *info, const char *word)
{
    if (!word || word[0] == '-') return false;
    pi_options *o = pi_options_new();
    pi_error err;
    bool ok = o && options_check(o, info, word, &err) == PI_OK;
    pi_options_free(o);
    return ok;
}

static int unknown_flag(const cli *c, const char *word, const char *elsewhere)
{
    if (elsewhere) {
        return cli_usage_error(c, "%s belongs to the %s options, which '%s' does not take", word, elsewhere,
                               c->cmd->name);
    }
    char name[64], near[64];
    snprintf(name, sizeof name, "%.*s", (int) strcspn(word + strspn(word, "-"), "="), word + strspn(word, "-"));
    for (char *p = name; *p; p++) *p = *p == '_' ? '-' : *p;
    bool found = options_nearest(name, near);
    return cli_usage_error(c, "unknown option %s%s%s", word, found ? "; the nearest known one is --" : "", near);
}

/* Takes flag number *i and its value. */
static int parse_flag(cli *c, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *eq = strncmp(word, "--", 2) ? NULL : strchr(word, '='), *elsewhere;
    size_t n = eq ? (size_t) (eq - word) : strlen(word);
    char name[128];
    if (n >= sizeof name) return unknown_flag(c, word, NULL);
    for (size_t k = 0; k < n; k++) name[k] = k > 1 && word[k] == '_' ? '-' : word[k];
    struct found f = find_flag(c->cmd, name, n, &elsewhere);
    const char *value = eq ? eq + 1 : NULL;
    char *owned = NULL;
    switch (f.how) {
    case NO_MATCH: return unknown_flag(c, word, elsewhere);
    case NEGATED: value = eq ? NULL : "false"; break;
    case FIXED:
        if (eq && strcmp(f.info.type, "bool")) value = NULL;
        else if (!eq && !(owned = strndup(f.fixed, f.fixed_len))) return cli_error(c, CLI_OS, "out of memory");
        break;
    case MAY_TAKE:
        if (eq) break;
        if (acceptable(&f.info, *i + 1 < argc ? argv[*i + 1] : NULL)) value = argv[++*i];
        else if (!(owned = strndup(f.fixed, f.fixed_len))) return cli_error(c, CLI_OS, "out of memory");
        break;
    case TAKES_VALUE:
        if (!eq && *i + 1 >= argc) return cli_usage_error(c, "%s needs a value", word);
        if (!eq) value = argv[++*i];
        break;
    }
    if (!value && !owned) return cli_usage_error(c, "%.*s takes no value", (int) n, word);
    return add_value(c, f.opt, value, owned, false) ? -1 : cli_error(c, CLI_OS, "out of memory");
}

/* Variables of the environment: for what a command line may say twice a day, not for prompts and files. */
static bool env_applies(const cli_command *cmd, const pi_option_info *info)
{
    if (!cli_has_section(cmd, info->section)) return false;
    return info->scope != PI_SCOPE_TOOL || !strcmp(info->section, "compat") || !strncmp(info->key, "verb", 4) ||
           !strncmp(info->key, "log", 3);
}

static const char *env_of_spelling(const char *prefix, const char *name, size_t n)
{
    char var[160];
    if (n + strlen(prefix) >= sizeof var) return NULL;
    size_t k = (size_t) snprintf(var, sizeof var, "%s", prefix);
    for (size_t i = 0; i < n; i++) var[k++] = name[i] == '-' ? '_' : (char) toupper((unsigned char) name[i]);
    var[k] = 0;
    return getenv(var);
}

static const char *env_value(const pi_option_info *info)
{
    static const char *const prefix[] = {"PAGEDINFER_", "LLAMA_ARG_"};
    for (int k = 0; k < 2; k++) {
        for (const char *p = info->flags; *p;) {
            size_t len = strcspn(p, " "), name = strcspn(p, " =?");
            bool is_long = name > 2 && p[1] == '-' && p[name] != '=';
            const char *v = is_long ? env_of_spelling(prefix[k], p + 2, name - 2) : NULL;
            if (v) return v;
            p += len + (p[len] == ' ');
        }
        for (const char *p = k ? info->env : ""; *p;) {
            size_t len = strcspn(p, " ");
            const char *v = env_of_spelling("", p, len);
            if (v) return v;
            p += len + (p[len] == ' ');
        }
    }
    return NULL;
}

static int parse_env(cli *c)
{
    pi_option_info info;
    for (size_t i = 0; options_at(i, &info); i++) {
        const char *v = env_applies(c->cmd, &info) ? env_value(&info) : NULL;
        if (v && *v && !add_value(c, i, v, NULL, true)) return cli_error(c, CLI_OS, "out of memory");
    }
    return -1;
}

/* Every value against its row, so that what is wrong is said before a model is loaded. */
static int check_values(const cli *c)
{
    int code = -1;
    pi_options *o = pi_options_new();
    if (!o) return cli_error(c, CLI_OS, "out of memory");
    for (size_t i = 0; i < c->n_val && code < 0; i++) {
        const struct cli_value *v = &c->val[i];
        pi_option_info info;
        pi_error err = {0};
        if (!options_at(v->opt, &info) || (c->cmd->lists && !v->from_env)) continue;
        if (!options_check(o, &info, v->value, &err)) continue;
        code = err.code == PI_ENOMEM ? cli_error(c, CLI_OS, "%s", err.msg)
               : v->from_env         ? cli_error(c, CLI_CONFIG, "environment: %s", err.msg)
                                     : cli_usage_error(c, "%s", err.msg);
    }
    pi_options_free(o);
    return code;
}

/* A line for each flag that is accepted and means nothing here. */
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

/* --help and its kin answer and end. */
static int parse_answers(cli *c)
{
    if (cli_given(c, "help")) {
        const char *what = cli_str(c, "help");
        if (strcmp(what, "common") && strcmp(what, "all") && !cli_has_section(c->cmd, what)) {
            return cli_usage_error(c, "no help section '%s'; sections are: all %s compat", what, c->cmd->sections);
        }
        cli_help(stdout, c->cmd, what);
        return cli_flush(c);
    }
    if (cli_bool(c, "version")) printf("pagedinfer %s\n", pi_version());
    else if (cli_bool(c, "list-devices")) list_devices();
    else return -1;
    return cli_flush(c);
}

int cli_parse(cli *c, const cli_command *cmd, int argc, char **argv)
{
    c->cmd = cmd;
    c->log = stderr;
    c->arg = malloc((size_t) (argc + 1) * sizeof *c->arg);
    if (!c->arg) return cli_error(c, CLI_OS, "out of memory");
    int code = parse_env(c);
    bool flags = true;
    for (int i = 1; i < argc && code < 0; i++) {
        if (flags && !strcmp(argv[i], "--")) flags = false;
        else if (flags && argv[i][0] == '-' && argv[i][1]) code = parse_flag(c, argc, argv, &i);
        else c->arg[c->n_arg++] = argv[i];
    }
    if (code < 0) code = parse_answers(c);
    if (code < 0) code = check_values(c);
    if (code < 0 && c->n_arg > (size_t) cmd->max_args) {
        code = cli_usage_error(c, "unexpected argument '%s'", c->arg[cmd->max_args]);
    }
    if (code < 0) code = open_log(c);
    if (code < 0) note_compat(c);
    return code;
}

void cli_free(cli *c)
{
    for (size_t i = 0; i < c->n_val; i++) free(c->val[i].owned);
    free(c->val);
    free(c->arg);
    if (c->log && c->log != stderr) fclose(c->log);
}

/* --------------------------------------------------------------------------------------------------------- options */

bool cli_logs(const cli *c, int level) { return level <= c->log_level; }

void cli_set_log(const cli *c, pi_options *o) { pi_options_set_log(o, log_line, (void *) c, c->log_level); }

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
    return o;
}
