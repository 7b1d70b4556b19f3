/* How models write thoughts and tool calls: a row a format, chosen by what the chat template's text mentions. */
#ifndef PI__CHAT_FORM_H
#define PI__CHAT_FORM_H

#include "template/value.h"

enum pi__form_kind {
    PI__FORM_NONE,    /* looks like another row, but is none that is read here */
    PI__FORM_TAGS,    /* open { call NAME call_end { param KEY key_end VALUE param_close } call_close } close, or JSON */
    PI__FORM_GEMMA,   /* open call:NAME{key:VALUE,...} close, strings between <|"|> */
    PI__FORM_MISTRAL, /* open [{"name", "arguments"}, ...] close, or open NAME [ARGS] {...} */
    PI__FORM_LLAMA,   /* {"name", "parameters"} as the whole answer, or behind open */
    PI__FORM_PYTHON,  /* open [NAME(KEY=VALUE, ...), ...] close, values as Python writes them */
    PI__FORM_HARMONY, /* a message with a header, which usually begins with open; thoughts and content are, too */
};
enum pi__form_body { /* what a call of PI__FORM_TAGS usually is; all of them are read */
    PI__BODY_JSON,      /* {"name": ..., "arguments": {...}} between open and close */
    PI__BODY_PARAMS,    /* parameters between tags */
    PI__BODY_ARGUMENTS, /* a JSON object between call_end and call_close, white space aside */
};

typedef struct pi__chat_form {
    const char *name;
    int kind;                 /* enum pi__form_kind */
    int body;                 /* enum pi__form_body */
    const char *sign[2];      /* the template's text has both (or the one) */
    const char *open, *close; /* around calls; a call may also come without, where it has a tag of its own, */
    bool lone;                /* and usually does */
    const char *call;         /* in front of the name; NULL: the name is right behind open */
    const char *prefix;       /* the name is behind this, and in front of ":" and the call's number; all of it is the call's id */
    const char *call_end;     /* behind it; NULL: it ends with white space or a tag */
    const char *call_close;
    const char *param, *key_end; /* around a key */
    const char *value;        /* in front of the value, behind white space; or NULL */
    const char *param_close;
    bool newline;             /* one line break on each side of a value is not part of it */
    bool attribute;           /* key_end is followed by string="true"> or string="false"> */
    bool xtml;                /* name and key end with a quote; attributes and call_end or key_end follow */
    bool section;             /* open and close are a section: other text in it is dropped */
    bool spaces;              /* spaces in front of open belong to the content */
    bool bare;                /* calls may come without open, where an answer begins */
    const char *name_word, *args_word; /* members of a call in JSON; NULL = "name", "arguments" */
    const char *answer_open;  /* in front of the content, where that has a tag or a header; NULL = none */
    const char *answer_close; /* after it; NULL = none */
    const char *end;          /* of the whole answer; NULL = none, or a token that ends generation */
} pi__chat_form;

/* NULL: the template knows no calls, or none in a form known here. */
const pi__chat_form *pi__chat_form_of(pi__str template);
/* The form for templates that have none: calls as JSON between <tool_call> tags. */
extern const pi__chat_form pi__chat_form_generic;

/* Tags around thoughts. */
typedef struct pi__thought_tags {
    const char *open, *close;
    bool anywhere; /* they are no words of an answer: thoughts may begin in the middle of it */
} pi__thought_tags;
enum { PI__N_THOUGHT_TAGS = 7 };
extern const pi__thought_tags pi__thought_tags_of[PI__N_THOUGHT_TAGS];
/* The tags whose opening one the text ends with, white space apart; -1: none. */
int pi__thought_open_at_end(const char *text, size_t n);


/* Where a text has thoughts, as the parser of answers sees them: at its beginning, and where tags may come anywhere. */
enum {
    PI__THOUGHTS_NONE, /* nothing is a thought */
    PI__THOUGHTS_MAY,  /* they may begin */
    PI__THOUGHTS_OPEN, /* + index of their tags: it begins within them */
};

#endif
