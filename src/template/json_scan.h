/* JSON checked byte by byte, as it streams in (RFC 8259): where one value ends, or that it is none. Builds nothing. */
#ifndef PI__JSON_SCAN_H
#define PI__JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PI__SCAN_DEPTH = 128 }; /* as PI__VAL_DEPTH */

typedef struct pi__json_scan {
    uint8_t state;    /* what comes next */
    uint8_t n_hex;    /* of an escape, still to come */
    uint8_t depth;    /* open lists and maps */
    const char *word; /* the rest of true, false or null */
    bool key;         /* the string is a key */
    uint8_t map[PI__SCAN_DEPTH / 8]; /* a bit a level: it is a map */
} pi__json_scan;

void pi__json_scan_start(pi__json_scan *s);
/* The next bytes, up to the value's end. Returns how many belong to it; *end: 1 the value is complete (a number's end
 * shows in the byte behind it, which is not counted), -1 it is no JSON (the byte that is wrong is not counted). */
size_t pi__json_scan_feed(pi__json_scan *s, const char *p, size_t n, int *end);

#endif
