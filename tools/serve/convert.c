/* /v1/chat/completions, OpenAI's format (see convert.h): checks it and passes it on almost unchanged. Runs on the
 * pool. */
#include "serve/convert.h"

#include <string.h>

#include "json.h"
#include "serve/convert_impl.h"
#include "serve/fields.h"

/* Passes "tool_choice" and other fields to the template variables. */
static int chat_vars(params *p, pi_error *err)
{
    static const char *const passed[] = {"tool_choice", "parallel_tool_calls"};
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *v = json_object_get(p->root, passed[i]);
        if (v && !json_is_null(v) && json_object_set(p->template_vars, passed[i], v)) return params_no_memory(err);
    }
    json_t *effort = json_object_get(p->root, "reasoning_effort");
    if (!effort || json_is_null(effort)) effort = json_object_get(p->template_vars, "reasoning_effort");
    return set_effort(p, "reasoning_effort", effort, err);
}

static int chat_tools(params *p, pi_error *err)
{
    json_t *tools = json_object_get(p->root, "tools"), *t;
    size_t i;
    if (!tools || json_is_null(tools)) return PI_OK;
    if (!json_is_array(tools)) return params_fail(p, "tools", err, "'tools' must be a list");
    if (!(p->tools = json_array())) return params_no_memory(err);
    json_array_foreach(tools, i, t) {
        const char *type = text_of(t, "type");
        if (!type) return params_fail(p, "tools", err,
                                      "'tools' has an entry without a type; give functions the type function");
        if (strcmp(type, "function") != 0) {
            leave_out(p, type);
            continue;
        }
        if (!text_of(json_object_get(t, "function"), "name"))
            return params_fail(p, "tools", err,
                               "'tools' has a function without a name, or with a zero byte in its name");
        if (json_array_append(p->tools, t)) return params_no_memory(err);
    }
    return PI_OK;
}

/* Handles {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}: restricts the choice to some of the tools. */
static int chat_choice(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->template_vars, "tool_choice");
    if (field_is(choice, "type", "allowed_tools")) {
        const json_t *allowed = json_object_get(choice, "allowed_tools");
        int rc = allow_tools(p, json_object_get(allowed, "tools"), err);
        if (!rc) rc = choose_word(p, field_is(allowed, "mode", "required") ? "required" : "auto", err);
        if (rc) return rc;
    }
    return check_choice(p, err);
}

/* Sets m's content in a copy, *copy; takes ownership of content. */
static int copy_with(const json_t *m, json_t *content, json_t **copy, pi_error *err)
{
    *copy = json_object();
    const bool whole = json_add_members(*copy, (json_t *) m);
    if (!json_object_set_new(*copy, "content", content) && whole) return PI_OK;
    json_decref(*copy);
    *copy = NULL;
    return params_no_memory(err);
}

/* Copies a list of parts, with images as parts of type image; the images are added to p. */
static int convert_images(params *p, const json_t *parts, json_t **out, pi_error *err)
{
    json_t *part;
    size_t i;
    int rc = (*out = json_array()) ? PI_OK : params_no_memory(err);
    json_array_foreach(parts, i, part) {
        if (rc) break;
        const bool image = is_image_part(part);
        if (image) rc = add_image(p, "messages", part, err);
        if (!rc && !append(*out, image ? json_pack("{s:s}", "type", "image") : json_incref(part)))
            rc = params_no_memory(err);
    }
    if (rc) json_decref(*out);
    return rc;
}

/* Converts images, and replaces parts of a tool's result that the server does not read: *copy is a copy of the message.
 * *copy == NULL: the message is used unchanged. */
static int convert_media(params *p, const json_t *m, json_t **copy, pi_error *err)
{
    const json_t *value = json_object_get(m, "content"), *part;
    bool images = false, others = false;
    json_t *content;
    size_t i;
    *copy = NULL;
    json_array_foreach(value, i, part) {
        if (is_image_part(part)) images = true;
        else if (!json_is_string(json_object_get(part, "text"))) others = true;
    }
    const bool replaces = field_is(m, "role", "tool") && (others || (images && !p->reads_images));
    if (!replaces && !images) return PI_OK;
    if (!replaces && !p->reads_images)
        return params_fail(p, "messages", err, "'messages' has an image, which is not supported: send text, or start "
                           "the server with --mmproj");
    int rc = replaces ? content_of(p, "messages", value, MEDIA_REPLACED, &content, err)
                      : convert_images(p, value, &content, err);
    return rc ? rc : copy_with(m, content, copy, err);
}

static int chat_messages(params *p, pi_error *err)
{
    json_t *list = json_object_get(p->root, "messages"), *m, *copy;
    size_t i;
    if (!json_is_array(list) || !json_array_size(list))
        return params_fail(p, "messages", err, "'messages' must be a non-empty list");
    if (!(p->messages = json_copy(list))) return params_no_memory(err);
    json_array_foreach(list, i, m) {
        int rc = convert_media(p, m, &copy, err);
        if (!rc && copy && json_array_set_new(p->messages, i, copy)) rc = params_no_memory(err);
        if (rc) return rc;
    }
    return PI_OK;
}

int convert_chat(params *p, pi_error *err)
{
    int rc = fields_check(p, API_CHAT, err);
    if (!rc) rc = begin_vars(p, err);
    if (!rc) rc = chat_messages(p, err);
    if (!rc) rc = chat_tools(p, err);
    if (!rc) rc = chat_vars(p, err);
    return rc ? rc : chat_choice(p, err);
}
