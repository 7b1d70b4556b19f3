/* Model repositories on a hub, and the local cache of downloaded files. The cache has the layout of llama.cpp and of
 * the hub's Python package, so these programs share their files.
 *
 * The cache is $LLAMA_CACHE, $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub, the first that is set:
 *
 *         models--USER--NAME/
 *             refs/main                    commit of the branch at the last download
 *             blobs/OID                    a file, named by its hash; OID.downloadInProgress during the download
 *             snapshots/COMMIT/FILE.gguf   -> ../../blobs/OID
 *
 * Memory: the caller owns each list and text. Not thread-safe. */
#ifndef PAGEDINFER_HUB_H
#define PAGEDINFER_HUB_H

#include "cli.h"
#include "hub_names.h"

typedef struct hub_file {
    char *path;    /* within the repository, with / as separator */
    char *at;      /* path of the file in the cache; NULL = not cached, or not searched yet */
    uint64_t size; /* bytes; UINT64_MAX = unknown */
    char oid[65];  /* SHA-256 (64 digits), git's SHA-1 (40), or "" = unknown */
} hub_file;

typedef struct hub_repo {
    char *id;        /* "user/name" */
    char *dir;       /* directory in the cache */
    char commit[41]; /* 40 hexadecimal digits */
    hub_file *file;  /* [n] */
    size_t n, cap;   /* files, entries allocated */
} hub_repo;

/* Initializes r with its id and its directory in the cache, and an empty list of files. Returns an exit code. */
int hub_init(const cli *c, hub_repo *r, const char *id);
void hub_clear(hub_repo *r);
/* Adds a file. Returns false if out of memory. */
bool hub_add(hub_repo *r, const char *path, uint64_t size, const char *oid);
/* Lists the cached files of the repository in r, at the commit of the last download. r->n is 0 if nothing is cached.
 * Returns an exit code. */
int hub_list_cache(const cli *c, hub_repo *r);
/* Lists the files of a folder, without its subfolders, in r, which the caller zeroes. Returns false on failure; errno
 * is set. */
bool hub_list_folder(hub_repo *r, const char *dir);
/* Searches the cache for the listed files and sets `at` of each one that is cached with the expected size. */
void hub_look(hub_repo *r);
/* Return the cache path of a listed file. The caller frees it. NULL = out of memory. */
char *hub_snapshot_path(const hub_repo *r, const hub_file *f);
char *hub_blob_path(const hub_repo *r, const hub_file *f);

/* True for the first part of a model; false for other parts, auxiliary files and drafters. */
bool hub_is_model(const hub_file *f);
/* Returns a listed model file: with `file` that path only, with `quant` the first one of that quant, and with both ""
 * Q4_K_M, Q8_0 or the first model. drafter: names that begin with mtp- have precedence. NULL = not listed. */
const hub_file *hub_choose(const hub_repo *r, const char *file, const char *quant, bool drafter);
/* Returns the vision part (mmproj) that belongs to the model f: a listed GGUF with mmproj in its name, in the model's
 * folder or one above. The deepest folder wins, then the number of bits nearest to the model's. NULL = not listed. */
const hub_file *hub_vision_part(const hub_repo *r, const hub_file *f);
/* Returns part i, from 1, of the model with first part f; NULL if it is not listed. */
const hub_file *hub_part(const hub_repo *r, const hub_file *f, int i);

/* Returns $MODEL_ENDPOINT, $HF_ENDPOINT or "https://huggingface.co/", with a trailing /. The caller frees it. NULL =
 * out of memory. */
char *hub_endpoint(void);
/* Joins two paths with a /. The caller frees the result. NULL = out of memory. */
char *hub_join(const char *a, const char *b);
/* Returns the cache directory (see above). The caller frees it. NULL = no home directory, or out of memory. */
char *hub_cache_dir(void);
/* Returns the directory of files downloaded by URL: $LLAMA_CACHE, $XDG_CACHE_HOME/llama.cpp or ~/.cache/llama.cpp. The
 * caller frees it. NULL = no home directory, or out of memory. */
char *hub_url_dir(void);
/* Creates the parent directories of a file. Returns false on failure; errno is set. */
bool hub_make_parents(const char *path);
/* Writes a text file atomically. Returns false on failure; errno is set. */
bool hub_write_file(const char *path, const char *text);

#endif
