/* gen_docs.c: writes the man page and the shell completions of the pagedinfer tool at build time.
 *
 *     gen_docs man|bash|zsh|fish >FILE
 *
 * All option data comes from the list that the tool reads (options.h), so the installed files always match the tool.
 * Only the list of commands and the surrounding text are written here. Single-threaded, no heap memory.
 * Exit status 1: unknown format, or the output could not be written. */
#include <pagedinfer.h>

#include <stdio.h>
#include <string.h>

#include "options.h"

typedef struct command {
    const char *name; /* first word of the command line */
    const char *help; /* one sentence */
} command;

static const command COMMANDS[] = {
    {"run", "Writes the continuation of a prompt to standard output."},
    {"chat", "Holds a conversation with the model's chat template."},
    {"serve", "Serves OpenAI's and llama-server's HTTP APIs."},
    {"bench", "Measures prompt and generation speed and prints a table."},
    {"eval", "Computes perplexity, KL divergence, greedy tokens and logits."},
    {"inspect", "Prints metadata and tensors of a GGUF, and the memory to run it."},
    {"quantize", "Rewrites a GGUF with its matrices in another format."},
    {"tokenize", "Prints the token ids of a text."},
};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

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

/* Moves p to the next word of a list; returns its length, 0 at the end. */
static size_t next_word(const char **p, const char *separators)
{
    *p += strspn(*p, separators);
    return strcspn(*p, separators);
}

/* Returns the length of a spelling's name, without the value after = or ?. */
static int name_length(const char *p, size_t n)
{
    size_t name = strcspn(p, "=?");
    return (int) (name < n ? name : n);
}

/* ---------------------------------------------------------------------------------------------------- man page */

/* Prints text with markup escaped: backslashes are doubled, dashes stay dashes, no line starts a request. */
static void man_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i == 0 && (s[i] == '.' || s[i] == '\'')) fputs("\\&", stdout);
        if (s[i] == '\\') fputs("\\e", stdout);
        else if (s[i] == '-') fputs("\\-", stdout);
        else putchar(s[i]);
    }
}

static void man_option(const pi_option_info *o)
{
    const char *p = o->flags;
    const char *comma = "";
    printf(".TP\n");
    for (size_t n; (n = next_word(&p, " ,")) > 0; p += n) {
        printf("%s\\fB", comma);
        man_text(p, (size_t) name_length(p, n));
        printf("\\fR");
        comma = ", ";
    }
    if (!is_flag(o)) printf(" \\fI%s\\fR", o->type);
    printf("\n");
    man_text(o->help, strlen(o->help));
    if (o->range[0]) {
        printf(" Range: ");
        man_text(o->range, strlen(o->range));
        printf(".");
    }
    if (o->def[0]) {
        printf(" Default: ");
        man_text(o->def, strlen(o->def));
        printf(".");
    }
    printf("\n");
}

/* True if no earlier option has this section. Sections keep the order of the table. */
static bool section_is_new(size_t i, const char *section)
{
    pi_option_info o;
    for (size_t j = 0; j < i && options_at(j, &o); j++)
        if (o.flags[0] && strcmp(o.section, section) == 0) return false;
    return true;
}

static void man_options(void)
{
    pi_option_info first, o;
    for (size_t i = 0; options_at(i, &first); i++) {
        if (!first.flags[0] || !section_is_new(i, first.section)) continue;
        printf(".SS %s\n", first.section);
        for (size_t j = i; options_at(j, &o); j++)
            if (o.flags[0] && strcmp(o.section, first.section) == 0) man_option(&o);
    }
}

static void write_man(void)
{
    printf(".TH PAGEDINFER 1 \"\" \"libpagedinfer %s\" \"User Commands\"\n", pi_version());
    printf(".SH NAME\npagedinfer \\- run large language models with a paged cache\n");
    printf(".SH SYNOPSIS\n.B pagedinfer\n.I command\n.RI [ option ...]\n");
    printf(".SH DESCRIPTION\nRuns GGUF models on this machine. Only the answer goes to standard output; progress, "
           "tables and logs go to standard error.\n");
    printf(".SH COMMANDS\n");
    for (int i = 0; i < N_COMMANDS; i++) printf(".TP\n.B %s\n%s\n", COMMANDS[i].name, COMMANDS[i].help);
    printf(".SH OPTIONS\nUnderscores are accepted for dashes. "
           "The command\n.BI \"pagedinfer \" command \" \\-\\-help\"\nlists the main options of a command.\n");
    man_options();
    printf(".SH ENVIRONMENT\nA variable sets an option; its name is the long spelling in capitals with "
           "underscores:\n.BR PAGEDINFER_CTX_SIZE ,\nor\n.BR LLAMA_ARG_CTX_SIZE .\nThe command line has precedence.\n");
    printf(".TP\n.BR HF_TOKEN\na token for private or gated repositories, as \\-hft\n"
           ".TP\n.BR MODEL_ENDPOINT \", \" HF_ENDPOINT\nthe hub of \\-hf, instead of https://huggingface.co/\n"
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
    printf(".SH EXAMPLES\n.nf\npagedinfer run \\-m model.gguf \\-p \"Once upon a time\" \\-n 64\n"
           "pagedinfer run \\-hf ggml\\-org/gemma\\-3\\-1b\\-it\\-GGUF \\-p \"Once upon a time\" \\-n 64\n"
           "pagedinfer inspect model.gguf\n.fi\n");
}

/* ------------------------------------------------------------------------------------------------- completions */

/* Prints the words of a list, separated by `between`. */
static void words(const char *list, const char *separators, const char *between)
{
    const char *first = "";
    for (size_t n; (n = next_word(&list, separators)) > 0; list += n, first = between)
        printf("%s%.*s", first, name_length(list, n), list);
}

/* Prints the completions for an option with a fixed set of words or with a model file. */
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
    for (int i = 0; i < N_COMMANDS; i++) printf("%s ", COMMANDS[i].name);
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

/* Prints text for single quotes of a shell; for zsh's _arguments it also escapes brackets and colons. */
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
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("%s\\:\"", COMMANDS[i].name);
        shell_text(COMMANDS[i].help, false);
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
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("complete -c pagedinfer -f -n __fish_use_subcommand -a %s -d '", COMMANDS[i].name);
        shell_text(COMMANDS[i].help, false);
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
    const char *form = argc == 2 ? argv[1] : "";
    if (strcmp(form, "man") == 0) write_man();
    else if (strcmp(form, "bash") == 0) write_bash();
    else if (strcmp(form, "zsh") == 0) write_zsh();
    else if (strcmp(form, "fish") == 0) write_fish();
    else return 1;
    return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
