/* model.h: the loaded model, and the reading of its options.
 *
 * Memory: a model is shared by the calls that use it; the last one closes the engine. Threads: a model is constant
 * after load, and its engine is thread-safe. */
#ifndef PAGEDINFER_LOCALAI_MODEL_H
#define PAGEDINFER_LOCALAI_MODEL_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend.pb.h"
#include "call.h"
#include "pagedinfer.hpp"
#include "pagedinfer_openai.h"

namespace localai {

/* Options of a model, sorted by the object that gets them. */
struct model_settings {
    pagedinfer::options engine;
    std::vector<std::pair<std::string, std::string>> openai; /* for pi_openai_set */
    std::string pooling = "model";                           /* of the Embedding call */
    int log_level = PI_LOG_INFO;
    std::vector<std::string> warnings;                       /* lines for the log */

    /* Sets one option. `strict`: an unknown name is an error, otherwise a warning. A wrong value is an error. */
    void set(const std::string &name, const std::string &value, bool strict);
};

/* Reads all options. Throws for a value that is not valid. options.cpp. */
model_settings read_options(const backend::ModelOptions &q);
/* Prints the rows of options_table.h as a Markdown table. */
void print_options();

using openai_handle = pagedinfer::detail::handle<pi_openai, pi_openai_free>;

class model {
public:
    /* Opens the engine. Stops with PI_ECANCELED when the call is canceled. */
    model(const call &c, const backend::ModelOptions &q, model_settings s, const pagedinfer::log_function &log);

    /* A handle for one completion. Each call has its own, so that it polls only its own chunks. */
    openai_handle handle() const;
    bool reads_images() const { return engine.info().modalities & PI_MODALITY_VISION; }

    std::string identity; /* ModelOptions.Model */
    std::string pooling;
    std::string triggers; /* JSON array for option grammar-trigger; "" = none */
    std::vector<std::pair<std::string, std::string>> openai;
    mutable pagedinfer::engine engine; /* thread-safe */
};

} // namespace localai

#endif
