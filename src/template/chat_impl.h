/* The inside of a loaded chat template: what the chat_*.c files share. */
#ifndef PI__CHAT_IMPL_H
#define PI__CHAT_IMPL_H

#include "template/chat.h"
#include "template/chat_roles.h"
#include "template/jinja.h"

enum pi__chat_args { PI__ARGS_KEEP, PI__ARGS_OBJECT, PI__ARGS_TEXT };

struct pi__chat {
    const pi__vocab *v;
    pi__jinja *t;
    char *kwargs;       /* JSON object, or NULL */
    uint8_t *markup;    /* pi__trust_markup */
    bool typed_content; /* content must be a list of parts */
    bool null_calls;    /* content beside calls must be none where it is empty */
    bool no_none_tools; /* without tools the variable must not be there, instead of none */
    bool function_vars; /* it needs variables of its own: functions and datetime */
    bool blank_answers; /* an assistant's message without text and calls must have a space */
    bool described;     /* tools must have a description; one that is empty does */
    bool with_parameters; /* and parameters */
    bool args_any;      /* arguments that must be an object may also be a text, which is written as it is */
    bool short_ids;     /* ids of calls must have nine letters and digits */
    bool named_ids;     /* calls are shown by their ids, which have to hold the function's name */
    bool result_objects; /* results of tools may be objects; they are written as JSON */
    int args;           /* enum pi__chat_args: the form of arguments of calls; KEEP: none is shown */
    pi__chat_roles roles;
    const struct pi__chat_form *form; /* of calls, never NULL */
    bool describes;     /* tools are described in the system message: the template does not place them, or in no known form */
};

/* The variables of a rendering: a map of c->kwargs and options (JSON or NULL). */
int pi__chat_vars(const pi__chat *c, pi__zone *z, const char *options, pi__val *vars, pi_error *err);
/* Renders messages and tools as they are. */
int pi__chat_render_values(const pi__chat *c, pi__zone *z, pi__dict *vars, pi__val messages, pi__val tools,
                           const pi__jinja_env *env, pi__text *out, pi_error *err);

/* Fills c's forms and roles. PI_ENOMEM or PI_OK; a template that fails in a probe just cannot do what was asked. */
int pi__chat_probe(pi__chat *c);
/* A MARK stands for a text in a conversation that is rendered to see what is placed; a number makes it unique. */
#define PI__MARK "mQ%zuQm"
/* Finds marks 0 to n - 1: sets seen[i] where mark i is in the text. True: all are, and but for those with loose[i] in
 * order; else *lost is the first that is not. loose NULL: order does not count. */
bool pi__chat_marks_placed(const pi__text *t, size_t n, const bool *loose, bool *seen, size_t *lost);

/* ---- messages (chat_messages.c, chat_calls.c, chat_place.c), in place */
/* Brings each message of a list into the form that the template takes: content, calls, ids. */
int pi__chat_fit_messages(const pi__chat *c, pi__zone *z, pi__val *messages, pi_error *err);
/* The same for the tool_calls of one message; i: its number, for errors. */
int pi__chat_fit_calls(const pi__chat *c, pi__zone *z, pi__dict *message, size_t i, pi_error *err);
/* Gives calls and results the ids and names that they lack, or that the template asks for. */
int pi__chat_fit_ids(const pi__chat *c, pi__zone *z, pi__list *messages, pi_error *err);
/* Merges, converts and splits messages that were fit, so that a template with these roles places each of them.
 * origin: for each message afterwards the number (INT) of one that it was made from. */
int pi__chat_place(const pi__chat_roles *r, const pi__chat *c, pi__zone *z, pi__list *messages, pi__list *origin,
                   pi_error *err);
/* Renders the same conversation with a mark for each text and each call's arguments. PI_EUNSUPPORTED: the template
 * leaves one out, err says which. PI_EINVAL: it failed. limit: bytes that the first rendering could take. */
int pi__chat_check(const pi__chat *c, const pi__list *messages, const pi__list *origin, const char *options,
                   bool goes_on, bool tools, const pi__jinja_env *env, size_t limit, pi__work *work, pi_error *err);
bool pi__chat_has_role(const pi__val *m, const char *role);
/* The text of content that was fit: a string, or parts with one text. NULL: it is something else. */
pi__val *pi__chat_content_text(const pi__val *m);
/* v, which came from JSON, as JSON text in z. False: z->code. */
bool pi__chat_json(pi__zone *z, const pi__val *v, const pi__json_style *style, pi__str *out);
/* Puts mark behind the text of the last message, which must be the assistant's, without calls. */
int pi__chat_mark_end(pi__zone *z, pi__val *messages, const char *mark, pi_error *err);

/* ---- tools (chat_tools.c) */
/* Checks tools and wraps bare functions; no tools at all become none. */
int pi__chat_fit_tools(pi__zone *z, pi__val *tools, pi_error *err);
/* Tools that were fit get what the template cannot do without. */
int pi__chat_fill_tools(const pi__chat *c, pi__zone *z, pi__val *tools, pi_error *err);
/* Describes tools in the messages where the template does not, and makes text of past calls and results that it does not
 * place (chat_generic.c). Tools that were described become none. */
int pi__chat_generic(const pi__chat *c, pi__zone *z, pi__val *tools, pi__val *messages, pi_error *err);
/* Function number i of tools, or the one of that name; NULL: there is none, or it has no name. */
const pi__dict *pi__chat_function(const pi__val *tools, size_t i, pi__str *name);
const pi__dict *pi__chat_find_function(const pi__val *tools, pi__str name);

enum { PI__CHOICE_AUTO, PI__CHOICE_NONE, PI__CHOICE_REQUIRED };
typedef struct pi__chat_choice { /* options tool_choice and parallel_tool_calls */
    int kind;      /* PI__CHOICE_* */
    pi__str name;  /* of the only function that may be called; n 0: any */
    bool parallel; /* more than one call */
} pi__chat_choice;
int pi__chat_choice_read(const pi__dict *options, const pi__val *tools, pi__chat_choice *out, pi_error *err);
/* JSON texts (or NULL) as values in z, which this begins and the caller frees in any case, and what options say of
 * calls. The texts must outlive z. */
int pi__chat_read_tools(pi__zone *z, const char *tools, const char *options, pi__val *tools_out, pi__val *options_out,
                        pi__chat_choice *choice, pi_error *err);

#endif
