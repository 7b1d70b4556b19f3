/* --help, generated from the option tables. (gen/gen_docs.c writes the manual page and completions at build time.) */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options.h"

enum { WIDTH = 96, INDENT = 6 };

/* Prints words of text from column col on, wrapped before WIDTH and indented. Ends the line. */
static void wrap(FILE *f, const char *text, int col, int indent)
{
    while (*text) {
        text += strspn(text, " ");
        size_t n = strcspn(text, " \n");
        if (col + (int) n + 1 > WIDTH && col > indent) {
            fprintf(f, "\n%*s", indent, "");
            col = indent;
        } else if (col > indent) {
            fputc(' ', f);
            col++;
        }
        fprintf(f, "%.*s", (int) n, text);
        col += (int) n;
        text += n;
        if (*text == '\n') {
            fprintf(f, "\n%*s", text[1] == '\n' ? 0 : indent, "");
            col = indent;
            text++;
        }
    }
    fputc('\n', f);
}

/* Formats "-c, --ctx-size N". */
static void heading(char *out, size_t cap, const pi_option_info *o)
{
    size_t n = 0;
    bool takes = strcmp(o->type, "bool");
    out[0] = 0;
    for (const char *p = o->flags; *p;) {
        size_t len = strcspn(p, " "), name = strcspn(p, " =?");
        int w = snprintf(out + n, cap - n, "%s%.*s", n ? ", " : "", (int) name, p);
        if (w < 0 || (size_t) w >= cap - n) return;
        n += (size_t) w;
        p += len + (p[len] == ' ');
    }
    bool words = *o->range && !strstr(o->range, "..");
    bool text = !strcmp(o->type, "string") || !strcmp(o->type, "list");
    const char *arg = text ? "TEXT" : words ? o->range : "N";
    if (takes) snprintf(out + n, cap - n, " %s", arg);
}

static void print_option(FILE *f, const pi_option_info *o)
{
    char head[320], text[640];
    heading(head, sizeof head, o);
    bool def = *o->def && strcmp(o->def, "false"), range = strstr(o->range, "..") != NULL;
    snprintf(text, sizeof text, "%s%s%s%s%s%s%s", o->help, def ? " Default: " : "", def ? o->def : "", def ? "." : "",
             range ? " Range: " : "", range ? o->range : "", range ? "." : "");
    fprintf(f, "  %s\n%*s", head, INDENT, "");
    wrap(f, text, INDENT, INDENT);
}

static void print_section(FILE *f, const char *section, bool common_only)
{
    pi_option_info o;
    bool any = false;
    for (size_t i = 0; options_at(i, &o); i++) {
        if (!*o.flags || strcmp(o.section, section) || (common_only && !o.common)) continue;
        bool compat = !strcmp(section, "compat");
        if (!any && compat) fputs("\nFlags of other programs that are accepted without effect:\n", f);
        else if (!any) fprintf(f, "\n%c%s:\n", section[0] & ~32, section + 1);
        any = true;
        print_option(f, &o);
    }
}

/* Prints the refused flags. */
static void print_refused(FILE *f)
{
    for (int later = 1; later >= 0; later--) {
        fputs(later ? "\nNot built yet:\n" : "\nNot applicable:\n", f);
        for (size_t i = 0; options_refused(i); i++) {
            const refused_option *r = options_refused(i);
            if (r->later != (later == 1)) continue;
            fputs("  ", f);
            wrap(f, r->flags, 2, 2);
            fprintf(f, "%*s", INDENT, "");
            wrap(f, r->why, INDENT, INDENT);
        }
    }
}

void cli_help(FILE *f, const cli_command *cmd, const char *what)
{
    bool common = !strcmp(what, "common"), all = !strcmp(what, "all");
    if (common || all) {
        fprintf(f, "Usage: pagedinfer %s %s\n\n", cmd->name, cmd->usage);
        wrap(f, cmd->prose, 0, 0);
        if (cmd->takes_model && cmd->run != cmd_pull)
            wrap(f, "MODEL is a GGUF file, a folder with one, USER/NAME[:QUANT] as for -hf, or a URL as for -mu. "
                    "Options -m, -hf and -mu can name it instead.",
                 0, 0);
    }
    for (const char *p = cmd->sections; *p;) {
        char section[32];
        size_t n = strcspn(p, " ");
        snprintf(section, sizeof section, "%.*s", (int) n, p);
        if (common || all || !strcmp(section, what)) print_section(f, section, common);
        p += n + (p[n] == ' ');
    }
    if (all || !strcmp(what, "compat")) {
        print_section(f, "compat", false);
        print_refused(f);
    }
    if ((common || all) && cmd->run == cmd_quantize) quantize_print_types(f);
    if (!common) return;
    fprintf(f, "\n");
    wrap(f, "These are the main options. '--help all' shows all of them, '--help SECTION' one "
            "section.",
         0, 0);
    fprintf(f, "\n");
    wrap(f, "Each --long-option can also be given as PAGEDINFER_LONG_OPTION or LLAMA_ARG_LONG_OPTION in the "
            "environment; the command line has precedence. An unknown PAGEDINFER_ variable gives a warning. Numbers may "
            "end in k, m, g (thousands) or K, M, G, KiB, MiB, GiB (powers of 1024).",
         0, 0);
}

void cli_overview(FILE *f)
{
    fprintf(f, "pagedinfer %s: runs large language models with a paged cache and continuous batching.\n\n"
               "Usage: pagedinfer COMMAND [options]\n\n", pi_version());
    for (const cli_command *c = cli_commands; c->name; c++) fprintf(f, "  %-10s %s\n", c->name, c->summary);
    fputs("  help       help on a command: pagedinfer help run\n  version    the version of this build\n\n", f);
    wrap(f, "Each command has its own --help. A first try, with a model in model.gguf:", 0, 0);
    fprintf(f, "\n  pagedinfer run -m model.gguf -p \"Once upon a time\" -n 64\n");
}
