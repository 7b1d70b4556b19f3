/* Reading a model's answer while it streams in: thoughts, content and tool calls told apart.
 *
 * The text goes into a buffer; steps look at what is there and take it, wait for more, or find that it does not fit.
 * A step decides by the bytes alone, never by where the text was cut, so that every way of cutting gives the same
 * answer. What began like a call and is none becomes content, from its first byte on. Time is linear in the text.
 *
 * An answer belongs to one thread. The chat template it was made with must outlive it. */
#ifndef PI__ANSWER_H
#define PI__ANSWER_H

#include "template/chat.h"

typedef struct pi__answer pi__answer;

/* tools, options: as for pi__chat_render, and in options also "parse_reasoning" (true unless given). Whether the prompt
 * ends within thoughts is found out by rendering a small one with these. PI_EINVAL, PI_ETOOBIG, PI_ENOMEM. */
int pi__answer_new(pi__answer **out, const pi__chat *c, const char *tools, const char *options, int64_t now,
                   pi_error *err);
void pi__answer_free(pi__answer *a);
/* The next bytes; or ids, whose text they are, without those that end a generation. PI_ENOMEM: the answer is lost. */
int pi__answer_feed(pi__answer *a, const char *text, size_t n);
int pi__answer_tokens(pi__answer *a, const int32_t *ids, size_t n);
/* A grammar of calls holds what comes next, and the end of what came: the call that is open, and all later ones, will be
 * complete unless the answer is cut off. */
void pi__answer_bind(pi__answer *a);
/* Nothing follows. cut: the answer was cut off (token limit, stop string, cancel), so a call or a call's tag that has only
 * begun is dropped. Without it the text of an incomplete call becomes content. */
int pi__answer_end(pi__answer *a, bool cut);
/* The next thing that became known; false: nothing new. Strings are valid until the next feed. */
bool pi__answer_next(pi__answer *a, pi_chat_delta *out);

pi__str pi__answer_content(const pi__answer *a);
pi__str pi__answer_reasoning(const pi__answer *a);
/* Complete calls; number i of them, false: there is none. */
uint32_t pi__answer_calls(const pi__answer *a);
bool pi__answer_call(const pi__answer *a, uint32_t i, pi_chat_call *out);

#endif
