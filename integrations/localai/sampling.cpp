/* Parts of PredictOptions that both kinds of answers share. */
#include <charconv>

#include "predict.h"

namespace localai {

namespace {

enum { MAX_IMAGES = 64 };

/* The shortest text that reads back as the same float. */
std::string number(float v)
{
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, v).ptr);
}

json message_json(const backend::Message &m)
{
    const json j = own(json_object());
    put(j, "role", text(m.role()));
    put(j, "content", text(m.content()));
    if (!m.name().empty()) put(j, "name", text(m.name()));
    if (!m.tool_call_id().empty()) put(j, "tool_call_id", text(m.tool_call_id()));
    if (!m.reasoning_content().empty()) put(j, "reasoning_content", text(m.reasoning_content()));
    if (!m.tool_calls().empty()) put(j, "tool_calls", parse(m.tool_calls(), "tool_calls"));
    return json(json_incref(j.get()));
}

} // namespace

std::vector<sampling> sampling_of(const backend::PredictOptions &q)
{
    std::vector<sampling> list;
    const auto add = [&](bool said, const char *field, const char *key, std::string value) {
        if (said) list.push_back({field, key, std::move(value)});
    };
    add(true, "temperature", "temp", number(q.temperature()));
    add(true, "top_k", "top-k", std::to_string(q.topk()));
    add(true, "min_p", "min-p", number(q.minp()));
    add(true, "seed", "seed", std::to_string(q.seed() < 0 ? -1 : q.seed()));
    add(true, "max_tokens", "max-tokens", std::to_string(q.tokens() ? q.tokens() : -1));
    add(q.topp() != 0, "top_p", "top-p", number(q.topp()));
    add(q.typicalp() != 0, "typical_p", "typical", number(q.typicalp()));
    add(q.penalty() != 0, "repeat_penalty", "repeat-penalty", number(q.penalty()));
    add(q.repeat() != 0, "repeat_last_n", "repeat-last-n", std::to_string(q.repeat()));
    add(q.frequencypenalty() != 0, "frequency_penalty", "frequency-penalty", number(q.frequencypenalty()));
    add(q.presencepenalty() != 0, "presence_penalty", "presence-penalty", number(q.presencepenalty()));
    add(q.mirostat() != 0, "mirostat", "mirostat", std::to_string(q.mirostat()));
    add(q.mirostat() && q.mirostateta() != 0, "mirostat_eta", "mirostat-lr", number(q.mirostateta()));
    add(q.mirostat() && q.mirostattau() != 0, "mirostat_tau", "mirostat-ent", number(q.mirostattau()));
    add(q.ignoreeos(), "ignore_eos", "ignore-eos", "true");
    return list;
}

int logprobs_of(const backend::PredictOptions &q)
{
    if (q.logprobs() <= 0 && q.toplogprobs() <= 0) return -1;
    return q.toplogprobs() > 0 ? q.toplogprobs() : q.logprobs();
}

json template_variables(const backend::PredictOptions &q)
{
    const auto &meta = q.metadata();
    if (const auto all = meta.find("chat_template_kwargs"); all != meta.end()) {
        json j = parse(all->second, "chat_template_kwargs");
        if (!json_is_object(j.get())) refuse("chat_template_kwargs must be a JSON object");
        return j;
    }
    json j = own(json_object());
    if (const auto on = meta.find("enable_thinking"); on != meta.end())
        put(j, "enable_thinking", json(json_boolean(on->second == "true")));
    if (const auto effort = meta.find("reasoning_effort"); effort != meta.end() && !effort->second.empty())
        put(j, "reasoning_effort", text(effort->second));
    return j;
}

json messages_json(const backend::PredictOptions &q, const std::function<json(int)> &image)
{
    json list = own(json_array());
    int user = q.messages_size() - 1;
    while (user >= 0 && q.messages(user).role() != "user") user--;
    if (q.images_size() && user < 0) refuse("Images needs a message of role user");
    for (int i = 0; i < q.messages_size(); i++) {
        json m = message_json(q.messages(i));
        if (i == user && q.images_size()) {
            json parts = own(json_array());
            for (int k = 0; k < q.images_size(); k++) append(parts, image(k));
            json words = own(json_object());
            put(words, "type", text("text"));
            put(words, "text", text(q.messages(i).content()));
            append(parts, std::move(words));
            put(m, "content", std::move(parts));
        }
        append(list, std::move(m));
    }
    return list;
}

void check_media(const model &m, const backend::PredictOptions &q)
{
    if (q.videos_size() || q.audios_size()) refuse("Videos and Audios are not supported: send Images");
    if (q.images_size() && !m.reads_images()) refuse("the model reads no images: set mmproj to its vision model");
    if (q.images_size() > MAX_IMAGES) refuse("more than 64 images: send fewer");
}

void predict(const call &c, const model &m, const backend::PredictOptions &q, bool stream, const reply_function &send)
{
    check_media(m, q);
    const bool chat = q.usetokenizertemplate() && q.messages_size() && q.grammar().empty();
    (chat ? predict_chat : predict_prompt)(c, m, q, stream, send);
}

} // namespace localai
