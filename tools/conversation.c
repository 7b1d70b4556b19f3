/* Messages as JSON (see conversation.h). Memory: jansson's. Files are untrusted: invalid conversations are refused. */
#include "conversation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static const char *role_of(const json_t *messages, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role ? role : "";
}

bool conversation_add(json_t *messages, const char *role, const char *text, size_t n, const char *thoughts,
                      size_t n_thoughts)
{
    json_t *m = json_pack("{s:s, s:o*}", "role", role, "content", json_stringn(text ? text : "", n));
    bool ok = m && json_object_get(m, "content");
    if (ok && n_thoughts) ok = !json_object_set_new(m, "reasoning_content", json_stringn(thoughts, n_thoughts));
    if (ok) return !json_array_append_new(messages, m);
    json_decref(m);
    return false;
}

bool conversation_set_content(json_t *messages, json_t *content)
{
    json_t *m = json_array_get(messages, json_array_size(messages) - 1);
    return content && !json_object_set_new(m, "content", content);
}

bool conversation_last_is(const json_t *messages, const char *role)
{
    size_t n = json_array_size(messages);
    return n && !strcmp(role_of(messages, n - 1), role);
}

void conversation_drop_last(json_t *messages)
{
    if (json_array_size(messages)) json_array_remove(messages, json_array_size(messages) - 1);
}

void conversation_clear(json_t *messages)
{
    size_t keep = !strcmp(role_of(messages, 0), "system");
    while (json_array_size(messages) > keep) conversation_drop_last(messages);
}

bool conversation_set_system(json_t *messages, const char *text, size_t n)
{
    json_t *m = n ? json_pack("{s:s, s:o*}", "role", "system", "content", json_stringn(text, n)) : NULL;
    if (n && !json_object_get(m, "content")) {
        json_decref(m);
        return false;
    }
    if (!strcmp(role_of(messages, 0), "system")) json_array_remove(messages, 0);
    return !n || !json_array_insert_new(messages, 0, m);
}

/* ----------------------------------------------------------------------------------------------------------- files */

int conversation_save(const cli *c, const json_t *messages, const char *path)
{
    char *text = json_dumps(messages, JSON_INDENT(2));
    if (!text) return cli_error(c, CLI_OS, "out of memory");
    FILE *f = fopen(path, "w");
    bool ok = f && fputs(text, f) >= 0 && fputc('\n', f) != EOF;
    if (f && fclose(f)) ok = false;
    free(text);
    return ok ? CLI_OK : cli_error(c, CLI_IO, "%s: %s", path, strerror(errno));
}

/* True for a list of texts and image files (picture.h). */
static bool are_parts(const json_t *content)
{
    const json_t *part;
    size_t i;
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool image = type && !strcmp(type, "image");
        if (!type || (!image && strcmp(type, "text") != 0)) return false;
        if (!json_is_string(json_object_get(part, image ? "path" : "text"))) return false;
    }
    return json_array_size(content) > 0;
}

/* Returns the error in a list of messages; NULL = valid. */
static const char *fault(const json_t *list)
{
    if (!json_is_array(list)) return "the file is not an array of messages";
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *content = json_object_get(m, "content");
        if (!json_is_string(json_object_get(m, "role"))) return "a message has no role";
        if (!json_is_string(content) && !are_parts(content))
            return "a message's content is neither text nor a list of texts and images with a path";
    }
    return NULL;
}

int conversation_load(const cli *c, const char *path, json_t **out)
{
    json_fault at;
    char *text;
    size_t n;
    int code = cli_read_file(c, path, &text, &n);
    if (code) return code;
    json_t *root = json_read(text, n, &at);
    free(text);
    if (!root && at.no_memory) return cli_error(c, CLI_OS, "%s: out of memory", path);
    if (!root) return cli_error(c, CLI_DATA, "%s: line %zu, column %zu: %s", path, at.line, at.column, at.what);
    json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    const char *what = fault(list);
    if (what) code = cli_error(c, CLI_DATA, "%s: %s", path, what);
    else *out = json_incref(list);
    json_decref(root);
    return code;
}

/* ------------------------------------------------------------------------------------------------------- rendering */

int conversation_render(pi_engine *e, const json_t *messages, const char *options, char **out, size_t *len,
                        pi_error *err)
{
    char *json = json_write(messages, 0);
    *out = NULL;
    if (!json) return PI_ENOMEM;
    int64_t n = pi_chat_render(e, json, NULL, options, NULL, 0, err);
    if (n >= 0 && !(*out = malloc((size_t) n + 1))) n = PI_ENOMEM;
    if (n >= 0) n = pi_chat_render(e, json, NULL, options, *out, *len = (size_t) n, err);
    free(json);
    if (n >= 0) (*out)[*len] = 0;
    return n < 0 ? (int) n : PI_OK;
}
