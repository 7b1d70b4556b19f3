/* Conversations as text: renders messages in the format of OpenAI's API with a model's chat template.
 *
 * Templates follow each other's conventions, not the API's: some need content as a list of parts, some the arguments
 * of calls as an object and some as text, some reject system messages. Loading renders small test conversations to
 * find the template's conventions, and messages are converted to them. A loaded template is immutable: any number of
 * threads may render with it. */
#ifndef PI__CHAT_H
#define PI__CHAT_H

#include "template/value.h"
#include "tokenizer/vocab.h"

typedef struct pi__chat pi__chat;

/* Loads a template. text: the template, or a name of chat_names.h; NULL = the one suggested by the vocabulary. kwargs:
 * a JSON object of variables for every rendering; NULL = none. PI_EUNSUPPORTED: no template, and none is suggested.
 * PI_EINVAL: not a template, or not JSON. v must outlive the result. */
int pi__chat_new(pi__chat **out, const pi__vocab *v, const char *text, const char *kwargs, pi_error *err);
void pi__chat_free(pi__chat *c);
/* Sets plain text that surrounds each image in prompts ("\n\n"); at first both are empty. Returns PI_OK or PI_ENOMEM.
 * Call it before the first rendering. */
int pi__chat_set_image(pi__chat *c, const char *before, const char *after);

/* Renders a conversation and appends the text to out. messages: a JSON list. tools: a JSON list or NULL. options: a
 * JSON object or NULL. Members of options are template variables ("add_generation_prompt" defaults to true). With
 * "tool_choice": "none" the template gets no tools. With "continue_final_message": true the text ends where the text
 * of the last message ends, which must be the assistant's. The BOS that the tokenizer adds is left out. If out keeps
 * trust (set while it is empty), the template's text, BOS, EOS and the names of roles are trusted. now: seconds since
 * 1970. A part of type image is written by the template, or as <__media__>. PI_EINVAL,
 * PI_EUNSUPPORTED (content that is neither text nor image), PI_ETOOBIG, PI_ENOMEM, or the code of out->work. */
int pi__chat_render(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__text *out, pi_error *err);
/* Renders and tokenizes in one call, both limited by out->work: appends the ids to out. They are the ones of
 * pi__tokenize of the text with BOS and control tokens, except that only text written by the template becomes control
 * tokens, never text of messages, tools or options. Image i of the messages, counted from 0 in their order, becomes the
 * id -1 - i; *n_images: their number. PI_EUNSUPPORTED: the template does not show each image once. *text: the rendered
 * text; the caller frees text->p with pi__free in any case. */
int pi__chat_tokens(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__ids *out, pi__text *text, size_t *n_images, pi_error *err);

/* The parts of the grammar of an answer with calls or a constraint. All texts are GBNF, except `trigger`, and end with
 * a NUL; p NULL = empty. */
typedef struct pi__call_form {
    /* grammar of calls: start rule "root" from the start, "behind" after a trigger; p NULL = no calls */
    pi__text grammar;
    pi__text trigger; /* JSON list of texts that begin a call in free text; p NULL = a call is required, or no calls */
    pi__text lead;    /* reasoning that may or must come before the content or the calls */
    pi__text before;  /* header before the content, if the content is constrained */
    pi__text after;   /* text after the content, if the content is constrained */
    int thoughts;     /* PI__THOUGHTS_* for free text, see pi__grammar_spec */
    bool required;    /* the answer must contain a call */
} pi__call_form;
/* Builds the grammar of an answer to `prompt`, the rendered text, whose end may have opened reasoning or the content.
 * The caller frees *out with pi__call_form_free in any case. */
int pi__chat_grammar(const pi__chat *c, const char *tools, const char *options, pi__str prompt, pi__call_form *out,
                     pi_error *err);
void pi__call_form_free(pi__call_form *f);

#endif
