/* Models that the command line names by repository or address (-hf, -mu, -hfd): from the cache, or fetched into it. */
#ifndef PAGEDINFER_FETCH_H
#define PAGEDINFER_FETCH_H

#include "cli.h"

/* Afterwards options "model" and "model-draft" are files. Returns an exit code, or -1: go on. */
int fetch_models(cli *c);

#endif
