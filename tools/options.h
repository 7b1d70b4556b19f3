/* All options of the command line as rows of one list: the library's, as it describes them, then the tool's own
 * (options_table.h); and the flags that are refused by name. Pure functions, no memory, any thread. */
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
/* The spelling (long ones first) that is nearest to name, which has no dashes in front, among the rows that takes() lets
 * through; false: none is near. */
typedef bool (*options_filter)(const void *ud, const pi_option_info *row);
bool options_nearest(const char *name, options_filter takes, const void *ud, char out[64]);

/* Flags of other programs that are known by name and refused. */
typedef struct refused_option {
    const char *flags;    /* spellings, each with no value after it */
    const char *env;      /* variables beside those that follow from the long spellings */
    const char *commands; /* see options_table.h */
    bool later;           /* not built yet; else it has no meaning here */
    const char *why;      /* what to do instead */
} refused_option;
/* Row i of them, from 0; NULL past the last. */
const refused_option *options_refused(size_t i);

/* Texts as values of the tool's options. false: not of that form. */
bool options_bool(const char *s, bool *out);
/* A whole number, with a suffix as the library takes it: k m g t and kB MB.. are powers of 1000, K M G T and Ki KiB.. of
 * 1024. */
bool options_int(const char *s, int64_t *out);

#endif
