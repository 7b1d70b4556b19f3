/* The models of a front end: files and folders of --models-dir, sections of --models-preset, and the cache, each with
 * its options. A model's options are those of the command line and the environment, then its section, then [*].
 *
 *     source          name
 *     FILE.gguf       FILE; of a split file without -00001-of-0000N
 *     FOLDER/         FOLDER; if it has several models, FOLDER/FILE for each
 *     [SECTION]       SECTION, which also sets options of another source's model with this name
 *     cache           USER/NAME:QUANT, as `pagedinfer list` prints it
 *
 * Names of clients are compared with these names only; they never become part of a path.
 *
 * Memory: the list owns its models. Constant after model_list_build: thread-safe. */
#ifndef PAGEDINFER_SERVE_MODEL_LIST_H
#define PAGEDINFER_SERVE_MODEL_LIST_H

#include <time.h>

#include "cli.h"
#include "config.h"

typedef struct listed_model {
    char *name;          /* name for clients */
    char *aliases;       /* further names, separated by commas; "" = none */
    const char *source;  /* "models_dir", "preset", "cache" or "command_line"; static */
    char *path;          /* first GGUF file; "" = the process finds it (hf-repo, model-url, a folder) */
    char *mmproj, *draft; /* its vision part and its drafter; NULL = none found */
    uint64_t file_bytes; /* size of all parts; 0 = unknown */
    time_t modified;     /* time of the file's last change; 0 = unknown */
    cli settings;        /* all values of its process */
    bool on_startup;     /* load-on-startup: loaded when the server starts */
    bool pinned;         /* pin: never unloaded for another model */
    int64_t idle_s;      /* sleep-idle-seconds; -1 = never */
    int64_t stop_s;      /* stop-timeout: seconds for running requests after an order to unload */
} listed_model;

typedef struct model_list {
    listed_model *m;     /* [n + n_removed]; the first n are sorted by name */
    size_t n, n_removed; /* the front end keeps removed models at the end until their processes have ended */
    size_t cap;
} model_list;

/* Builds the list for the command line. Returns an exit code, or -1; the list may be empty then. The caller frees it in
 * each case. */
int model_list_build(const cli *c, model_list *out);
void model_list_free(model_list *list);
/* Frees one model's memory; the entry is then invalid. */
void model_list_free_model(listed_model *m);
/* Removes model i and frees it. */
void model_list_drop(model_list *list, size_t i);
/* Removes the options that name one model. */
void model_list_unset_one(cli *c);
/* Returns the index of the model with this name or alias; a final ":latest" may be added, as in Ollama's API. n = no
 * such model. */
size_t model_list_find(const model_list *list, const char *name);
/* True if the process of a model needs other options than before, or its file has changed. */
bool model_list_differs(const listed_model *a, const listed_model *b);
/* True if the model's options name an adapter of this name. */
bool model_list_has_adapter(const listed_model *m, const char *name);
/* Writes the name that is most similar to `name`. Returns false if none is similar. */
bool model_list_near(const model_list *list, const char *name, char out[64]);

#endif
