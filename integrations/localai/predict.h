/* predict.h: answers to PredictOptions.
 *
 *     UseTokenizerTemplate, no Grammar:  Messages -> JSON -> pi_chat_completions -> chat_deltas     (chat.cpp)
 *     otherwise:                         Prompt   -> pi_request                  -> message         (prompt.cpp)
 *
 * LocalAI parses calls and reasoning itself in text without chat_deltas. A Grammar comes from its own function calls,
 * so the second way has no chat_deltas, and gets no Tools. */
#ifndef PAGEDINFER_LOCALAI_PREDICT_H
#define PAGEDINFER_LOCALAI_PREDICT_H

#include <functional>
#include <string>
#include <vector>

#include "json.h"
#include "model.h"

namespace localai {

/* Receives the parts of an answer. Returns false if the client is gone. */
using reply_function = std::function<bool(const backend::Reply &)>;

/* Computes an answer. `stream`: several replies, otherwise one. */
void predict(const call &c, const model &m, const backend::PredictOptions &q, bool stream, const reply_function &send);
void predict_chat(const call &c, const model &m, const backend::PredictOptions &q, bool stream,
                  const reply_function &send);
void predict_prompt(const call &c, const model &m, const backend::PredictOptions &q, bool stream,
                    const reply_function &send);

/* One sampling option under its two names. */
struct sampling {
    const char *field; /* of the server's JSON */
    const char *key;   /* of pi_request_set */
    std::string value; /* also a JSON literal */
};
/* sampling.cpp: the options of a request that the caller gave. */
std::vector<sampling> sampling_of(const backend::PredictOptions &q);
/* Number of alternatives of log-probabilities; -1 = none requested. */
int logprobs_of(const backend::PredictOptions &q);
/* Variables of the chat template, as a JSON object. */
json template_variables(const backend::PredictOptions &q);
/* Messages as a JSON array. image(i) makes the content part of image i, for the last message of the user. */
json messages_json(const backend::PredictOptions &q, const std::function<json(int)> &image);
/* Refuses media that no engine reads, and images without a vision model. */
void check_media(const model &m, const backend::PredictOptions &q);

} // namespace localai

#endif
