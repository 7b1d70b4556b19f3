/* Runs prompts through engines in different ways, together or one by one, and compares logits and texts. */
#ifndef ANSWERS_H
#define ANSWERS_H

#include "simt_test.h"

#include <algorithm>
#include <map>
#include <string>

extern "C" {
#include "pagedinfer.h"
}

/* A request's outcome: the logits of each position, the text, and the result. */
struct answer {
    std::string text;
    std::map<uint32_t, std::vector<float>> logits;
    pi_result result;
};

inline void take_logits(void *ud, uint32_t pos, const float *logits, size_t n)
{
    static_cast<answer *>(ud)->logits[pos].assign(logits, logits + n);
}

inline void set(pi_options *o, const char *key, const char *value)
{
    pi_error err;
    if (pi_options_set(o, key, value, &err)) fail_msg("%s: %s", key, err.msg);
}

/* Runs all prompts, concurrently (`together`) or one after the other. max_tokens NULL = the engine's default. */
inline std::vector<answer> ask(pi_engine *e, const std::vector<std::string> &prompts, bool together,
                               const char *max_tokens = nullptr)
{
    std::vector<answer> out(prompts.size());
    std::vector<pi_request *> requests;
    pi_error err;
    for (size_t i = 0; i < prompts.size(); i++) {
        pi_request *r = pi_request_new(e);
        pi_request_set_user(r, &out[i]);
        pi_request_on_logits(r, take_logits, &out[i]);
        requests.push_back(r);
        if (max_tokens) assert_int_equal(pi_request_set(r, "max-tokens", max_tokens, &err), PI_OK);
        if (pi_request_prompt_text(r, prompts[i].data(), prompts[i].size(), &err)) fail_msg("%s", err.msg);
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        if (!together || i + 1 == prompts.size()) {
            pi_event *ev[8];
            for (int n; (n = pi_poll(e, ev, 8, -1)) > 0;) {
                for (int k = 0; k < n; k++) {
                    static_cast<answer *>(ev[k]->user)->text.append(ev[k]->text, ev[k]->text_len);
                    assert_int_equal(ev[k]->code, PI_OK);
                    pi_event_release(ev[k]);
                }
            }
        }
    }
    for (size_t i = 0; i < requests.size(); i++) {
        out[i].result.size = sizeof out[i].result;
        assert_int_equal(pi_request_result(requests[i], &out[i].result), PI_OK);
        pi_request_free(requests[i]);
    }
    return out;
}

inline size_t best(const std::vector<float> &row)
{
    return (size_t) (std::max_element(row.begin(), row.end()) - row.begin());
}

inline void compare(const char *what, const std::vector<answer> &a, const std::vector<answer> &b, double tolerance)
{
    for (size_t i = 0; i < a.size(); i++) {
        assert_int_equal(a[i].logits.size(), b[i].logits.size());
        assert_true(a[i].logits.size() >= 8);
        for (const auto &p : a[i].logits) {
            const std::vector<float> &x = p.second, &y = b[i].logits.at(p.first);
            if (best(x) != best(y)) fail_msg("%s: prompt %zu, position %u: another token", what, i, p.first);
            for (size_t k = 0; k < x.size(); k++) {
                if (!(std::fabs(x[k] - y[k]) <= tolerance))
                    fail_msg("%s: prompt %zu, position %u, logit %zu: %g and %g", what, i, p.first, k, (double) x[k],
                             (double) y[k]);
            }
        }
        assert_string_equal(a[i].text.c_str(), b[i].text.c_str());
    }
}

/* Runs one request on an engine and closes it. rc is the code of opening the engine. Returns PI_OK, or PI_EDEVICE
 * from opening or from the request. answered: called before the engine closes, or NULL. */
inline int answer_and_close(pi_engine *e, int rc, pi_error err, void (*answered)() = nullptr)
{
    if (rc) return strstr(err.msg, "a call was made to fail") ? rc : PI_EINTERNAL;
    pi_request *r = pi_request_new(e);
    if (pi_request_prompt_text(r, "you and", 7, &err) || pi_request_submit(r, &err)) fail_msg("%s", err.msg);
    pi_event *ev;
    while (pi_poll(e, &ev, 1, -1) > 0) {
        if (ev->code) rc = ev->code;
        pi_event_release(ev);
    }
    assert_int_equal(pi_engine_state(e), rc ? PI_STATE_FAILED : PI_STATE_READY);
    pi_request_free(r);
    if (answered) answered();
    pi_engine_close(e);
    return rc;
}

#endif
