/* All options of the command line as rows of one list: the library's, as it describes them, then the tool's own
 * (options_table.h). Pure functions, no memory, any thread. */
#ifndef PAGEDINFER_OPTIONS_H
#define PAGEDINFER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

/* Row i, from 0; false past the last. The scope of the tool's own is PI_SCOPE_TOOL. */
bool options_at(size_t i, pi_option_info *out);
/* Value against row: PI_OK, or PI_E* and err says what is wrong. A value of the library's is set in o. */
int options_check(pi_options *o, const pi_option_info *row, const char *value, pi_error *err);
/* The long name (a key or a spelling without dashes) that is nearest to name; false: none is near. */
bool options_nearest(const char *name, char out[64]);

/* Texts as values of the tool's options. false: not of that form. */
bool options_bool(const char *s, bool *out);
/* A whole number, with a suffix as the library takes it: k m g t and kB MB.. are powers of 1000, K M G T and Ki KiB.. of
 * 1024. */
bool options_int(const char *s, int64_t *out);

#endif
