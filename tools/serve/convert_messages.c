/* Converts /v1/messages, Anthropic's format, to chat messages (see convert.h). Blocks become text, calls and tool
 * results. Blocks of Anthropic's own tools in assistant messages are skipped, with a log line. Runs on the pool. */
#include "serve/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/convert_impl.h"
#include "serve/fields.h"

/* -------------------------------------------------------------------------------------------------------- messages */

static int add_tool_use(params *p, const json_t *block, json_t *calls, pi_error *err)
{
    const char *name = text_of(block, "name");
    const json_t *input = json_object_get(block, "input");
    if (!name) return params_fail(p, "messages", err, "a tool_use block has no name, or a zero byte in its name");
    char *args = json_is_object(input) ? json_write(input, 0) : NULL;
    const bool ok = append(calls, call_json(json_object_get(block, "id"), name, json_string(args ? args : "{}")));
    free(args);
    return ok ? PI_OK : params_no_memory(err);
}

/* Converts an assistant's blocks to one message: text, thinking, calls. */
static int assistant_blocks(params *p, const json_t *blocks, pi_error *err)
{
    content text = {.parts = NULL};
    buf thoughts = {0};
    json_t *calls = json_array(), *b, *said = NULL;
    size_t i;
    int rc = calls ? PI_OK : params_no_memory(err);
    json_array_foreach(blocks, i, b) {
        const char *type = text_of(b, "type");
        const json_t *thought = json_object_get(b, "thinking");
        if (rc) break;
        if (!type) rc = params_fail(p, "messages", err, "a block of an assistant's content has no type");
        else if (!strcmp(type, "text")) rc = put_part(p, "messages", b, MEDIA_NO_IMAGES, &text, err);
        else if (!strcmp(type, "thinking")) buf_put(&thoughts, json_string_value(thought), json_string_length(thought));
        else if (!strcmp(type, "tool_use")) rc = add_tool_use(p, b, calls, err);
        else if (strcmp(type, "redacted_thinking") != 0) leave_out(p, type);
    }
    if (!rc) rc = content_take(&text, &said, err);
    json_t *m = rc ? NULL : json_pack("{s:s, s:o}", "role", "assistant", "content", said);
    if (m && thoughts.n) json_object_set_new(m, "reasoning_content", json_stringn(thoughts.p, thoughts.n));
    if (m && json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    if (!rc && (thoughts.failed || !append(p->messages, json_incref(m)))) rc = params_no_memory(err);
    json_decref(m);
    json_decref(calls);
    content_free(&text);
    buf_free(&thoughts);
    return rc;
}

/* Adds a tool result. Parts that the server does not read are replaced by a line of text, so that a conversation that
 * contains one can continue. */
static int add_result_block(params *p, const json_t *block, pi_error *err)
{
    json_t *text;
    int rc = content_of(p, "messages", json_object_get(block, "content"), MEDIA_REPLACED, &text, err);
    if (!rc && json_is_string(text) && !json_string_length(text) && json_is_true(json_object_get(block, "is_error"))) {
        json_decref(text);
        text = json_string("The tool failed.");
    }
    return rc ? rc : add_tool_result(p, json_object_get(block, "tool_use_id"), text, err);
}

/* Converts a user's blocks: tool results become separate messages before the user's text. */
static int user_blocks(params *p, const json_t *blocks, pi_error *err)
{
    const json_t *b;
    json_t *said = NULL;
    content text = {.parts = NULL};
    size_t i, n_parts = 0;
    int rc = PI_OK;
    if (!json_array_size(blocks)) rc = params_fail(p, "messages", err, "a user's content must not be an empty list");
    json_array_foreach(blocks, i, b) /* all results first, so that images have the order of the messages */
        if (!rc && field_is(b, "type", "tool_result")) rc = add_result_block(p, b, err);
    json_array_foreach(blocks, i, b) {
        if (rc) break;
        if (!field_is(b, "type", "tool_result")) rc = put_part(p, "messages", b, MEDIA_REFUSED, &text, err), n_parts++;
    }
    if (!rc && n_parts) rc = content_take(&text, &said, err);
    if (!rc && n_parts) rc = add_message(p, "user", said, err);
    content_free(&text);
    return rc;
}

static int add_system(params *p, const char *field, const json_t *value, pi_error *err)
{
    json_t *text;
    int rc = content_of(p, field, value, MEDIA_NO_IMAGES, &text, err);
    return rc ? rc : add_message(p, "system", text, err);
}

static int one_message(params *p, const json_t *m, pi_error *err)
{
    json_t *c = json_object_get(m, "content");
    const char *role = text_of(m, "role");
    const bool assistant = role && !strcmp(role, "assistant");
    if (role && !strcmp(role, "system")) return add_system(p, "messages", c, err);
    if (!assistant && !(role && !strcmp(role, "user")))
        return params_fail(p, "messages", err, "messages must have the role user, assistant or system");
    if (!c || json_is_null(c)) return add_message(p, role, json_string(""), err);
    if (json_is_string(c)) return add_message(p, role, json_incref(c), err);
    if (!json_is_array(c)) return params_fail(p, "messages", err,
                                              "a message's content must be text or a list of blocks");
    return assistant ? assistant_blocks(p, c, err) : user_blocks(p, c, err);
}

static int read_messages(params *p, pi_error *err)
{
    const json_t *list = json_object_get(p->root, "messages"), *system = json_object_get(p->root, "system"), *m;
    size_t i;
    int rc = PI_OK;
    if (!json_is_array(list) || !json_array_size(list))
        return params_fail(p, "messages", err, "'messages' must be a non-empty list");
    if (!(p->messages = json_array())) return params_no_memory(err);
    if (system && !json_is_null(system)) rc = add_system(p, "system", system, err);
    json_array_foreach(list, i, m) if (!rc) rc = one_message(p, m, err);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- tools */

/* Reads the tools. Functions have type custom or no type. Anthropic's own tools, which have a date in their type, are
 * skipped: Anthropic runs them, or its models are trained on them. */
static int read_tools(params *p, pi_error *err)
{
    const json_t *list = json_object_get(p->root, "tools"), *servers = json_object_get(p->root, "mcp_servers"), *t;
    size_t i;
    int rc = PI_OK;
    if (json_array_size(servers)) leave_out(p, "mcp_servers");
    if (!list || json_is_null(list)) return PI_OK;
    if (!json_is_array(list)) return params_fail(p, "tools", err, "'tools' must be a list");
    json_array_foreach(list, i, t) {
        const char *type = text_of(t, "type");
        const char *name = text_of(t, "name");
        if (rc) break;
        if (type && strcmp(type, "custom") != 0 && strcmp(type, "function") != 0) leave_out(p, type);
        else if (!name) rc = params_fail(p, "tools", err,
                                         "'tools' has a function without a name, or with a zero byte in its name");
        else rc = add_function(p, t, name, "input_schema", err);
    }
    return rc;
}

static int read_choice(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->root, "tool_choice");
    const char *type = text_of(choice, "type");
    const char *name = text_of(choice, "name");
    int rc = PI_OK;
    if (!choice || json_is_null(choice)) return check_choice(p, err);
    if (!type) return params_fail(p, "tool_choice", err, "'tool_choice' must be an object with a type");
    if (!strcmp(type, "any")) rc = choose_word(p, "required", err);
    else if (!strcmp(type, "none")) rc = choose_word(p, "none", err);
    else if (!strcmp(type, "tool") && name) rc = choose_function(p, name, err);
    else if (strcmp(type, "auto") != 0)
        rc = params_fail(p, "tool_choice", err, "'tool_choice' must be of type auto, any, none, or tool with a name");
    if (!rc && json_is_true(json_object_get(choice, "disable_parallel_tool_use")) &&
        json_object_set_new(p->template_vars, "parallel_tool_calls", json_false()))
        rc = params_no_memory(err);
    return rc ? rc : check_choice(p, err);
}

/* -------------------------------------------------------------------------------------------------------- thinking */

static int read_budget(params *p, const json_t *thinking, pi_error *err)
{
    char text[32];
    int64_t n = -1;
    int rc = params_int(p, thinking, "budget_tokens", 0, INT32_MAX, &n, err);
    if (rc || n < 0) return rc;
    snprintf(text, sizeof text, "%d", (int) n);
    return params_add(p, "reasoning-budget", "thinking", text, err);
}

/* Reads "thinking". adaptive: the model decides if it reasons, which is the meaning of enabled thinking in
 * templates. */
static int read_thinking(params *p, pi_error *err)
{
    const json_t *thinking = json_object_get(p->root, "thinking");
    if (!thinking || json_is_null(thinking)) return PI_OK;
    const bool on = field_is(thinking, "type", "enabled"), off = field_is(thinking, "type", "disabled");
    if (!on && !off && !field_is(thinking, "type", "adaptive"))
        return params_fail(p, "thinking", err, "'thinking' must be of type enabled, adaptive or disabled");
    p->hide_thoughts |= field_is(thinking, "display", "omitted");
    if (json_object_set_new(p->template_vars, "enable_thinking", json_boolean(!off))) return params_no_memory(err);
    return on ? read_budget(p, thinking, err) : PI_OK;
}

/* Reads "output_config" with effort and format; "output_format" is the format's name in the beta API. */
static int read_output(params *p, pi_error *err)
{
    const json_t *config = json_object_get(p->root, "output_config"), *beta = json_object_get(p->root, "output_format");
    if (config && !json_is_null(config) && !json_is_object(config))
        return params_fail(p, "output_config", err, "'output_config' must be an object");
    const json_t *format = json_object_get(config, "format");
    if (format && !json_is_null(format) && beta && !json_is_null(beta) && !json_equal(format, beta))
        return params_fail(p, "output_format", err,
                           "'output_format' and 'output_config.format' differ: send one of them");
    int rc = set_effort(p, "output_config", json_object_get(config, "effort"), err);
    if (!rc) rc = params_response_format(p, format, "output_config.format", err);
    if (!rc && (!format || json_is_null(format))) rc = params_response_format(p, beta, "output_format", err);
    return rc;
}

int convert_anthropic(params *p, pi_error *err)
{
    int rc = fields_check(p, API_MESSAGES, err);
    if (!rc) rc = begin_vars(p, err);
    if (!rc) rc = read_messages(p, err);
    if (!rc) rc = read_tools(p, err);
    if (!rc) rc = read_choice(p, err);
    if (!rc) rc = read_thinking(p, err);
    return rc ? rc : read_output(p, err);
}
