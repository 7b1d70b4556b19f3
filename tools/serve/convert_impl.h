/* Helpers shared by the conversations of all APIs (see convert.h): content parts, function tools, tool choice.
 * Works on JSON only. Nothing is kept after the call except the values stored in params. */
#ifndef PAGEDINFER_SERVE_CONVERT_IMPL_H
#define PAGEDINFER_SERVE_CONVERT_IMPL_H

#include "serve/buf.h"
#include "serve/params.h"

/* Handling of content parts that the server does not read: refuse the request, or insert a line of text instead of the
 * part. Images are read if p->reads_images, except with MEDIA_NO_IMAGES. Flags, combined with |. */
enum { MEDIA_REFUSED = 0, MEDIA_REPLACED = 1, MEDIA_NO_IMAGES = 2 };

/* Content of a message under construction. Begin with zeros. */
typedef struct content {
    buf text;      /* text after the last image */
    json_t *parts; /* text and images so far; NULL = no image yet */
} content;
/* Appends one content part of any API. An image is added to p, and its place is a part of type image. */
int put_part(params *p, const char *field, const json_t *part, unsigned media, content *out, pi_error *err);
/* Stores a new reference to the content, a string or a list of parts with images, in *out, and frees c. */
int content_take(content *c, json_t **out, pi_error *err);
void content_free(content *c);
/* True if the part is an image in one of the APIs. */
bool is_image_part(const json_t *part);
/* Adds the image of a part to p. PI_EINVAL: it has none. */
int add_image(params *p, const char *field, const json_t *part, pi_error *err);

/* Returns the string o[field]; NULL if the value is not a string or contains a zero byte. */
const char *text_of(const json_t *o, const char *field);
/* True if o[field] is the string word. */
bool field_is(const json_t *o, const char *field, const char *word);
/* Appends one to the list and takes its reference. Returns false if out of memory. */
bool append(json_t *list, json_t *one);

/* Converts a string, null (empty) or a list of content parts of any API: text, input_text, output_text, refusal,
 * document, search_result, images. *out is a new reference, to a string unless there are images. field names the
 * location in errors. Returns PI_EINVAL or PI_ENOMEM on failure. */
int content_of(params *p, const char *field, const json_t *value, unsigned media, json_t **out, pi_error *err);

/* Adds {role, content} to p->messages; takes ownership of content. */
int add_message(params *p, const char *role, json_t *content, pi_error *err);
/* Adds the result of the tool call id, which may be NULL; takes ownership of result. */
int add_tool_result(params *p, json_t *id, json_t *result, pi_error *err);
/* Returns a tool call in the format of a chat message; takes ownership of arguments (a JSON string). NULL = out of
 * memory. */
json_t *call_json(json_t *id, const char *name, json_t *arguments);

/* Adds a function to p->tools under this name. schema_field: the field of tool that contains the schema. */
int add_function(params *p, const json_t *tool, const char *name, const char *schema_field, pi_error *err);
/* Records for the log that the server ignores `what`, which it does not support. */
void leave_out(params *p, const char *what);

/* Builds p->template_vars from "chat_template_kwargs" and from the fields that are themselves template variables. */
int begin_vars(params *p, pi_error *err);
/* Sets template variable "tool_choice". */
int choose_word(params *p, const char *word, pi_error *err);
int choose_function(params *p, const char *name, pi_error *err);
/* Removes all tools that are not in list, a list of {name} or {function: {name}}. */
int allow_tools(params *p, const json_t *list, pi_error *err);
/* Checks that the required tool exists; removes all tools for "none". */
int check_choice(params *p, pi_error *err);
/* Sets the template variables of a reasoning effort; "none" disables thinking. NULL and JSON null change nothing. */
int set_effort(params *p, const char *field, const json_t *effort, pi_error *err);

#endif
