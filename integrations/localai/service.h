/* service.h: the RPCs of backend.Backend.
 *
 * Each call is admitted first: token, model identity, loaded model. It then runs on its own gRPC thread.
 *
 * Threads: any. The lock covers the pointer to the model; calls hold their own reference. */
#ifndef PAGEDINFER_LOCALAI_SERVICE_H
#define PAGEDINFER_LOCALAI_SERVICE_H

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backend.grpc.pb.h"
#include "model.h"

namespace localai {

class service final : public backend::Backend::Service {
public:
    /* token: required in the metadata of each call; "" = none. log: receives the engine's lines. */
    service(std::string token, pagedinfer::log_function log) : token_(std::move(token)), log_(std::move(log)) {}

    using context = grpc::ServerContext;
    using writer = grpc::ServerWriter<backend::Reply>;
    grpc::Status Health(context *c, const backend::HealthMessage *q, backend::Reply *a) override;
    grpc::Status LoadModel(context *c, const backend::ModelOptions *q, backend::Result *a) override;
    grpc::Status Free(context *c, const backend::HealthMessage *q, backend::Result *a) override;
    grpc::Status Status(context *c, const backend::HealthMessage *q, backend::StatusResponse *a) override;
    grpc::Status GetMetrics(context *c, const backend::MetricsRequest *q, backend::MetricsResponse *a) override;
    grpc::Status ModelMetadata(context *c, const backend::ModelOptions *q, backend::ModelMetadataResponse *a) override;
    grpc::Status Predict(context *c, const backend::PredictOptions *q, backend::Reply *a) override;
    grpc::Status PredictStream(context *c, const backend::PredictOptions *q, writer *w) override;
    grpc::Status TokenizeString(context *c, const backend::PredictOptions *q,
                                backend::TokenizationResponse *a) override;
    grpc::Status Detokenize(context *c, const backend::DetokenizeRequest *q, backend::DetokenizeResponse *a) override;
    grpc::Status Embedding(context *c, const backend::PredictOptions *q, backend::EmbeddingResult *a) override;
    grpc::Status Rerank(context *c, const backend::RerankRequest *q, backend::RerankResult *a) override;
    grpc::Status Score(context *c, const backend::ScoreRequest *q, backend::ScoreResponse *a) override;

private:
    grpc::Status authorize(const context *c) const;
    template <class F>
    grpc::Status with_model(context *c, const google::protobuf::Message &q, const std::string &identity, F fn);
    std::shared_ptr<model> current() const;
    bool unload();

    const std::string token_;
    const pagedinfer::log_function log_;
    mutable std::mutex lock_;        /* covers model_ */
    std::shared_ptr<model> model_;   /* NULL = not loaded */
    std::mutex loading_;             /* one LoadModel or Free at a time */
    std::atomic<bool> is_loading_{false};
};

} // namespace localai

#endif
