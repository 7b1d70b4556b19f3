/* Options from a file (--config), and the effective settings (--print-config). */
#ifndef PAGEDINFER_CONFIG_H
#define PAGEDINFER_CONFIG_H

#include "cli.h"

/* Reads the file of --config and adds its values to c, after the command line is parsed and before values are checked.
 * The first argument may name a section; it is removed if the section names the model. Returns an exit code, or -1 to
 * continue. */
int config_read(cli *c);
/* Prints the settings of this command to standard output. Returns an exit code. */
int config_print(const cli *c);

#endif
