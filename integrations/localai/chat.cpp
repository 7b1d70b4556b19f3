/* Answers to conversations: OpenAI's JSON for libpagedinfer-openai, and its chunks as replies. */
#include <algorithm>

#include "predict.h"

namespace localai {

namespace {

using completion = pagedinfer::detail::handle<pi_completion, pi_completion_free>;

json image_part(const std::string &base64)
{
    json url = own(json_object()), part = own(json_object());
    put(url, "url", text(base64));
    put(part, "type", text("image_url"));
    put(part, "image_url", std::move(url));
    return part;
}

/* ToolChoice is a word, or JSON. */
json tool_choice(const std::string &source)
{
    json_error_t why;
    if (json_t *j = json_loadb(source.data(), source.size(), JSON_DECODE_ANY, &why)) return json(j);
    return text(source);
}

/* The request of /v1/chat/completions. */
json request_of(const backend::PredictOptions &q, bool stream)
{
    json body = own(json_object());
    put(body, "messages", messages_json(q, [&](int i) { return image_part(q.images(i)); }));
    put(body, "stream", json(json_boolean(stream)));
    if (stream) put(body, "stream_options", parse(R"({"include_usage":true,"continuous_usage_stats":true})", ""));
    for (const sampling &s : sampling_of(q)) put(body, s.field, parse(s.value, s.field));
    if (const int n = logprobs_of(q); n >= 0) {
        put(body, "logprobs", json(json_true()));
        put(body, "top_logprobs", own(json_integer(n)));
    }
    if (q.stopprompts_size()) {
        json stop = own(json_array());
        for (const std::string &s : q.stopprompts())
            if (!s.empty()) append(stop, text(s));
        put(body, "stop", std::move(stop));
    }
    if (!q.logitbias().empty()) put(body, "logit_bias", parse(q.logitbias(), "LogitBias"));
    if (!q.tools().empty()) put(body, "tools", parse(q.tools(), "Tools"));
    if (!q.tools().empty() && !q.toolchoice().empty()) put(body, "tool_choice", tool_choice(q.toolchoice()));
    put(body, "chat_template_kwargs", template_variables(q));
    for (const char *key : {"cache_salt"})
        if (const auto v = q.metadata().find(key); v != q.metadata().end()) put(body, key, text(v->second));
    return body;
}

void read_calls(const json_t *calls, backend::ChatDelta *delta)
{
    std::size_t i;
    json_t *one;
    json_array_foreach(calls, i, one) {
        const json_t *at = json_object_get(one, "index"), *fn = json_object_get(one, "function");
        backend::ToolCallDelta *out = delta->add_tool_calls();
        out->set_index(static_cast<int>(at ? json_integer_value(at) : static_cast<json_int_t>(i)));
        out->set_id(std::string(text_of(json_object_get(one, "id"))));
        out->set_name(std::string(text_of(json_object_get(fn, "name"))));
        out->set_arguments(std::string(text_of(json_object_get(fn, "arguments"))));
    }
}

int count(const json_t *usage, const char *key)
{
    return static_cast<int>(std::min<json_int_t>(json_integer_value(json_object_get(usage, key)), INT32_MAX));
}

/* Reads one chunk. Returns false if the reply says nothing new. */
bool read_chunk(const json_t *root, backend::Reply &reply)
{
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0), *usage = json_object_get(root, "usage");
    const json_t *timings = json_object_get(root, "timings"), *probs = json_object_get(choice, "logprobs");
    const json_t *delta = json_object_get(choice, "delta");
    if (!delta) delta = json_object_get(choice, "message");
    const std::string_view content = text_of(json_object_get(delta, "content"));
    const std::string_view thoughts = text_of(json_object_get(delta, "reasoning_content"));
    const json_t *calls = json_object_get(delta, "tool_calls");
    if (!content.empty() || !thoughts.empty() || json_array_size(calls)) {
        backend::ChatDelta *out = reply.add_chat_deltas();
        out->set_content(std::string(content));
        out->set_reasoning_content(std::string(thoughts));
        read_calls(calls, out);
        reply.set_message(std::string(content));
    }
    reply.set_prompt_tokens(count(usage, "prompt_tokens"));
    reply.set_tokens(count(usage, "completion_tokens"));
    reply.set_timing_prompt_processing(json_number_value(json_object_get(timings, "prompt_ms")));
    reply.set_timing_token_generation(json_number_value(json_object_get(timings, "predicted_ms")));
    if (json_is_object(probs)) reply.set_logprobs(dump(json(json_incref(const_cast<json_t *>(probs)))));
    return reply.chat_deltas_size() || !reply.logprobs().empty() || timings;
}

/* Reads one chunk of the queue and sends its reply. Returns false if the client is gone. */
bool pass_on(const pi_chunk &chunk, const reply_function &send)
{
    if (!chunk.len) return true; /* the end of a stream */
    const json root = parse({chunk.json, chunk.len}, "the response");
    if (chunk.code) {
        const json_t *why = json_object_get(json_object_get(root.get(), "error"), "message");
        pagedinfer::detail::raise(chunk.code, std::string(text_of(why)).c_str());
    }
    backend::Reply reply;
    return !read_chunk(root.get(), reply) || send(reply);
}

} // namespace

void predict_chat(const call &c, const model &m, const backend::PredictOptions &q, bool stream,
                  const reply_function &send)
{
    const std::string body = dump(request_of(q, stream));
    const budget work(c);
    const openai_handle o = m.handle();
    pi_completion *raw = nullptr;
    pi_error err{};
    auto p = pagedinfer::detail::sized<pi_completion_params>();
    p.work = work.get();
    pagedinfer::detail::check(pi_chat_completions(&raw, o.get(), body.data(), body.size(), &p, &err), err);
    const completion answer(raw); /* freed before its handle */
    bool last = false, gone = false;
    while (!last) {
        pi_chunk *chunks[16];
        const int n = pagedinfer::detail::check(pi_openai_poll(o.get(), chunks, 16, POLL_MS));
        std::vector<pagedinfer::detail::handle<pi_chunk, pi_chunk_release>> owned(chunks, chunks + n);
        for (int i = 0; i < n; i++) {
            last = last || chunks[i]->last;
            if (!gone) gone = !pass_on(*chunks[i], send);
        }
        if (!gone && !c.canceled()) continue;
        gone = true;
        pi_completion_cancel(raw);
    }
    if (gone) pagedinfer::detail::raise(PI_ECANCELED, "the client canceled");
}

} // namespace localai
