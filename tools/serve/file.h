/* Files that the server reads while it runs: opened without waiting, whatever lies at the path. Any thread. */
#ifndef PAGEDINFER_SERVE_FILE_H
#define PAGEDINFER_SERVE_FILE_H

#include <stdio.h>

enum { FILE_MAX = 1 << 20 }; /* bytes of a file of keys or certificates */

/* Opens a regular file of at most FILE_MAX bytes; a pipe or a device, whose reader may wait for ever, is refused.
 * NULL: *wrong says why. */
FILE *file_open(const char *path, const char **wrong);

#endif
