/* Helpers shared by the conversations of all APIs (see convert.h): text of content parts, function tools, tool choice.
 * Works on JSON only. Nothing is kept after the call except the values stored in params. */
#ifndef PAGEDINFER_SERVE_CONVERT_IMPL_H
#define PAGEDINFER_SERVE_CONVERT_IMPL_H

#include "serve/buf.h"
#include "serve/params.h"

/* Handling of content parts that are not text: refuse the request, or insert a line of text instead of the part. */
enum media { MEDIA_REFUSED, MEDIA_REPLACED };

/* Returns the string o[field]; NULL if the value is not a string or contains a zero byte. */
const char *text_of(const json_t *o, const char *field);
/* True if o[field] is the string word. */
bool field_is(const json_t *o, const char *field, const char *word);
/* Appends one to the list and takes its reference. Returns false if out of memory. */
bool append(json_t *list, json_t *one);

/* Returns the text of a string, of null (empty) or of a list of content parts of any API: text, input_text,
 * output_text, refusal, document, search_result. *out is a new reference. field names the location in errors. Returns
 * PI_EINVAL or PI_ENOMEM on failure. */
int content_text(params *p, const char *field, const json_t *content, enum media media, json_t **out, pi_error *err);
/* Appends the text of one content part to text. */
int part_text(params *p, const char *field, const json_t *part, enum media media, buf *text, pi_error *err);

/* Adds {role, content} to p->messages; takes ownership of content. */
int add_message(params *p, const char *role, json_t *content, pi_error *err);
/* Adds the result of the tool call id, which may be NULL; takes ownership of text. */
int add_tool_result(params *p, json_t *id, json_t *text, pi_error *err);
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
