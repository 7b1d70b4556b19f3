/* Which path is whose: the table of routes, keys, preflights. The loop's thread. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "json.h"
#include "serve/gen.h"
#include "serve/log.h"

enum { PUBLIC = 1, ANY_STATE = 2 }; /* no key needed; also while loading or shutting down */

static const struct route {
    const char *path;
    enum http_method method;
    int flags;
    void (*handle)(server *s, exchange *ex);
    const wire *w;
} routes[] = {
    {"/", HTTP_GET, PUBLIC | ANY_STATE, handle_page, NULL},
    {"/health", HTTP_GET, PUBLIC | ANY_STATE, handle_health, NULL},
    {"/v1/health", HTTP_GET, PUBLIC | ANY_STATE, handle_health, NULL},
    {"/ping", HTTP_GET, PUBLIC | ANY_STATE, handle_health, NULL},
    {"/ping", HTTP_POST, PUBLIC | ANY_STATE, handle_health, NULL},
    {"/version", HTTP_GET, ANY_STATE, handle_version, NULL},
    {"/metrics", HTTP_GET, ANY_STATE, handle_metrics, NULL},
    {"/v1/models", HTTP_GET, 0, handle_models, NULL},
    {"/models", HTTP_GET, 0, handle_models, NULL},
    {"/props", HTTP_GET, 0, handle_props, NULL},
    {"/slots", HTTP_GET, 0, handle_slots, NULL},
    {"/lora-adapters", HTTP_GET, 0, handle_adapters, NULL},
    {"/lora-adapters", HTTP_POST, 0, handle_adapter_scales, NULL},
    {"/v1/load_lora_adapter", HTTP_POST, 0, handle_adapter_load, NULL},
    {"/v1/unload_lora_adapter", HTTP_POST, 0, handle_adapter_unload, NULL},
    {"/tokenize", HTTP_POST, 0, handle_tokenize, NULL},
    {"/detokenize", HTTP_POST, 0, handle_detokenize, NULL},
    {"/apply-template", HTTP_POST, 0, handle_apply_template, NULL},
    {"/v1/chat/completions", HTTP_POST, 0, NULL, &wire_chat},
    {"/chat/completions", HTTP_POST, 0, NULL, &wire_chat},
    {"/v1/completions", HTTP_POST, 0, NULL, &wire_completions},
    {"/v1/chat/completions/input_tokens", HTTP_POST, 0, handle_count_chat, NULL},
    {"/chat/completions/input_tokens", HTTP_POST, 0, handle_count_chat, NULL},
    {"/v1/responses", HTTP_POST, 0, NULL, &wire_responses},
    {"/responses", HTTP_POST, 0, NULL, &wire_responses},
    {"/v1/responses/input_tokens", HTTP_POST, 0, handle_count_response, NULL},
    {"/responses/input_tokens", HTTP_POST, 0, handle_count_response, NULL},
    {"/v1/messages/count_tokens", HTTP_POST, 0, handle_count_tokens, NULL},
    {"/v1/messages", HTTP_POST, 0, NULL, &wire_messages},
    {"/v1/embeddings", HTTP_POST, 0, NULL, &wire_embeddings},
    {"/embeddings", HTTP_POST, 0, NULL, &wire_native_embeddings},
    {"/embedding", HTTP_POST, 0, NULL, &wire_native_embeddings},
    {"/v1/rerank", HTTP_POST, 0, NULL, &wire_rerank},
    {"/v2/rerank", HTTP_POST, 0, NULL, &wire_rerank},
    {"/rerank", HTTP_POST, 0, NULL, &wire_rerank},
    {"/v1/reranking", HTTP_POST, 0, NULL, &wire_rerank},
    {"/reranking", HTTP_POST, 0, NULL, &wire_rerank},
    {"/completions", HTTP_POST, 0, NULL, &wire_native},
    {"/completion", HTTP_POST, 0, NULL, &wire_native},
    {"/infill", HTTP_POST, 0, NULL, &wire_infill},
};
enum { N_ROUTES = sizeof routes / sizeof *routes };

static bool path_is(const http_request *r, const char *path)
{
    return strlen(path) == r->path_len && !memcmp(r->target.p, path, r->path_len);
}

/* Behind --api-prefix; what is outside of it has no path here. */
static http_request inside(const server *s, const http_request *r)
{
    const char *prefix = cli_str(s->c, "api-prefix");
    size_t n = strlen(prefix);
    http_request in = *r;
    while (n && prefix[n - 1] == '/') n--;
    const bool has = in.path_len >= n && in.target.n > n && !memcmp(in.target.p, prefix, n) && in.target.p[n] == '/';
    if (!has) n = in.path_len;
    if (in.target.p) in.target.p += n;
    in.target.n -= n;
    in.path_len = has && in.path_len == n ? 1 : in.path_len - n; /* "/prefix/" is the path "/" */
    return in;
}

/* *known: the path exists, if not for this method. */
static const struct route *find(const http_request *r, const struct route **known)
{
    enum http_method m = r->method == HTTP_HEAD ? HTTP_GET : r->method;
    *known = NULL;
    for (int i = 0; i < N_ROUTES; i++) {
        bool hit = path_is(r, routes[i].path);
        if (!hit && routes[i].handle == handle_models) {
            hit = r->path_len > 11 && !strncmp(r->target.p, "/v1/models/", 11) && !strcmp(routes[i].path, "/v1/models");
        }
        if (!hit) continue;
        *known = &routes[i];
        if (routes[i].method == m) return &routes[i];
    }
    return NULL;
}

static const char *key_of(const http_request *r)
{
    const char *a = http_field(r, HTTP_FIELD_AUTHORIZATION);
    if (a && !strncasecmp(a, "Bearer ", 7)) return a + 7 + strspn(a + 7, " ");
    return http_field(r, HTTP_FIELD_API_KEY);
}

/* Before a body is read: who has no key does not get to send one. Whether a path exists is not told, either. */
int route_head(void *ud, const http_request *req, const char **why)
{
    const server *s = ud;
    const http_request in = inside(s, req);
    const struct route *known, *rt = find(&in, &known);
    if (req->method == HTTP_OPTIONS || (rt && rt->flags & PUBLIC)) return 0;
    if (!keys_allow(&s->keys, key_of(req))) {
        *why = "invalid API key: send it as 'Authorization: Bearer KEY'";
        return 401;
    }
    return 0;
}

static void preflight(const server *s, exchange *ex)
{
    char more[512] = "Allow: GET, POST, OPTIONS\r\n";
    const char *asked = http_field(&ex->req, HTTP_FIELD_ASKED_HEADERS);
    if (*s->net.cors) {
        snprintf(more, sizeof more,
                 "Access-Control-Allow-Methods: GET, POST, OPTIONS\r\nAccess-Control-Allow-Headers: %.300s"
                 "\r\nAccess-Control-Max-Age: 600\r\n",
                 asked && *asked ? asked : "Authorization, Content-Type");
    }
    answer(ex, 204, "", more, NULL, 0);
}

static void not_now(server *s, exchange *ex)
{
    if (s->state == SERVE_LOADING) answer_error(ex, 503, NULL, "loading", "Loading model");
    else answer_error(ex, 503, NULL, NULL, "the server is shutting down");
}

void route_request(void *ud, exchange *ex)
{
    server *s = ud;
    const http_request in = inside(s, &ex->req);
    const struct route *known, *rt = find(&in, &known);
    if (ex->req.method == HTTP_OPTIONS) {
        preflight(s, ex);
    } else if (!rt && known) {
        char allow[64];
        snprintf(allow, sizeof allow, "Allow: %s\r\n", http_method_name(known->method));
        json_t *e = exchange_error(ex, 405, NULL, NULL, "this path has another method");
        char *text = json_write(e, ANSWER_DIGITS);
        json_decref(e);
        answer(ex, text_failed() ? 503 : 405, "application/json", allow, text ? text : "", text ? strlen(text) : 0);
        free(text);
    } else if (!rt) {
        answer_error(ex, 404, NULL, NULL, "there is nothing at this path");
    } else if (!(rt->flags & ANY_STATE) && s->state != SERVE_READY) {
        not_now(s, ex);
    } else {
        if (s->keys.n) ex->key = key_of(&ex->req);
        if (rt->w) gen_start(s, ex, rt->w);
        else rt->handle(s, ex);
    }
}
