/* Helpers shared by the conversations of all APIs (see convert_impl.h). Runs on the pool. */
#include "serve/convert_impl.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/text.h"

const char *text_of(const json_t *o, const char *field)
{
    const json_t *v = json_object_get(o, field);
    return json_is_c_string(v) ? json_string_value(v) : NULL;
}

bool field_is(const json_t *o, const char *field, const char *word) { return json_text_is(json_object_get(o, field),
        word); }

bool append(json_t *list, json_t *one) { return one && !json_array_append_new(list, one); }

/* ----------------------------------------------------------------------------------------------------------- texts */

static void put_json(buf *b, const json_t *s) { buf_put(b, json_string_value(s), json_string_length(s)); }

/* Moves the text so far into the parts. */
static bool flush(content *c)
{
    if (!c->parts) c->parts = json_array();
    if (!c->text.n) return c->parts;
    json_t *part = json_pack("{s:s, s:o}", "type", "text", "text", json_stringn(c->text.p, c->text.n));
    c->text.n = 0;
    return append(c->parts, part);
}

int content_take(content *c, json_t **out, pi_error *err)
{
    const bool failed = c->text.failed || (c->parts && !flush(c));
    *out = failed ? NULL : c->parts ? json_incref(c->parts) : json_stringn(c->text.p ? c->text.p : "", c->text.n);
    content_free(c);
    return *out ? PI_OK : params_no_memory(err);
}

void content_free(content *c)
{
    json_decref(c->parts);
    buf_free(&c->text);
    c->parts = NULL;
}

/* ---------------------------------------------------------------------------------------------------------- images */

bool is_image_part(const json_t *part)
{
    static const char *const types[] = {"image", "image_url", "input_image", "computer_screenshot"};
    const char *type = text_of(part, "type");
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i])) return true;
    return false;
}

/* Finds the image of a part: a URL, or Anthropic's base64 data. *detail: low, high or auto; NULL = not given. */
static const json_t *image_source(const json_t *part, bool *base64, const char **detail)
{
    const json_t *source = json_object_get(part, "source"), *v = json_object_get(part, "image_url");
    const json_t *of = json_is_object(v) ? v : part;
    *base64 = field_is(source, "type", "base64");
    *detail = text_of(of, "detail");
    if (json_is_object(source)) return json_object_get(source, *base64 ? "data" : "url");
    if (json_is_object(v)) v = json_object_get(v, "url");
    if (!v) v = json_object_get(part, "url");
    return v ? v : json_object_get(part, "image");
}

int add_image(params *p, const char *field, const json_t *part, pi_error *err)
{
    bool base64;
    const char *detail;
    const json_t *v = image_source(part, &base64, &detail);
    if (text_of(part, "file_id") || field_is(json_object_get(part, "source"), "type", "file"))
        return params_fail(p, field, err, "'%s' has an image by file id, but the server stores no files: send a data "
                           "URL", field);
    if (!json_string_length(v))
        return params_fail(p, field, err, "'%s' has an image without data: send a data URL in image_url, or base64 "
                           "data in source", field);
    const param_image image = {.text = json_string_value(v), .n = json_string_length(v), .base64 = base64,
                               .low = detail && !strcmp(detail, "low")};
    return params_add_image(p, &image, err);
}

/* ----------------------------------------------------------------------------------------------------------- parts */

/* Appends <tag>text</tag> for a non-empty string field. */
static void put_tagged(buf *b, const json_t *o, const char *tag)
{
    const json_t *s = json_object_get(o, tag);
    if (!json_string_length(s)) return;
    buf_fmt(b, "<%s>", tag);
    put_json(b, s);
    buf_fmt(b, "</%s>\n", tag);
}

static int no_media(params *p, const char *field, const char *what, unsigned media, content *out, pi_error *err)
{
    if (media & MEDIA_REPLACED) {
        buf_fmt(&out->text, "[%s omitted: this server reads text only]", what);
        return PI_OK;
    }
    return params_fail(p, field, err, "'%s' has %s %s, which is not supported: send text", field,
                       strchr("aeiou", *what) ? "an" : "a", what);
}

/* Appends the text of a string or a list of parts. */
static int put_content(params *p, const char *field, const json_t *value, unsigned media, content *out, pi_error *err)
{
    const json_t *part;
    size_t i;
    int rc = PI_OK;
    if (value && !json_is_null(value) && !json_is_string(value) && !json_is_array(value))
        return params_fail(p, field, err, "'%s' has content that is neither text nor a list of parts", field);
    if (json_is_string(value)) put_json(&out->text, value);
    json_array_foreach(value, i, part) if (!rc) rc = put_part(p, field, part, media, out, err);
    return rc;
}

static int put_decoded(params *p, const char *field, const json_t *source, buf *text, pi_error *err)
{
    const json_t *data = json_object_get(source, "data");
    buf bytes = {0};
    const bool ok = json_is_string(data) && text_put_base64(json_string_value(data), json_string_length(data), &bytes);
    json_t *s = ok && !bytes.failed ? json_stringn(bytes.p ? bytes.p : "", bytes.n) : NULL;
    int rc = PI_OK;
    if (s) put_json(text, s);
    else if (bytes.failed || text_failed()) rc = params_no_memory(err);
    else rc = params_fail(p, field, err, "'%s' has a document with data other than base64 of UTF-8 text", field);
    json_decref(s);
    buf_free(&bytes);
    return rc;
}

/* Appends Anthropic's document; its source is text, content blocks or base64 text. */
static int put_document(params *p, const char *field, const json_t *part, unsigned media, content *out, pi_error *err)
{
    buf *text = &out->text;
    const json_t *source = json_object_get(part, "source"), *data = json_object_get(source, "data");
    const char *type = text_of(source, "media_type");
    const bool is_text = field_is(source, "type", "text") && json_is_string(data);
    const bool is_content = field_is(source, "type", "content");
    const bool is_base64 = field_is(source, "type", "base64") && type && !strncmp(type, "text/", 5);
    if (!is_text && !is_content && !is_base64) {
        const bool pdf = type && !strcmp(type, "application/pdf");
        return no_media(p, field, pdf ? "PDF document" : "document that is not text", media, out, err);
    }
    buf_str(text, text->n || out->parts ? "\n<document>\n" : "<document>\n");
    put_tagged(text, part, "title");
    put_tagged(text, part, "context");
    int rc = PI_OK;
    if (is_text) put_json(text, data);
    else if (is_content) rc = put_content(p, field, json_object_get(source, "content"), media, out, err);
    else rc = put_decoded(p, field, source, text, err);
    buf_str(text, "\n</document>\n");
    return rc;
}

static int put_search_result(params *p, const char *field, const json_t *part, unsigned media, content *out,
                             pi_error *err)
{
    buf *text = &out->text;
    buf_str(text, text->n || out->parts ? "\n<search_result>\n" : "<search_result>\n");
    put_tagged(text, part, "source");
    put_tagged(text, part, "title");
    int rc = put_content(p, field, json_object_get(part, "content"), media, out, err);
    buf_str(text, "\n</search_result>\n");
    return rc;
}

int put_part(params *p, const char *field, const json_t *part, unsigned media, content *out, pi_error *err)
{
    static const struct { const char *type, *what; } kinds[] = {
        {"image", "image"}, {"image_url", "image"}, {"input_image", "image"}, {"computer_screenshot", "image"},
        {"input_audio", "audio clip"}, {"audio", "audio clip"}, {"audio_url", "audio clip"},
        {"video", "video"}, {"video_url", "video"}, {"input_file", "file"}, {"file", "file"},
        {"container_upload", "file"},
    };
    const char *type = text_of(part, "type");
    const json_t *t = json_object_get(part, type && !strcmp(type, "refusal") ? "refusal" : "text");
    if (p->reads_images && !(media & MEDIA_NO_IMAGES) && is_image_part(part)) {
        if (!flush(out) || !append(out->parts, json_pack("{s:s}", "type", "image"))) return params_no_memory(err);
        return add_image(p, field, part, err);
    }
    if (type && !strcmp(type, "document")) return put_document(p, field, part, media, out, err);
    if (type && !strcmp(type, "search_result")) return put_search_result(p, field, part, media, out, err);
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type)) return no_media(p, field, kinds[i].what, media, out, err);
    if (json_is_string(t)) {
        put_json(&out->text, t);
        return PI_OK;
    }
    if (media & MEDIA_REPLACED && type) {
        buf_fmt(&out->text, "[part of type %.40s omitted: this server reads text only]", type);
        return PI_OK;
    }
    return params_fail(p, field, err, "'%s' has a content part of type %.40s without text: send text parts", field,
                       type ? type : "none");
}

int content_of(params *p, const char *field, const json_t *value, unsigned media, json_t **out, pi_error *err)
{
    content c = {.parts = NULL};
    *out = NULL;
    int rc = put_content(p, field, value, media, &c, err);
    if (!rc) return content_take(&c, out, err);
    content_free(&c);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- messages */

int add_message(params *p, const char *role, json_t *content, pi_error *err)
{
    return append(p->messages, json_pack("{s:s, s:o}", "role", role, "content", content)) ? PI_OK
        : params_no_memory(err);
}

int add_tool_result(params *p, json_t *id, json_t *result, pi_error *err)
{
    json_t *m = json_pack("{s:s, s:O*, s:o}", "role", "tool", "tool_call_id", id, "content", result);
    return append(p->messages, m) ? PI_OK : params_no_memory(err);
}

json_t *call_json(json_t *id, const char *name, json_t *arguments)
{
    return json_pack("{s:O?, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

/* ----------------------------------------------------------------------------------------------------------- tools */

int add_function(params *p, const json_t *tool, const char *name, const char *schema_field, pi_error *err)
{
    json_t *f = json_pack("{s:s}", "name", name);
    json_t *text = json_object_get(tool, "description"), *schema = json_object_get(tool, schema_field);
    if (!p->tools && !(p->tools = json_array())) {
        json_decref(f);
        return params_no_memory(err);
    }
    if (f && json_is_string(text)) json_object_set(f, "description", text);
    if (f && json_is_object(schema)) json_object_set(f, "parameters", schema);
    return append(p->tools, json_pack("{s:s, s:o}", "type", "function", "function", f)) ? PI_OK : params_no_memory(err);
}

/* Records a skipped item for the log. Names come from clients, so characters that could break a log line become
 * '?'. */
void leave_out(params *p, const char *what)
{
    enum { MAX_NAME = 40, MAX_ALL = 200 };
    if (p->left_out.n > MAX_ALL) return;
    if (p->left_out.n) buf_str(&p->left_out, ", ");
    for (size_t i = 0; what[i] && i < MAX_NAME; i++) {
        const char c = what[i];
        buf_put(&p->left_out, c > ' ' && c < 127 && c != '"' ? &c : "?", 1);
    }
}

int begin_vars(params *p, pi_error *err)
{
    static const char *const passed[] = {"add_generation_prompt", "continue_final_message", "enable_thinking",
                                         "documents"};
    json_t *own = json_object_get(p->root, "chat_template_kwargs");
    if (own && !json_is_null(own) && !json_is_object(own))
        return params_fail(p, "chat_template_kwargs", err, "'chat_template_kwargs' must be an object");
    bool thoughts = true;
    int rc = params_bool(p, p->root, "include_reasoning", &thoughts, err);
    if (rc) return rc;
    p->hide_thoughts = !thoughts;
    p->template_vars = json_object();
    if (!p->template_vars || !json_add_members(p->template_vars, own)) return params_no_memory(err);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *v = json_object_get(p->root, passed[i]);
        if (v && !json_is_null(v) && json_object_set(p->template_vars, passed[i], v)) return params_no_memory(err);
    }
    return PI_OK;
}

int choose_word(params *p, const char *word, pi_error *err)
{
    return json_object_set_new(p->template_vars, "tool_choice", json_string(word)) ? params_no_memory(err) : PI_OK;
}

int choose_function(params *p, const char *name, pi_error *err)
{
    json_t *v = json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", name);
    return json_object_set_new(p->template_vars, "tool_choice", v) ? params_no_memory(err) : PI_OK;
}

static const char *function_name(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");
    return text_of(f ? f : tool, "name");
}

static bool names(const json_t *list, const char *name)
{
    const json_t *t;
    size_t i;
    json_array_foreach(list, i, t) {
        const char *own = function_name(t);
        if (own && !strcmp(own, name)) return true;
    }
    return false;
}

int allow_tools(params *p, const json_t *list, pi_error *err)
{
    json_t *t, *kept = json_array();
    size_t i;
    if (!kept) return params_no_memory(err);
    if (!json_is_array(list)) {
        json_decref(kept);
        return params_fail(p, "tool_choice", err, "'tool_choice' of type allowed_tools needs a list of 'tools'");
    }
    json_array_foreach(p->tools, i, t) if (names(list, function_name(t))) json_array_append(kept, t);
    json_decref(p->tools);
    p->tools = kept;
    return PI_OK;
}

static void drop_tools(params *p)
{
    json_decref(p->tools);
    p->tools = NULL;
}

int check_choice(params *p, pi_error *err)
{
    const json_t *choice = json_object_get(p->template_vars, "tool_choice");
    const char *word = json_string_value(choice), *name = function_name(choice);
    const bool none = word && !strcmp(word, "none"), must = word && !strcmp(word, "required");
    if (none || !json_array_size(p->tools)) drop_tools(p);
    if (word && !none && !must && strcmp(word, "auto") != 0)
        return params_fail(p, "tool_choice", err,
                           "'tool_choice' is '%.40s'; it must be auto, required, none or a function", word);
    if (must && !p->tools)
        return params_fail(p, "tool_choice", err,
                           "'tool_choice' requires a call, but 'tools' has no function");
    if (choice && !word && !json_is_null(choice) && !name)
        return params_fail(p, "tool_choice", err,
                           "'tool_choice' must be auto, required, none or an object that names a function");
    if (name && !names(p->tools, name))
        return params_fail(p, "tool_choice", err, "'tool_choice' names '%.60s', not a function in 'tools'", name);
    return PI_OK;
}

int set_effort(params *p, const char *field, const json_t *effort, pi_error *err)
{
    const char *word = json_string_value(effort);
    json_t *vars = p->template_vars;
    if (!effort || json_is_null(effort)) return PI_OK;
    if (!word) return params_fail(p, field, err, "'%s' must be a word: low, medium or high", field);
    if (strcmp(word, "none") != 0)
        return json_object_set_new(vars, "reasoning_effort", json_string(word)) ? params_no_memory(err) : PI_OK;
    json_object_del(vars, "reasoning_effort"); /* templates disable thinking with another variable */
    if (json_object_get(vars, "enable_thinking")) return PI_OK;
    return json_object_set_new(vars, "enable_thinking", json_false()) ? params_no_memory(err) : PI_OK;
}
