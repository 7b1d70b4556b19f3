/* Options from a file (--config, --models-preset), and the effective settings (--print-config). */
#ifndef PAGEDINFER_CONFIG_H
#define PAGEDINFER_CONFIG_H

#include "cli.h"

/* Reads the file of --config and adds its values to c, after the command line is parsed and before values are checked.
 * The first argument may name a section; it is removed if the section names the model. Returns an exit code, or -1 to
 * continue. */
int config_read(cli *c);
/* Prints the settings of this command to standard output. Returns an exit code. */
int config_print(const cli *c);

typedef struct config config;
/* Reads and parses a file of sections. Returns -1 and the file in *out, or an exit code after an error message. */
int config_open(const cli *c, const char *path, config **out);
void config_close(config *f);
/* Returns the name of section i, from 0, in the order of the file; NULL after the last. [*] does not count. */
const char *config_section(const config *f, size_t i);
/* Returns the last value of a key in a section ("*" = the part for all models); NULL = not given. */
const char *config_value(const config *f, const char *section, const char *key);
/* Adds the pairs of a section to c, except for keys that only a server of several models reads. Returns an exit code,
 * or -1 to continue. */
int config_add(cli *c, const config *f, const char *section, enum cli_source source);
/* Writes the values that c was given, keys and tokens included, in the format of --config. skip: keys of options to
 * omit, separated by spaces. Returns false if writing failed. */
bool config_save(const cli *c, FILE *out, const char *skip);

#endif
