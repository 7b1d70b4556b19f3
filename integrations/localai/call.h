/* call.h: a call from LocalAI, without gRPC's headers.
 *
 * The files that compute responses report errors as pagedinfer::error. service.cpp turns codes into gRPC's status. */
#ifndef PAGEDINFER_LOCALAI_CALL_H
#define PAGEDINFER_LOCALAI_CALL_H

#include <functional>

#include "pagedinfer.hpp"

namespace localai {

enum {
    POLL_MS = 50,         /* interval at which a waiting call looks for a cancel */
    WORK_MS = 30000,      /* time limit for rendering, tokenizing and compiling a request */
    WORK_FACTOR = 96      /* bytes of work memory per byte of the request */
};
constexpr std::size_t WORK_BYTES = std::size_t{256} << 20; /* in addition */

struct call {
    std::function<bool()> canceled; /* the client canceled, or its deadline passed. Thread-safe */
    std::size_t bytes;              /* size of the request */
};

/* The work budget of a call. */
class budget {
public:
    explicit budget(const call &c)
        : w_(pagedinfer::detail::present(pi_work_new(0, WORK_BYTES + WORK_FACTOR * c.bytes, WORK_MS)))
    {
    }
    pi_work *get() const noexcept { return w_.get(); }

private:
    pagedinfer::detail::handle<pi_work, pi_work_free> w_;
};

[[noreturn]] inline void refuse(const std::string &why)
{
    throw pagedinfer::error(PI_EINVAL, why.c_str());
}

/* Waits for the end of a request. Cancels it when the call is canceled. Throws the request's error. */
inline void finish(const call &c, pagedinfer::request &r)
{
    while (!r.wait(POLL_MS))
        if (c.canceled()) r.cancel();
    const pi_result res = r.result();
    if (res.code) pagedinfer::detail::raise(res.code, res.msg);
}

} // namespace localai

#endif
