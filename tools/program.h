/* The name by which the tool was called (argv[0]). A name of a llama.cpp tool that matches a subcommand runs that
 * subcommand. Names of other tools are refused, so that scripts do not get a different tool's output. Any other name
 * is the tool itself under a name that the user chose.
 *
 * Pure functions without memory: thread-safe. */
#ifndef PAGEDINFER_PROGRAM_H
#define PAGEDINFER_PROGRAM_H

#include "cli.h"

typedef struct program {
    const cli_command *cmd; /* subcommand for this name; NULL = none */
    char name[64];          /* the supported name, without path and version: "llama-completion"; "" = none */
    char advice[160];       /* the name is refused: the command to use instead; "" = not refused */
} program;

/* Describes argv[0]. The path and one suffix with a version ("-1.2", "-b4567") are ignored. */
program program_of(const char *argv0);

#endif
