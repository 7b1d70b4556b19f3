/* Internals of the answer parser, shared by the answer*.c files.
 *
 *     answer.c       the buffer, reasoning, content, starts of calls, and fallback of failed calls to content
 *     answer_call.c  calls: known names, growing arguments, values converted by the tool's schema
 *     answer_json.c  calls as JSON objects; Mistral's and Llama's formats around them
 *     answer_tags.c  calls in tags
 *     answer_gemma.c Gemma 4's calls
 *     answer_python.c calls in Python syntax
 *     answer_harmony.c answers in messages with headers
 *
 * A step function takes from buf[at .. n) and returns: */
#ifndef PI__ANSWER_IMPL_H
#define PI__ANSWER_IMPL_H

#include "base/alloc.h"
#include "base/utf8.h"
#include "template/answer.h"
#include "template/chat_form.h"
#include "template/chat_impl.h"
#include "template/json_scan.h"

enum pi__answer_go {
    PI__GO,    /* input was taken, or a->step changed */
    PI__WAIT,  /* needs more input */
    PI__FAIL,  /* the text is not a call: everything from a->raw on becomes content */
    PI__LEAVE, /* the calls are over: text follows from a->at on */
};

/* maximum bytes of an id; of a name or key; maximum nesting of lists and maps */
enum { PI__ANSWER_ID = 96, PI__ANSWER_NAME = 256, PI__ANSWER_DEPTH = 64 };

typedef struct pi__call {
    char id[PI__ANSWER_ID];
    const char *name;          /* name of the function; in the zone */
    const pi__dict *function;  /* description of the called function */
    pi__text args;             /* arguments as JSON text, as far as known; always a prefix of the final text */
    bool done;                 /* complete */
    bool dropped;              /* the text turned out not to be a call and became content */
    bool sure;                 /* a grammar ensures that the call becomes complete */
    bool told;                 /* the caller has received its PI_CHAT_CALL delta */
} pi__call;

typedef struct pi__answer_delta {
    int kind;        /* PI_CHAT_* */
    uint32_t call;   /* index of the call */
    size_t from, n;  /* range in bytes of content, thoughts, or the args of the call, by kind */
} pi__answer_delta;

struct pi__answer {
    const pi__chat *c;
    const pi__chat_form *form; /* NULL = no calls are expected */
    const pi__chat_form *text; /* the template's form, for the tags around content; NULL = none */
    pi__zone zone;             /* holds the tools */
    char *json;                /* JSON text of the tools, to which `tools` points */
    pi__val tools;
    int code;                  /* PI_OK, or the error that made the parser unusable */

    pi__utf8_hold hold;
    char *buf;                 /* [n] unclassified text, and the text of the current call */
    size_t n, cap;
    size_t at;                 /* offset in buf of the next byte to classify */
    size_t raw;                /* offset in buf: start of the current call's text, after the last complete call */
    size_t seek;               /* offset in buf before which a repeated search has found nothing */
    bool ended;                /* pi__answer_end was called */
    bool bound;                /* pi__answer_bind was called */
    bool must_call;            /* tool_choice requires a call */
    bool structured;           /* the content is constrained: calls come first or not at all */
    bool last, cut;            /* last: no more input will come; cut: the answer was cut off */
    bool dropped;              /* text is discarded: it is a message to an unknown tool */
    bool unclosed;             /* the call began inside reasoning that was never closed */

    /* the answer consists of messages: MESSAGE replaces the states BEGIN, THOUGHT and TEXT */
    bool harmony;
    bool in_thought, kept;     /* the current message is reasoning; its end tag is part of the content */
    int state;                 /* state of the machine in answer.c: BEGIN, THOUGHT, ... */
    int tags;                  /* index of the reasoning tags; -1 = reasoning is not parsed */
    bool trim;                 /* drop white space before the next text */
    bool bare;                 /* no content since the start or the last call: a JSON object here may be a call */
    pi__text content, thoughts;

    pi__call *call;            /* [n_call] */
    size_t n_call, cap_call;
    uint32_t n_done;
    bool open;                 /* call[n_call - 1] is not complete yet */
    pi__answer_delta *delta;   /* [n_delta] deltas; pi__answer_next has returned the first next_delta */
    size_t n_delta, cap_delta, next_delta;

    /* the call being read */
    int step;                  /* state of the form's step function */
    bool first;                /* no member of the arguments yet */
    pi__json_scan scan;
    size_t token;              /* offset in buf of the name, key or value being read */
    int member;                /* answer_json.c: kind of the current member */
    size_t held, n_held;       /* offset in buf and bytes of arguments that came before the name */
    bool has_args;
    const char *close;         /* text expected after the JSON object of a call; NULL = none */
    bool list;                 /* the call is an element of a list */
    unsigned types;            /* PI__T_* that the schema allows for the current value; 0 = any */
    bool strict;               /* the current value must be JSON, even where text is allowed */
    uint64_t levels;           /* Gemma: bit i = nesting level i is a map; Python: the open quote, or 0 */
    uint32_t depth;
};

static inline bool pi__answer_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- taking text (answer.c) */
void pi__answer_skip_white(pi__answer *a);
/* Compares s with buf from offset `at` on: 1 = all of s follows, 0 = the buffer ends within s, -1 = mismatch. A
 * character cut off at the buffer's end counts as a character of s. */
int pi__answer_matches(const pi__answer *a, size_t at, const char *s);
/* If one of the n literals (NULL = skipped) follows at a->at, moves a->at past it and returns its index. -1: needs
 * more input; -2: no literal matches. */
int pi__answer_pick(pi__answer *a, const char *const *literal, int n);
/* Stores in *n the number of bytes between a->at and the next s, at most max. PI__GO; PI__WAIT: s was not found yet;
 * PI__FAIL: s does not follow within max bytes. */
int pi__answer_until(const pi__answer *a, const char *s, size_t max, size_t *n);
/* Returns s without surrounding white space. */
pi__str pi__answer_trim(pi__str s);
/* Returns the offset in buf of the next s at or after a->seek; SIZE_MAX if it has not arrived. Moves a->seek, so that
 * a later call does not search again. */
size_t pi__answer_find(pi__answer *a, const char *s);

/* Moves a->at past the next n bytes of buf. Appends them to the thoughts or the content, with a delta, unless
 * a->dropped. */
void pi__answer_put(pi__answer *a, bool thought, size_t n);
/* Searches for the first of n markers after a->at, and puts all text that certainly precedes it. *hit: index of the
 * marker that follows at a->at, after optional white space that is neither text nor marker; -1: no marker yet. */
void pi__answer_scan_text(pi__answer *a, bool thought, const char *const *marker, int n, int *hit);
/* Starts a call at a->at: skips white space and the n_marker bytes of its marker, and sets a->raw, state and step. */
void pi__answer_enter_call(pi__answer *a, int step, size_t n_marker);

/* ---- calls (answer_call.c). false: out of memory, and a->code is set. begin_call also returns false, with a->code
 * PI_OK, if no tool has this name. */
bool pi__answer_begin_call(pi__answer *a, pi__str name, pi__str id);
bool pi__answer_add_args(pi__answer *a, const char *p, size_t n);
bool pi__answer_add_str(pi__answer *a, const char *s);
/* Appends bytes escaped for a JSON string. */
bool pi__answer_add_escaped(pi__answer *a, const char *p, size_t n);
/* Completes the call and moves a->raw after it. False: its arguments are not a JSON object, and the caller drops it. */
bool pi__answer_end_call(pi__answer *a);
/* Drops the open call and its unread deltas. If its PI_CHAT_CALL delta was read, records PI_CHAT_CALL_DROPPED. */
void pi__answer_drop_call(pi__answer *a);
void pi__answer_record(pi__answer *a, int kind, uint32_t call, size_t from, size_t n);
/* Appends a key of the arguments and the separator before it; sets a->types to the types that the schema allows for
 * its value. */
bool pi__answer_add_key(pi__answer *a, pi__str key);
/* Appends a complete value of an argument that is written as text, converted to a type of a->types. false: it cannot be
 * converted, not even to a string. */
bool pi__answer_add_value(pi__answer *a, pi__str text);

enum { /* types that a schema allows; 0 = any */
    PI__T_STR = 1, PI__T_NUM = 2, PI__T_INT = 4, PI__T_BOOL = 8, PI__T_NULL = 16, PI__T_MAP = 32, PI__T_LIST = 64,
};
/* Returns the PI__T_* that schema allows. root: the function's parameters, for $ref. */
unsigned pi__schema_types(const pi__val *root, const pi__val *schema);

/* ---- forms: each performs one step of a call */
enum { PI__STEP_OPEN, PI__STEP_BARE, PI__STEP_CALL, PI__STEP_JSON = 16, PI__STEP_FORM = 32 };
int pi__answer_json(pi__answer *a);
/* Takes the tag that closes a list of calls, which a model may leave out. */
int pi__answer_close_list(pi__answer *a);
int pi__answer_mistral(pi__answer *a);
int pi__answer_llama(pi__answer *a);
int pi__answer_python(pi__answer *a);
int pi__answer_tags(pi__answer *a);
int pi__answer_gemma(pi__answer *a);
int pi__answer_harmony(pi__answer *a);
/* Starts between messages, or in text without a header. */
void pi__answer_harmony_start(pi__answer *a, bool text);
/* Starts inside the content of a message; its header is in the prompt. */
void pi__answer_harmony_body(pi__answer *a);
/* Returns the offset of a header or frame cut off at the buffer's end; a->n if there is none. */
size_t pi__answer_harmony_begun(const pi__answer *a);
/* Starts scanning a JSON value at a->at in step `step`. pi__answer_scan then scans it and continues with step `next`.
 * give: the value is (part of) the arguments of the open call. */
void pi__answer_scan_start(pi__answer *a, int step);
int pi__answer_scan(pi__answer *a, bool give, int next);
/* Continues with a JSON call at a->at. close: text expected after it; NULL = nothing. list: it is a list element. */
void pi__answer_start_json(pi__answer *a, const char *close, bool list);
/* True if only a closing tag is missing, which a model may leave out at the end. */
bool pi__answer_only_close(const pi__answer *a);
enum { PI__JSON_CLOSE = PI__STEP_JSON + 7, PI__GEMMA_CLOSE = PI__STEP_FORM + 7 };

#endif
