/* The request fields of all APIs in one table. For each field it says if the server honours, accepts without effect,
 * or refuses it. The rule: a field that constrains the output is honoured or refused; any other field in the table is
 * accepted; a field that is not in the table is ignored. The field readers, the check before them, /openapi.json and
 * docs/FIELDS.md use this table. Constant: thread-safe. */
#ifndef PAGEDINFER_SERVE_FIELDS_H
#define PAGEDINFER_SERVE_FIELDS_H

#include "serve/params.h"

/* Request bodies. */
enum {
    API_CHAT = 1 << 0,         /* /v1/chat/completions */
    API_TEXT = 1 << 1,         /* /v1/completions */
    API_RESPONSES = 1 << 2,    /* /v1/responses */
    API_MESSAGES = 1 << 3,     /* /v1/messages */
    API_NATIVE = 1 << 4,       /* /completion */
    API_INFILL = 1 << 5,       /* /infill */
    API_EMBEDDINGS = 1 << 6,   /* /v1/embeddings */
    API_VECTORS = 1 << 7,      /* /embedding */
    API_RERANK = 1 << 8,       /* /v1/rerank */
    API_TOKENIZE = 1 << 9,     /* /tokenize */
    API_DETOKENIZE = 1 << 10,  /* /detokenize */
    API_LOAD = 1 << 11,        /* /v1/load_lora_adapter */
    API_UNLOAD = 1 << 12,      /* /v1/unload_lora_adapter */
    API_OLLAMA_CHAT = 1 << 13, /* /api/chat */
    API_OLLAMA_TEXT = 1 << 14, /* /api/generate */
    API_OLLAMA_EMBED = 1 << 15, /* /api/embed */
    API_OLLAMA_SHOW = 1 << 16, /* /api/show */
    API_MODEL = 1 << 17,       /* /models, /models/load, /models/unload */
    API_OLLAMA = API_OLLAMA_CHAT | API_OLLAMA_TEXT,
    API_LAST = API_MODEL,
    API_TALKS = API_CHAT | API_RESPONSES | API_MESSAGES,
    API_PROMPTS = API_TEXT | API_NATIVE | API_INFILL,
    API_ANSWERS = API_TALKS | API_PROMPTS,
};

/* JSON types of a value; TYPE_NEEDED: the field is required. */
enum {
    TYPE_STRING = 1, TYPE_NUMBER = 2, TYPE_INTEGER = 4, TYPE_BOOLEAN = 8, TYPE_LIST = 16, TYPE_OBJECT = 32,
    TYPE_NEEDED = 64, TYPE_ANY = 63,
};

enum field_effect { FIELD_HONOURED, FIELD_ACCEPTED, FIELD_REFUSED };

typedef struct field {
    const char *name;
    unsigned apis;            /* API_* */
    enum field_effect effect;
    unsigned types;           /* TYPE_* */
    const char *key;          /* request option set to the unchanged value; NULL = read by separate code */
    const char *text;         /* one sentence; for a refused field, the remedy */
    const char *harmless; /* values of a refused field that are accepted, as JSON, separated by spaces; NULL = none */
} field;

extern const field fields[];
extern const size_t n_fields;

/* Refuses the request if a row of this API refuses a field. Fields that are null, false or empty have no effect; they
 * are removed from p->root, so that later readers do not see them. Returns PI_EINVAL or PI_ENOMEM on failure. */
int fields_check(params *p, unsigned api, pi_error *err);

#endif
