/* The inside of an answer that is being read: what the answer*.c files share.
 *
 *     answer.c       the buffer, thoughts, content, where calls begin and what becomes of those that are none
 *     answer_call.c  calls: names that are known, arguments as they grow, values by the tool's schema
 *     answer_json.c  calls as JSON objects; Mistral's and Llama's ways to them
 *     answer_tags.c  calls in tags
 *     answer_gemma.c Gemma 4's calls
 *     answer_python.c calls as Python writes them
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
    PI__GO,    /* something was taken, or a->step changed */
    PI__WAIT,  /* more is needed */
    PI__FAIL,  /* this is no call: all since a->raw becomes content */
    PI__LEAVE, /* the calls are over: what follows is text, from a->at on */
};

enum { PI__ANSWER_ID = 96 /* bytes */, PI__ANSWER_NAME = 256, PI__ANSWER_DEPTH = 64 }; /* bytes of a name or a key; lists and
                                                                                        * maps in each other */

typedef struct pi__call {
    char id[PI__ANSWER_ID];
    const char *name;          /* in the zone */
    const pi__dict *function;  /* its description */
    pi__text args;             /* JSON, as far as it is known */
    bool done;                 /* complete */
    bool dropped;              /* it was none after all */
    bool sure;                 /* a grammar sees to it that it becomes complete */
    bool told;                 /* that it began was taken by the caller */
} pi__call;

typedef struct pi__answer_delta {
    int kind;        /* PI_CHAT_* */
    uint32_t call;   /* index of the call */
    size_t from, n;  /* of the text it is a part of: content, thoughts, or the call's arguments */
} pi__answer_delta;

struct pi__answer {
    const pi__chat *c;
    const pi__chat_form *form; /* NULL: there are no calls */
    const pi__chat_form *text; /* the template's form, for the tags around content; NULL = none */
    pi__zone zone;             /* holds the tools */
    char *json;                /* their text, to which they point */
    pi__val tools;
    int code;                  /* PI_OK, or why it is lost */

    pi__utf8_hold hold;
    char *buf;                 /* [n] text that is not told apart yet, and the call being read */
    size_t n, cap;
    size_t at;                 /* what comes next */
    size_t raw;                /* in a call: where its text begins; behind the last one that is complete */
    size_t seek;               /* up to here it was looked at already, and nothing was found */
    bool ended;
    bool bound;                /* pi__answer_bind was called */
    bool must_call;            /* tool_choice asks for a call */
    bool structured;           /* a form holds the content: calls come first, or not at all */
    bool last, cut;            /* nothing follows; the answer was cut off there */
    bool dropped;              /* text is for nobody: a message to a tool that is not there */
    bool unclosed;             /* the call was begun within thoughts that never ended */

    bool harmony;              /* it is in messages: state is MESSAGE where others have BEGIN, THOUGHT and TEXT */
    bool in_thought, kept;     /* the message's body is thoughts; its end is part of the content */
    int state;                 /* answer.c */
    int tags;                  /* of thoughts: index */
    bool trim;                 /* white space that comes first is dropped */
    bool bare;                 /* a JSON object here would be a call (Llama) */
    pi__text content, thoughts;

    pi__call *call;            /* [n_call] */
    size_t n_call, cap_call;
    uint32_t n_done;
    bool open;                 /* the last one is being read */
    pi__answer_delta *delta;   /* [n_delta], next_delta of them taken */
    size_t n_delta, cap_delta, next_delta;

    /* the call being read */
    int step;                  /* of the step function of its form */
    bool first;                /* no member of the arguments yet */
    pi__json_scan scan;
    size_t token;              /* where a name, a key or a value begins */
    int member;                /* answer_json.c: which one this is */
    size_t held, n_held;       /* arguments that came before the name */
    bool has_args;
    const char *close;         /* behind a JSON call, NULL: nothing */
    bool list;                 /* it is an element of a list */
    unsigned types;            /* PI__T_* of the value */
    bool strict;               /* the value is JSON, and nothing else will do */
    uint64_t levels;           /* Gemma: a bit a level, map or list */
    uint32_t depth;
};

static inline bool pi__answer_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* ---- taking text (answer.c) */
void pi__answer_skip_white(pi__answer *a);
/* How much of s is at buf + at: all of it 1, the beginning and nothing else 0, other bytes -1. A character that is cut at the
 * buffer's end counts as one of s. */
int pi__answer_matches(const pi__answer *a, size_t at, const char *s);
/* Literals at a->at: the index of the one that is there, which is taken; -1: more is needed to tell; -2: none. */
int pi__answer_pick(pi__answer *a, const char *const *literal, int n);
/* How many bytes lie in front of s, which may be max; then s itself. PI__GO, PI__WAIT or PI__FAIL (there are more). */
int pi__answer_until(const pi__answer *a, const char *s, size_t max, size_t *n);
/* Without the white space around it. */
pi__str pi__answer_trim(pi__str s);
/* Where s begins, at or behind a->seek; SIZE_MAX: nowhere yet. */
size_t pi__answer_find(pi__answer *a, const char *s);

/* The next n bytes are thoughts or content. */
void pi__answer_put(pi__answer *a, bool thought, size_t n);
/* Looks for the first of n markers behind a->at. What is certainly before any goes to put; *hit is the marker that is
 * at a->at then, behind white space, which is part of nothing; -1: there is none yet. */
void pi__answer_scan_text(pi__answer *a, bool thought, const char *const *marker, int n, int *hit);
/* What begins at a->at, behind white space, is a call: its step behind n_marker bytes. */
void pi__answer_enter_call(pi__answer *a, int step, size_t n_marker);

/* ---- calls (answer_call.c); false: no memory (a->code), or for begin: no tool has this name */
bool pi__answer_begin_call(pi__answer *a, pi__str name, pi__str id);
bool pi__answer_add_args(pi__answer *a, const char *p, size_t n);
bool pi__answer_add_str(pi__answer *a, const char *s);
/* As the inside of a JSON string. */
bool pi__answer_add_escaped(pi__answer *a, const char *p, size_t n);
/* The call is complete, and a->raw behind it. false: its arguments are no JSON object after all, and it is dropped. */
bool pi__answer_end_call(pi__answer *a);
/* Forgets the one that is open. */
void pi__answer_drop_call(pi__answer *a);
void pi__answer_note(pi__answer *a, int kind, uint32_t call, size_t from, size_t n);
/* A key, and the separator in front of it; then a->types is what its value may be. */
bool pi__answer_add_key(pi__answer *a, pi__str key);
/* A whole value that was written as text, as the schema wants it. false: not even text will do. */
bool pi__answer_add_value(pi__answer *a, pi__str text);

enum { /* types that a schema allows; 0: it does not say */
    PI__T_STR = 1, PI__T_NUM = 2, PI__T_INT = 4, PI__T_BOOL = 8, PI__T_NULL = 16, PI__T_MAP = 32, PI__T_LIST = 64,
};
/* PI__T_* that schema allows, a part of the function's parameters root. */
unsigned pi__schema_types(const pi__val *root, const pi__val *schema);

/* ---- forms: one step of a call */
enum { PI__STEP_OPEN, PI__STEP_BARE, PI__STEP_CALL, PI__STEP_JSON = 16, PI__STEP_FORM = 32 };
int pi__answer_json(pi__answer *a);
/* Reads the tag that closes a list of calls; a model may leave it out. */
int pi__answer_close_list(pi__answer *a);
int pi__answer_mistral(pi__answer *a);
int pi__answer_llama(pi__answer *a);
int pi__answer_python(pi__answer *a);
int pi__answer_tags(pi__answer *a);
int pi__answer_gemma(pi__answer *a);
int pi__answer_harmony(pi__answer *a);
/* Between messages, or in text without a header. */
void pi__answer_harmony_start(pi__answer *a, bool text);
/* Within the content of a message whose header the prompt has. */
void pi__answer_harmony_body(pi__answer *a);
/* Where a header or a frame begins that the buffer's end cuts; a->n: nowhere. */
size_t pi__answer_harmony_begun(const pi__answer *a);
/* A JSON value begins at a->at, and is gone through in this step; then comes the next one. give: it is (part of) the
 * arguments of the call that is open. */
void pi__answer_scan_start(pi__answer *a, int step);
int pi__answer_scan(pi__answer *a, bool give, int next);
/* Goes on as a JSON call, which begins at a->at; close: what follows it, or NULL. */
void pi__answer_start_json(pi__answer *a, const char *close, bool list);
/* True where all that lacks is a closing tag, which a model that ends may leave out. */
bool pi__answer_only_close(const pi__answer *a);
enum { PI__JSON_CLOSE = PI__STEP_JSON + 7, PI__GEMMA_CLOSE = PI__STEP_FORM + 7 };

#endif
