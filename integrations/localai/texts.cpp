/* Tokens, vectors and scores of texts (see texts.h). */
#include "texts.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>

#include "predict.h"

extern "C" {
#include "encoding.h"
}

namespace localai {

namespace {

enum { WINDOW = 32 /* requests of one call that are submitted at the same time */ };

/* One text of a call that has several: its request, and the event with its result. */
struct job {
    explicit job(const model &m) : request(m.engine) {}
    std::vector<float> values;          /* PI_EVENT_EMBEDDING: [n][width] */
    std::size_t width = 0;
    std::vector<std::int32_t> tokens;   /* PI_EVENT_PROMPT */
    std::vector<float> logprobs;        /* [tokens] */
    pagedinfer::request request;        /* last: its callback writes the fields above */

    void submit()
    {
        request.on_event([this](const pagedinfer::event_view &ev) {
            const pi_event *e = ev.get();
            if (ev.kind() == PI_EVENT_EMBEDDING) {
                width = e->n_embd;
                values.assign(e->embedding, e->embedding + e->n_embd * e->n_embeddings);
            } else if (ev.kind() == PI_EVENT_PROMPT) {
                tokens.assign(ev.tokens().begin(), ev.tokens().end());
                for (std::size_t i = 0; i < tokens.size(); i++) logprobs.push_back(ev.logprobs(i)[0].logprob);
            }
        });
        request.submit();
    }
};

/* Runs jobs 0 to n - 1, up to WINDOW at the same time, and takes their results in order. prepare sets options and
 * prompt of a job. lead: job 0 runs alone first, so that the others find its prefix in the cache. */
template <class P, class T> void run_jobs(const call &c, const model &m, int n, bool lead, P prepare, T take)
{
    std::deque<std::unique_ptr<job>> running;
    int next = 0;
    for (int done = 0; done < n; done++) {
        const std::size_t cap = lead && !done ? 1 : WINDOW;
        while (next < n && running.size() < cap) {
            auto j = std::make_unique<job>(m);
            const budget work(c);
            pi_request_set_work(j->request.get(), work.get());
            prepare(next++, *j, work);
            j->submit();
            running.push_back(std::move(j));
        }
        finish(c, running.front()->request);
        take(done, *running.front());
        running.pop_front();
    }
}

int capped(std::uint64_t n) { return static_cast<int>(std::min<std::uint64_t>(n, INT32_MAX)); }

} // namespace

std::string valid_utf8(std::string_view s)
{
    std::string out;
    utf8_hold h{};
    char text[8];
    for (const char c : s) out.append(text, utf8_step(&h, static_cast<unsigned char>(c), text));
    return out.append(text, utf8_end(&h, text));
}

std::string decode_base64(std::string_view s)
{
    if (s.substr(0, 5) == "data:") s.remove_prefix(std::min(s.find(',') + 1, s.size()));
    std::string out(base64_max_bytes(s.size()), '\0');
    std::size_t n = 0;
    if (!base64_decode(s.data(), s.size(), out.data(), &n)) refuse("an image is not valid base64");
    out.resize(n);
    return out;
}

std::vector<std::int32_t> tokenize(const budget &work, const model &m, std::string_view text, int flags)
{
    return pagedinfer::detail::filled<std::vector<std::int32_t>>(
        text.size() + 8, [&](std::int32_t *p, std::size_t cap) {
            return pagedinfer::detail::check(
                pi_work_tokenize(work.get(), m.engine.get(), text.data(), text.size(), flags, p, cap));
        });
}

void tokenize_string(const call &c, const model &m, const backend::PredictOptions &q, backend::TokenizationResponse *a)
{
    const budget work(c);
    std::vector<std::int32_t> ids;
    if (q.prompt().empty() && q.usetokenizertemplate() && q.messages_size()) {
        const std::string list = dump(messages_json(q, [](int) { return parse(R"({"type":"image"})", ""); }));
        const std::string variables = dump(template_variables(q));
        ids = pagedinfer::detail::filled<std::vector<std::int32_t>>(
            list.size() + 64, [&](std::int32_t *p, std::size_t cap) {
                pi_error err{};
                return pagedinfer::detail::check(
                    pi_work_chat_tokenize(work.get(), m.engine.get(), list.c_str(),
                                          q.tools().empty() ? nullptr : q.tools().c_str(), variables.c_str(), p, cap,
                                          &err), err);
            });
    } else {
        ids = tokenize(work, m, q.prompt(), PI_TOK_SPECIAL);
    }
    a->set_length(capped(ids.size()));
    a->mutable_tokens()->Assign(ids.begin(), ids.end());
}

void detokenize(const model &m, const backend::DetokenizeRequest &q, backend::DetokenizeResponse *a)
{
    const auto n_vocab = static_cast<std::int64_t>(m.engine.info().n_vocab);
    for (const std::int32_t id : q.tokens())
        if (id < 0 || id >= n_vocab)
            refuse("token " + std::to_string(id) + " is not in the vocabulary: give ids below " +
                   std::to_string(n_vocab));
    a->set_content(valid_utf8(m.engine.detokenize({q.tokens().begin(), q.tokens().end()}, PI_TOK_SPECIAL)));
}

void embed(const call &c, const model &m, const backend::PredictOptions &q, backend::EmbeddingResult *a)
{
    job j(m);
    const budget work(c);
    pi_request_set_work(j.request.get(), work.get());
    j.request.set("pooling", m.pooling);
    if (q.embeddingtokens_size())
        j.request.prompt(std::vector<std::int32_t>(q.embeddingtokens().begin(), q.embeddingtokens().end()));
    else
        j.request.prompt(q.embeddings());
    j.submit();
    finish(c, j.request);
    a->mutable_embeddings()->Assign(j.values.begin(), j.values.end());
    a->set_dim(capped(j.width));
    a->set_tokens(capped(j.width ? j.values.size() / j.width : 0));
    a->set_prompt_tokens(capped(j.request.result().prompt_tokens));
    a->set_layout(m.pooling == "none" ? backend::EMBEDDING_LAYOUT_PER_TOKEN : backend::EMBEDDING_LAYOUT_FINAL);
}

void rerank(const call &c, const model &m, const backend::RerankRequest &q, backend::RerankResult *a)
{
    if (q.top_n() < 0) refuse("top_n must not be negative");
    std::vector<float> scores;
    std::uint64_t tokens = 0;
    run_jobs(c, m, q.documents_size(), false,
             [&](int i, job &j, const budget &) {
                 const std::string &d = q.documents(i);
                 pi_error err{};
                 j.request.set("pooling", "rank");
                 pagedinfer::detail::check(pi_request_prompt_rank(j.request.get(), q.query().data(), q.query().size(),
                                                                  d.data(), d.size(), &err), err);
             },
             [&](int, job &j) {
                 scores.push_back(j.values.empty() ? 0 : j.values[0]);
                 tokens += j.request.result().prompt_tokens;
             });
    std::vector<int> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    const auto at = [&](int i) { return scores[static_cast<std::size_t>(i)]; };
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return at(x) > at(y); });
    if (q.top_n() && order.size() > static_cast<std::size_t>(q.top_n()))
        order.resize(static_cast<std::size_t>(q.top_n()));
    for (const int i : order) {
        backend::DocumentResult *one = a->add_results();
        one->set_index(i);
        one->set_text(q.documents(i));
        one->set_relevance_score(at(i));
    }
    a->mutable_usage()->set_prompt_tokens(capped(tokens));
    a->mutable_usage()->set_total_tokens(capped(tokens));
}

void score(const call &c, const model &m, const backend::ScoreRequest &q, backend::ScoreResponse *a)
{
    if (!q.candidates_size()) refuse("candidates must not be empty");
    const int flags = PI_TOK_BOS | PI_TOK_SPECIAL;
    const auto prompt = tokenize(budget(c), m, q.prompt(), flags);
    std::vector<std::size_t> begins; /* position of each candidate's first token */
    const auto prepare = [&](int i, job &j, const budget &work) {
        const auto ids = tokenize(work, m, q.prompt() + q.candidates(i), flags);
        /* A candidate can merge with the prompt's last token. It then begins at the first token that differs. */
        const auto differs = std::mismatch(prompt.begin(), prompt.end(), ids.begin(), ids.end());
        const auto begin = static_cast<std::size_t>(differs.second - ids.begin());
        if (!begin) refuse("prompt is empty, and the model has no BOS: give at least one token");
        begins.push_back(begin);
        j.request.set("max-tokens", 0).set("prompt-logprobs", 0).set("logits-from", begin - 1).prompt(ids);
    };
    run_jobs(c, m, q.candidates_size(), true, prepare, [&](int i, job &j) {
        const std::size_t n = j.request.result().prompt_tokens - begins[static_cast<std::size_t>(i)];
        backend::CandidateScore *one = a->add_candidates();
        double sum = 0;
        if (j.tokens.size() < n)
            pagedinfer::detail::raise(PI_EINTERNAL, "log-probabilities of a candidate are missing");
        for (std::size_t k = j.tokens.size() - n; k < j.tokens.size(); k++) {
            sum += static_cast<double>(j.logprobs[k]);
            if (!q.include_token_logprobs()) continue;
            backend::TokenLogProb *t = one->add_tokens();
            t->set_token(valid_utf8(m.engine.detokenize({j.tokens[k]}, PI_TOK_SPECIAL)));
            t->set_log_prob(static_cast<double>(j.logprobs[k]));
        }
        one->set_num_tokens(capped(n));
        one->set_log_prob(sum);
        if (q.length_normalize()) one->set_length_normalized_log_prob(n ? sum / static_cast<double>(n) : 0);
    });
}

} // namespace localai
