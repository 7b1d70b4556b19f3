/* Converts /v1/responses, OpenAI's newer format, to chat messages (see convert.h). The items of one turn become one
 * message:
 *
 *     reasoning, message, function_call, function_call  ->  {assistant, reasoning_content, content, tool_calls}
 *     function_call_output                              ->  {tool}
 *
 * Functions of a namespace (Codex creates one for every MCP server) are shown to the model as NAMESPACE__NAME.
 * p->namespaces maps them to their original names, for the response. Runs on the pool. */
#include "serve/convert.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/convert_impl.h"
#include "serve/fields.h"

/* Reads tools; space: their namespace, or NULL. */
static int read_tools(params *p, const json_t *list, const char *space, pi_error *err);

/* ----------------------------------------------------------------------------------------------------------- input */

/* Returns the assistant message at the end of the list; appends a new one if the last message has another role.
 * Borrowed. */
static json_t *assistant_turn(params *p)
{
    json_t *last = json_array_get(p->messages, json_array_size(p->messages) - 1);
    if (field_is(last, "role", "assistant")) return last;
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    return append(p->messages, m) ? m : NULL;
}

/* Appends text to a string field of the assistant message. */
static int extend_turn(params *p, const char *field, json_t *text, pi_error *err)
{
    json_t *m = text ? assistant_turn(p) : NULL, *old = json_object_get(m, field);
    buf b = {0};
    buf_put(&b, json_string_value(old), json_string_length(old));
    buf_put(&b, json_string_value(text), json_string_length(text));
    json_t *both = m && !b.failed ? json_stringn(b.p ? b.p : "", b.n) : NULL;
    buf_free(&b);
    json_decref(text);
    return both && !json_object_set_new(m, field, both) ? PI_OK : params_no_memory(err);
}

static bool called(const json_t *turn) { return json_array_size(json_object_get(turn, "tool_calls")) > 0; }

static int message_item(params *p, const json_t *item, pi_error *err)
{
    const char *role = text_of(item, "role");
    const json_t *last;
    json_t *text;
    if (!role) return params_fail(p, "input", err, "an item of 'input' needs a role, and content that is text");
    const unsigned media = strcmp(role, "assistant") ? MEDIA_REFUSED : MEDIA_NO_IMAGES;
    int rc = content_of(p, "input", json_object_get(item, "content"), media, &text, err);
    if (rc) return rc;
    last = json_array_get(p->messages, json_array_size(p->messages) - 1);
    if (!strcmp(role, "assistant") && field_is(last, "role", "assistant") && !called(last) &&
        !json_string_length(json_object_get(last, "content")))
        return extend_turn(p, "content", text, err); /* after its reasoning */
    return add_message(p, role, text, err);
}

/* Returns the name shown to the model for a function of a namespace. The caller frees it. */
static char *qualified(const char *space, const char *name)
{
    const size_t n = strlen(space);
    buf b = {0};
    buf_str(&b, space);
    if (n < 2 || strcmp(space + n - 2, "__") != 0) buf_str(&b, "__");
    buf_str(&b, name);
    if (b.failed) buf_free(&b);
    return b.p;
}

/* Adds a call to the assistant message. name: the tool's name. Takes ownership of arguments. */
static int add_call(params *p, const json_t *item, const char *name, json_t *arguments, pi_error *err)
{
    const char *space = text_of(item, "namespace");
    json_t *id = json_object_get(item, "call_id"), *m = assistant_turn(p), *calls = json_object_get(m, "tool_calls");
    char *full = space && *space ? qualified(space, name) : strdup(name);
    json_t *one = full ? call_json(id ? id : json_object_get(item, "id"), full, arguments) : (json_decref(arguments),
            NULL);
    const bool ok = calls ? append(calls, one) : m && one && !json_object_set_new(m, "tool_calls", json_pack("[o]",
            one));
    if (!calls && !m) json_decref(one);
    free(full);
    return ok ? PI_OK : params_no_memory(err);
}

static int function_call(params *p, const json_t *item, pi_error *err)
{
    const char *name = text_of(item, "name");
    json_t *args = json_object_get(item, "arguments");
    const bool none = args && json_is_null(args);
    if (!name || !(none || json_is_string(args) || json_is_object(args)))
        return params_fail(p, "input", err, "a function_call of 'input' needs a name, and arguments as text");
    return add_call(p, item, name, none ? json_string("") : json_incref(args), err);
}

/* Calls of tools that are not functions: their type, tool name, and the field with their input. */
static const struct other_call {
    const char *type, *name, *field;
} other_calls[] = {
    {"custom_tool_call", NULL, "input"},
    {"local_shell_call", "local_shell", "action"},
    {"shell_call", "shell", "action"},
    {"apply_patch_call", "apply_patch", "operation"},
    {"mcp_call", NULL, "arguments"},
};

static int other_call(params *p, const struct other_call *kind, const json_t *item, pi_error *err)
{
    const char *name = kind->name ? kind->name : text_of(item, "name");
    json_t *asked = json_object_get(item, kind->field), *text;
    if (!name || !asked) return params_fail(p, "input", err, "a %s of 'input' needs a name and '%s'", kind->type,
                                            kind->field);
    const bool is_json = json_is_object(asked) || field_is(item, "type", "mcp_call");
    json_t *args = json_is_object(asked) ? json_incref(asked) : json_pack("{s:O}", kind->field, asked);
    char *dump = json_write(args, 0);
    json_decref(args);
    text = is_json && json_is_string(asked) ? json_incref(asked) : json_string(dump ? dump : "");
    free(dump);
    if (!text) return params_no_memory(err);
    int rc = add_call(p, item, name, text, err);
    if (rc || strcmp(kind->type, "mcp_call") != 0) return rc;
    /* also contains its result */
    rc = content_of(p, "input", json_object_get(item, "output"), MEDIA_REPLACED, &text, err);
    return rc ? rc : add_tool_result(p, json_object_get(item, "id"), text, err);
}

/* Adds the result of a call. Parts that the server does not read are replaced by a line of text, so that a conversation
 * that contains one can continue. */
static int call_output(params *p, const json_t *item, pi_error *err)
{
    const json_t *out = json_object_get(item, "output"), *part;
    json_t *id = json_object_get(item, "call_id"), *text = NULL;
    bool parts = true;
    size_t i;
    json_array_foreach(out, i, part) parts &= json_is_string(json_object_get(part, "type"));
    int rc = PI_OK;
    if (json_is_object(out) || !parts) { /* result of a shell call */
        char *dump = json_write(out, 0);
        if (!dump || !(text = json_string(dump))) rc = params_no_memory(err);
        free(dump);
    } else {
        rc = content_of(p, "input", out, MEDIA_REPLACED, &text, err);
    }
    return rc ? rc : add_tool_result(p, id ? id : json_object_get(item, "id"), text, err);
}

/* Adds reasoning to the following assistant message; templates decide which messages show it. */
static int reasoning_item(params *p, const json_t *item, pi_error *err)
{
    const json_t *parts = json_object_get(item, "content");
    json_t *text;
    if (!json_array_size(parts)) parts = json_object_get(item, "summary");
    if (!json_array_size(parts)) return PI_OK; /* encrypted by another server */
    int rc = content_of(p, "input", parts, MEDIA_REPLACED | MEDIA_NO_IMAGES, &text, err);
    return rc ? rc : extend_turn(p, "reasoning_content", text, err);
}

static int input_item(params *p, const json_t *item, pi_error *err)
{
    static const char output[] = "_output";
    const json_t *type = json_object_get(item, "type");
    const char *word = json_string_value(type);
    const size_t n = word ? strlen(word) : 0;
    if (!json_is_object(item)) return params_fail(p, "input", err, "'input' must be text or a list of items");
    if (!type || (word && !strcmp(word, "message"))) return message_item(p, item, err);
    if (!word) return params_fail(p, "input", err, "an item of 'input' has a type that is not a string");
    if (!strcmp(word, "function_call")) return function_call(p, item, err);
    if (!strcmp(word, "reasoning")) return reasoning_item(p, item, err);
    if (!strcmp(word, "additional_tools")) return read_tools(p, json_object_get(item, "tools"), NULL, err);
    if (!strcmp(word, "function_call_output") || !strcmp(word, "custom_tool_call_output")) return call_output(p, item,
            err);
    for (size_t i = 0; i < sizeof other_calls / sizeof *other_calls; i++) {
        const char *call = other_calls[i].type;
        if (!strcmp(word, call)) return other_call(p, &other_calls[i], item, err);
        if (n == strlen(call) + sizeof output - 1 && !strncmp(word, call, strlen(call)) && !strcmp(word + strlen(call),
                output))
            return call_output(p, item, err);
    }
    leave_out(p, word); /* web searches and other items of OpenAI's own tools, and encrypted items */
    return PI_OK;
}

static int read_input(params *p, pi_error *err)
{
    const json_t *in = json_object_get(p->root, "input"), *how = json_object_get(p->root, "instructions"), *item;
    size_t i;
    int rc = PI_OK;
    if (!(p->messages = json_array())) return params_no_memory(err);
    if (how && !json_is_null(how) && !json_is_string(how))
        return params_fail(p, "instructions", err, "'instructions' must be a string");
    if (json_is_string(how)) rc = add_message(p, "system", json_incref((json_t *) how), err);
    if (rc) return rc;
    if (json_is_string(in)) return add_message(p, "user", json_incref((json_t *) in), err);
    if (!json_is_array(in) || !json_array_size(in))
        return params_fail(p, "input", err, "'input' must be text or a list of items");
    json_array_foreach(in, i, item) if (!rc) rc = input_item(p, item, err);
    const size_t n = json_array_size(p->messages);
    const json_t *last = json_array_get(p->messages, n - 1);
    if (json_object_get(last, "reasoning_content") && !called(last) && !json_string_length(json_object_get(last,
            "content")))
        json_array_remove(p->messages, n - 1); /* thoughts that nothing follows */
    if (!rc && !json_array_size(p->messages)) rc = params_fail(p, "input", err, "'input' has no message");
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- tools */

static int namespace_function(params *p, const json_t *tool, const char *space, const char *name, pi_error *err)
{
    char *full = qualified(space, name);
    if (!p->namespaces) p->namespaces = json_object();
    json_t *was = json_pack("{s:s, s:s}", "name", name, "namespace", space);
    int rc = full && !json_object_set_new(p->namespaces, full, was) ? add_function(p, tool, full, "parameters", err)
                                                                    : params_no_memory(err);
    free(full);
    return rc;
}

/* Prepends the namespace's description to the description of its first function, tool number `first`. */
static int describe(params *p, size_t first, const json_t *description, pi_error *err)
{
    json_t *f = json_object_get(json_array_get(p->tools, first), "function"), *own = json_object_get(f, "description");
    buf b = {0};
    if (!f || !json_string_length(description)) return PI_OK;
    buf_put(&b, json_string_value(description), json_string_length(description));
    if (json_string_length(own)) buf_str(&b, "\n\n");
    buf_put(&b, json_string_value(own), json_string_length(own));
    int rc = b.failed || json_object_set_new(f, "description", json_stringn(b.p, b.n)) ? params_no_memory(err) : PI_OK;
    buf_free(&b);
    return rc;
}

static int one_tool(params *p, const json_t *t, const char *space, pi_error *err)
{
    const char *type = text_of(t, "type"), *name = text_of(t, "name");
    if (!type) return params_fail(p, "tools", err,
                                  "'tools' has an entry without a type; give functions the type function");
    const bool is_function = !strcmp(type, "function"), is_space = !strcmp(type, "namespace") && !space;
    if (!is_function && !is_space) {
        leave_out(p, type);
        return PI_OK;
    }
    if (!name) return params_fail(p, "tools", err, "'tools' has a %s without a name, or with a zero byte in its name",
                                  type);
    if (is_space) {
        const size_t first = json_array_size(p->tools);
        int rc = read_tools(p, json_object_get(t, "tools"), name, err);
        return rc ? rc : describe(p, first, json_object_get(t, "description"), err);
    }
    return space ? namespace_function(p, t, space, name, err) : add_function(p, t, name, "parameters", err);
}

static int read_tools(params *p, const json_t *list, const char *space, pi_error *err)
{
    const json_t *t;
    size_t i;
    int rc = PI_OK;
    if (!list || json_is_null(list)) return PI_OK;
    if (!json_is_array(list)) return params_fail(p, "tools", err, "'tools' must be a list");
    json_array_foreach(list, i, t) if (!rc) rc = one_tool(p, t, space, err);
    return rc;
}

/* Returns the name shown to the model for a function that a client names. The caller frees it. NULL = out of
 * memory. */
static char *offered(const params *p, const json_t *named)
{
    const char *name = text_of(named, "name"), *key;
    const char *space = text_of(named, "namespace");
    const json_t *was;
    if (space && *space) return qualified(space, name ? name : "");
    json_object_foreach(p->namespaces, key, was) if (name && field_is(was, "name", name)) return strdup(key);
    return strdup(name ? name : "");
}

static int allowed(params *p, const json_t *choice, pi_error *err)
{
    json_t *list = json_array(), *t;
    size_t i;
    int rc = list ? PI_OK : params_no_memory(err);
    json_array_foreach(json_object_get(choice, "tools"), i, t) {
        char *name = offered(p, t);
        if (!rc && (!name || !append(list, json_pack("{s:s}", "name", name)))) rc = params_no_memory(err);
        free(name);
    }
    if (!rc) rc = allow_tools(p, list, err);
    json_decref(list);
    return rc ? rc : choose_word(p, field_is(choice, "mode", "required") ? "required" : "auto", err);
}

static int read_choice(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->root, "tool_choice"), *parallel = json_object_get(p->root,
            "parallel_tool_calls");
    const char *word = json_string_value(choice), *type = text_of(choice, "type");
    int rc = PI_OK;
    if (json_is_boolean(parallel) && json_object_set(p->template_vars, "parallel_tool_calls", (json_t *) parallel))
        return params_no_memory(err);
    if (word) rc = choose_word(p, word, err);
    else if (type && !strcmp(type, "allowed_tools")) rc = allowed(p, choice, err);
    else if (type && !strcmp(type, "function")) {
        char *name = offered(p, choice);
        rc = name ? choose_function(p, name, err) : params_no_memory(err);
        free(name);
    } else if (choice && !json_is_null(choice)) {
        rc = params_fail(p, "tool_choice", err,
                         "'tool_choice' asks for a tool of type %.40s, which this server does not support: "
                         "choose a function", type ? type : "none");
    }
    return rc ? rc : check_choice(p, err);
}

int convert_responses(params *p, pi_error *err)
{
    int rc = fields_check(p, API_RESPONSES, err);
    if (!rc) rc = begin_vars(p, err);
    if (!rc) rc = read_input(p, err);
    if (!rc) rc = read_tools(p, json_object_get(p->root, "tools"), NULL, err);
    if (!rc) rc = read_choice(p, err);
    if (!rc) rc = params_response_format(p, json_object_get(json_object_get(p->root, "text"), "format"), "text.format",
                                         err);
    return rc ? rc : set_effort(p, "reasoning.effort", json_object_get(json_object_get(p->root, "reasoning"),
                                                                       "effort"), err);
}
