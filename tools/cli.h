/* Shared by the subcommands of `pagedinfer`: the command line parsed by the option table, help, exit codes, signals.
 *
 * A subcommand is a function that gets a parsed command line and returns an exit code. Which flags it takes follows
 * from the sections of the table it names; a section with its own name is its alone and wins where two spellings are
 * equal. Adding a flag means adding a row to options_table.h, or to the library's table. Only the answer goes
 * to stdout, all else to stderr. */
#ifndef PAGEDINFER_CLI_H
#define PAGEDINFER_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pagedinfer.h"

/* The git commit of this build, "unknown" without one, and how many came before it (cmake/PagedInferCommit.cmake). */
extern const char build_commit[];
extern const int build_number;

enum { /* exit codes, as in sysexits.h; 128 + signal after a signal */
    CLI_OK = 0,
    CLI_USAGE = 64,       /* wrong command line */
    CLI_DATA = 65,        /* bad or corrupt model or input */
    CLI_NO_INPUT = 66,    /* no such file */
    CLI_UNAVAILABLE = 69, /* no usable device, or nothing this build can do */
    CLI_SOFTWARE = 70,    /* internal error */
    CLI_OS = 71,          /* out of memory, or the system refused */
    CLI_IO = 74,          /* reading or writing failed */
    CLI_TEMPFAIL = 75,    /* try again later */
    CLI_CONFIG = 78,      /* options and model do not fit together, or the environment is wrong */
};

typedef struct cli cli;

typedef struct cli_command {
    const char *name;           /* "run" */
    const char *symlink;        /* "llama-cli llama-completion": called by these names it is this subcommand */
    const char *summary;        /* one line */
    const char *usage;          /* what follows "pagedinfer NAME " */
    const char *prose;          /* what it does, for --help */
    const char *sections;       /* of the option table, in the order of help; "compat" is always accepted */
    int max_args;               /* arguments that are not flags */
    bool lists;                 /* values may be comma lists, the subcommand checks them itself */
    int (*run)(const cli *c);   /* returns the exit code */
} cli_command;
extern const cli_command cli_commands[]; /* main.c; ended by a NULL name */

int cmd_run(const cli *c);
int cmd_chat(const cli *c);
int cmd_serve(const cli *c);
int cmd_bench(const cli *c);
int cmd_embed(const cli *c);
int cmd_eval(const cli *c);
int cmd_quantize(const cli *c);
int cmd_inspect(const cli *c);
void quantize_print_types(FILE *f); /* the list of --help */
int cmd_tokenize(const cli *c);
int cmd_selftest(const cli *c);
int cmd_weights(const cli *c);

/* ---- what was asked for; key as in the table */

bool cli_given(const cli *c, const char *key); /* on the command line or by the environment */
/* The last value given, else the table's default. Never NULL. */
const char *cli_str(const cli *c, const char *key);
bool cli_bool(const cli *c, const char *key);
int64_t cli_int(const cli *c, const char *key); /* 0 where it is none */
double cli_float(const cli *c, const char *key);
/* All values given, in order; n of them. */
size_t cli_n(const cli *c, const char *key);
const char *cli_nth(const cli *c, const char *key, size_t i);
bool cli_from_env(const cli *c, const char *key); /* given, by the environment alone */
/* As if it had been given, once, with this value, which is copied. false: out of memory. */
bool cli_set(cli *c, const char *key, const char *value);
size_t cli_n_args(const cli *c); /* arguments that are not flags */
const char *cli_arg(const cli *c, size_t i);

/* Options with all engine and request values given and the log function set; NULL: failed and said so (*code is the
 * exit code). Not with .lists, where the subcommand puts them together: cli_set_log is enough there. */
pi_options *cli_options(const cli *c, int *code);
void cli_set_log(const cli *c, pi_options *o);
/* pi_engine_open with these options, with its progress on a terminal. The signals of cli_catch_signals are caught from here
 * on; one that came ends it: *e is NULL then, and where it failed and said so. Returns an exit code. */
int cli_open(const cli *c, pi_options *o, pi_engine **e);
/* True when log lines of this level are shown. */
bool cli_logs(const cli *c, int level);

/* ---- saying what is wrong; each returns the exit code */

int cli_exit_code(int pi_code);
int cli_usage_error(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_error(const cli *c, int exit_code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int cli_pi_error(const cli *c, const pi_error *err); /* err->msg, and the exit code of err->code */

/* ---- input and output */

/* The prompt by --prompt, --file or standard input, escapes replaced as --escape says; free it. keep_newline: the
 * newline at a file's end is kept. Returns an exit code. */
int cli_prompt(const cli *c, bool keep_newline, char **text, size_t *len);
/* A whole file ("-": standard input), NUL added; free it. Returns an exit code. */
int cli_read_file(const cli *c, const char *path, char **text, size_t *len);
/* Whether the n bytes are UTF-8; where not, says so on standard error: what names the text. */
bool cli_is_utf8(const cli *c, const char *what, const char *text, size_t n);
/* Replaces \n, \t, \xHH and the like in place; returns the new length. */
size_t cli_unescape(char *s, size_t n);
/* Writes a piece of an answer, or of thoughts, at once; false: it could not be written. */
bool cli_text(FILE *f, const char *text, size_t n);
/* Whether f is the terminal that standard error is. */
bool cli_shares_terminal(FILE *f);
/* Before anything else is said on standard error: it begins a line, also where the text that was written last on the
 * same terminal did not end one. */
void cli_new_line(void);
/* Whether what is written there may have colours: --color, else a terminal that has them, and NO_COLOR. */
bool cli_color(const cli *c, int fd);
/* --verbose-prompt: text as the tokens that a request makes of it, on standard error. */
void cli_print_prompt(const cli *c, const pi_engine *e, const char *text, size_t len);
/* How fast n finished requests were, as one line on standard error. */
void cli_print_speed(const cli *c, pi_request *const *r, size_t n);
/* Flushes stdout; CLI_IO with a message when something could not be written, 141 and none when its reader is gone. */
int cli_flush(const cli *c);
/* "1.50 GiB", in buf. */
const char *cli_bytes(uint64_t n, char buf[32]);
/* pi_engine_close, after the statistics that --kv-stats asks for. */
void cli_close(const cli *c, pi_engine *e);

/* ---- signals. From catch on the first SIGINT or SIGTERM is only noted and makes cli_signal_fd readable; the second
 * one kills. */
int cli_catch_signals(void);  /* an exit code */
int cli_signal(void);         /* 0, or the number of the signal that came */
int cli_signal_fd(void);
void cli_release_signals(void); /* as before cli_catch_signals: the next one kills */
void cli_signal_reset(void);  /* forgets the one that came: the next one is the first again */
/* pi_poll without a time limit that also ends (with 0) when a signal came. Some request must not have ended yet. */
int cli_poll(pi_engine *e, pi_event **ev, size_t cap);

/* ---- inside cli*.c */

struct cli {
    const cli_command *cmd; /* the subcommand */
    const char *name;       /* program as in messages: "pagedinfer run" */
    const char *called;     /* the symlink's name, "llama-completion"; "": called by its own */
    struct cli_value *val;  /* values given, in order: environment and name of the program first */
    size_t n_val, cap_val;  /* entries used, allocated */
    char **arg;             /* arguments that are not flags; point into argv */
    size_t n_arg;           /* entries in arg */
    FILE *log;              /* where log lines go */
    int log_level;          /* PI_LOG_* */
    bool log_prefix, log_times, log_colors; /* lines begin with their level, with the time; are coloured by level */
    bool log_jsonl;   /* they are JSON instead */
    double log_start;       /* seconds of the monotonic clock from which that time counts */
};
struct cli_value {
    size_t opt;        /* of options_at */
    const char *value; /* points into argv, the environment or the table */
    char *owned;       /* or to this, freed at the end */
    bool weak;         /* by the environment or the program's name: the command line wins */
    char *env;         /* the variable, freed at the end; NULL: it was none */
};

/* Fills c. Returns an exit code, or -1: go on. */
int cli_parse(cli *c, const cli_command *cmd, int argc, char **argv);
void cli_free(cli *c);
void cli_help(FILE *f, const cli_command *cmd, const char *what); /* "common", "all" or a section */
bool cli_has_section(const cli_command *cmd, const char *section);
void cli_overview(FILE *f);

#endif
