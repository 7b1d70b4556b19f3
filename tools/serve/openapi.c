/* /openapi.json: a description of the server in OpenAPI 3.1. It is generated on request from the tables of routes and
 * fields, so it cannot differ from them. Response schemas are defined here. Runs on the loop's thread. */
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/fields.h"
#include "serve/routes.h"

/* A field's effect, for docs and clients: honoured, accepted (without effect), refused. */
#define EFFECT "x-pagedinfer-effect"

/* -------------------------------------------------------------------------------------------- schemas of responses */

#define STR "{\"type\":\"string\"}"
#define STR_NULL "{\"type\":[\"string\",\"null\"]}"
#define INT "{\"type\":\"integer\"}"
#define OBJECT "{\"type\":\"object\"}"
#define LIST_OF(one) "{\"type\":\"array\",\"items\":" one "}"
#define CONST(word) "{\"const\":\"" word "\"}"
#define SHAPE(required, properties) "{\"type\":\"object\",\"required\":[" required "],\"properties\":{" properties "}}"

static const struct answer {
    const char *name, *type, *schema;
} answers[] = {
    {"Page", "text/html", STR},
    {"Metrics", "text/plain", STR},
    {"Events", "text/event-stream", STR},
    {"Object", NULL, OBJECT},
    {"List", NULL, LIST_OF(OBJECT)},
    {"Description", NULL, SHAPE("\"openapi\",\"paths\"", "\"openapi\":" CONST("3.1.0") ",\"paths\":" OBJECT)},
    {"Status", NULL, SHAPE("\"status\"", "\"status\":" STR)},
    {"Version", NULL, SHAPE("\"version\"", "\"version\":" STR)},
    {"Model", NULL, SHAPE("\"id\",\"object\",\"created\",\"owned_by\"",
                          "\"id\":" STR ",\"object\":" CONST("model") ",\"created\":" INT ",\"owned_by\":" STR)},
    {"Models", NULL, SHAPE("\"object\",\"data\"", "\"object\":" CONST("list") ",\"data\":"
                           LIST_OF("{\"$ref\":\"#/components/schemas/Model\"}"))},
    {"Tokens", NULL, SHAPE("\"tokens\",\"count\"", "\"tokens\":{\"type\":\"array\"},\"count\":" INT)},
    {"Text", NULL, SHAPE("\"content\"", "\"content\":" STR)},
    {"Prompt", NULL, SHAPE("\"prompt\"", "\"prompt\":" STR)},
    {"InputTokens", NULL, SHAPE("\"object\",\"input_tokens\"", "\"object\":" CONST("response.input_tokens")
                                ",\"input_tokens\":" INT)},
    {"MessageTokens", NULL, SHAPE("\"input_tokens\"", "\"input_tokens\":" INT)},
    {"ChatCompletion", NULL,
     SHAPE("\"id\",\"object\",\"created\",\"model\",\"choices\",\"usage\"",
           "\"id\":" STR ",\"object\":" CONST("chat.completion") ",\"created\":" INT ",\"model\":" STR ",\"usage\":"
               OBJECT
           ",\"choices\":" LIST_OF(SHAPE("\"index\",\"message\",\"finish_reason\"",
                "\"index\":" INT ",\"message\":" SHAPE("\"role\",\"content\"", "\"role\":" CONST("assistant")
                ",\"content\":" STR_NULL) ",\"finish_reason\":" STR)))},
    {"Completion", NULL,
     SHAPE("\"id\",\"object\",\"created\",\"model\",\"choices\",\"usage\"",
           "\"id\":" STR ",\"object\":" CONST("text_completion") ",\"created\":" INT ",\"model\":" STR ",\"usage\":"
               OBJECT
           ",\"choices\":" LIST_OF(SHAPE("\"index\",\"text\",\"finish_reason\"",
                "\"index\":" INT ",\"text\":" STR ",\"finish_reason\":" STR)))},
    {"Response", NULL,
     SHAPE("\"id\",\"object\",\"created_at\",\"status\",\"model\",\"output\",\"usage\"",
           "\"id\":" STR ",\"object\":" CONST("response") ",\"created_at\":" INT ",\"status\":{\"enum\":[\"completed\","
           "\"incomplete\"]},\"model\":" STR ",\"output\":" LIST_OF(SHAPE("\"type\",\"id\"",
                                                                          "\"type\":" STR ",\"id\":" STR))
           ",\"usage\":" OBJECT)},
    {"Message", NULL,
     SHAPE("\"id\",\"type\",\"role\",\"model\",\"content\",\"stop_reason\",\"usage\"",
           "\"id\":" STR ",\"type\":" CONST("message") ",\"role\":" CONST("assistant") ",\"model\":" STR ",\"content\":"
           LIST_OF(SHAPE("\"type\"", "\"type\":" STR)) ",\"stop_reason\":" STR ",\"usage\":" OBJECT)},
    {"Embeddings", NULL,
     SHAPE("\"object\",\"data\",\"model\",\"usage\"", "\"object\":" CONST("list") ",\"data\":"
           LIST_OF(SHAPE("\"object\",\"index\",\"embedding\"", "\"object\":" CONST("embedding") ",\"index\":" INT
           ",\"embedding\":{\"type\":[\"array\",\"string\"]}")) ",\"model\":" STR ",\"usage\":" OBJECT)},
    {"Vectors", NULL, LIST_OF(SHAPE("\"index\",\"embedding\"",
                                    "\"index\":" INT ",\"embedding\":{\"type\":\"array\"}"))},
    {"Ranking", NULL, "{\"type\":[\"object\",\"array\"]}"},
    {"NativeCompletion", NULL,
     "{\"oneOf\":[" SHAPE("", "\"content\":" STR ",\"stop\":{\"type\":\"boolean\"}") "," LIST_OF(OBJECT) "]}"},
    {"Error", NULL,
     SHAPE("\"error\"", "\"error\":" SHAPE("\"message\",\"type\"",
                                           "\"message\":" STR ",\"type\":" STR ",\"param\":" STR_NULL
           ",\"code\":{}"))},
};

static json_t *ref(const char *name)
{
    json_t *text = json_sprintf("#/components/schemas/%s", name);
    return json_pack("{s:o}", "$ref", text);
}

static const char *content_type(const char *name)
{
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (!strcmp(answers[i].name, name) && answers[i].type) return answers[i].type;
    return "application/json";
}

/* ----------------------------------------------------------------------------------------------- schemas of bodies */

/* Lists the accepted values of a refused field, which have no effect. */
static json_t *harmless(const field *f)
{
    json_t *list = json_pack("[n, b, s, [], {}]", 0, "");
    json_fault fault;
    for (const char *p = f->harmless ? f->harmless : ""; *p; p += strcspn(p, " "), p += *p == ' ')
        json_array_append_new(list, json_read(p, strcspn(p, " "), &fault));
    return json_pack("{s:o}", "enum", list);
}

static json_t *typed(const field *f)
{
    static const char *const names[] = {"string", "number", "integer", "boolean", "array", "object"};
    json_t *list = json_array();
    if (f->types == TYPE_ANY) {
        json_decref(list);
        return json_object();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (f->types & 1u << i) json_array_append_new(list, json_string(names[i]));
    if (!(f->types & TYPE_NEEDED)) json_array_append_new(list, json_string("null"));
    return json_pack("{s:o}", "type", list);
}

static json_t *body_schema(unsigned api)
{
    static const char *const effects[] = {"honoured", "accepted", "refused"};
    json_t *properties = json_object(), *needed = json_array();
    for (size_t i = 0; i < n_fields; i++) {
        const field *f = &fields[i];
        if (!(f->apis & api)) continue;
        json_t *p = f->effect == FIELD_REFUSED ? harmless(f) : typed(f);
        json_object_set_new(p, "description", json_string(f->text));
        json_object_set_new(p, EFFECT, json_string(effects[f->effect]));
        json_object_set_new(properties, f->name, p);
        if (f->types & TYPE_NEEDED) json_array_append_new(needed, json_string(f->name));
    }
    json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (json_array_size(needed)) json_object_set(schema, "required", needed);
    json_decref(needed);
    return schema;
}

/* Names of bodies, in the bit order of API_*. */
static const char *const bodies[] = {"ChatRequest", "CompletionRequest", "ResponseRequest", "MessageRequest",
                                     "NativeRequest", "InfillRequest", "EmbeddingsRequest", "VectorsRequest",
                                     "RerankRequest", "TokenizeRequest", "DetokenizeRequest", "LoadAdapterRequest",
                                     "UnloadAdapterRequest", "OllamaChatRequest", "OllamaGenerateRequest",
                                     "OllamaEmbedRequest", "OllamaShowRequest", "ModelRequest"};
enum { N_BODIES = sizeof bodies / sizeof *bodies };
_Static_assert(API_LAST == 1 << (N_BODIES - 1), "each API_ value has a name in bodies");

static const char *body_name(unsigned api)
{
    size_t i = 0;
    while (api >> i > 1) i++;
    return bodies[i];
}

static json_t *schemas(void)
{
    json_t *all = json_object();
    json_fault fault;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        json_object_set_new(all, answers[i].name, json_read(answers[i].schema, strlen(answers[i].schema), &fault));
    for (size_t i = 0; i < N_BODIES; i++) json_object_set_new(all, bodies[i], body_schema(1u << i));
    return all;
}

/* ----------------------------------------------------------------------------------------------------------- paths */

/* Returns the body schema. A route without fields has a list as body (/lora-adapters). */
static json_t *body_of(const route *r)
{
    json_t *schema = r->api ? ref(body_name(r->api)) : json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type",
                                                                 "object");
    return json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content", "application/json", "schema", schema);
}

static json_t *operation(const route *r)
{
    json_t *content = json_pack("{s:{s:o}}", content_type(r->answer), "schema", ref(r->answer));
    if (r->w && r->w->begin)
        json_object_set_new(content, "text/event-stream", json_pack("{s:{s:s}}", "schema", "type", "string"));
    json_t *o = json_pack("{s:s, s:{s:{s:s, s:o}, s:{s:s, s:{s:{s:o}}}}}", "summary", r->summary, "responses", "200",
                          "description", "the answer", "content", content, "default", "description", "an error",
                              "content",
                          "application/json", "schema", ref("Error"));
    if (r->method == HTTP_POST && (r->api || r->handle == handle_adapter_scales))
        json_object_set_new(o, "requestBody", body_of(r));
    if (r->flags & ROUTE_PUBLIC) json_object_set_new(o, "security", json_array());
    return o;
}

static json_t *paths(void)
{
    json_t *all = json_object();
    for (size_t i = 0; i < n_routes; i++) {
        json_t *path = json_object_get(all, routes[i].path);
        if (!path) json_object_set_new(all, routes[i].path, path = json_object());
        json_t *one = operation(&routes[i]);
        if (strstr(routes[i].path, "{id}"))
            json_object_set_new(one, "parameters", json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "id", "in", "path",
                                                             "required", 1, "schema", "type", "string"));
        json_object_set_new(path, routes[i].method == HTTP_POST     ? "post"
                                  : routes[i].method == HTTP_DELETE ? "delete"
                                                                    : "get", one);
    }
    const route named = {.path = "/v1/models/{model}", .method = HTTP_GET, .answer = "Model", .summary = "One model"};
    json_t *o = operation(&named), *parameter = json_pack("[{s:s, s:s, s:b, s:{s:s}}]", "name", "model", "in", "path",
                                                          "required", 1, "schema", "type", "string");
    json_object_set_new(o, "parameters", parameter);
    json_object_set_new(all, named.path, json_pack("{s:o}", "get", o));
    return all;
}

void handle_openapi(server *s, exchange *ex)
{
    const char *prefix = cli_str(s->c, "api-prefix");
    json_t *keys = json_pack("{s:{s:s, s:s}, s:{s:s, s:s, s:s}}", "bearer", "type", "http", "scheme", "bearer",
                             "header",
                             "type", "apiKey", "in", "header", "name", "X-Api-Key");
    json_t *security = s->keys.n ? json_pack("[{s:[]}, {s:[]}]", "bearer", "header") : json_array();
    answer_json(ex, 200, json_pack("{s:s, s:{s:s, s:s}, s:[{s:s}], s:o, s:o, s:{s:o, s:o}}", "openapi", "3.1.0", "info",
                                   "title", "pagedinfer serve", "version", pi_version(), "servers", "url",
                                   *prefix ? prefix : "/", "security", security, "paths", paths(), "components",
                                   "securitySchemes", keys, "schemas", schemas()));
}
