/* Opening a model (see model.h). */
#include "model.h"

#include "json.h"

namespace localai {

namespace {

/* The engine of prepared settings. The progress function ends the loading when the call is canceled. */
pagedinfer::engine open(const call &c, model_settings &s, const pagedinfer::log_function &log)
{
    s.engine.on_log(log, s.log_level);
    for (const std::string &line : s.warnings) log(PI_LOG_WARN, line);
    pi_options_set_progress(
        s.engine.get(),
        [](void *ud, int, std::uint64_t, std::uint64_t) { return static_cast<const call *>(ud)->canceled(); },
        const_cast<call *>(&c));
    return pagedinfer::engine(s.engine);
}

std::string trigger_list(const backend::ModelOptions &q)
{
    if (!q.grammartriggers_size()) return "";
    const json list = own(json_array());
    for (const auto &t : q.grammartriggers()) append(list, text(t.word()));
    return dump(list);
}

} // namespace

model::model(const call &c, const backend::ModelOptions &q, model_settings s, const pagedinfer::log_function &log)
    : identity(q.model()), pooling(s.pooling), triggers(trigger_list(q)), openai(s.openai), engine(open(c, s, log))
{
    (void) handle(); /* reports a wrong value now */
}

openai_handle model::handle() const
{
    pi_error err{};
    pi_openai *raw = nullptr;
    pagedinfer::detail::check(pi_openai_new(&raw, engine.get(), &err), err);
    openai_handle o(raw);
    for (const auto &[key, value] : openai)
        pagedinfer::detail::check(pi_openai_set(raw, key.c_str(), value.c_str(), &err), err);
    return o;
}

} // namespace localai
