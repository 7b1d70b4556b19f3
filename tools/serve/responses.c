/* The state of /v1/responses (see responses.h). A stored response can be continued after older responses are dropped:
 * the store keeps the items of its conversation. */
#include "serve/responses.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/log.h"

/* Returns "input" as a list of items; a text is the user's message. A new reference; NULL = out of memory. */
static json_t *input_items(const json_t *body)
{
    json_t *in = json_object_get(body, "input");
    if (json_is_array(in)) return json_copy(in);
    if (json_is_string(in)) return json_pack("[{s:s, s:O}]", "role", "user", "content", in);
    return json_array();
}

int responses_expand(const server *s, const char *owner, params *p, json_t *body, json_t **out, char previous[72],
                     size_t *n_previous, pi_error *err)
{
    static const char field[] = "previous_response_id";
    const json_t *id = json_object_get(body, field);
    json_fault fault;
    bool no_memory;
    *previous = 0;
    *n_previous = 0;
    *out = json_incref(body);
    if (!s->store || !json_is_object(body) || !json_is_string(id) || !json_string_length(id)) return PI_OK;
    const json_t *in = json_object_get(body, "input");
    if (in && !json_is_string(in) && !json_is_array(in)) return PI_OK; /* refused by the reader of "input" */
    char *text = json_is_c_string(id) && json_string_length(id) < 72
                     ? store_get(s->store, owner ? owner : "", json_string_value(id), STORE_ITEMS, &no_memory)
                     : (no_memory = false, NULL);
    if (no_memory) return params_no_memory(err);
    if (!text)
        return params_fail(p, field, err, "there is no response '%.71s': it was deleted, dropped for newer ones, or "
                           "made with another key or \"store\": false; send the conversation in 'input'",
                           json_string_value(id));
    json_t *items = json_read(text, strlen(text), &fault), *more = input_items(body);
    free(text);
    json_t *all = json_copy(body);
    *n_previous = json_array_size(items);
    bool ok = items && more && all && !json_array_extend(items, more);
    ok = ok && !json_object_set(all, "input", items) && !json_object_del(all, field);
    json_decref(items);
    json_decref(more);
    if (!ok) {
        json_decref(all);
        return params_no_memory(err);
    }
    snprintf(previous, 72, "%s", json_string_value(id));
    json_decref(*out);
    *out = all;
    return PI_OK;
}

bool responses_stores(const gen *g)
{
    return reply_server(g)->store && !json_is_false(json_object_get(g->p.root, "store"));
}

/* Stores the items from number `first`, which continue the conversation of `previous`. Returns false on failure. */
static bool put(const gen *g, const json_t *response, const json_t *items, size_t first, const char *previous)
{
    json_t *more = json_array(), *v;
    char *text = json_write(response, ANSWER_DIGITS), *list = NULL;
    bool ok = more != NULL;
    for (size_t i = first; ok && (v = json_array_get(items, i)); i++) ok = !json_array_append(more, v);
    if (ok) list = json_write(more, 0);
    json_decref(more);
    if (text && list) return store_put(reply_server(g)->store, g->key ? g->key : "", g->id, previous, text, list);
    free(text);
    free(list);
    return false;
}

void responses_store(const gen *g, const json_t *response, const json_t *output)
{
    if (!responses_stores(g) || !response) return;
    json_t *items = input_items(g->p.root);
    const bool complete = items && !json_array_extend(items, (json_t *) output);
    /* If the previous response was dropped meanwhile, the complete conversation is stored. */
    const bool stored = complete && ((*g->previous && put(g, response, items, g->n_previous, g->previous)) ||
                                     put(g, response, items, 0, NULL));
    json_decref(items);
    if (stored) return;
    log_line(reply_server(g), PI_LOG_WARN,
             "%s is not stored: it is larger than --response-store-bytes, or out of memory", g->id);
}

/* --------------------------------------------------------------------------------------------------------- handlers */

/* Copies the id at the end of the path; "" = it is too long. */
static void id_of(const exchange *ex, char out[72])
{
    const char *path = ex->req.target.p, *end = path + ex->req.path_len, *p = end;
    while (p > path && p[-1] != '/') p--;
    const size_t n = (size_t) (end - p);
    snprintf(out, 72, "%.*s", n < 72 ? (int) n : 0, p);
}

static void not_found(exchange *ex, const char *id)
{
    answer_error(ex, 404, NULL, NULL, "there is no response '%s'%s", id,
                 "; the server keeps responses with --response-store, until newer ones replace them");
}

void handle_response_get(server *s, exchange *ex)
{
    char id[72];
    bool no_memory = false;
    id_of(ex, id);
    char *text = s->store ? store_get(s->store, ex->key ? ex->key : "", id, STORE_RESPONSE, &no_memory) : NULL;
    if (text) answer_owned(ex, 200, text, strlen(text));
    else if (no_memory) answer_error(ex, 503, NULL, NULL, "out of memory");
    else not_found(ex, id);
}

void handle_response_delete(server *s, exchange *ex)
{
    char id[72];
    id_of(ex, id);
    if (!s->store || !store_delete(s->store, ex->key ? ex->key : "", id)) not_found(ex, id);
    else answer_json(ex, 200, json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
}
