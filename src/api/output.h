/* Bytes of tokens to text that may be shown: whole characters, nothing of a stop string.
 *
 *     tokens' bytes -> pi__utf8_hold -> held text -> shown text
 *
 * Text is held back while it may be the beginning of a stop string. Each stop string is matched as a stream of bytes,
 * so token borders change nothing. Memory: the held text and the matchers. One thread at a time. */
#ifndef PI__OUTPUT_H
#define PI__OUTPUT_H

#include "tokenizer/vocab.h"

typedef struct pi__stop {
    const char *text;   /* owned by whoever made the output */
    int32_t len;        /* bytes in text */
    int32_t matched;    /* the last so many bytes of the stream are the first of text: never len */
    int32_t *fallback;  /* [len] longest proper border of text[0..i] */
} pi__stop;

typedef struct pi__output {
    pi__utf8_hold hold; /* an incomplete character */
    pi__stop *stop;     /* [n_stop] */
    size_t n_stop;
    const char *hit;    /* the stop string that was found, or NULL */
    char *buf;          /* [cap] held text, then room for what comes */
    size_t n, cap;      /* bytes held, allocated */
    size_t shown;       /* bytes at the start of buf that the last call released */
} pi__output;

/* stop: n texts that outlive o; empty ones are ignored. PI_ENOMEM: needs no free. */
int pi__output_init(pi__output *o, char *const *stop, size_t n);
void pi__output_free(pi__output *o);
/* Bytes of the next token. *text and *n: what may be shown now, valid until the next call. PI_ENOMEM: nothing changed.
 * After a stop string was found (o->hit) everything is ignored. */
int pi__output_feed(pi__output *o, const char *bytes, size_t n_bytes, const char **text, size_t *n);
/* The end: what was held back, n bytes and a NUL. The caller frees it with pi__free; NULL only after a second call.
 * Allocates nothing. */
char *pi__output_finish(pi__output *o, size_t *n);

#endif
