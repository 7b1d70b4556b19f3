/* Conversations as text: messages in the shape of OpenAI's API through a model's chat template.
 *
 * Templates were written for one another's habits, not for the API: some want content as a list of parts, some the
 * arguments of calls as an object and some as text, some refuse system messages. What a template does is found out by
 * rendering small conversations when it is loaded, and messages are brought into that form. A loaded template is
 * immutable: any number of threads may render with it. */
#ifndef PI__CHAT_H
#define PI__CHAT_H

#include "template/value.h"
#include "tokenizer/vocab.h"

typedef struct pi__chat pi__chat;

/* text: the template, or a name of chat_names.h; NULL: the one that the vocabulary suggests. kwargs: a JSON object of
 * variables for every rendering, or NULL. PI_EUNSUPPORTED: no template, and none is suggested; PI_EINVAL: not a
 * template, or no JSON. v must outlive the result. */
int pi__chat_new(pi__chat **out, const pi__vocab *v, const char *text, const char *kwargs, pi_error *err);
void pi__chat_free(pi__chat *c);

/* Appends the conversation to out. messages: a JSON list; tools: a JSON list or NULL; options: a JSON object or NULL,
 * its members are the template's variables ("add_generation_prompt" is true unless it says otherwise); with the one
 * "tool_choice": "none" the template gets no tools; with "continue_final_message" true the text ends where that of the last
 * message does, which is the assistant's. The BOS that
 * tokenizing adds is left out. Where out keeps trust (set that while it is empty), the template's text, BOS, EOS and the
 * names of roles are trusted. now: seconds since 1970. PI_EINVAL, PI_EUNSUPPORTED (content that is no text),
 * PI_ETOOBIG, PI_ENOMEM, or the code of out->work. */
int pi__chat_render(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__text *out, pi_error *err);
/* Renders and tokenises in one go, both under out->work: as pi__tokenize of the text with BOS and control tokens, but that only what the
 * template wrote becomes control tokens, whatever is in messages, tools and options. *text is the text, to be freed with
 * pi__free(text->p) in any case. */
int pi__chat_tokens(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__ids *out, pi__text *text, pi_error *err);

/* What the calls of an answer, and an answer that has a form, are held to. The texts are GBNF with a NUL; p NULL = none. */
typedef struct pi__call_form {
    pi__text grammar; /* the calls: rule "root" from the start, rule "behind" after a trigger; p NULL = no calls */
    pi__text trigger; /* JSON list of texts that begin a call in free text; p NULL = a call is required */
    pi__text lead;    /* thoughts that may or must come first */
    pi__text before;  /* the header of an answer's content, where a form holds the content */
    pi__text after;   /* its end */
    int thoughts;     /* PI__THOUGHTS_* of the grammar's spec, for free text */
    bool required;    /* there must be a call */
} pi__call_form;
/* For an answer to this prompt. *out is to be freed in any case. */
int pi__chat_grammar(const pi__chat *c, const char *tools, const char *options, pi__str prompt, pi__call_form *out,
                     pi_error *err);
void pi__call_form_free(pi__call_form *f);

#endif
