/* texts.h: tokens, vectors and scores of texts. */
#ifndef PAGEDINFER_LOCALAI_TEXTS_H
#define PAGEDINFER_LOCALAI_TEXTS_H

#include <string>
#include <string_view>
#include <vector>

#include "model.h"

#define MEDIA_MARKER "<__media__>" /* LocalAI's default marker of an image in a prompt */

namespace localai {

/* Tokenizes text within a work budget. flags: PI_TOK_*. */
std::vector<std::int32_t> tokenize(const budget &work, const model &m, std::string_view text, int flags);
/* Decodes base64, with or without a prefix data:...;base64, */
std::string decode_base64(std::string_view text);
/* The text, with U+FFFD for bytes that are not UTF-8: protobuf strings must be UTF-8. */
std::string valid_utf8(std::string_view text);

void tokenize_string(const call &c, const model &m, const backend::PredictOptions &q, backend::TokenizationResponse *a);
void detokenize(const model &m, const backend::DetokenizeRequest &q, backend::DetokenizeResponse *a);
void embed(const call &c, const model &m, const backend::PredictOptions &q, backend::EmbeddingResult *a);
void rerank(const call &c, const model &m, const backend::RerankRequest &q, backend::RerankResult *a);
void score(const call &c, const model &m, const backend::ScoreRequest &q, backend::ScoreResponse *a);

} // namespace localai

#endif
