/* Opens files that the server reads while it runs. Opening never blocks, also on pipes and devices. Thread-safe. */
#ifndef PAGEDINFER_SERVE_FILE_H
#define PAGEDINFER_SERVE_FILE_H

#include <stdio.h>

enum { FILE_MAX = 1 << 20 }; /* maximum size of a key or certificate file, bytes */

/* Opens a regular file of at most FILE_MAX bytes. A pipe or a device is refused, because reading it may block forever.
 * Returns NULL on failure and sets *wrong to the reason. */
FILE *file_open(const char *path, const char **wrong);

#endif
