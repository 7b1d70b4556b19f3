/* Parts that conversations of all APIs share (see convert.h): text of content parts, function tools, tool choice.
 * Pure JSON; nothing here outlives the call but what is put into params. */
#ifndef PAGEDINFER_SERVE_CONVERT_IMPL_H
#define PAGEDINFER_SERVE_CONVERT_IMPL_H

#include "serve/buf.h"
#include "serve/params.h"

/* Content parts that are not text: a request that holds one is refused, or a line of text takes the part's place. */
enum media { MEDIA_REFUSED, MEDIA_REPLACED };

/* The string o[field]; NULL: another value, or a string with a zero byte. */
const char *text_of(const json_t *o, const char *field);
/* true: o[field] is the string word. */
bool field_is(const json_t *o, const char *field, const char *word);
/* Appends one, whose reference it takes. false: out of memory. */
bool append(json_t *list, json_t *one);

/* Text of a string, of null (empty) or of a list of parts in any API's form: text, input_text, output_text, refusal,
 * document, search_result. *out is a new reference. field names the place in errors. PI_EINVAL, PI_ENOMEM. */
int content_text(params *p, const char *field, const json_t *content, enum media media, json_t **out, pi_error *err);
/* Text of one part, appended to text. */
int part_text(params *p, const char *field, const json_t *part, enum media media, buf *text, pi_error *err);

/* Adds {role, content} to p->messages; takes content over. */
int add_message(params *p, const char *role, json_t *content, pi_error *err);
/* Adds the result of the tool call id, which may be NULL; takes text over. */
int add_tool_result(params *p, json_t *id, json_t *text, pi_error *err);
/* A call as a chat message has it; takes arguments (a JSON string) over. NULL: out of memory. */
json_t *call_json(json_t *id, const char *name, json_t *arguments);

/* Adds a function to p->tools under this name. schema_field: where tool has its schema. */
int add_function(params *p, const json_t *tool, const char *name, const char *schema_field, pi_error *err);
/* Notes for the log that the server leaves `what` out, which it cannot offer. */
void leave_out(params *p, const char *what);

/* Makes p->template_vars of "chat_template_kwargs" and of fields that are variables of their own. */
int begin_vars(params *p, pi_error *err);
/* Sets template variable "tool_choice". */
int choose_word(params *p, const char *word, pi_error *err);
int choose_function(params *p, const char *name, pi_error *err);
/* Keeps only the tools that a list of {name} or {function: {name}} has. */
int allow_tools(params *p, const json_t *list, pi_error *err);
/* Checks that the tool that must be called is there; drops all tools for "none". */
int check_choice(params *p, pi_error *err);
/* Sets template variables for a reasoning effort: "none" switches thinking off. NULL, null: nothing. */
int set_effort(params *p, const char *field, const json_t *effort, pi_error *err);

#endif
