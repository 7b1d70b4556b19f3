/* The fields of requests, API by API: one table, which says of each field whether the server does what it asks for,
 * takes it without effect, or refuses it. The rule: a field that constrains the answer is honoured or refused; a field
 * that does not is accepted; a field that is not in the table is ignored. Readers of fields, the check before them,
 * /openapi.json and docs/FIELDS.md are made from this table. Constant: any thread. */
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
    API_TALKS = API_CHAT | API_RESPONSES | API_MESSAGES,
    API_PROMPTS = API_TEXT | API_NATIVE | API_INFILL,
    API_ANSWERS = API_TALKS | API_PROMPTS,
};

/* JSON types of a value; TYPE_NEEDED: a request without the field is refused. */
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
    const char *key;          /* request option that it sets as it is; NULL = code of its own reads it */
    const char *text;         /* one sentence; of a refused field the remedy */
    const char *harmless;     /* JSON values of a refused field that are taken, with spaces between; NULL = none */
} field;

extern const field fields[];
extern const size_t n_fields;

/* Refuses what rows of this API refuse. Null, false and empty values ask for nothing: they are removed from p->root, so that
 * no reader meets them. PI_EINVAL, PI_ENOMEM. */
int fields_check(params *p, unsigned api, pi_error *err);

#endif
