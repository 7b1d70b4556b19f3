/* Parses a model's answer while it streams in: separates reasoning, content and tool calls.
 *
 * The text goes into a buffer. Step functions take input from it, wait for more, or report a mismatch. A step depends
 * only on the bytes, never on how the text was split, so every split gives the same result. Text that begins like a
 * call but is not one becomes content, from its first byte on. Time is linear in the text.
 *
 * An answer belongs to one thread. Its chat template must outlive it. */
#ifndef PI__ANSWER_H
#define PI__ANSWER_H

#include "template/chat.h"

typedef struct pi__answer pi__answer;

/* Creates a parser. tools, options: as for pi__chat_render; options may also have "parse_reasoning" (default true) and
 * "answer_format" (the content is constrained; default false). now: seconds since 1970, for the template. Renders a
 * small prompt to find out whether prompts end inside reasoning. PI_EINVAL, PI_ETOOBIG, PI_ENOMEM. */
int pi__answer_new(pi__answer **out, const pi__chat *c, const char *tools, const char *options, int64_t now,
                   pi_error *err);
void pi__answer_free(pi__answer *a);
/* Feeds the next bytes, or the text of ids except end-of-generation tokens. PI_ENOMEM: the parser is unusable. */
int pi__answer_feed(pi__answer *a, const char *text, size_t n);
int pi__answer_tokens(pi__answer *a, const int32_t *ids, size_t n);
/* Tells the parser that a grammar constrains the calls from here on. The open call becomes `sure`, unless its
 * PI_CHAT_CALL delta was read already, and so do all later calls. */
void pi__answer_bind(pi__answer *a);
/* Ends the input and classifies the remaining text. cut: the answer was cut off (token limit, stop string, cancel), so
 * an incomplete call or tag is dropped. Otherwise the text of an incomplete call becomes content. */
int pi__answer_end(pi__answer *a, bool cut);
/* Gets the next delta; false if there is nothing new. Strings are valid until the next feed. */
bool pi__answer_next(pi__answer *a, pi_chat_delta *out);

pi__str pi__answer_content(const pi__answer *a);
pi__str pi__answer_reasoning(const pi__answer *a);
/* Number of complete calls. Stores complete call i, from 0, in *out; false if there is none. */
uint32_t pi__answer_calls(const pi__answer *a);
bool pi__answer_call(const pi__answer *a, uint32_t i, pi_chat_call *out);

#endif
