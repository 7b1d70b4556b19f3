/* run --interactive: text that the model and a person write in turns, with no template around it. */
#ifndef PAGEDINFER_INTERACT_H
#define PAGEDINFER_INTERACT_H

#include "cli.h"

/* Whether the command line asks for it. */
bool interact_wanted(const cli *c);
int cmd_interact(const cli *c); /* an exit code */

#endif
