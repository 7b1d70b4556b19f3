/* Answers to prompts: text that LocalAI rendered, or messages with a grammar. */
#include <condition_variable>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "predict.h"
#include "texts.h"

extern "C" {
#include "media/image.h"
}

namespace localai {

namespace {

constexpr std::string_view marker = MEDIA_MARKER;

/* Events of a request that its call has not read. The engine's dispatch thread writes, the call reads. */
class mailbox {
public:
    void take(const pagedinfer::event_view &ev)
    {
        std::lock_guard<std::mutex> held(lock_);
        ended_ = ended_ || ev.done(); /* first: the rest can run out of memory */
        text_ += ev.text();
        if (ev.kind() == PI_EVENT_TEXT || ev.done()) {
            for (std::size_t i = 0; i < ev.tokens().size(); i++) {
                const auto row = ev.logprobs(i);
                probs_.emplace_back(row.begin(), row.end());
            }
        }
        changed_.notify_all();
    }
    /* Waits up to POLL_MS for news. Returns false after the last ones. */
    bool wait(std::string &text, std::vector<std::vector<pi_token_prob>> &probs)
    {
        std::unique_lock<std::mutex> held(lock_);
        changed_.wait_for(held, std::chrono::milliseconds(POLL_MS), [this] { return ended_ || !text_.empty(); });
        text.clear();
        probs.clear();
        text.swap(text_);
        probs.swap(probs_);
        return !ended_;
    }

private:
    std::mutex lock_;
    std::condition_variable changed_;
    std::string text_;
    std::vector<std::vector<pi_token_prob>> probs_; /* one row per token; empty rows = not requested */
    bool ended_ = false;
};

struct free_pixels {
    void operator()(std::uint8_t *p) const noexcept { std::free(p); }
};

void add_image(const budget &work, pagedinfer::request &r, const std::string &base64)
{
    const std::string file = decode_base64(base64);
    const image_limits limits = image_default_limits();
    image_head head;
    pi_error err{};
    std::uint8_t *raw = nullptr;
    pagedinfer::detail::check(image_head_read(file.data(), file.size(), &limits, &head, &err), err);
    pagedinfer::detail::check(image_decode(file.data(), file.size(), &head, work.get(), &raw, &err), err);
    const std::unique_ptr<std::uint8_t, free_pixels> pixels(raw);
    auto image = pagedinfer::detail::sized<pi_image>();
    image.width = head.width;
    image.height = head.height;
    image.rgb = raw;
    image.source = file.data();
    image.source_len = file.size();
    r.image(image);
}

/* Text with a marker for each image, as token ids. Image i is the id -1 - i. */
std::vector<std::int32_t> ids_of(const budget &work, const model &m, std::string_view prompt, int n_images)
{
    std::vector<std::int32_t> ids;
    int n = 0;
    for (bool first = true;; first = false) {
        const std::size_t at = prompt.find(marker);
        const auto part = tokenize(work, m, prompt.substr(0, at), PI_TOK_SPECIAL | (first ? PI_TOK_BOS : 0));
        ids.insert(ids.end(), part.begin(), part.end());
        if (at == prompt.npos) break;
        ids.push_back(-1 - n++);
        prompt.remove_prefix(at + marker.size());
    }
    if (n != n_images) refuse("Prompt has " + std::to_string(n) + " markers " + std::string(marker) + " for " +
                              std::to_string(n_images) + " images: write one for each");
    return ids;
}

void set_prompt(const budget &work, const model &m, const backend::PredictOptions &q, pagedinfer::request &r)
{
    for (const std::string &image : q.images()) add_image(work, r, image);
    if (q.usetokenizertemplate() && q.messages_size()) {
        const json list = messages_json(q, [](int) { return parse(R"({"type":"image"})", ""); });
        r.chat(dump(list), {}, dump(template_variables(q)));
    } else if (q.images_size()) {
        r.prompt(ids_of(work, m, q.prompt(), q.images_size()));
    } else {
        r.prompt(q.prompt());
    }
}

/* LogitBias: {"ID": BIAS, ...} */
void set_biases(const backend::PredictOptions &q, pagedinfer::request &r)
{
    if (q.logitbias().empty()) return;
    const json all = parse(q.logitbias(), "LogitBias");
    if (!json_is_object(all.get())) refuse("LogitBias must be a JSON object of token ids and numbers");
    const char *id;
    json_t *v;
    json_object_foreach(all.get(), id, v) {
        char bias[64];
        if (!json_is_number(v)) refuse(std::string("LogitBias of token ") + id + " must be a number");
        std::snprintf(bias, sizeof bias, "%+.6f", json_number_value(v));
        r.set("logit-bias", std::string(id) + bias);
    }
}

void set_options(const model &m, const backend::PredictOptions &q, pagedinfer::request &r)
{
    for (const sampling &s : sampling_of(q)) r.set(s.key, s.value);
    for (const std::string &s : q.stopprompts())
        if (!s.empty()) r.set("stop", s);
    if (const int n = logprobs_of(q); n >= 0) r.set("logprobs", n);
    set_biases(q, r);
    if (!q.grammar().empty()) {
        r.set("grammar", q.grammar());
        if (!m.triggers.empty()) r.set("grammar-trigger", m.triggers);
    }
    if (const auto salt = q.metadata().find("cache_salt"); salt != q.metadata().end())
        r.set("cache-salt", salt->second);
}

json prob_json(const model &m, const pi_token_prob &p)
{
    const std::string piece = m.engine.detokenize({p.id}, PI_TOK_SPECIAL);
    json one = own(json_object()), bytes = own(json_array());
    for (const unsigned char b : piece) append(bytes, own(json_integer(b)));
    put(one, "id", own(json_integer(p.id)));
    put(one, "token", text(valid_utf8(piece)));
    put(one, "bytes", std::move(bytes));
    put(one, "logprob", own(json_real(p.logprob > -9999 ? static_cast<double>(p.logprob) : -9999.0)));
    return one;
}

/* Log-probabilities in OpenAI's format; "" = none. */
std::string logprobs_json(const model &m, const std::vector<std::vector<pi_token_prob>> &rows)
{
    json list = own(json_array()), root = own(json_object());
    for (const auto &row : rows) {
        if (row.empty()) return "";
        json one = prob_json(m, row[0]), top = own(json_array());
        for (std::size_t k = 1; k < row.size() && row[k].id >= 0; k++) append(top, prob_json(m, row[k]));
        put(one, "top_logprobs", std::move(top));
        append(list, std::move(one));
    }
    if (rows.empty()) return "";
    put(root, "content", std::move(list));
    return dump(root);
}

void add_counts(const pagedinfer::request &r, backend::Reply &reply)
{
    const pi_result res = r.result();
    reply.set_prompt_tokens(static_cast<int>(res.prompt_tokens));
    reply.set_tokens(static_cast<int>(res.generated_tokens));
    reply.set_timing_prompt_processing(res.prefill_ms);
    reply.set_timing_token_generation(res.decode_ms);
}

} // namespace

void predict_prompt(const call &c, const model &m, const backend::PredictOptions &q, bool stream,
                    const reply_function &send)
{
    const budget work(c);
    mailbox box; /* outlives the request */
    pagedinfer::request r(m.engine);
    pi_request_set_work(r.get(), work.get());
    set_options(m, q, r);
    set_prompt(work, m, q, r);
    r.on_event([&](const pagedinfer::event_view &ev) { box.take(ev); }).submit();
    std::string piece, whole;
    std::vector<std::vector<pi_token_prob>> probs, all;
    for (bool more = true; more;) {
        more = box.wait(piece, probs);
        if (c.canceled()) r.cancel();
        if (!stream) {
            whole += piece;
            all.insert(all.end(), probs.begin(), probs.end());
        } else if (!piece.empty() || !probs.empty()) {
            backend::Reply reply;
            reply.set_message(piece);
            reply.set_logprobs(logprobs_json(m, probs));
            add_counts(r, reply);
            if (!send(reply)) r.cancel();
        }
    }
    finish(c, r);
    backend::Reply reply; /* of a stream: the final counts */
    reply.set_message(whole);
    reply.set_logprobs(logprobs_json(m, all));
    add_counts(r, reply);
    send(reply);
}

} // namespace localai
