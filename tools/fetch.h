/* Models named by repository or URL (-hf, -mu, -hfd): found in the cache, or downloaded into it. */
#ifndef PAGEDINFER_FETCH_H
#define PAGEDINFER_FETCH_H

#include "cli.h"

/* Sets options "model" and "model-draft" to local files. Returns an exit code, or -1 to continue. */
int fetch_models(cli *c);

#endif
