/* Repositories of models on a hub, and the folder in which what was fetched of them is kept: that of llama.cpp and of the
 * hub's own Python package, so that each finds the files of the others.
 *
 *     $LLAMA_CACHE, $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 *     ~/.cache/huggingface/hub, the first that is set
 *         models--USER--NAME/
 *             refs/main                    the commit that the branch was at
 *             blobs/OID                    a file, by its hash; while it is fetched OID.downloadInProgress
 *             snapshots/COMMIT/FILE.gguf   -> ../../blobs/OID
 *
 * Memory: each list and text is the caller's. One thread. */
#ifndef PAGEDINFER_HUB_H
#define PAGEDINFER_HUB_H

#include "cli.h"

typedef struct hub_file {
    char *path;    /* within the repository, with / */
    char *at;      /* file of the cache that holds it, or NULL: it has none */
    uint64_t size; /* bytes, UINT64_MAX: not known */
    char oid[65];  /* SHA-256 (64 digits), git's SHA-1 (40), or "" */
} hub_file;

typedef struct hub_repo {
    char *id;        /* "user/name" */
    char *dir;       /* of the cache */
    char commit[41]; /* 40 hexadecimal digits */
    hub_file *file;  /* [n] */
    size_t n, cap;   /* files, entries allocated */
} hub_repo;

/* "user/name:quant" in two; quant is "" where there is none. false: not of that form. */
bool hub_split_name(const char *text, char id[257], char quant[65]);
/* An empty list. Returns an exit code. */
int hub_init(const cli *c, hub_repo *r, const char *id);
void hub_clear(hub_repo *r);
/* Adds a file. false: out of memory. */
bool hub_add(hub_repo *r, const char *path, uint64_t size, const char *oid);
/* Lists what the cache has of the repository, at the commit it was fetched last. Nothing: n is 0. */
int hub_list_cache(const cli *c, hub_repo *r);
/* Finds in the cache what is listed: sets each file's at. */
void hub_look(hub_repo *r);
/* The path that a file of the list has in the cache; free it. NULL: out of memory. */
char *hub_snapshot_path(const hub_repo *r, const hub_file *f);
char *hub_blob_path(const hub_repo *r, const hub_file *f);

/* The model among the files: named by file, else that of the quant, else Q4_K_M, Q8_0, or the first. drafter: one whose
 * name begins with mtp- is better. NULL: none. */
const hub_file *hub_choose(const hub_repo *r, const char *file, const char *quant, bool drafter);
/* Number of parts that a file says it is of, by its name; 1: it is whole. */
int hub_parts(const char *path);
/* Part i, from 1, of the model whose first part is f; NULL: it is not there. */
const hub_file *hub_part(const hub_repo *r, const hub_file *f, int i);
/* The same with names alone: path of part i; free it. NULL: out of memory. */
char *hub_part_name(const char *path, int i);

/* "https://huggingface.co/", $MODEL_ENDPOINT or $HF_ENDPOINT, with a / at the end; free it. NULL: out of memory. */
char *hub_endpoint(void);
/* Paths joined by / ; free it. NULL: out of memory. */
char *hub_join(const char *a, const char *b);
/* The folder of files that were fetched by their address: $LLAMA_CACHE, $XDG_CACHE_HOME/llama.cpp or ~/.cache/llama.cpp;
 * free it. NULL: there is no home, or out of memory. */
char *hub_url_dir(void);
/* Makes the folders above a file. false: errno says why. */
bool hub_make_parents(const char *path);
/* A text as a whole file, or nothing. false: errno says why. */
bool hub_write_file(const char *path, const char *text);

#endif
