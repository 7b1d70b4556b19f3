/* Conversations of other APIs (see convert.h). What cannot be said in messages (images, files) is refused. */
#include "serve/convert.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/buf.h"

static bool is(const json_t *o, const char *field, const char *word)
{
    return json_text_is(json_object_get(o, field), word);
}

static void add_text(buf *b, const json_t *text) { buf_put(b, json_string_value(text), json_string_length(text)); }

static bool add(json_t *list, json_t *one) { return one && !json_array_append_new(list, one); }

/* A text, or the texts of a list of parts, put together; NULL: something else is in it, or no memory. */
static json_t *flat_text(const json_t *v)
{
    const json_t *part;
    size_t i;
    buf b = {0};
    bool ok = json_is_array(v);
    if (json_is_string(v)) return json_deep_copy(v);
    json_array_foreach(v, i, part) {
        const json_t *t = json_object_get(part, "text");
        ok &= json_is_string(t);
        if (ok) add_text(&b, t);
    }
    json_t *s = ok && !b.failed ? json_stringn(b.p ? b.p : "", b.n) : NULL;
    buf_free(&b);
    return s;
}

static json_t *function_tool(const json_t *t, const char *schema_field)
{
    json_t *f = json_pack("{s:O}", "name", json_object_get(t, "name"));
    json_t *text = json_object_get(t, "description"), *schema = json_object_get(t, schema_field);
    if (f && json_is_string(text)) json_object_set(f, "description", text);
    if (f && json_is_object(schema)) json_object_set(f, "parameters", schema);
    return f ? json_pack("{s:s, s:o}", "type", "function", "function", f) : NULL;
}

static int convert_tools(params *p, const char *schema_field, pi_error *err)
{
    const json_t *list = json_object_get(p->root, "tools"), *t;
    size_t i;
    if (!list || json_is_null(list)) return PI_OK;
    if (!json_is_array(list)) return params_fail(p, "tools", err, "'tools' must be a list");
    if (!(p->tools = json_array())) return params_no_memory(err);
    json_array_foreach(list, i, t) {
        const char *type = json_string_value(json_object_get(t, "type"));
        if (type && strcmp(type, "function") && strcmp(type, "custom"))
            return params_fail(p, "tools", err, "'tools' has type %.30s; functions are supported", type);
        if (!json_is_c_string(json_object_get(t, "name")))
            return params_fail(p, "tools", err, "'tools' has a function without a name, or with a zero byte in its name");
        if (!add(p->tools, function_tool(t, schema_field))) return params_no_memory(err);
    }
    if (json_array_size(p->tools)) return PI_OK;
    json_decref(p->tools);
    p->tools = NULL;
    return PI_OK;
}

static void drop_tools(params *p)
{
    json_decref(p->tools);
    p->tools = NULL;
}

static json_t *call(const json_t *id, const json_t *name, json_t *arguments)
{
    return json_pack("{s:O?, s:s, s:{s:O?, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

static json_t *named_choice(const json_t *name)
{
    return json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name", name);
}

/* ------------------------------------------------------------------------------------------------------ /v1/messages
 */

/* Blocks of an assistant: text, tool_use and thinking, as one message. */
static int assistant_blocks(params *p, const json_t *blocks, pi_error *err)
{
    buf text = {0}, thoughts = {0};
    json_t *calls = json_array(), *b;
    size_t i;
    int rc = calls ? PI_OK : params_no_memory(err);
    json_array_foreach(blocks, i, b) {
        const json_t *t = json_object_get(b, "text"), *thought = json_object_get(b, "thinking");
        if (is(b, "type", "text") && json_is_string(t)) add_text(&text, t);
        else if (is(b, "type", "thinking") && json_is_string(thought)) add_text(&thoughts, thought);
        else if (is(b, "type", "redacted_thinking")) continue;
        else if (is(b, "type", "tool_use")) {
            if (!json_is_string(json_object_get(b, "name"))) rc = params_fail(p, "messages", err, "a tool_use block has no name");
            if (rc) break;
            char *args = json_write(json_object_get(b, "input"), 0);
            if (!add(calls,
                     call(json_object_get(b, "id"), json_object_get(b, "name"), json_string(args ? args : "{}"))))
                rc = params_no_memory(err);
            free(args);
        } else {
            rc = params_fail(p, "messages", err,
                             "an assistant's content has a block that is not text, tool_use or thinking");
        }
        if (rc) break;
    }
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", json_stringn(text.n ? text.p : "", text.n));
    if (m && thoughts.n) json_object_set_new(m, "reasoning_content", json_stringn(thoughts.p, thoughts.n));
    if (m && json_array_size(calls)) json_object_set(m, "tool_calls", calls);
    if (!rc && (text.failed || thoughts.failed || !add(p->messages, json_incref(m)))) rc = params_no_memory(err);
    json_decref(m);
    json_decref(calls);
    buf_free(&text);
    buf_free(&thoughts);
    return rc;
}

/* Blocks of a user: results of tools are messages of their own, in front of what else was said. */
static int user_blocks(params *p, const json_t *blocks, pi_error *err)
{
    json_t *texts = json_array(), *b;
    size_t i;
    int rc = texts ? PI_OK : params_no_memory(err);
    if (!rc && !json_array_size(blocks)) rc = params_fail(p, "messages", err, "a user's content is a list without blocks");
    json_array_foreach(blocks, i, b) {
        if (is(b, "type", "text")) {
            json_array_append(texts, b);
        } else if (is(b, "type", "tool_result")) {
            const json_t *c = json_object_get(b, "content");
            json_t *text = c ? flat_text(c) : json_string("");
            if (!text) rc = params_fail(p, "messages", err, "the result of a tool must be text");
            else if (!add(p->messages, json_pack("{s:s, s:O?, s:o}", "role", "tool", "tool_call_id",
                                                 json_object_get(b, "tool_use_id"), "content", text)))
                rc = params_no_memory(err);
        } else {
            rc = params_fail(p, "messages", err, "a user's content has a block that is neither text nor tool_result");
        }
        if (rc) break;
    }
    json_t *text = rc || !json_array_size(texts) ? NULL : flat_text(texts);
    if (!rc && json_array_size(texts)) {
        if (!text) rc = params_fail(p, "messages", err, "a block of text has no text");
        else if (!add(p->messages, json_pack("{s:s, s:O}", "role", "user", "content", text)))
            rc = params_no_memory(err);
    }
    json_decref(text);
    json_decref(texts);
    return rc;
}

static int anthropic_messages(params *p, pi_error *err)
{
    const json_t *list = json_object_get(p->root, "messages"), *system = json_object_get(p->root, "system"), *m;
    size_t i;
    int rc = PI_OK;
    if (!json_is_array(list) || !json_array_size(list))
        return params_fail(p, "messages", err, "'messages' must be a list that is not empty");
    if (!(p->messages = json_array())) return params_no_memory(err);
    if (system && !json_is_null(system)) {
        json_t *text = flat_text(system);
        if (!text) return params_fail(p, "system", err, "'system' must be text");
        if (!add(p->messages, json_pack("{s:s, s:o}", "role", "system", "content", text))) return params_no_memory(err);
    }
    json_array_foreach(list, i, m) {
        json_t *c = json_object_get(m, "content");
        bool assistant = is(m, "role", "assistant");
        if (!assistant && !is(m, "role", "user"))
            return params_fail(p, "messages", err, "messages have the role user or assistant");
        if (json_is_string(c)) {
            const char *role = assistant ? "assistant" : "user";
            rc = add(p->messages, json_pack("{s:s, s:O}", "role", role, "content", c)) ? PI_OK : params_no_memory(err);
        } else if (!json_is_array(c)) {
            rc = params_fail(p, "messages", err, "a message's content must be text or a list of blocks");
        } else {
            rc = assistant ? assistant_blocks(p, c, err) : user_blocks(p, c, err);
        }
        if (rc) return rc;
    }
    return PI_OK;
}

static int thinking_budget(params *p, const json_t *thinking, pi_error *err)
{
    char text[32];
    int64_t n = -1;
    int rc = params_int(p, thinking, "budget_tokens", 0, INT32_MAX, &n, err);
    if (rc || n < 0) return rc;
    snprintf(text, sizeof text, "%d", (int) n);
    return params_add(p, "reasoning-budget", "thinking", text, err);
}

int convert_anthropic(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->root, "tool_choice"), *thinking = json_object_get(p->root, "thinking");
    int rc = anthropic_messages(p, err);
    if (!rc) rc = convert_tools(p, "input_schema", err);
    if (rc) return rc;
    if (!(p->template_vars = json_object())) return params_no_memory(err);
    if (is(choice, "type", "none")) drop_tools(p);
    if (is(choice, "type", "any")) json_object_set_new(p->template_vars, "tool_choice", json_string("required"));
    if (is(choice, "type", "tool"))
        json_object_set_new(p->template_vars, "tool_choice", named_choice(json_object_get(choice, "name")));
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        json_object_set_new(p->template_vars, "parallel_tool_calls", json_false());
    if (!thinking || json_is_null(thinking)) return PI_OK;
    const bool on = is(thinking, "type", "enabled");
    json_object_set_new(p->template_vars, "enable_thinking", json_boolean(on));
    return on ? thinking_budget(p, thinking, err) : PI_OK;
}

/* ---------------------------------------------------------------------------------------------- /v1/chat/completions */

/* "tool_choice" and what else the template or the prompt's making wants to know. */
static int chat_vars(params *p, pi_error *err)
{
    static const char *const passed[] = {"add_generation_prompt", "continue_final_message", "tool_choice",
                                         "parallel_tool_calls", "enable_thinking", "reasoning_effort"};
    json_t *own = json_object_get(p->root, "chat_template_kwargs");
    if (own && !json_is_null(own) && !json_is_object(own))
        return params_fail(p, "chat_template_kwargs", err, "'chat_template_kwargs' must be an object");
    json_t *vars = p->template_vars = json_is_object(own) ? json_deep_copy(own) : json_object();
    if (!vars) return params_no_memory(err);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *v = json_object_get(p->root, passed[i]);
        if (v && !json_is_null(v) && json_object_set(vars, passed[i], v)) return params_no_memory(err);
    }
    if (!is(vars, "reasoning_effort", "none")) return PI_OK;
    json_object_del(vars, "reasoning_effort"); /* as much as no thoughts, which templates have another word for */
    const bool said = json_object_get(vars, "enable_thinking");
    return said || !json_object_set_new(vars, "enable_thinking", json_false()) ? PI_OK : params_no_memory(err);
}

static int chat_tools(params *p, pi_error *err)
{
    json_t *tools = json_object_get(p->root, "tools"), *t;
    const char *choice = json_string_value(json_object_get(p->root, "tool_choice"));
    size_t i;
    if (!tools || json_is_null(tools)) return PI_OK;
    if (!json_is_array(tools)) return params_fail(p, "tools", err, "'tools' must be a list");
    json_array_foreach(tools, i, t) {
        const char *type = json_string_value(json_object_get(t, "type"));
        if (!type || strcmp(type, "function") != 0)
            return params_fail(p, "tools", err, "'tools' has type %.30s; functions are supported", type ? type : "none");
        if (!json_is_c_string(json_object_get(json_object_get(t, "function"), "name")))
            return params_fail(p, "tools", err, "'tools' has a function without a name, or with a zero byte in its name");
    }
    if (json_array_size(tools) && !(choice && !strcmp(choice, "none"))) p->tools = json_incref(tools);
    return PI_OK;
}

int convert_chat(params *p, pi_error *err)
{
    json_t *m = json_object_get(p->root, "messages");
    if (!json_is_array(m) || !json_array_size(m))
        return params_fail(p, "messages", err, "'messages' must be a list that is not empty");
    if (json_is_array(json_object_get(p->root, "functions")))
        return params_fail(p, "functions", err, "'functions' is not supported: send them as 'tools'");
    if (json_is_object(json_object_get(p->root, "audio"))) return params_fail(p, "audio", err, "'audio' is not supported");
    p->messages = json_incref(m);
    int rc = chat_tools(p, err);
    return rc ? rc : chat_vars(p, err);
}

/* ----------------------------------------------------------------------------------------------------- /v1/responses
 */

/* A call that the model made before; several in a row are one message. */
static bool add_call(json_t *messages, const json_t *item)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    json_t *calls = is(last, "role", "assistant") ? json_object_get(last, "tool_calls") : NULL;
    json_t *one = call(json_object_get(item, "call_id"), json_object_get(item, "name"),
                       json_incref(json_object_get(item, "arguments")));
    if (calls) return add(calls, one);
    return add(messages, json_pack("{s:s, s:n, s:[o]}", "role", "assistant", "content", "tool_calls", one));
}

static int response_item(params *p, const json_t *item, pi_error *err)
{
    const json_t *type = json_object_get(item, "type");
    bool ok = false;
    if (!type || is(item, "type", "message")) {
        json_t *text = flat_text(json_object_get(item, "content"));
        const char *role = json_string_value(json_object_get(item, "role"));
        if (!text || !role) {
            json_decref(text);
            return params_fail(p, "input", err, "an item of 'input' needs a role, and content that is text");
        }
        if (!strcmp(role, "developer")) role = "system";
        ok = add(p->messages, json_pack("{s:s, s:o}", "role", role, "content", text));
    } else if (is(item, "type", "function_call")) {
        if (!json_is_string(json_object_get(item, "name")) || !json_is_string(json_object_get(item, "arguments")))
            return params_fail(p, "input", err, "a function_call of 'input' needs a name, and arguments as text");
        ok = add_call(p->messages, item);
    } else if (is(item, "type", "function_call_output")) {
        json_t *text = flat_text(json_object_get(item, "output"));
        if (!text) return params_fail(p, "input", err, "the output of a function must be text");
        ok = add(p->messages, json_pack("{s:s, s:O?, s:o}", "role", "tool", "tool_call_id",
                                        json_object_get(item, "call_id"), "content", text));
    } else if (is(item, "type", "reasoning")) {
        ok = true; /* of an earlier turn; templates leave it out */
    } else {
        return params_fail(p, "input", err, "'input' has an item of type %.40s, which is not supported",
                           json_string_value(type) ? json_string_value(type) : "?");
    }
    return ok ? PI_OK : params_no_memory(err);
}

static int response_input(params *p, pi_error *err)
{
    const json_t *in = json_object_get(p->root, "input"), *how = json_object_get(p->root, "instructions"), *item;
    size_t i;
    if (!(p->messages = json_array())) return params_no_memory(err);
    if (json_is_string(how) && !add(p->messages, json_pack("{s:s, s:O}", "role", "system", "content", how)))
        return params_no_memory(err);
    if (json_is_string(in)) {
        return add(p->messages, json_pack("{s:s, s:O}", "role", "user", "content", in)) ? PI_OK : params_no_memory(err);
    }
    if (!json_is_array(in) || !json_array_size(in))
        return params_fail(p, "input", err, "'input' must be text or a list of items");
    json_array_foreach(in, i, item) {
        int rc = response_item(p, item, err);
        if (rc) return rc;
    }
    if (!json_array_size(p->messages)) return params_fail(p, "input", err, "'input' has no message, only thoughts");
    return PI_OK;
}

int convert_responses(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->root, "tool_choice"),
                 *parallel = json_object_get(p->root, "parallel_tool_calls");
    json_t *effort = json_object_get(json_object_get(p->root, "reasoning"), "effort");
    if (json_is_string(json_object_get(p->root, "previous_response_id")))
        return params_fail(p, "previous_response_id", err,
                           "answers are not kept here: send the whole conversation in 'input'");
    int rc = response_input(p, err);
    if (!rc) rc = convert_tools(p, "parameters", err);
    if (!rc) rc = params_response_format(p, json_object_get(json_object_get(p->root, "text"), "format"), "text", err);
    if (rc) return rc;
    if (!(p->template_vars = json_object())) return params_no_memory(err);
    const char *word = json_string_value(choice);
    if (word && !strcmp(word, "none")) drop_tools(p);
    else if (word) json_object_set(p->template_vars, "tool_choice", (json_t *) choice);
    else if (is(choice, "type", "function"))
        json_object_set_new(p->template_vars, "tool_choice", named_choice(json_object_get(choice, "name")));
    if (json_is_boolean(parallel)) json_object_set(p->template_vars, "parallel_tool_calls", (json_t *) parallel);
    if (json_is_string(effort)) json_object_set(p->template_vars, "reasoning_effort", effort);
    return PI_OK;
}
