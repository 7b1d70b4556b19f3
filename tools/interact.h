/* run --interactive: the model and the user write a text in turns, without a chat template. */
#ifndef PAGEDINFER_INTERACT_H
#define PAGEDINFER_INTERACT_H

#include "cli.h"

/* True if the command line requests it. */
bool interact_wanted(const cli *c);
int cmd_interact(const cli *c); /* returns an exit code */

#endif
