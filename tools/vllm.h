/* Values of vLLM's flags: JSON objects, and words for which this engine has other options. */
#ifndef PAGEDINFER_VLLM_H
#define PAGEDINFER_VLLM_H

#include "cli.h"

/* Sets the options that the values of vLLM's flags mean. Options that the command line also sets keep their values.
 * Call it before values are checked. Returns an exit code, or -1 to continue. */
int vllm_options(cli *c);
/* True if word, an argument without dashes, is a further value of the flag before it, as in --lora-modules A=X B=Y. */
bool vllm_more_values(const char *flag, const char *word, bool has_model);

#endif
