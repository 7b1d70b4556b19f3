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
    PI__FAIL,  /* not a call: everything since a->raw becomes content */
    PI__LEAVE, /* the calls are over: text follows from a->at on */
};

/* bytes of an id; bytes of a name or key; nesting of lists and maps */
enum { PI__ANSWER_ID = 96, PI__ANSWER_NAME = 256, PI__ANSWER_DEPTH = 64 };

typedef struct pi__call {
    char id[PI__ANSWER_ID];
    const char *name;          /* in the zone */
    const pi__dict *function;  /* description of the called function */
    pi__text args;             /* JSON, as far as it is known */
    bool done;                 /* complete */
    bool dropped;              /* turned out not to be a call */
    bool sure;                 /* a grammar ensures that it becomes complete */
    bool told;                 /* the caller has received its PI_CHAT_CALL delta */
} pi__call;

typedef struct pi__answer_delta {
    int kind;        /* PI_CHAT_* */
    uint32_t call;   /* index of the call */
    size_t from, n;  /* range in its text: content, reasoning, or the call's arguments */
} pi__answer_delta;

struct pi__answer {
    const pi__chat *c;
    const pi__chat_form *form; /* NULL = no calls are expected */
    const pi__chat_form *text; /* the template's form, for the tags around content; NULL = none */
    pi__zone zone;             /* holds the tools */
    char *json;                /* text of the tools, to which they point */
    pi__val tools;
    int code;                  /* PI_OK, or the error that made the parser unusable */

    pi__utf8_hold hold;
    char *buf;                 /* [n] unclassified text, and the text of the current call */
    size_t n, cap;
    size_t at;                 /* offset of the next input */
    size_t raw;                /* in a call: start of its text, after the last complete call */
    size_t seek;               /* searches without a result have covered the text up to here */
    bool ended;
    bool bound;                /* pi__answer_bind was called */
    bool must_call;            /* tool_choice requires a call */
    bool structured;           /* the content is constrained: calls come first or not at all */
    bool last, cut;            /* no more input; the answer was cut off */
    bool dropped;              /* text is discarded: it is a message to an unknown tool */
    bool unclosed;             /* the call began inside reasoning that was never closed */

    /* the answer consists of messages: MESSAGE replaces the states BEGIN, THOUGHT and TEXT */
    bool harmony;
    bool in_thought, kept;     /* the message is reasoning; its end tag is part of the content */
    int state;                 /* state of answer.c */
    int tags;                  /* index of the reasoning tags; -1 = reasoning is not parsed */
    bool trim;                 /* drop leading white space */
    bool bare;                 /* a JSON object here is a call (Llama) */
    pi__text content, thoughts;

    pi__call *call;            /* [n_call] */
    size_t n_call, cap_call;
    uint32_t n_done;
    bool open;                 /* the last call is not complete yet */
    pi__answer_delta *delta;   /* [n_delta], the first next_delta were taken */
    size_t n_delta, cap_delta, next_delta;

    /* the call being read */
    int step;                  /* state of the form's step function */
    bool first;                /* no member of the arguments yet */
    pi__json_scan scan;
    size_t token;              /* start of a name, key or value */
    int member;                /* answer_json.c: kind of the current member */
    size_t held, n_held;       /* arguments that came before the name */
    bool has_args;
    const char *close;         /* expected after a JSON call; NULL = nothing */
    bool list;                 /* the call is an element of a list */
    unsigned types;            /* PI__T_* allowed for the value */
    bool strict;               /* the value must be JSON */
    uint64_t levels;           /* Gemma: one bit per level, 1 = map, 0 = list; Python: the open quote, or 0 */
    uint32_t depth;
};

static inline bool pi__answer_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- taking text (answer.c) */
void pi__answer_skip_white(pi__answer *a);
/* Compares s with buf + at: 1 = all of s is there, 0 = the buffer ends within s, -1 = mismatch. A character cut off at
 * the buffer's end counts as a character of s. */
int pi__answer_matches(const pi__answer *a, size_t at, const char *s);
/* Takes one of the literals at a->at. Returns its index; -1: needs more input; -2: no literal matches. */
int pi__answer_pick(pi__answer *a, const char *const *literal, int n);
/* Gets the number of bytes before s, at most max. PI__GO, PI__WAIT, or PI__FAIL (there are more). */
int pi__answer_until(const pi__answer *a, const char *s, size_t max, size_t *n);
/* Returns s without surrounding white space. */
pi__str pi__answer_trim(pi__str s);
/* Returns the offset of s at or after a->seek; SIZE_MAX if not found yet. */
size_t pi__answer_find(pi__answer *a, const char *s);

/* Takes the next n bytes as reasoning or content. */
void pi__answer_put(pi__answer *a, bool thought, size_t n);
/* Looks for the first of n markers after a->at and puts all text that certainly precedes it. *hit: the marker at a->at,
 * after optional white space that belongs to neither; -1: none yet. */
void pi__answer_scan_text(pi__answer *a, bool thought, const char *const *marker, int n, int *hit);
/* Starts a call at a->at, after optional white space: sets its step and skips the n_marker bytes of its marker. */
void pi__answer_enter_call(pi__answer *a, int step, size_t n_marker);

/* ---- calls (answer_call.c). False: out of memory (a->code is set); begin: or no tool has this name */
bool pi__answer_begin_call(pi__answer *a, pi__str name, pi__str id);
bool pi__answer_add_args(pi__answer *a, const char *p, size_t n);
bool pi__answer_add_str(pi__answer *a, const char *s);
/* Appends bytes escaped for a JSON string. */
bool pi__answer_add_escaped(pi__answer *a, const char *p, size_t n);
/* Completes the call and moves a->raw after it. False: its arguments are not a JSON object, and the caller drops it. */
bool pi__answer_end_call(pi__answer *a);
/* Drops the open call. */
void pi__answer_drop_call(pi__answer *a);
void pi__answer_record(pi__answer *a, int kind, uint32_t call, size_t from, size_t n);
/* Appends a key and the separator before it; sets a->types to the types of its value. */
bool pi__answer_add_key(pi__answer *a, pi__str key);
/* Appends a complete value written as text, converted by the schema. False: it cannot be converted, not even to
 * text. */
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
