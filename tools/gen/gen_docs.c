/* gen_docs.c: writes man pages, shell completions and docs/OPTIONS.md from the tables of options, at build time.
 *
 *     gen_docs man OVERVIEW            pagedinfer(1)
 *     gen_docs command OVERVIEW HELP   pagedinfer-COMMAND(1)
 *     gen_docs options-man             pagedinfer-options(7)
 *     gen_docs options-md              docs/OPTIONS.md
 *     gen_docs bash|zsh|fish OVERVIEW  completions
 *
 * OVERVIEW is a file with the output of `pagedinfer help`, HELP one with the output of `pagedinfer COMMAND --help all`.
 * The page goes to standard output. Options come from the list that the tool reads (options.h), so the pages cannot
 * differ from the program. One thread, no heap memory. Exit status 1: unknown form, unreadable file, failed output. */
#include <pagedinfer.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "options.h"

enum { MAX_COMMANDS = 32, MAX_SECTIONS = 32 };

typedef struct command {
    char name[24];
    char help[120]; /* summary, from OVERVIEW */
} command;

static command commands[MAX_COMMANDS];
static int n_commands;

typedef struct example {
    const char *command, *line;
} example;

static const example EXAMPLES[] = {
    {"run", "pagedinfer run -m model.gguf -p \"Once upon a time\" -n 64"},
    {"run", "pagedinfer run -hf ggml-org/gemma-3-1b-it-GGUF -p \"Once upon a time\" -n 64"},
    {"run", "pagedinfer run ggml-org/gemma-3-1b-it-GGUF:Q4_K_M -p \"Once upon a time\" -n 64"},
    {"chat", "pagedinfer chat -m model.gguf -sys \"Answer in one sentence.\""},
    {"serve", "pagedinfer serve -m model.gguf --port 8080 --api-key-file keys.txt"},
    {"bench", "pagedinfer bench -m model.gguf -p 512 -n 128"},
    {"eval", "pagedinfer eval -m model.gguf -f text.txt"},
    {"embed", "pagedinfer embed -m embedding.gguf -p \"A lighthouse warns ships.\""},
    {"embed", "pagedinfer embed -m embedding.gguf -f lines.txt --embd-output-format json"},
    {"embed", "printf 'query\\tdocument\\n' | pagedinfer embed -m reranker.gguf --pooling rank -f -"},
    {"quantize", "pagedinfer quantize model-f16.gguf model-q4_k_m.gguf Q4_K_M"},
    {"imatrix", "pagedinfer imatrix model-f16.gguf -f calibration.txt -o imatrix.gguf"},
    {"quantize", "pagedinfer quantize --imatrix imatrix.gguf model-f16.gguf model-iq4_xs.gguf IQ4_XS"},
    {"inspect", "pagedinfer inspect model.gguf -c 8192"},
    {"tokenize", "pagedinfer tokenize -m model.gguf -p \"Once upon a time\" --ids"},
    {"pull", "pagedinfer pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"},
    {"list", "pagedinfer list --json"},
    {"rm", "pagedinfer rm ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"},
    {"weights", "pagedinfer weights -m model.gguf --socket /run/user/1000/weights &"},
    {"weights", "pagedinfer serve -m model.gguf --weights-from /run/user/1000/weights --port 8001"},
    {"selftest", "pagedinfer selftest"},
    {"selftest", "pagedinfer selftest --device cuda0 --checks linear,rates"},
};
enum { N_EXAMPLES = sizeof EXAMPLES / sizeof EXAMPLES[0] };

/* Headings of sections; a section that is not listed gets its own name, capitalized. */
static const char *const TITLES[][2] = {
    {"kv", "KV cache"}, {"cpu", "CPU"}, {"scheduler", "Scheduling"}, {"speculation", "Speculative decoding"},
};

static const char *title(const char *section)
{
    static char text[40];
    for (size_t i = 0; i < sizeof TITLES / sizeof TITLES[0]; i++)
        if (!strcmp(section, TITLES[i][0])) return TITLES[i][1];
    snprintf(text, sizeof text, "%s", section);
    text[0] = (char) toupper((unsigned char) text[0]);
    return text;
}

static bool is_flag(const pi_option_info *o)
{
    return strcmp(o->type, "bool") == 0;
}

static bool is_enum(const pi_option_info *o)
{
    return strcmp(o->type, "enum") == 0;
}

static bool is_model_file(const pi_option_info *o)
{
    return strcmp(o->key, "model") == 0;
}

/* Moves p to the next word of a list. Returns the word's length, 0 at the end. */
static size_t next_word(const char **p, const char *separators)
{
    *p += strspn(*p, separators);
    return strcspn(*p, separators);
}

/* Length of the name in a spelling of n bytes: a value may follow after = or ?. */
static int name_length(const char *p, size_t n)
{
    size_t name = strcspn(p, "=?");
    return (int) (name < n ? name : n);
}

/* ------------------------------------------------------------------------------------------------------- help texts */

/* Reads the file into out. Returns false if it cannot be read or is too long. */
static bool read_file(const char *path, char *out, size_t cap)
{
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(out, 1, cap, f);
    bool ok = n < cap && !ferror(f);
    out[ok ? n : 0] = 0;
    fclose(f);
    return ok;
}

/* Fills `commands` from OVERVIEW, which has a line "  NAME  SUMMARY" for each. */
static bool read_commands(const char *path)
{
    static char text[16384];
    if (!read_file(path, text, sizeof text)) return false;
    for (char *line = strtok(text, "\n"); line && n_commands < MAX_COMMANDS; line = strtok(NULL, "\n")) {
        command *c = &commands[n_commands];
        if (sscanf(line, "  %23[a-z] %119[^\n]", c->name, c->help) == 2 && strcmp(c->name, "pagedinfer")) n_commands++;
    }
    return n_commands > 0;
}

/* -------------------------------------------------------------------------------------------------------- man pages */

/* Text without markup: backslashes, dashes and a leading dot are escaped. */
static void man_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((i == 0 || s[i - 1] == '\n') && (s[i] == '.' || s[i] == '\'')) fputs("\\&", stdout);
        if (s[i] == '\\') fputs("\\e", stdout);
        else if (s[i] == '-') fputs("\\-", stdout);
        else putchar(s[i]);
    }
}

static void man_string(const char *s)
{
    man_text(s, strlen(s));
}

static void man_flags(const pi_option_info *o)
{
    const char *p = o->flags;
    const char *comma = "";
    for (size_t n; (n = next_word(&p, " ,")) > 0; p += n) {
        printf("%s\\fB", comma);
        man_text(p, (size_t) name_length(p, n));
        printf("\\fR");
        comma = ", ";
    }
}

/* "a|b|c" as "a, b, c": a line may be broken between the words. */
static void man_range(const char *range)
{
    const char *comma = "";
    for (size_t n; (n = next_word(&range, "|")) > 0; range += n, comma = ", ") {
        fputs(comma, stdout);
        man_text(range, n);
    }
}

static void man_limits(const pi_option_info *o)
{
    if (o->range[0]) {
        printf(" Range: ");
        man_range(o->range);
        printf(".");
    }
    if (o->def[0]) {
        printf(" Default: ");
        man_string(o->def);
        printf(".");
    }
}

static void man_option(const pi_option_info *o)
{
    printf(".TP\n");
    man_flags(o);
    if (!is_flag(o)) printf(" \\fI%s\\fR", o->type);
    printf("\n");
    man_string(o->help);
    man_limits(o);
    printf("\n");
}

/* True if no option before number i has this section and scope; scope -1 = any scope, with flags. */
static bool section_is_new(size_t i, const char *section, int scope)
{
    pi_option_info o;
    for (size_t j = 0; j < i && options_at(j, &o); j++)
        if ((scope < 0 ? o.flags[0] != 0 : o.scope == scope) && strcmp(o.section, section) == 0) return false;
    return true;
}

static void man_section(const char *section)
{
    pi_option_info o;
    for (size_t j = 0; options_at(j, &o); j++)
        if (o.flags[0] && strcmp(o.section, section) == 0) man_option(&o);
}

/* All sections, in the order in which the table first names them. */
static void man_options(void)
{
    pi_option_info first;
    for (size_t i = 0; options_at(i, &first); i++) {
        if (!first.flags[0] || !section_is_new(i, first.section, -1)) continue;
        printf(".SS %s\n", title(first.section));
        man_section(first.section);
    }
}

static void man_examples(const char *command_name)
{
    printf(".SH EXAMPLES\n.nf\n");
    for (int i = 0; i < N_EXAMPLES; i++) {
        if (command_name && strcmp(command_name, EXAMPLES[i].command)) continue;
        man_string(EXAMPLES[i].line);
        printf("\n");
    }
    printf(".fi\n");
}

static void man_see_also(const char *own)
{
    printf(".SH SEE ALSO\n");
    if (own) printf(".BR pagedinfer (1),\n");
    for (int i = 0; i < n_commands; i++) {
        if (!strcmp(commands[i].name, "help") || !strcmp(commands[i].name, "version")) continue;
        if (!own || strcmp(own, commands[i].name)) printf(".BR pagedinfer\\-%s (1),\n", commands[i].name);
    }
    printf(".BR pagedinfer\\-options (7),\n.BR pagedinfer (3)\n");
}

static void write_man(void)
{
    printf(".TH PAGEDINFER 1 \"\" \"libpagedinfer %s\" \"User Commands\"\n", pi_version());
    printf(".SH NAME\npagedinfer \\- run large language models with a paged cache\n");
    printf(".SH SYNOPSIS\n.B pagedinfer\n.I command\n.RI [ option ...]\n");
    printf(".SH DESCRIPTION\nRuns GGUF models on this machine. Only the answer goes to standard output; progress, "
           "tables and logs go to standard error.\n");
    printf(".SH COMMANDS\n");
    for (int i = 0; i < n_commands; i++) {
        printf(".TP\n.B %s\n", commands[i].name);
        man_string(commands[i].help);
        printf("\n");
    }
    printf(".SH OPTIONS\nUnderscores are accepted for dashes. "
           "The command\n.BI \"pagedinfer \" command \" \\-\\-help\"\nlists the main options of a command.\n");
    man_options();
    printf(".SH ENVIRONMENT\nA variable can set an option. Its name is the long spelling, in capitals and with "
           "underscores:\n.BR PAGEDINFER_CTX_SIZE ,\nor\n.BR LLAMA_ARG_CTX_SIZE .\nThe command line has precedence.\n"
           "An unknown variable that begins with PAGEDINFER_ gives a warning with the nearest known name.\n");
    printf(".TP\n.BR HF_TOKEN\na token for private or gated repositories, as \\-hft\n"
           ".TP\n.BR MODEL_ENDPOINT \", \" HF_ENDPOINT\nthe address of the hub for \\-hf\n"
           ".TP\n.BR LLAMA_CACHE \", \" HF_HUB_CACHE \", \" HUGGINGFACE_HUB_CACHE\n"
           "the directory of downloaded files; without them $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or "
           "~/.cache/huggingface/hub, and for \\-mu $XDG_CACHE_HOME/llama.cpp or ~/.cache/llama.cpp\n"
           ".TP\n.BR https_proxy \", \" no_proxy\nas for curl(1)\n");
    printf(".SH EXIT STATUS\n"
           ".TP\n0\nsuccess\n.TP\n1\na requested comparison found a difference\n.TP\n64\nusage\n"
           ".TP\n65\nthe model file is invalid or corrupt\n.TP\n66\nfile not found\n"
           ".TP\n69\nthis build or machine lacks a usable device, the model's architecture or the format of "
           "its weights. The message names it; the file is valid\n"
           ".TP\n70\ninternal error\n.TP\n71\nout of memory, or a system call failed\n"
           ".TP\n74\nreading or writing failed\n.TP\n75\nbusy; try again later\n"
           ".TP\n78\nconfiguration: options, environment and model are incompatible\n"
           ".TP\n130, 143\ninterrupted, terminated\n"
           ".TP\n141\nstandard output was closed by its reader; no message is printed\n");
    man_examples(NULL);
    man_see_also(NULL);
}

/* ------------------------------------------------------------------------------------------ man page of one command */

/* A heading of a section in HELP: "Section:" alone on a line. Copies it in lower case; false if it is not one. */
static bool heading_of(const char *line, char out[32])
{
    size_t n = strcspn(line, ":");
    if (line[n] != ':' || line[n + 1] || n == 0 || n > 31 || !isupper((unsigned char) line[0])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalpha((unsigned char) line[i])) return false;
        out[i] = (char) tolower((unsigned char) line[i]);
    }
    out[n] = 0;
    return true;
}

/* Splits HELP. *prose is the text after the usage line, up to the first section. Returns the number of sections. */
static int split_help(char *text, char **usage, char **prose, char sections[][32])
{
    int n = 0;
    bool in_prose = false;
    *usage = *prose = NULL;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char head[32];
        if (!*usage && !strncmp(line, "Usage: ", 7)) {
            *usage = line + 7;
            *prose = next && *next == '\n' ? next + 1 : next;
            in_prose = true;
        } else if (heading_of(line, head)) {
            for (char *end = line; in_prose && end > *prose && (end == line || end[-1] == '\n'); end--) end[-1] = 0;
            in_prose = false;
            if (n < MAX_SECTIONS) memcpy(sections[n++], head, sizeof head);
        } else if (in_prose && next) {
            next[-1] = '\n'; /* the prose stays one text */
        }
    }
    return n;
}

static bool write_command(const char *help_path)
{
    static char text[131072], sections[MAX_SECTIONS][32];
    char *usage, *prose, name[24] = "";
    if (!read_file(help_path, text, sizeof text)) return false;
    int n = split_help(text, &usage, &prose, sections);
    if (!usage || sscanf(usage, "pagedinfer %23[a-z]", name) != 1) return false;
    const char *summary = "";
    for (int i = 0; i < n_commands; i++)
        if (!strcmp(commands[i].name, name)) summary = commands[i].help;
    printf(".TH PAGEDINFER\\-");
    for (const char *p = name; *p; p++) putchar(toupper((unsigned char) *p));
    printf(" 1 \"\" \"libpagedinfer %s\" \"User Commands\"\n.SH NAME\npagedinfer\\-%s \\- ", pi_version(), name);
    man_string(summary);
    printf("\n.SH SYNOPSIS\n.nf\n");
    man_string(usage);
    printf("\n.fi\n.SH DESCRIPTION\n");
    man_string(prose);
    printf("\n.SH OPTIONS\n");
    man_section(name);
    printf(".P\nOther sections of options:\n");
    const char *comma = "";
    for (int i = 0; i < n; i++) {
        if (!strcmp(sections[i], name) || !strcmp(sections[i], "compat")) continue;
        printf("%s\\fI%s\\fR", comma, sections[i]);
        comma = ", ";
    }
    printf(".\n.B pagedinfer %s \\-\\-help\n.I section\nprints one, and so does\n.BR pagedinfer (1).\n", name);
    printf(".SH EXIT STATUS\nAs for\n.BR pagedinfer (1)%s\n",
           strcmp(name, "selftest") ? "." : ":\n0 if all checks pass, 69 if a check fails or the device is unusable.");
    man_examples(name);
    man_see_also(name);
    return true;
}

/* -------------------------------------------------------------------------------------------------- list of options */

static const char *const SCOPES[] = {"Engine options", "Request options"};

/* "a|b|c" as separate words, "1..8" unchanged; quote is put around each. */
static void print_range(const char *range, const char *quote)
{
    const char *comma = "";
    for (size_t n; (n = next_word(&range, "|")) > 0; range += n, comma = ", ")
        printf("%s%s%.*s%s", comma, quote, (int) n, range, quote);
}

/* Text of a table cell. */
static void cell(const char *s)
{
    bool in_code = false;
    for (; *s; s++) {
        if (*s == '`') in_code = !in_code;
        if (*s == '|' || (!in_code && strchr("<>*", *s))) putchar('\\');
        putchar(*s);
    }
}

static void md_flags(const pi_option_info *o)
{
    const char *p = o->flags, *comma = "";
    for (size_t n; (n = next_word(&p, " ")) > 0; p += n, comma = ", ") {
        int name = name_length(p, n);
        printf("%s`%.*s`", comma, name, p);
        if ((size_t) name < n && p[name] == '=') printf(" = `%.*s`", (int) n - name - 1, p + name + 1);
        if ((size_t) name < n && p[name] == '?') printf(" [`%.*s`]", (int) n - name - 1, p + name + 1);
    }
}

static void md_option(const pi_option_info *o)
{
    printf("| `%s` | ", o->key);
    md_flags(o);
    printf(" | %s", o->type);
    if (o->range[0]) printf(": ");
    print_range(o->range, "`");
    printf(" | ");
    if (o->def[0]) printf("`%s`", o->def);
    printf(" | ");
    cell(o->help);
    const char *p = o->env, *comma = " Environment: ";
    for (size_t n; (n = next_word(&p, " ,")) > 0; p += n, comma = ", ") printf("%s`%.*s`", comma, (int) n, p);
    printf(" |\n");
}

static void write_options_md(void)
{
    pi_option_info first, o;
    printf("# Options\n\n"
           "All options of the library, written by `tests/scripts/check_options_doc.py --write` from "
           "`pi_options_describe`. Options of the tool alone are in `pagedinfer COMMAND --help all`.\n\n"
           "| to set an option | use |\n|---|---|\n"
           "| of an engine | `pi_options_set` before `pi_engine_open` |\n"
           "| of a request | `pi_request_set`; in `pi_options`, the value is the default of all requests |\n"
           "| on the command line | a flag; underscores are accepted for dashes |\n"
           "| in the environment | `PAGEDINFER_X` or `LLAMA_ARG_X` for each long flag `--x`; further variables are "
           "listed |\n\n"
           "`--x` = `v` is a flag without a value that means v. `--x` [`v`] accepts a value and means v without one. "
           "A bool flag needs no value, and each long one has a `--no-` form. Values of list options accumulate. "
           "Numbers may end in k, m, g (thousands) or K, M, G, KiB, MiB, GiB (powers of 1024).\n");
    for (int scope = PI_SCOPE_ENGINE; scope <= PI_SCOPE_REQUEST; scope++) {
        printf("\n## %s\n", SCOPES[scope]);
        for (size_t i = 0; options_at(i, &first); i++) {
            if (first.scope != scope || !section_is_new(i, first.section, scope)) continue;
            printf("\n### %s\n\n| key | flags | type: range | default | effect |\n|---|---|---|---|---|\n",
                   title(first.section));
            for (size_t j = i; options_at(j, &o); j++)
                if (o.scope == scope && strcmp(o.section, first.section) == 0) md_option(&o);
        }
    }
}

static void man7_option(const pi_option_info *o)
{
    printf(".TP\n\\fB");
    man_string(o->key);
    printf("\\fR (%s", o->type);
    if (o->range[0]) {
        printf(": ");
        man_range(o->range);
    }
    printf(")\n");
    man_string(o->help);
    if (o->def[0]) {
        printf(" Default: ");
        man_string(o->def);
        printf(".");
    }
    if (o->flags[0]) {
        printf(" Flags: ");
        man_flags(o);
        printf(".");
    }
    if (o->env[0]) {
        printf(" Environment: ");
        man_string(o->env);
        printf(".");
    }
    printf("\n");
}

static void write_options_man(void)
{
    pi_option_info first, o;
    printf(".TH PAGEDINFER\\-OPTIONS 7 \"\" \"libpagedinfer %s\" \"Miscellaneous\"\n", pi_version());
    printf(".SH NAME\npagedinfer\\-options \\- options of engines and requests\n"
           ".SH DESCRIPTION\nEngine options are set with\n.BR pi_options_set (3)\nbefore\n.BR pi_engine_open (3),\n"
           "request options with\n.BR pi_request_set (3).\nA request option in a pi_options is the default of all "
           "requests.\nOn the command line each option has the listed flags. In the environment, PAGEDINFER_X or "
           "LLAMA_ARG_X stands for each long flag \\-\\-x.\nValues of list options accumulate.\nNumbers may end in k, "
           "m, g (thousands) or K, M, G, KiB, MiB, GiB (powers of 1024).\n");
    for (int scope = PI_SCOPE_ENGINE; scope <= PI_SCOPE_REQUEST; scope++) {
        printf(".SH %s OPTIONS\n", scope == PI_SCOPE_ENGINE ? "ENGINE" : "REQUEST");
        for (size_t i = 0; options_at(i, &first); i++) {
            if (first.scope != scope || !section_is_new(i, first.section, scope)) continue;
            printf(".SS %s\n", title(first.section));
            for (size_t j = i; options_at(j, &o); j++)
                if (o.scope == scope && strcmp(o.section, first.section) == 0) man7_option(&o);
        }
    }
    printf(".SH SEE ALSO\n.BR pagedinfer (1),\n.BR pagedinfer (3)\n");
}

/* ------------------------------------------------------------------------------------------------- completions */

/* Prints the words of a list with `between` as separator. */
static void words(const char *list, const char *separators, const char *between)
{
    const char *first = "";
    for (size_t n; (n = next_word(&list, separators)) > 0; list += n, first = between)
        printf("%s%.*s", first, name_length(list, n), list);
}

/* Completes the value of an option: one of its words, or a model file. */
static void bash_values(const pi_option_info *o)
{
    if (!o->flags[0] || (!is_enum(o) && !is_model_file(o))) return;
    printf("    ");
    words(o->flags, " ,", "|");
    if (is_model_file(o)) {
        printf(") COMPREPLY=($(compgen -f -X '!*.gguf' -- \"$cur\") $(compgen -d -- \"$cur\")); return ;;\n");
    } else {
        printf(") COMPREPLY=($(compgen -W '");
        words(o->range, "|", " ");
        printf("' -- \"$cur\")); return ;;\n");
    }
}

static void write_bash(void)
{
    pi_option_info o;
    printf("# bash completion for pagedinfer; generated\n_pagedinfer()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    for (int i = 0; i < n_commands; i++) printf("%s ", commands[i].name);
    printf("--help --version' -- \"$cur\"))\n        return\n    fi\n    case $prev in\n");
    for (size_t i = 0; options_at(i, &o); i++) bash_values(&o);
    printf("    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W '--help");
    for (size_t i = 0; options_at(i, &o); i++) {
        if (o.flags[0]) putchar(' ');
        words(o.flags, " ,", " ");
    }
    printf("' -- \"$cur\")) ;;\n    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\n"
           "complete -o filenames -F _pagedinfer pagedinfer\n");
}

/* Text for single quotes of a shell; zsh's _arguments also interprets brackets and colons. */
static void shell_text(const char *s, bool zsh)
{
    for (; *s; s++) {
        if (*s == '\'') fputs("'\\''", stdout);
        else if (zsh && strchr("[]:\\", *s)) printf("\\%c", *s);
        else if (!zsh && *s == '\\') fputs("\\\\", stdout);
        else putchar(*s);
    }
}

static void write_zsh(void)
{
    pi_option_info o;
    printf("#compdef pagedinfer\n# generated\n_arguments -S \\\n    '1:command:((");
    for (int i = 0; i < n_commands; i++) {
        printf("%s\\:\"", commands[i].name);
        shell_text(commands[i].help, false);
        printf("\" ");
    }
    printf("))' \\\n");
    for (size_t i = 0; options_at(i, &o); i++) {
        const char *p = o.flags;
        for (size_t n; (n = next_word(&p, " ,")) > 0; p += n) {
            printf("    '%.*s[", name_length(p, n), p);
            shell_text(o.help, true);
            printf("]");
            if (is_model_file(&o)) printf(":file:_files -g \"*.gguf\"");
            else if (is_enum(&o)) {
                printf(":%s:(", o.type);
                words(o.range, "|", " ");
                printf(")");
            } else if (!is_flag(&o)) printf(":%s:", o.type);
            printf("' \\\n");
        }
    }
    printf("    '*:file:_files'\n");
}

static void write_fish(void)
{
    pi_option_info o;
    printf("# fish completion for pagedinfer; generated\n");
    for (int i = 0; i < n_commands; i++) {
        printf("complete -c pagedinfer -f -n __fish_use_subcommand -a %s -d '", commands[i].name);
        shell_text(commands[i].help, false);
        printf("'\n");
    }
    for (size_t i = 0; options_at(i, &o); i++) {
        if (!o.flags[0]) continue;
        printf("complete -c pagedinfer");
        const char *p = o.flags;
        for (size_t len; (len = next_word(&p, " ,")) > 0; p += len) {
            int n = name_length(p, len);
            if (n > 2 && p[0] == '-' && p[1] == '-') printf(" -l %.*s", n - 2, p + 2);
            else if (n == 2 && p[0] == '-') printf(" -s %c", p[1]);
            else if (n > 1 && p[0] == '-') printf(" -o %.*s", n - 1, p + 1);
        }
        if (is_enum(&o)) {
            printf(" -x -a '");
            words(o.range, "|", " ");
            printf("'");
        } else if (!is_flag(&o)) printf(" -r");
        printf(" -d '");
        shell_text(o.help, false);
        printf("'\n");
    }
}

int main(int argc, char **argv)
{
    const char *form = argc >= 2 ? argv[1] : "";
    bool ok = true;
    if (argc > 2 && !read_commands(argv[2])) return 1;
    if (argc == 2 && strcmp(form, "options-man") == 0) write_options_man();
    else if (argc == 2 && strcmp(form, "options-md") == 0) write_options_md();
    else if (argc == 3 && strcmp(form, "man") == 0) write_man();
    else if (argc == 4 && strcmp(form, "command") == 0) ok = write_command(argv[3]);
    else if (argc == 3 && strcmp(form, "bash") == 0) write_bash();
    else if (argc == 3 && strcmp(form, "zsh") == 0) write_zsh();
    else if (argc == 3 && strcmp(form, "fish") == 0) write_fish();
    else return 1;
    return !ok || fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
