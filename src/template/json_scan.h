/* Checks JSON byte by byte as it streams in (RFC 8259): finds the end of one value, or an error. Builds nothing. */
#ifndef PI__JSON_SCAN_H
#define PI__JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PI__SCAN_DEPTH = 128 }; /* equals PI__VAL_DEPTH */

typedef struct pi__json_scan {
    uint8_t state;    /* next expected input */
    uint8_t n_hex;    /* remaining digits of a \u escape */
    uint8_t depth;    /* number of open lists and maps */
    const char *word; /* rest of true, false or null */
    bool key;         /* the current string is a key */
    uint8_t map[PI__SCAN_DEPTH / 8]; /* one bit per level: 1 = map, 0 = list */
} pi__json_scan;

void pi__json_scan_start(pi__json_scan *s);
/* Feeds the next bytes, up to the value's end. Returns the number of bytes that belong to it. *end: 1 = the value is
 * complete (a number ends at the byte after it, which is not counted), -1 = invalid JSON (the bad byte is not counted),
 * 0 = more bytes are needed. */
size_t pi__json_scan_feed(pi__json_scan *s, const char *p, size_t n, int *end);

#endif
