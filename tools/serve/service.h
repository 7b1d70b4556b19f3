/* A service: an engine, and the settings of the generations on it (gen.h). The server has one service, and
 * libpagedinfer-openai (tools/openai) one per handle. No part of a service knows connections or libuv.
 *
 * Memory: the caller owns the engine and all texts. Threads: constant while generations exist, except n_ids, so all
 * functions are thread-safe. */
#ifndef PAGEDINFER_SERVE_SERVICE_H
#define PAGEDINFER_SERVE_SERVICE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"
#include "serve/params.h"
#include "serve/text.h"

/* Receives bytes of a download; returns false to end it. */
typedef bool (*service_bytes_fn)(void *ud, const char *p, size_t n);

typedef struct service {
    pi_engine *e;               /* NULL until the model is loaded */
    pi_info info;               /* of e */
    const char *alias;          /* the model's name in responses */
    char build[48];             /* build of this program in llama-server's format: "bNUMBER-COMMIT" */
    int32_t anchor;             /* a token that prints text: other tokens are decoded after it; -1 = none found */
    size_t anchor_len;          /* bytes of the anchor's text */
    uint64_t id_seed;           /* makes ids differ from those of other runs */
    _Atomic uint64_t n_ids;     /* number of ids made so far */

    bool suffix_first;          /* --spm-infill */
    bool limits_priority;       /* requests may only have a priority from priority_lo to priority_hi */
    int64_t priority_lo, priority_hi;
    bool salt_by_key;           /* --cache-salt-by-key */
    double timeout;             /* seconds from a request's arrival to its end; 0 = no limit */

    const char *reasoning, *reasoning_effort, *reasoning_format; /* values of the options with these names */
    bool no_reasoning;          /* --reasoning-budget 0 */
    bool prefill_assistant;     /* --prefill-assistant */

    char media_marker[128];     /* marks images in prompts of /completion */
    const char *media_path;     /* folder of images that clients name by file:; "" = none */
    const char *media_domains;  /* hosts of images that clients name by URL, separated by commas; "" = none */
    int64_t max_images, max_image_bytes, max_image_pixels; /* limits of a request and of an image */
    uint32_t image_min_tokens, image_max_tokens;           /* tokens of an image; 0 = the engine's options */
    /* Downloads a URL within `seconds`. Returns false and the reason in why on failure. NULL = no downloads. */
    bool (*fetch)(const char *url, long seconds, service_bytes_fn fn, void *ud, char *why, size_t n_why);
} service;

/* Sets e, info and the anchor, when the engine is ready. */
void service_open(service *sv, pi_engine *e);
/* Writes prefix and a new unique id to out, for example "chatcmpl-...". */
void service_new_id(service *sv, const char *prefix, char out[64]);
/* Appends the text of a prompt's ids to out, with PI_TOK_SPECIAL or 0. Images have no text. */
void service_put_prompt(const service *sv, const prompt *pr, int flags, buf *out);
/* Writes the text of one token, as it appears within a text, to out; at most cap bytes. Returns its full length in
 * bytes. An image (id < 0) has no text. */
size_t service_token_text(const service *sv, int32_t id, bool special, char *out, size_t cap);
/* Returns the bytes of UTF-8 text that become complete if the token's bytes are added to h. Updates h, and adds the
 * number of these characters to *chars. */
size_t service_token_count(const service *sv, int32_t id, bool special, utf8_hold *h, size_t *chars);

/* adapters.c: stores adapter i, from 0, or the adapter with this name of n bytes, in *out; false if it is not
 * loaded. */
bool service_adapter_at(const service *sv, size_t i, pi_lora *out);
bool service_adapter(const service *sv, const char *name, size_t n, pi_lora *out);
/* Reads an entry of a list [{"id" or "name", "scale"}]; sets *l and *scale. */
int service_adapter_entry(const service *sv, params *p, const char *field, const json_t *v, pi_lora *l, double *scale,
                          pi_error *err);
/* vocab.c: tokenizes v, a text or a list of texts and ids, within a work limit (NULL = no limit). flags: PI_TOK_*;
 * PI_TOK_BOS applies only to a text at the start. The caller frees *ids, also after a failure. */
int service_tokens(const service *sv, pi_work *limit, const json_t *v, int flags, int32_t **ids, size_t *n);

#endif
