/* All command-line options in one list: the library's options, then the tool's own (options_table.h); and the flags
 * that are refused by name. Pure functions without memory: thread-safe. */
#ifndef PAGEDINFER_OPTIONS_H
#define PAGEDINFER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

/* Returns row i, from 0; false after the last row. Rows of the tool have scope PI_SCOPE_TOOL. */
bool options_at(size_t i, pi_option_info *out);
/* Checks a value against its row. Returns PI_OK, or PI_E* with the reason in err, which must not be NULL. The value of
 * a library option is also set in o, which must not be NULL then. */
int options_check(pi_options *o, const pi_option_info *row, const char *value, pi_error *err);
/* Stores in out the spelling closest to name, which has no leading dashes, among the rows that takes() accepts; a short
 * spelling only if it is one edit away and no long one is. Returns false if no spelling is close. */
typedef bool (*options_filter)(const void *ud, const pi_option_info *row);
bool options_nearest(const char *name, options_filter takes, const void *ud, char out[64]);
/* Searches the space-separated words for one that is closer to name than *dist edits. Stores it in out and its distance
 * in *dist; returns false, and leaves both, if there is none. */
bool options_nearest_word(const char *name, const char *words, char out[64], int *dist);

/* Flags of other programs that are recognized and refused. */
typedef struct refused_option {
    const char *flags;    /* spellings; a value after a spelling is not listed */
    const char *env;      /* variables in addition to those derived from the long spellings */
    const char *commands; /* see options_table.h */
    bool later;           /* true = not implemented yet; false = not applicable */
    const char *why;      /* the alternative to use */
} refused_option;
/* Returns refused row i, from 0; NULL after the last. */
const refused_option *options_refused(size_t i);

/* Parse a value of a tool option. Return false if the text is malformed. */
bool options_bool(const char *s, bool *out);
/* Parses an integer with an optional suffix, as the library does: k m g t and kB MB.. are powers of 1000, K M G T and
 * Ki KiB.. are powers of 1024. */
bool options_int(const char *s, int64_t *out);

#endif
