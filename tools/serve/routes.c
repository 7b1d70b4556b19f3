/* The table of routes; API keys; CORS preflights. Runs on the loop's thread. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "json.h"
#include "serve/fields.h"
#include "serve/log.h"
#include "serve/router.h"
#include "serve/routes.h"

const route routes[] = {
    {"/", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_page, NULL, 0, "Page",
     "Web page for conversations"},
    {"/health", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/v1/health", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/ping", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/ping", HTTP_POST, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/livez", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_live, NULL, 0, "Status",
     "Whether the process works, also while the model is loading"},
    {"/health/live", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_live, NULL, 0, "Status",
     "Whether the process works, also while the model is loading"},
    {"/readyz", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/health/ready", HTTP_GET, ROUTE_PUBLIC | ROUTE_ANY_STATE, handle_health, NULL, 0, "Status",
     "State of the server"},
    {"/version", HTTP_GET, ROUTE_ANY_STATE, handle_version, NULL, 0, "Version",
     "The version"},
    {"/openapi.json", HTTP_GET, ROUTE_ANY_STATE, handle_openapi, NULL, 0, "Description",
     "This description"},
    {"/metrics", HTTP_GET, ROUTE_ANY_STATE, handle_metrics, NULL, 0, "Metrics",
     "Metrics for Prometheus"},
    {"/v1/models", HTTP_GET, 0, handle_models, NULL, 0, "Models",
     "The model and its adapters"},
    {"/models", HTTP_GET, 0, handle_models, NULL, 0, "Models",
     "The model and its adapters"},
    {"/models", HTTP_POST, 0, handle_model_add, NULL, API_MODEL, "Object",
     "Download a model"},
    {"/models", HTTP_DELETE, 0, handle_model_remove, NULL, 0, "Object",
     "Remove a downloaded model"},
    {"/models/load", HTTP_POST, 0, handle_model_load, NULL, API_MODEL, "Object",
     "Load a model"},
    {"/models/unload", HTTP_POST, 0, handle_model_unload, NULL, API_MODEL, "Object",
     "Unload a model"},
    {"/models/sse", HTTP_GET, 0, handle_model_events, NULL, 0, "Events",
     "Changes of the models' states, as server-sent events"},
    {"/props", HTTP_GET, 0, handle_props, NULL, 0, "Object",
     "Properties of the server"},
    {"/slots", HTTP_GET, 0, handle_slots, NULL, 0, "List",
     "Running requests"},
    {"/lora-adapters", HTTP_GET, 0, handle_adapters, NULL, 0, "List",
     "LoRA adapters"},
    {"/lora-adapters", HTTP_POST, 0, handle_adapter_scales, NULL, 0, "Object",
     "Set the default scales, for requests that name no adapter"},
    {"/v1/load_lora_adapter", HTTP_POST, 0, handle_adapter_load, NULL, API_LOAD, "Object",
     "Load an adapter"},
    {"/v1/unload_lora_adapter", HTTP_POST, 0, handle_adapter_unload, NULL, API_UNLOAD, "Object",
     "Unload an adapter"},
    {"/tokenize", HTTP_POST, 0, handle_tokenize, NULL, API_TOKENIZE, "Tokens",
     "Convert text to token ids"},
    {"/detokenize", HTTP_POST, 0, handle_detokenize, NULL, API_DETOKENIZE, "Text",
     "Convert token ids to text"},
    {"/apply-template", HTTP_POST, 0, handle_apply_template, NULL, API_CHAT, "Prompt",
     "Render a conversation with the chat template"},
    {"/v1/chat/completions", HTTP_POST, 0, NULL, &wire_chat, API_CHAT, "ChatCompletion",
     "Generate a chat message, OpenAI's format"},
    {"/chat/completions", HTTP_POST, 0, NULL, &wire_chat, API_CHAT, "ChatCompletion",
     "Generate a chat message, OpenAI's format"},
    {"/v1/completions", HTTP_POST, 0, NULL, &wire_completions, API_TEXT, "Completion",
     "Continue a text, OpenAI's format"},
    {"/v1/chat/completions/input_tokens", HTTP_POST, 0, handle_count_chat, NULL, API_CHAT, "InputTokens",
     "Count the tokens of a conversation"},
    {"/chat/completions/input_tokens", HTTP_POST, 0, handle_count_chat, NULL, API_CHAT, "InputTokens",
     "Count the tokens of a conversation"},
    {"/v1/responses", HTTP_POST, 0, NULL, &wire_responses, API_RESPONSES, "Response",
     "Generate a chat response, OpenAI's newer format"},
    {"/responses", HTTP_POST, 0, NULL, &wire_responses, API_RESPONSES, "Response",
     "Generate a chat response, OpenAI's newer format"},
    {"/v1/responses/{id}", HTTP_GET, 0, handle_response_get, NULL, 0, "Response",
     "A stored response"},
    {"/v1/responses/{id}", HTTP_DELETE, 0, handle_response_delete, NULL, 0, "Object",
     "Delete a stored response"},
    {"/v1/responses/input_tokens", HTTP_POST, 0, handle_count_response, NULL, API_RESPONSES, "InputTokens",
     "Count the tokens of a conversation"},
    {"/responses/input_tokens", HTTP_POST, 0, handle_count_response, NULL, API_RESPONSES, "InputTokens",
     "Count the tokens of a conversation"},
    {"/v1/messages/count_tokens", HTTP_POST, 0, handle_count_tokens, NULL, API_MESSAGES, "MessageTokens",
     "Count the tokens of a conversation, Anthropic's format"},
    {"/v1/messages", HTTP_POST, 0, NULL, &wire_messages, API_MESSAGES, "Message",
     "Generate a chat message, Anthropic's format"},
    {"/v1/embeddings", HTTP_POST, 0, NULL, &wire_embeddings, API_EMBEDDINGS, "Embeddings",
     "Embeddings of texts, OpenAI's format"},
    {"/embeddings", HTTP_POST, 0, NULL, &wire_native_embeddings, API_VECTORS, "Vectors",
     "Embeddings of texts, llama-server's format"},
    {"/embedding", HTTP_POST, 0, NULL, &wire_native_embeddings, API_VECTORS, "Vectors",
     "Embeddings of texts, llama-server's format"},
    {"/v1/rerank", HTTP_POST, 0, NULL, &wire_rerank, API_RERANK, "Ranking",
     "Score documents for a query"},
    {"/v2/rerank", HTTP_POST, 0, NULL, &wire_rerank, API_RERANK, "Ranking",
     "Score documents for a query"},
    {"/rerank", HTTP_POST, 0, NULL, &wire_rerank, API_RERANK, "Ranking",
     "Score documents for a query"},
    {"/v1/reranking", HTTP_POST, 0, NULL, &wire_rerank, API_RERANK, "Ranking",
     "Score documents for a query"},
    {"/reranking", HTTP_POST, 0, NULL, &wire_rerank, API_RERANK, "Ranking",
     "Score documents for a query"},
    {"/completions", HTTP_POST, 0, NULL, &wire_native, API_NATIVE, "NativeCompletion",
     "Continue a text, llama-server's format"},
    {"/completion", HTTP_POST, 0, NULL, &wire_native, API_NATIVE, "NativeCompletion",
     "Continue a text, llama-server's format"},
    {"/api/version", HTTP_GET, ROUTE_ANY_STATE, handle_ollama_version, NULL, 0, "Version",
     "Version of Ollama's API"},
    {"/api/tags", HTTP_GET, 0, handle_ollama_tags, NULL, 0, "Object",
     "The model, Ollama's format"},
    {"/api/ps", HTTP_GET, 0, handle_ollama_ps, NULL, 0, "Object",
     "The loaded model, Ollama's format"},
    {"/api/show", HTTP_POST, 0, handle_ollama_show, NULL, API_OLLAMA_SHOW, "Object",
     "Properties of the model, Ollama's format"},
    {"/api/chat", HTTP_POST, 0, handle_ollama_chat, NULL, API_OLLAMA_CHAT, "Object",
     "Generate a chat message, Ollama's format"},
    {"/api/generate", HTTP_POST, 0, handle_ollama_generate, NULL, API_OLLAMA_TEXT, "Object",
     "Answer a prompt, Ollama's format"},
    {"/api/embed", HTTP_POST, 0, NULL, &wire_ollama_embed, API_OLLAMA_EMBED, "Object",
     "Embeddings of texts, Ollama's format"},
    {"/api/embeddings", HTTP_POST, 0, NULL, &wire_ollama_embeddings, API_OLLAMA_EMBED, "Object",
     "Embedding of a text, Ollama's older format"},
    {"/infill", HTTP_POST, 0, NULL, &wire_infill, API_INFILL, "NativeCompletion",
     "Fill in the middle of a text"},
};
const size_t n_routes = sizeof routes / sizeof *routes;

/* True if the request's path is this one; {id} at the end stands for a name without slashes. */
static bool path_is(const http_request *r, const char *path)
{
    const char *name = strchr(path, '{');
    const size_t n = name ? (size_t) (name - path) : strlen(path);
    if (!name) return n == r->path_len && !memcmp(r->target.p, path, n);
    return r->path_len > n && !memcmp(r->target.p, path, n) && !memchr(r->target.p + n, '/', r->path_len - n);
}

/* Removes --api-prefix from the path. A path outside the prefix becomes empty. */
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

/* True if the request's path belongs to this route. */
static bool is_at(const http_request *r, const route *rt)
{
    if (path_is(r, rt->path)) return true;
    return rt->handle == handle_models && r->path_len > 11 && !strncmp(r->target.p, "/v1/models/", 11) &&
           !strcmp(rt->path, "/v1/models");
}

/* Finds the route of a request; NULL = no route for its path and method. */
static const route *find(const http_request *r)
{
    const enum http_method m = r->method == HTTP_HEAD ? HTTP_GET : r->method;
    for (size_t i = 0; i < n_routes; i++)
        if (routes[i].method == m && is_at(r, &routes[i])) return &routes[i];
    return NULL;
}

/* Writes the field Allow with all methods of the request's path to out. Returns false if the path is unknown. */
static bool allowed(const http_request *r, buf *out)
{
    unsigned seen = 0;
    for (size_t i = 0; i < n_routes; i++) {
        const enum http_method m = routes[i].method;
        if (seen >> m & 1 || !is_at(r, &routes[i])) continue;
        buf_str(out, seen ? ", " : "Allow: ");
        buf_str(out, http_method_name(m));
        if (m == HTTP_GET) buf_fmt(out, ", %s", http_method_name(HTTP_HEAD));
        seen |= 1u << m;
    }
    if (seen) buf_fmt(out, ", %s\r\n", http_method_name(HTTP_OPTIONS));
    return seen;
}

static void wrong_method(exchange *ex, const buf *allow)
{
    json_t *e = exchange_error(ex, 405, NULL, NULL, "wrong method for this path: see the header Allow");
    char *text = json_write(e, ANSWER_DIGITS);
    json_decref(e);
    const bool failed = text_failed() || allow->failed;
    answer(ex, failed ? 503 : 405, "application/json", failed ? "" : allow->p, text ? text : "",
           text ? strlen(text) : 0);
    free(text);
}

static const char *key_of(const http_request *r)
{
    const char *a = http_field(r, HTTP_FIELD_AUTHORIZATION);
    if (a && !strncasecmp(a, "Bearer ", 7)) return a + 7 + strspn(a + 7, " ");
    return http_field(r, HTTP_FIELD_API_KEY);
}

/* Checks the API key before the body is read. The result does not depend on the existence of the path. */
int route_head(void *ud, const http_request *req, const char **why)
{
    const server *s = ud;
    const http_request in = inside(s, req);
    const route *rt = find(&in);
    if (req->method == HTTP_OPTIONS || (rt && rt->flags & ROUTE_PUBLIC)) return 0;
    if (!keys_allow(&s->keys, key_of(req))) {
        *why = "invalid API key: send it as 'Authorization: Bearer KEY'";
        return 401;
    }
    return 0;
}

static void preflight(const server *s, exchange *ex)
{
    char more[512] = "Allow: GET, POST, DELETE, OPTIONS\r\n";
    const char *asked = http_field(&ex->req, HTTP_FIELD_ASKED_HEADERS);
    if (*s->net.cors) {
        snprintf(more, sizeof more,
                 "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\nAccess-Control-Allow-Headers: %.300s"
                 "\r\nAccess-Control-Max-Age: 600\r\n",
                 asked && *asked ? asked : "Authorization, Content-Type");
    }
    answer(ex, 200, "", more, NULL, 0);
}

/* Takes the client and its key from the fields that the front end sets. It has checked the key. */
static void front_names(exchange *ex)
{
    const char *client = http_field(&ex->req, HTTP_FIELD_FRONT_CLIENT);
    const char *key = http_field(&ex->req, HTTP_FIELD_FRONT_KEY);
    ex->key = key_of(&ex->req);
    if (client) snprintf(ex->client, sizeof ex->client, "%s", client);
    if (key) snprintf(ex->key_name, sizeof ex->key_name, "%s", key);
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
    const route *rt = find(&in);
    buf allow = {0};
    if (s->supervised) {
        front_names(ex);
    } else if (s->keys.n) {
        ex->key = key_of(&ex->req);
        snprintf(ex->key_name, sizeof ex->key_name, "%s", keys_name(&s->keys, ex->key));
    }
    ex->plain_errors = in.path_len > 5 && !memcmp(in.target.p, "/api/", 5);
    if (ex->req.method == HTTP_OPTIONS) {
        preflight(s, ex);
    } else if (!rt && allowed(&in, &allow)) {
        wrong_method(ex, &allow);
    } else if (!rt) {
        answer_error(ex, 404, NULL, NULL, "no such path: see /openapi.json");
    } else if (!(rt->flags & ROUTE_ANY_STATE) && s->state != SERVE_READY) {
        not_now(s, ex);
    } else if (s->router) {
        router_request(s, ex, &in, rt);
    } else {
        if (rt->w) reply_start(s, ex, rt->w);
        else rt->handle(s, ex);
    }
    buf_free(&allow);
}
