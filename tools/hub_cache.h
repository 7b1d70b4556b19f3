/* The models in the cache (hub.h): their list, and their removal.
 *
 * The content of the cache is not trusted. Below its root, folders are opened without following symbolic links. A link
 * in snapshots/ counts only if its target is a blob of the same repository. So no file outside of the cache is listed
 * or removed, and no file is read.
 *
 * Memory: the caller owns the list. Not thread-safe. */
#ifndef PAGEDINFER_HUB_CACHE_H
#define PAGEDINFER_HUB_CACHE_H

#include <time.h>

#include "hub.h"

typedef struct cached_model {
    char *name;     /* for the command line: "user/name:quant", "user/name/file" or, for a URL's file, its name */
    char *id;       /* "user/name"; "" = downloaded by URL */
    char *file;     /* path of the first part in the repository, or in the folder of URLs */
    char *path;     /* path of the first part */
    char *mmproj;   /* path of its vision part in the repository; NULL = none is cached */
    char quant[65]; /* from the name; "" = unknown */
    uint64_t size;  /* bytes of all parts, in all snapshots */
    time_t used;    /* last use or download, of any part */
} cached_model;

typedef struct cached_models {
    cached_model *m; /* [n], sorted by name */
    size_t n, cap;   /* models, entries allocated */
} cached_models;

/* Lists the complete files: models, and other GGUF files such as drafters. Returns an exit code; the caller frees the
 * list in each case. */
int cached_list(const cli *c, cached_models *out);
void cached_free(cached_models *list);
/* Removes the parts of the model from each snapshot, blobs without a link, and folders that are empty then. *freed:
 * bytes of removed files. Returns an exit code. */
int cached_remove(const cli *c, const cached_model *m, uint64_t *freed);

#endif
