/* The model as an argument: `run MODEL` instead of `run -m FILE`, `-hf USER/NAME` or `-mu URL`. */
#ifndef PAGEDINFER_MODEL_ARG_H
#define PAGEDINFER_MODEL_ARG_H

#include "cli.h"

/* Sets option "model", "hf-repo" or "model-url" to the argument of a command that has takes_model. A folder (also one
 * of -m) becomes the first part of its model. The argument has precedence over the environment; an argument together
 * with -m, -hf or -mu is an error. Returns an exit code, or -1 to continue. */
int model_argument(cli *c);

#endif
