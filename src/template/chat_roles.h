/* Results of rendering small test conversations when a chat template is loaded (chat_probe.c). A flag is true if the
 * prompt contains each text of its test conversations and the template does not fail. If `user` is false, nothing can
 * be tested: the flags of developer messages are then false and all others true. */
#ifndef PI__CHAT_ROLES_H
#define PI__CHAT_ROLES_H

#include <stdbool.h>

typedef struct pi__chat_roles {
    bool user;            /* a single user message; false = the template changes texts, and messages stay unchanged */
    bool system;          /* a system message at the start */
    bool developer;       /* a developer message at the start, in its own form; false = its role becomes system */
    bool leading;         /* several system or developer messages at the start; false = they are merged into one */
    bool later_system;    /* a system message between other messages, and at the end */
    /* a developer message after the first message, in its own form; false = its role becomes system */
    bool later_developer;
    bool turns;           /* consecutive users or assistants, an assistant first, a user after a tool's result */
    bool userless;        /* conversations without a user message */
    bool calls;           /* the arguments of past tool calls */
    bool results;         /* the results of tools (role tool) */
    bool lone_results;    /* results without a preceding call */
    bool call_text;       /* assistant text in a message with calls */
    bool many_calls;      /* several calls in one message */
} pi__chat_roles;

#endif
