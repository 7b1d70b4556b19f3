/* Environment variables that set options: PAGEDINFER_CTX_SIZE or LLAMA_ARG_CTX_SIZE for --ctx-size. The reader and the
 * search for misspelled names derive the names from the option tables (options.h), so both know the same ones.
 *
 * Pure functions without memory, except for the environment, which they read: thread-safe if nothing writes to it. */
#ifndef PAGEDINFER_ENVIRONMENT_H
#define PAGEDINFER_ENVIRONMENT_H

#include "options.h"

enum { ENV_NAME = 160 }; /* maximum bytes of a variable's name, with its NUL */

/* True if variables set the option, in each command that has it: persistent settings, not prompts and files. */
bool env_sets(const pi_option_info *info);
/* Returns the value (*n bytes) of the first variable derived from the long spellings in flags or named in env; var is
 * its name. NULL = not set. */
const char *env_value(const char *flags, const char *env, char var[ENV_NAME], size_t *n);

enum env_name {
    ENV_KNOWN,   /* read by the tool, the library or a script of this project */
    ENV_UNKNOWN, /* read by nothing; near is the closest known name, or "" */
    ENV_NO_VAR,  /* an option has this name, but no variable sets it; near is its flag */
};
/* Looks up a variable of this project: PAGEDINFER_ and a name. */
enum env_name env_find(const char *name, char near[ENV_NAME]);

#endif
