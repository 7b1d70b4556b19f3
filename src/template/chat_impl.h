/* Internals of a loaded chat template, shared by the chat_*.c files. */
#ifndef PI__CHAT_IMPL_H
#define PI__CHAT_IMPL_H

#include "template/chat.h"
#include "template/chat_roles.h"
#include "template/jinja.h"

enum pi__chat_args { PI__ARGS_KEEP, PI__ARGS_OBJECT, PI__ARGS_TEXT };

struct pi__chat {
    const pi__vocab *v;
    pi__jinja *t;
    char *kwargs;       /* JSON object; NULL = none */
    uint8_t *markup;    /* pi__trust_markup */
    bool typed_content; /* content must be a list of parts */
    bool null_calls;    /* empty content of a message with calls must be none instead of "" */
    bool no_none_tools; /* without tools, the variable `tools` must be undefined instead of none */
    bool function_vars; /* the template needs the variables functions (tools as text) and datetime */
    bool blank_answers; /* an assistant message without text and calls must contain a space instead of "" */
    bool described;     /* tools must have a description, which may be empty */
    bool with_parameters; /* tools must have parameters */
    bool args_any;      /* arguments that are not an object may stay a text, which the template copies unchanged */
    bool short_ids;     /* ids of calls must be nine letters and digits */
    bool named_ids;     /* the template shows calls by their ids, which must contain the function's name */
    bool result_objects; /* results of tools may be objects, which the template writes as JSON */
    int args;           /* enum pi__chat_args: required type of past calls' arguments; KEEP = the template shows none */
    pi__chat_roles roles;
    const struct pi__chat_form *form; /* form of the calls that the model writes; pi__chat_form_generic by default */
    bool user_images, tool_images; /* the template writes images of messages with these roles from typed parts */
    pi__str placeholder; /* its text for an image, owned; used only with user_images or tool_images */
    pi__str image_before, image_after; /* plain text around each image, owned (pi__chat_set_image) */
    bool describes;     /* tools are described in the system message: the template shows none, or in no known form */
};

/* Fills err with z->code, the error of a zone that failed, and returns the code. */
int pi__chat_no_room(const pi__zone *z, pi_error *err);
/* Creates the variables of a rendering: a map of c->kwargs and options (JSON or NULL). */
int pi__chat_vars(const pi__chat *c, pi__zone *z, const char *options, pi__val *vars, pi_error *err);
/* Renders messages and tools, which must have the template's conventions, and appends the output to out. Adds
 * variables to vars. */
int pi__chat_render_values(const pi__chat *c, pi__zone *z, pi__dict *vars, pi__val messages, pi__val tools,
                           const pi__jinja_env *env, pi__text *out, pi_error *err);

/* Renders small conversations to set all fields of c that describe the template: flags, args, roles, form and
 * describes. Returns PI_OK or PI_ENOMEM. A template that fails in a probe lacks the probed feature. */
int pi__chat_probe(pi__chat *c);
/* A MARK replaces a text in a test conversation, to see if the template places it. The number makes it unique. */
#define PI__MARK "mQ%zuQm"
/* Searches the output for marks 0 to n - 1 and sets seen[i] if mark i is found. Returns true if all marks are found,
 * and the marks with loose[i] false are in order; otherwise *lost is the first missing one. loose NULL = any order. */
bool pi__chat_marks_placed(const pi__text *t, size_t n, const bool *loose, bool *seen, size_t *lost);

/* ---- messages (chat_messages.c, chat_calls.c, chat_place.c), converted in place */
/* Converts each message of a list to the template's conventions: content, calls, ids. Images become tags
 * (chat_tag.c); their number is added to *n_images. */
int pi__chat_fit_messages(const pi__chat *c, pi__zone *z, pi__val *messages, size_t *n_images, pi_error *err);
/* Converts the tool_calls of one message; i: its index, for errors. */
int pi__chat_fit_calls(const pi__chat *c, pi__zone *z, pi__dict *message, size_t i, pi_error *err);
/* Adds missing ids and names to calls and results, and replaces ids that the template rejects. */
int pi__chat_fit_ids(const pi__chat *c, pi__zone *z, pi__list *messages, pi_error *err);
/* Merges, converts and splits converted messages, so that a template with these roles places each of them. origin:
 * receives for each resulting message the index (INT) of a message that it was made from. */
int pi__chat_place(const pi__chat_roles *r, const pi__chat *c, pi__zone *z, pi__list *messages, pi__list *origin,
                   pi_error *err);
/* Checks that the template shows everything: renders the conversation again with a mark in place of each text and each
 * call's arguments. PI_EUNSUPPORTED: a mark is missing, and err names its message. PI_EINVAL: the rendering failed.
 * limit: memory limit of the first rendering in bytes. */
int pi__chat_check(const pi__chat *c, const pi__list *messages, const pi__list *origin, const char *options,
                   bool goes_on, bool tools, const pi__jinja_env *env, size_t limit, pi__work *work, pi_error *err);
/* Returns true if a converted message has this role. */
static inline bool pi__chat_has_role(const pi__val *m, const char *role)
{
    return pi__str_is(pi__dict_get_str(m->map, "role")->s, role);
}
/* Returns the text of converted content: a string, or parts with a single text. NULL = anything else. */
pi__val *pi__chat_content_text(const pi__val *m);
/* Writes v, a value parsed from JSON, as a JSON text to *out, in memory of z. False: z->code is set. */
bool pi__chat_json(pi__zone *z, const pi__val *v, const pi__json_style *style, pi__str *out);
/* Appends mark to the text of the last message, which must be the assistant's and have no calls. */
int pi__chat_mark_end(pi__zone *z, pi__val *messages, const char *mark, pi_error *err);

/* ---- images (chat_tag.c, chat_image.c) */
enum { PI__IMAGE_TAG = 11 /* bytes of a tag */ };
/* Creates the tag of an image. False: z->code is set. z must keep trust. */
bool pi__chat_image_tag(pi__zone *z, size_t number, pi__str *out);
/* Reads the number of the tag at p, with its flags. False: it is not a complete tag. */
bool pi__chat_tag_number(const char *p, const char *flags, size_t *number);
/* Returns the position of the next tag in s at or after `from`; SIZE_MAX = none. */
size_t pi__chat_next_tag(const pi__zone *z, pi__str s, size_t from);
/* Copies the list of messages to *out, with tags as typed parts where the template writes images itself. Appends the
 * numbers of all images to order, as the messages have them: converted messages may have another order. */
int pi__chat_image_parts(const pi__chat *c, pi__zone *z, const pi__val *messages, pi__val *out, pi__ids *order,
                         pi_error *err);
/* Finds the text that the template writes for an image: the control tokens between marks first and first + 1, and
 * between first + 1 and first + 2, which must be equal. *out points into t. */
bool pi__chat_placeholder(const pi__chat *c, const pi__text *t, int first, pi__str *out);
/* Flags the images in rendered text, which must keep trust, and inserts the plain text around them. order: the numbers
 * of the images in the messages. PI_EUNSUPPORTED: the text does not show each of them once, in this order. */
int pi__chat_find_images(const pi__chat *c, const pi__ids *order, pi__text *t, pi_error *err);

/* ---- tools (chat_tools.c) */
/* Checks tools and wraps bare functions; an empty list becomes none. */
int pi__chat_fit_tools(pi__zone *z, pi__val *tools, pi_error *err);
/* Adds members to converted tools that the template needs. */
int pi__chat_fill_tools(const pi__chat *c, pi__zone *z, pi__val *tools, pi_error *err);
/* Describes tools in the messages if the template does not, and converts past calls and results that it does not place
 * to text (chat_generic.c). Described tools become none. */
int pi__chat_generic(const pi__chat *c, pi__zone *z, pi__val *tools, pi__val *messages, pi_error *err);
/* Returns function i of tools, or the one with this name; NULL if it does not exist or has no name. */
const pi__dict *pi__chat_function(const pi__val *tools, size_t i, pi__str *name);
const pi__dict *pi__chat_find_function(const pi__val *tools, pi__str name);

enum { PI__CHOICE_AUTO, PI__CHOICE_NONE, PI__CHOICE_REQUIRED };
typedef struct pi__chat_choice { /* options tool_choice and parallel_tool_calls */
    int kind;      /* PI__CHOICE_* */
    pi__str name;  /* the only function that may be called; n == 0: any */
    bool parallel; /* more than one call is allowed */
} pi__chat_choice;
int pi__chat_choice_read(const pi__dict *options, const pi__val *tools, pi__chat_choice *out, pi_error *err);
/* Parses JSON texts (or NULL) to values in z, and the options for calls. Initializes z; the caller frees it in any
 * case. The texts must outlive z. */
int pi__chat_read_tools(pi__zone *z, const char *tools, const char *options, pi__val *tools_out, pi__val *options_out,
                        pi__chat_choice *choice, pi_error *err);

#endif
