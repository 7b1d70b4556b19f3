/* The RPCs (see service.h). */
#include "service.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "predict.h"
#include "texts.h"

namespace localai {

namespace {

enum { FREE_MS = 4000 /* LocalAI waits 5 s for Free */ };

/* LocalAI reloads the model after FAILED_PRECONDITION, so no request's own fault has that code. */
grpc::StatusCode status_of(int code)
{
    switch (code) {
    case PI_EINVAL:
    case PI_ETOOBIG:
    case PI_EUNSUPPORTED:
    case PI_EFORMAT:
    case PI_ENOENT: return grpc::StatusCode::INVALID_ARGUMENT;
    case PI_ENOMEM:
    case PI_EBUSY: return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case PI_ECANCELED: return grpc::StatusCode::CANCELLED;
    case PI_ETIMEDOUT: return grpc::StatusCode::DEADLINE_EXCEEDED;
    case PI_ECLOSED: return grpc::StatusCode::UNAVAILABLE;
    }
    return grpc::StatusCode::INTERNAL;
}

/* Runs fn, and turns exceptions into a status. */
template <class F> grpc::Status guarded(F fn)
{
    try {
        fn();
        return grpc::Status::OK;
    } catch (const pagedinfer::error &e) {
        return {status_of(e.code()), valid_utf8(e.what())};
    } catch (const std::bad_alloc &) {
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "out of memory: send a smaller request, or fewer at a time"};
    } catch (const std::exception &e) {
        return {grpc::StatusCode::INTERNAL, valid_utf8(e.what())};
    }
}

call call_of(const grpc::ServerContext *c, const google::protobuf::Message &q)
{
    return {[c] { return c->IsCancelled(); }, q.ByteSizeLong()};
}

/* Compares in time that depends on the lengths only. */
bool equal(const std::string &a, const grpc::string_ref &b)
{
    unsigned char differs = a.size() != b.size();
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); i++)
        differs = static_cast<unsigned char>(differs | (a[i] ^ b.data()[i]));
    return !differs;
}

int capped(std::uint64_t n) { return static_cast<int>(std::min<std::uint64_t>(n, INT32_MAX)); }

/* A template supports thinking if its variable changes the prompt. */
void describe_template(const model &m, backend::ModelMetadataResponse *a)
{
    const std::string question = R"([{"role":"user","content":"test"}])";
    try {
        const std::string on = m.engine.render(question, {}, R"({"enable_thinking":true})");
        a->set_rendered_template(valid_utf8(on));
        a->set_supports_thinking(on != m.engine.render(question, {}, R"({"enable_thinking":false})"));
    } catch (const pagedinfer::error &) { /* no template, or one that refuses a single message */
    }
}

} // namespace

/* ------------------------------------------------------------------------------------------------------- admission */

grpc::Status service::authorize(const context *c) const
{
    if (token_.empty()) return grpc::Status::OK;
    const auto &meta = c->client_metadata();
    const auto given = meta.find("authorization");
    if (given != meta.end() && equal("Bearer " + token_, given->second)) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "wrong token: send the value of LOCALAI_GRPC_AUTH_TOKEN"};
}

std::shared_ptr<model> service::current() const
{
    std::lock_guard<std::mutex> held(lock_);
    return model_;
}

template <class F>
grpc::Status service::with_model(context *c, const google::protobuf::Message &q, const std::string &identity, F fn)
{
    if (grpc::Status s = authorize(c); !s.ok()) return s;
    const std::shared_ptr<model> m = current();
    if (!m) return {grpc::StatusCode::FAILED_PRECONDITION, "pagedinfer: model not loaded"};
    if (!identity.empty() && !m->identity.empty() && identity != m->identity)
        return {grpc::StatusCode::NOT_FOUND,
                "model identity mismatch: loaded \"" + m->identity + "\", requested \"" + identity + "\""};
    return guarded([&] { fn(call_of(c, q), *m); });
}

/* ----------------------------------------------------------------------------------------------------------- state */

grpc::Status service::Health(context *c, const backend::HealthMessage *, backend::Reply *a)
{
    if (grpc::Status s = authorize(c); !s.ok()) return s;
    a->set_message("OK");
    return grpc::Status::OK;
}

/* Drops the model, and waits for the calls that use it. Returns false after FREE_MS; they then close it later. */
bool service::unload()
{
    std::weak_ptr<model> old;
    {
        std::lock_guard<std::mutex> held(lock_);
        old = model_;
        std::shared_ptr<model>().swap(model_);
    }
    for (int ms = 0; ms < FREE_MS && !old.expired(); ms += 10)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return old.expired();
}

grpc::Status service::LoadModel(context *c, const backend::ModelOptions *q, backend::Result *a)
{
    if (grpc::Status s = authorize(c); !s.ok()) return s;
    std::lock_guard<std::mutex> one(loading_);
    is_loading_ = true;
    const grpc::Status s = guarded([&] {
        model_settings settings = read_options(*q);
        if (!unload()) pagedinfer::detail::raise(PI_EBUSY, "calls still use the loaded model: repeat LoadModel later");
        try {
            auto m = std::make_shared<model>(call_of(c, *q), *q, std::move(settings), log_);
            std::lock_guard<std::mutex> held(lock_);
            model_ = std::move(m);
        } catch (const pagedinfer::error &e) { /* the file or the device: a result, not a wrong call */
            if (e.code() == PI_EINVAL || e.code() == PI_ECANCELED) throw;
            a->set_message(valid_utf8(e.what()));
            return;
        }
        a->set_success(true);
        a->set_message("Loading succeeded");
    });
    is_loading_ = false;
    if (!s.ok() || !a->success()) log_(PI_LOG_ERROR, s.ok() ? a->message() : s.error_message());
    return s;
}

grpc::Status service::Free(context *c, const backend::HealthMessage *, backend::Result *a)
{
    if (grpc::Status s = authorize(c); !s.ok()) return s;
    std::lock_guard<std::mutex> one(loading_);
    a->set_success(unload());
    a->set_message(a->success() ? "Freed" : "Calls still use the model: the last one frees it");
    return grpc::Status::OK;
}

grpc::Status service::Status(context *c, const backend::HealthMessage *, backend::StatusResponse *a)
{
    if (grpc::Status s = authorize(c); !s.ok()) return s;
    const std::shared_ptr<model> m = current();
    a->set_state(is_loading_ ? backend::StatusResponse::BUSY : backend::StatusResponse::UNINITIALIZED);
    if (!m) return grpc::Status::OK;
    return guarded([&] {
        const pi_stats stats = m->engine.stats();
        const pi_plan plan = m->engine.memory();
        a->set_state(m->engine.state() == PI_STATE_FAILED          ? backend::StatusResponse::ERROR
                     : stats.n_running + stats.n_waiting           ? backend::StatusResponse::BUSY
                                                                   : backend::StatusResponse::READY);
        auto &parts = *a->mutable_memory()->mutable_breakdown();
        a->mutable_memory()->set_total(plan.total_bytes);
        parts["weights"] = plan.weights_bytes;
        parts["kv_cache"] = plan.kv_bytes;
        parts["states"] = plan.state_bytes;
        parts["scratch"] = plan.scratch_bytes;
    });
}

grpc::Status service::GetMetrics(context *c, const backend::MetricsRequest *q, backend::MetricsResponse *a)
{
    return with_model(c, *q, "", [&](const call &, const model &m) {
        const pi_stats s = m.engine.stats();
        const double tokens = static_cast<double>(s.generated_tokens);
        a->set_tokens_per_second(s.step_total_ms > 0 ? static_cast<float>(tokens * 1000 / s.step_total_ms) : 0);
        a->set_tokens_generated(capped(s.generated_tokens));
        a->set_prompt_tokens_processed(capped(s.prompt_tokens - s.cached_tokens));
    });
}

grpc::Status service::ModelMetadata(context *c, const backend::ModelOptions *q, backend::ModelMetadataResponse *a)
{
    return with_model(c, *q, "", [&](const call &, const model &m) {
        if (m.reads_images()) a->set_media_marker(MEDIA_MARKER);
        describe_template(m, a);
    });
}

/* --------------------------------------------------------------------------------------------------------- answers */

grpc::Status service::Predict(context *c, const backend::PredictOptions *q, backend::Reply *a)
{
    return with_model(c, *q, q->modelidentity(), [&](const call &k, const model &m) {
        predict(k, m, *q, false, [&](const backend::Reply &reply) {
            *a = reply;
            return true;
        });
    });
}

grpc::Status service::PredictStream(context *c, const backend::PredictOptions *q, writer *w)
{
    return with_model(c, *q, q->modelidentity(), [&](const call &k, const model &m) {
        predict(k, m, *q, true, [&](const backend::Reply &reply) { return w->Write(reply); });
    });
}

grpc::Status service::TokenizeString(context *c, const backend::PredictOptions *q, backend::TokenizationResponse *a)
{
    return with_model(c, *q, q->modelidentity(),
                      [&](const call &k, const model &m) { tokenize_string(k, m, *q, a); });
}

grpc::Status service::Detokenize(context *c, const backend::DetokenizeRequest *q, backend::DetokenizeResponse *a)
{
    return with_model(c, *q, "", [&](const call &, const model &m) { detokenize(m, *q, a); });
}

grpc::Status service::Embedding(context *c, const backend::PredictOptions *q, backend::EmbeddingResult *a)
{
    return with_model(c, *q, q->modelidentity(), [&](const call &k, const model &m) { embed(k, m, *q, a); });
}

grpc::Status service::Rerank(context *c, const backend::RerankRequest *q, backend::RerankResult *a)
{
    return with_model(c, *q, q->modelidentity(), [&](const call &k, const model &m) { rerank(k, m, *q, a); });
}

grpc::Status service::Score(context *c, const backend::ScoreRequest *q, backend::ScoreResponse *a)
{
    return with_model(c, *q, q->modelidentity(), [&](const call &k, const model &m) { score(k, m, *q, a); });
}

} // namespace localai
