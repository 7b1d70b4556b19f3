/* Shared by the subcommands of `pagedinfer`: command line parsing by the option table, help, exit codes, signals.
 *
 * A subcommand is a function that gets a parsed command line and returns an exit code. The sections of the option
 * table that it names determine its flags. A section named like the subcommand belongs to it alone; its spellings have
 * precedence. To add a flag, add a row to options_table.h or to the library's table. Only the result goes to stdout,
 * everything else to stderr. */
#ifndef PAGEDINFER_CLI_H
#define PAGEDINFER_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pagedinfer.h"

/* The git commit of this build ("unknown" without git) and the number of commits before it
 * (cmake/PagedInferCommit.cmake). */
extern const char build_commit[];
extern const int build_number;

enum { /* exit codes, as in sysexits.h; 128 + signal after a signal */
    CLI_OK = 0,
    CLI_USAGE = 64,       /* invalid command line */
    CLI_DATA = 65,        /* invalid or corrupt model or input */
    CLI_NO_INPUT = 66,    /* file not found */
    CLI_UNAVAILABLE = 69, /* no usable device, or a feature missing in this build */
    CLI_SOFTWARE = 70,    /* internal error */
    CLI_OS = 71,          /* out of memory, or a system call failed */
    CLI_IO = 74,          /* reading or writing failed */
    CLI_TEMPFAIL = 75,    /* try again later */
    CLI_CONFIG = 78,      /* options and model are incompatible, or the environment is wrong */
};

typedef struct cli cli;

typedef struct cli_command {
    const char *name;           /* "run" */
    const char *symlink;        /* program names that run this subcommand: "llama-cli llama-completion" */
    const char *summary;        /* one line */
    const char *usage;          /* text after "pagedinfer NAME " */
    const char *prose;          /* description for --help */
    const char *sections;       /* sections of the option table, in the order of help; "compat" is always accepted */
    int max_args;               /* maximum number of arguments that are not flags */
    bool lists;                 /* values may be comma lists, which the subcommand checks itself */
    int (*run)(const cli *c);   /* returns the exit code */
    bool takes_model;           /* the argument is a model (model_arg.h); not if called by the name of another tool */
} cli_command;
extern const cli_command cli_commands[]; /* main.c; terminated by a NULL name */

int cmd_run(const cli *c);
int cmd_chat(const cli *c);
int cmd_serve(const cli *c);
int cmd_bench(const cli *c);
int cmd_embed(const cli *c);
int cmd_eval(const cli *c);
int cmd_quantize(const cli *c);
int cmd_imatrix(const cli *c);
int cmd_inspect(const cli *c);
void quantize_print_types(FILE *f); /* for --help */
int cmd_tokenize(const cli *c);
int cmd_selftest(const cli *c);
int cmd_weights(const cli *c);
int cmd_pull(const cli *c);
int cmd_list(const cli *c);
int cmd_rm(const cli *c);

/* ---- parsed values; key is the key in the option table */

bool cli_given(const cli *c, const char *key); /* given on the command line, by the environment or by a file */
/* Returns the last value given, else the table's default. Never NULL. */
const char *cli_str(const cli *c, const char *key);
bool cli_bool(const cli *c, const char *key);
int64_t cli_int(const cli *c, const char *key); /* 0 if the value is not an integer */
double cli_float(const cli *c, const char *key);
/* All values given, in order: their number, and value i. */
size_t cli_n(const cli *c, const char *key);
const char *cli_nth(const cli *c, const char *key, size_t i);
bool cli_is_weak(const cli *c, const char *key); /* given, but not on the command line */
/* Sets the value as if it had been given once; value is copied. Returns false if out of memory. */
bool cli_set(cli *c, const char *key, const char *value);
/* Removes all values of the option, so that its default counts. */
void cli_unset(cli *c, const char *key);
/* True if the subcommand gives images to a model, and --mmproj-auto allows to search for its vision part. */
bool cli_reads_images(const cli *c);
/* If opening an engine failed with rc because of a vision part that -hf found, prints a warning and removes it from o:
 * try again. */
bool cli_without_mmproj(const cli *c, pi_options *o, int rc, const pi_error *err);
size_t cli_n_args(const cli *c); /* number of arguments that are not flags */
const char *cli_arg(const cli *c, size_t i);

/* Returns options with all engine and request values given and with the log function; the caller frees them. Returns
 * NULL after an error message; *code is the exit code. Not for subcommands with .lists: these build the options
 * themselves and call cli_set_log. */
pi_options *cli_options(const cli *c, int *code);
/* Sends the log lines of o to c->log, in the format and up to the level of the flags. */
void cli_set_log(const cli *c, pi_options *o);
/* Calls pi_engine_open with these options and stores the engine in *e. Shows the progress on a terminal. Signals are
 * recorded from here on (cli_catch_signals); a signal cancels loading. *e is NULL after a signal or after an error
 * message. Returns an exit code. */
int cli_open(const cli *c, pi_options *o, pi_engine **e);
/* True if log lines of this level are shown. */
bool cli_logs(const cli *c, int level);

/* ---- error messages; each function returns the exit code */

int cli_exit_code(int pi_code);
int cli_usage_error(const cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_error(const cli *c, int exit_code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int cli_pi_error(const cli *c, const pi_error *err); /* prints err->msg; returns the exit code of err->code */

/* ---- input and output */

/* Reads the prompt from --prompt, --file or standard input into *text, and replaces escapes if --escape is on. The
 * caller frees it. keep_newline: keep the newline at the end of a file. Returns an exit code. */
int cli_prompt(const cli *c, bool keep_newline, char **text, size_t *len);
/* Reads a complete file ("-" = standard input) into *text and appends a NUL, not counted in *len. The caller frees
 * *text. Returns an exit code. */
int cli_read_file(const cli *c, const char *path, char **text, size_t *len);
/* True if the n bytes are UTF-8. Otherwise prints an error; `what` names the text. */
bool cli_is_utf8(const cli *c, const char *what, const char *text, size_t n);
/* Replaces \n, \t, \xHH and similar escapes in place; returns the new length. */
size_t cli_unescape(char *s, size_t n);
/* Writes a part of the output and flushes it. Returns false if writing failed. */
bool cli_text(FILE *f, const char *text, size_t n);
/* True if f and standard error are the same terminal. */
bool cli_shares_terminal(FILE *f);
/* Call before other output on standard error. Starts a new line if the last output on this terminal did not end
 * one. */
void cli_new_line(void);
/* True if output to fd may have colors: --color, else NO_COLOR and the terminal's capability. */
bool cli_color(const cli *c, int fd);
/* If --verbose-prompt is given: prints the text's tokens, as in a request, on standard error. */
void cli_print_prompt(const cli *c, const pi_engine *e, const char *text, size_t len);
/* Prints the speed of n finished requests as one line on standard error. */
void cli_print_speed(const cli *c, pi_request *const *r, size_t n);
/* Flushes stdout. Returns CLI_IO after an error message, or 141 without a message if the reader has closed the
 * pipe. */
int cli_flush(const cli *c);
/* Formats a byte count such as "1.50 GiB" in buf. */
const char *cli_bytes(uint64_t n, char buf[32]);
/* Prints the cache statistics if --kv-stats is given, then calls pi_engine_close. */
void cli_close(const cli *c, pi_engine *e);

/* ---- signals. After cli_catch_signals the first SIGINT or SIGTERM is recorded and makes cli_signal_fd readable; the
 * second one ends the process. */
int cli_catch_signals(void);  /* returns an exit code */
int cli_signal(void);         /* number of the received signal; 0 = none */
int cli_signal_fd(void);
void cli_release_signals(void); /* ends catching: the next signal ends the process */
void cli_signal_reset(void);  /* clears the received signal: the next one counts as the first */
/* Calls pi_poll without a time limit. Returns its result, or 0 after a signal (see cli_signal). At least one request
 * must be unfinished. */
int cli_poll(pi_engine *e, pi_event **ev, size_t cap);

/* ---- internal to cli*.c */

struct cli {
    const cli_command *cmd; /* the subcommand */
    const char *name;       /* program name in messages: "pagedinfer run" */
    const char *called;     /* name of the symlink, "llama-completion"; "" = called as pagedinfer */
    struct cli_value *val;  /* [n_val] values given, in the order of each source */
    size_t n_val, cap_val;
    char **arg;             /* arguments that are not flags; they point into argv */
    size_t n_arg;           /* entries in arg */
    bool found_mmproj;      /* option mmproj was set by -hf, not by the user */
    FILE *log;              /* destination of log lines */
    int log_level;          /* PI_LOG_* */
    bool log_prefix, log_times, log_colors; /* log lines begin with their level, with the time; are colored by level */
    bool log_jsonl;   /* log lines are JSON */
    double log_start;       /* monotonic time at which the log times begin, seconds */
};
enum cli_source { /* of a value; a later source has precedence */
    CLI_FROM_NAME,    /* the name by which the program was called */
    CLI_FROM_FILE,    /* --config, the part for all models */
    CLI_FROM_SECTION, /* --config, the section of the model */
    CLI_FROM_ENV,
    CLI_FROM_ARGV,
};
struct cli_value {
    size_t opt;        /* index of the option, as for options_at */
    const char *value; /* points into argv, the environment, the table or owned */
    char *owned;       /* copy of the value, freed at the end; or NULL */
    enum cli_source source;
    char *where;       /* name of the variable, or "FILE:LINE"; freed at the end; NULL for other sources */
};

/* Adds the value of a flag, named without dashes, from a file; both texts are copied. Flags of other commands only are
 * ignored. Returns an exit code, or -1 to continue. */
int cli_add_named(cli *c, const char *name, const char *value, enum cli_source source, const char *where);
/* Writes the long spelling of option opt, without dashes, that selects it in this command. Returns false if the command
 * has none. */
bool cli_name_of(const cli *c, size_t opt, char out[64]);
/* Returns value i of option opt (SIZE_MAX = the last one) and its source, or NULL. *n: number of values. */
const char *cli_value_of(const cli *c, size_t opt, size_t i, size_t *n, enum cli_source *source);

/* Checks every value against its row and reports the first invalid one. Returns an exit code, or -1 to continue. */
int cli_check(const cli *c);
/* Copies c without its arguments and its log file; the caller frees the copy with cli_free. Returns false if out of
 * memory. */
bool cli_copy(cli *out, const cli *c);
/* Removes the variables that set options of this command from the environment, so that a program that is given all
 * values another way does not read them. Values in c stay valid. */
void cli_clear_env(const cli *c);
/* Parses the command line into c. Returns an exit code, or -1 to continue. */
int cli_parse(cli *c, const cli_command *cmd, int argc, char **argv);
void cli_free(cli *c);
void cli_help(FILE *f, const cli_command *cmd, const char *what); /* what: "common", "all" or a section */
bool cli_has_section(const cli_command *cmd, const char *section);
void cli_overview(FILE *f);

#endif
