/* The inside of a loaded chat template: what chat.c and chat_messages.c share. */
#ifndef PI__CHAT_IMPL_H
#define PI__CHAT_IMPL_H

#include "template/chat.h"
#include "template/jinja.h"

enum pi__chat_args { PI__ARGS_KEEP, PI__ARGS_OBJECT, PI__ARGS_TEXT };

struct pi__chat {
    const pi__vocab *v;
    pi__jinja *t;
    char *kwargs;       /* JSON object, or NULL */
    bool typed_content; /* content must be a list of parts */
    bool no_system;     /* system messages are lost or refused: they go into the next user message */
    bool no_null;       /* content must not be none */
    bool null_calls;    /* content beside calls must be none where it is empty */
    bool no_none_tools; /* without tools the variable must not be there, instead of none */
    bool no_developer;  /* the role developer is called system */
    int args;           /* enum pi__chat_args: the form of arguments of calls */
};

/* Brings messages (a list) into the form that the template takes, in place. */
int pi__chat_fit_messages(const pi__chat *c, pi__zone *z, pi__val *messages, pi_error *err);
/* Checks tools and wraps bare functions; no tools at all become none. */
int pi__chat_fit_tools(pi__zone *z, pi__val *tools, pi_error *err);

#endif
