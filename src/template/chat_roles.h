/* What a chat template places in the prompt, found by rendering small conversations when it is loaded (chat_probe.c).
 * A flag is true where the prompt has each text of its conversations, and the template does not refuse one. */
#ifndef PI__CHAT_ROLES_H
#define PI__CHAT_ROLES_H

#include <stdbool.h>

typedef struct pi__chat_roles {
    bool user;            /* a lone user message; else (the template changes texts) messages are left as they are */
    bool system;          /* a system message at the beginning */
    bool developer;       /* a developer message at the beginning, in its own form; else its role becomes system */
    bool leading;         /* several of them at the beginning; else they are merged into the first */
    bool later_system;    /* a system message between other messages, and at the end */
    bool later_developer; /* a developer message that is not the first message, in its own form; else as above */
    bool turns;           /* users or assistants in a row, an assistant as the first, a user after a tool's result */
    bool userless;        /* conversations without a user message */
    bool calls;           /* the arguments of past calls of tools */
    bool results;         /* the results of tools (role tool) */
    bool lone_results;    /* results without a call in front of them */
    bool call_text;       /* text of the assistant beside its calls */
    bool many_calls;      /* several calls in one message */
} pi__chat_roles;

#endif
