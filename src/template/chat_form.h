/* Formats of reasoning and tool calls in model output: one table row per format, selected by the chat template's
 * text. */
#ifndef PI__CHAT_FORM_H
#define PI__CHAT_FORM_H

#include "template/value.h"

enum pi__form_kind {
    PI__FORM_NONE,    /* a template that matches this row has a form that cannot be parsed */
    /* open { call NAME call_end { param KEY key_end VALUE param_close } call_close } close, or JSON */
    PI__FORM_TAGS,
    PI__FORM_GEMMA,   /* open call:NAME{key:VALUE,...} close, strings between <|"|> */
    PI__FORM_MISTRAL, /* open [{"name", "arguments"}, ...] close, or open NAME [ARGS] {...} */
    PI__FORM_LLAMA,   /* {"name", "parameters"} as the entire answer, or after open */
    PI__FORM_PYTHON,  /* open [NAME(KEY=VALUE, ...), ...] close, with Python literals as values */
    /* messages with headers for reasoning, content and calls; a call's header usually begins with open */
    PI__FORM_HARMONY,
};
enum pi__form_body { /* the usual body of a PI__FORM_TAGS call; the parser accepts all of them */
    PI__BODY_JSON,      /* {"name": ..., "arguments": {...}} between open and close */
    PI__BODY_PARAMS,    /* parameters between tags */
    PI__BODY_ARGUMENTS, /* a JSON object between call_end and call_close, with optional white space */
};

typedef struct pi__chat_form {
    const char *name;
    int kind;                 /* enum pi__form_kind */
    int body;                 /* enum pi__form_body */
    const char *sign[2];      /* substrings that the template's text must contain; NULL = not needed */
    const char *open, *close; /* around all calls; close may be NULL. With `call`, a call may also come without them */
    bool lone;                /* calls usually come without open and close */
    const char *call;         /* before a call's name; NULL = the name follows open directly */
    /* text before the name. The entire text PREFIX NAME ":NUMBER" is the call's id; NULL = no prefix */
    const char *prefix;
    const char *call_end;     /* after a call's name; NULL = the name ends at white space or a tag */
    const char *call_close;   /* after a call's arguments */
    const char *param, *key_end; /* before and after a parameter's key */
    const char *value;        /* before a parameter's value, after optional white space; NULL = none */
    const char *param_close;  /* after a parameter's value */
    bool newline;             /* one line break before and after a value is not part of it */
    bool attribute;           /* key_end is followed by string="true"> or string="false"> */
    bool xtml;                /* name and key end with a quote; attributes and call_end or key_end follow */
    bool section;             /* text between open and close is dropped unless it is a call */
    bool spaces;              /* spaces before open belong to the content */
    bool bare;                /* a list of calls at the start of an answer may come without open and close */
    bool keyed;               /* a JSON call is {NAME: {...}} */
    const char *name_word, *args_word; /* JSON members of a call; NULL = "name", "arguments" */
    const char *answer_open;  /* tag or header before the content; NULL = none */
    const char *answer_close; /* tag after the content; NULL = none */
    const char *end;          /* tag after the entire answer; NULL = none, or the tag is an end-of-generation token */
} pi__chat_form;

/* Returns the first row of the table that matches the template's text; NULL if none does, or its kind is
 * PI__FORM_NONE. */
const pi__chat_form *pi__chat_form_of(pi__str template);
/* Form of calls for templates that match no row: JSON between <tool_call> tags. */
extern const pi__chat_form pi__chat_form_generic;

/* A pair of tags around reasoning. */
typedef struct pi__reasoning_tags {
    const char *open, *close;
    bool anywhere; /* the opening tag never occurs as text: reasoning may begin in the middle of an answer */
} pi__reasoning_tags;
enum { PI__N_THOUGHT_TAGS = 9 };
extern const pi__reasoning_tags pi__thought_tags_of[PI__N_THOUGHT_TAGS];
/* Returns the index of the reasoning tags with the opening tag at the end of the text, ignoring white space; -1 if
 * there is none. */
int pi__thought_open_at_end(const char *text, size_t n);


/* Reasoning in free text, in which triggers do not count: it may begin at the start of the text, and for some tags
 * anywhere. */
enum {
    PI__THOUGHTS_NONE, /* no reasoning */
    PI__THOUGHTS_MAY,  /* the text begins outside of reasoning */
    PI__THOUGHTS_OPEN, /* the text begins inside reasoning; the value is this + index of the tags */
};

#endif
