/* Environment variables of options (see environment.h). */
#include "environment.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char own[] = "PAGEDINFER_";

/* Read by other code than this file; tests/scripts/check_cli.py compares the list with the calls. */
static const char elsewhere[] =
    /* the library */
    "PAGEDINFER_RANK_KEY "
    /* scripts in tests/ and tools/ */
    "PAGEDINFER_BIN PAGEDINFER_BUILD PAGEDINFER_CACHE PAGEDINFER_CHAT_MODEL PAGEDINFER_CHROMIUM PAGEDINFER_DEBS "
    "PAGEDINFER_GOLDEN PAGEDINFER_JOBS PAGEDINFER_JSON_SUITE PAGEDINFER_KINDS PAGEDINFER_LIB PAGEDINFER_LOCALAI_OPEN "
    "PAGEDINFER_LOCALAI_PROTO PAGEDINFER_LONG PAGEDINFER_NO_PIP PAGEDINFER_PEER PAGEDINFER_PROMTOOL PAGEDINFER_QUICK "
    "PAGEDINFER_SYSTEM_CACHE PAGEDINFER_TIMES PAGEDINFER_TOOL_MODEL PAGEDINFER_VOCAB PAGEDINFER_WHEEL";

bool env_sets(const pi_option_info *info)
{
    static const char *const sections[] = {"compat", "download", "serve", "model", "template"};
    if (info->scope != PI_SCOPE_TOOL || !strncmp(info->key, "verb", 4) || !strncmp(info->key, "log", 3)) return true;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!strcmp(info->section, sections[i])) return true;
    return false;
}

/* Writes the name for a word: prefix, then the n bytes in capitals, with _ for -. Returns false if it is too long. */
static bool name_of(const char *prefix, const char *word, size_t n, char var[ENV_NAME])
{
    if (n + strlen(prefix) >= ENV_NAME) return false;
    size_t k = (size_t) snprintf(var, ENV_NAME, "%s", prefix);
    for (size_t i = 0; i < n; i++) var[k++] = word[i] == '-' ? '_' : (char) toupper((unsigned char) word[i]);
    var[k] = 0;
    return true;
}

/* Writes the name for a spelling of the option table. Returns false for a short spelling. */
static bool name_of_spelling(const char *prefix, const char *sp, char var[ENV_NAME])
{
    const size_t n = strcspn(sp, " =?");
    return n > 2 && sp[1] == '-' && name_of(prefix, sp + 2, n - 2, var);
}

/* Returns the value set by the variable of one spelling: its text. For a spelling with an implied value
 * ("--no-mmap=read") returns that value if the text is true. NULL = not set, or no effect. */
static const char *value_of(const char *prefix, const char *sp, char var[ENV_NAME], size_t *n)
{
    size_t len = strcspn(sp, " "), name = strcspn(sp, " =?");
    bool yes;
    const char *v = name_of_spelling(prefix, sp, var) ? getenv(var) : NULL;
    if (!v || !*v) return NULL;
    *n = strlen(v);
    if (sp[name] != '=') return v;
    *n = len - name - 1;
    return options_bool(v, &yes) && yes ? sp + name + 1 : NULL;
}

const char *env_value(const char *flags, const char *env, char var[ENV_NAME], size_t *n)
{
    static const char *const prefix[] = {own, "LLAMA_ARG_"};
    for (int k = 0; k < 2; k++) {
        for (const char *p = flags; *p;) {
            const char *v = value_of(prefix[k], p, var, n);
            if (v) return v;
            p += strcspn(p, " ");
            p += *p == ' ';
        }
        for (const char *p = k ? env : ""; *p;) {
            size_t len = strcspn(p, " ");
            const char *v = name_of("", p, len, var) ? getenv(var) : NULL;
            *n = v ? strlen(v) : 0;
            if (*n) return v;
            p += len + (p[len] == ' ');
        }
    }
    return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- names */

typedef struct search {
    const char *name;    /* variable, without the prefix */
    char near[ENV_NAME]; /* closest name so far, without the prefix; "" = none */
    int dist;            /* its distance + 1, or the limit */
    bool found;          /* a name is equal */
} search;

static void compare(search *s, const char *var)
{
    char best[64];
    if (!strcmp(s->name, var)) s->found = true;
    else if (options_nearest_word(s->name, var, best, &s->dist)) snprintf(s->near, sizeof s->near, "%s", best);
}

static void compare_flags(search *s, const char *flags)
{
    char var[ENV_NAME];
    for (const char *p = flags; *p;) {
        if (name_of_spelling("", p, var)) compare(s, var);
        p += strcspn(p, " ");
        p += *p == ' ';
    }
}

/* True if an option without variables has a flag of this name; flag is its spelling. */
static bool is_flag(const char *name, char flag[ENV_NAME])
{
    pi_option_info info;
    for (size_t i = 0; options_at(i, &info); i++) {
        search s = {.name = name};
        compare_flags(&s, info.flags);
        if (!s.found) continue;
        size_t n = (size_t) snprintf(flag, ENV_NAME, "--");
        for (const char *p = name; *p && n < ENV_NAME - 1; p++) flag[n++] = *p == '_' ? '-' : (char) tolower(*p);
        flag[n] = 0;
        return true;
    }
    return false;
}

enum env_name env_find(const char *name, char near[ENV_NAME])
{
    const char *rest = name + sizeof own - 1;
    search s = {.name = rest, .dist = 1 + (int) strlen(rest) / 2};
    pi_option_info info;
    if (s.dist < 3) s.dist = 3;
    for (size_t i = 0; options_at(i, &info) && !s.found; i++)
        if (env_sets(&info)) compare_flags(&s, info.flags);
    for (const char *p = elsewhere; *p && !s.found; p += strcspn(p, " "), p += *p == ' ') {
        char var[ENV_NAME];
        if (name_of("", p + sizeof own - 1, strcspn(p, " ") - (sizeof own - 1), var)) compare(&s, var);
    }
    for (size_t i = 0; options_refused(i) && !s.found; i++) {
        search refused = {.name = rest}; /* not suggested */
        compare_flags(&refused, options_refused(i)->flags);
        s.found = refused.found;
    }
    if (s.found) return ENV_KNOWN;
    if (is_flag(rest, near)) return ENV_NO_VAR;
    snprintf(near, ENV_NAME, "%s%.*s", *s.near ? own : "", ENV_NAME - (int) sizeof own, s.near);
    return ENV_UNKNOWN;
}
