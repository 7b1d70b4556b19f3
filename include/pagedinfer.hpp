/* pagedinfer.hpp: pagedinfer.h for C++17. Header only.
 *
 *     pagedinfer::options o;
 *     o.set("model", "gemma.gguf").set("ctx-size", 4096);
 *     pagedinfer::engine e(o);
 *     pagedinfer::request r(e);
 *     r.set("max-tokens", 64).prompt("Once upon a time").submit();
 *     for (const pagedinfer::event &ev : e.events()) std::cout << ev.text();
 *
 * OWNERSHIP. Each object owns its C object, can be moved and not copied. The order of destruction is that of the C
 * interface: requests and parsers before their engine. get() returns the C object, for functions without a wrapper.
 * A moved-from object can only be destroyed or assigned.
 *
 * ERRORS. A failed call throws pagedinfer::error with the code and the text of the library. Out of memory throws
 * std::bad_alloc. Exceptions of a callback do not pass through the library: request::wait throws the first one.
 *
 * THREADS. The rules of pagedinfer.h apply. */
#ifndef PAGEDINFER_HPP
#define PAGEDINFER_HPP

#include <pagedinfer.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pagedinfer {

/* ---------------------------------------------------------------------------------------------------------- errors */

/* A failed call. what() is the text of the library, which names the cause and the remedy. */
class error : public std::runtime_error {
public:
    error(int code, const char *text) : std::runtime_error(*text ? text : pi_strerror(code)), code_(code) {}
    /* PI_E* */
    int code() const noexcept { return code_; }
    /* "PI_EINVAL" */
    const char *name() const noexcept { return pi_err_name(code_); }
    /* True if the call may succeed later without any change. */
    bool retryable() const noexcept
    {
        switch (code_) {
#define PI__X(name, code, text, retryable) case code: return retryable;
            PI_ERRORS(PI__X)
#undef PI__X
        }
        return false;
    }

private:
    int code_;
};

namespace detail {

[[noreturn]] inline void raise(int code, const char *text)
{
    if (code == PI_ENOMEM) throw std::bad_alloc();
    throw error(code, text);
}
/* Throws if a call failed; returns its result otherwise. */
template <class T> T check(T result, const pi_error &err)
{
    if (result < 0) raise(static_cast<int>(result), err.code == static_cast<int>(result) ? err.msg : "");
    return result;
}
template <class T> T check(T result) { return check(result, pi_error{}); }
template <class T> T *present(T *p)
{
    if (!p) throw std::bad_alloc();
    return p;
}
/* A struct with its field `size` set. */
template <class T> T sized()
{
    T t{};
    t.size = sizeof t;
    return t;
}
inline const char *text_or_null(const std::string &s) { return s.empty() ? nullptr : s.c_str(); }
/* The result of a call that fills a buffer: fn(out, cap) returns the full length. */
template <class C, class F> C filled(std::size_t guess, F fn)
{
    C out(guess, typename C::value_type{});
    for (;;) {
        const std::size_t n = static_cast<std::size_t>(fn(out.data(), out.size()));
        const bool whole = n <= out.size();
        out.resize(n);
        if (whole) return out;
    }
}
template <class T, void (*Free)(T *)> struct deleter {
    void operator()(T *p) const noexcept { Free(p); }
};
template <class T, void (*Free)(T *)> using handle = std::unique_ptr<T, deleter<T, Free>>;

} // namespace detail

/* A sequence of n values that belongs to another object. */
template <class T> class view {
public:
    view(const T *p, std::size_t n) noexcept : p_(p), n_(n) {}
    const T *begin() const noexcept { return p_; }
    const T *end() const noexcept { return p_ + n_; }
    const T *data() const noexcept { return p_; }
    std::size_t size() const noexcept { return n_; }
    bool empty() const noexcept { return !n_; }
    const T &operator[](std::size_t i) const noexcept { return p_[i]; }

private:
    const T *p_;
    std::size_t n_;
};

/* --------------------------------------------------------------------------------------------------------- options */

/* Receives a log line: PI_LOG_* and the text. */
using log_function = std::function<void(int level, std::string_view text)>;

/* A set of options. */
class options {
public:
    options() : o_(detail::present(pi_options_new())) {}

    /* Sets an option from text, a number or a bool. */
    options &set(const char *key, const std::string &value)
    {
        pi_error err{};
        detail::check(pi_options_set(o_.get(), key, value.c_str(), &err), err);
        return *this;
    }
    options &set(const char *key, const char *value) { return set(key, std::string(value)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> options &set(const char *key, T value)
    {
        return set(key, text_of(value));
    }
    /* Sends log lines up to `level` to fn. Engines that are opened afterwards share fn. */
    options &on_log(log_function fn, int level = PI_LOG_INFO)
    {
        log_ = std::make_shared<log_function>(std::move(fn));
        pi_options_set_log(o_.get(), call_log, log_.get(), level);
        return *this;
    }
    pi_options *get() const noexcept { return o_.get(); }
    /* The memory use of an engine with these options; loads no weights. */
    pi_plan plan() const
    {
        pi_error err{};
        auto p = detail::sized<pi_plan>();
        detail::check(pi_engine_plan(o_.get(), &p, &err), err);
        return p;
    }

    /* The value as the library reads it; independent of the locale. */
    template <class T> static std::string text_of(T value)
    {
        if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
        if constexpr (std::is_integral_v<T>) return std::to_string(value);
        char text[32];
        std::snprintf(text, sizeof text, "%.17g", static_cast<double>(value));
        for (char &c : text)
            if (c == ',') c = '.';
        return text;
    }

private:
    friend class engine;
    static void call_log(void *ud, int level, const char *text)
    {
        try {
            (*static_cast<log_function *>(ud))(level, text);
        } catch (...) { /* a lost log line */
        }
    }
    detail::handle<pi_options, pi_options_free> o_;
    std::shared_ptr<log_function> log_;
};

/* ---------------------------------------------------------------------------------------------------------- events */

/* What an event reports. The event belongs to another object. */
class event_view {
public:
    explicit event_view(const pi_event *ev) noexcept : ev_(ev) {}
    int kind() const noexcept { return ev_->kind; }
    std::string_view text() const noexcept { return {ev_->text ? ev_->text : "", ev_->text_len}; }
    view<std::int32_t> tokens() const noexcept { return {ev_->tokens, ev_->n_tokens}; }
    /* The log-probabilities of token i: the token itself, then the most likely ones. */
    view<pi_token_prob> logprobs(std::size_t i) const noexcept
    {
        return {ev_->logprobs ? ev_->logprobs + i * ev_->n_logprobs : nullptr, ev_->logprobs ? ev_->n_logprobs : 0};
    }
    /* Vector i of PI_EVENT_EMBEDDING. */
    view<float> embedding(std::size_t i = 0) const noexcept { return {ev_->embedding + i * ev_->n_embd, ev_->n_embd}; }
    /* The last event of a sample. */
    bool done() const noexcept { return ev_->kind == PI_EVENT_DONE; }
    int finish_reason() const noexcept { return ev_->finish_reason; }
    int code() const noexcept { return ev_->code; }
    std::uint32_t sample() const noexcept { return ev_->index; }
    bool calls_bound() const noexcept { return ev_->calls_bound; }
    void *user() const noexcept { return ev_->user; }
    /* The request; compare it with request::get. */
    pi_request *request() const noexcept { return ev_->request; }
    const pi_event *get() const noexcept { return ev_; }

protected:
    const pi_event *ev_;
};

/* An event from a queue. Releases it at the end. */
class event : public event_view {
public:
    explicit event(pi_event *ev) noexcept : event_view(ev) {}
    event(event &&other) noexcept : event_view(std::exchange(other.ev_, nullptr)) {}
    event &operator=(event &&other) noexcept
    {
        std::swap(ev_, other.ev_);
        return *this;
    }
    ~event() { pi_event_release(const_cast<pi_event *>(ev_)); }
};

/* ---------------------------------------------------------------------------------------------------------- engine */

class event_range;

/* A loaded model with its cache and scheduler. */
class engine {
public:
    explicit engine(const options &o) : log_(o.log_)
    {
        pi_error err{};
        pi_engine *e = nullptr;
        detail::check(pi_engine_open(&e, o.get(), &err), err);
        e_.reset(e);
    }
    pi_engine *get() const noexcept { return e_.get(); }

    pi_info info() const { return fact<pi_info>(pi_engine_info); }
    pi_plan memory() const { return fact<pi_plan>(pi_engine_memory); }
    pi_stats stats() const { return fact<pi_stats>(pi_engine_stats); }
    int state() const { return detail::check(pi_engine_state(e_.get())); }
    /* A metadata entry of the model as text. nullopt = there is no such key. */
    std::optional<std::string> meta(const char *key) const
    {
        if (pi_engine_meta(e_.get(), key, nullptr, 0) == PI_ENOENT) return std::nullopt;
        std::string s = detail::filled<std::string>(256, [&](char *p, std::size_t cap) {
            return detail::check(pi_engine_meta(e_.get(), key, p, cap)) + 1; /* the NUL */
        });
        s.pop_back();
        return s;
    }
    std::vector<std::int32_t> tokenize(std::string_view text, int flags = PI_TOK_BOS | PI_TOK_SPECIAL) const
    {
        return detail::filled<std::vector<std::int32_t>>(text.size() + 8, [&](std::int32_t *p, std::size_t cap) {
            return detail::check(pi_tokenize(e_.get(), text.data(), text.size(), flags, p, cap));
        });
    }
    std::string detokenize(const std::vector<std::int32_t> &ids, int flags = 0) const
    {
        return detail::filled<std::string>(8 * ids.size() + 8, [&](char *p, std::size_t cap) {
            return detail::check(pi_detokenize(e_.get(), ids.data(), ids.size(), flags, p, cap));
        });
    }
    /* A conversation as text. messages, tools and chat_options are JSON; "" = none. */
    std::string render(const std::string &messages, const std::string &tools = {},
                       const std::string &chat_options = {}) const
    {
        return detail::filled<std::string>(4096, [&](char *p, std::size_t cap) {
            pi_error err{};
            return detail::check(pi_chat_render(e_.get(), messages.c_str(), detail::text_or_null(tools),
                                                detail::text_or_null(chat_options), p, cap, &err), err);
        });
    }
    void cache_clear(const char *salt = nullptr) { detail::check(pi_engine_cache_clear(e_.get(), salt)); }
    /* Returns false at the time limit. */
    bool drain(int timeout_ms = -1)
    {
        const int rc = pi_engine_drain(e_.get(), timeout_ms);
        return rc != PI_ETIMEDOUT && !detail::check(rc);
    }

    /* Takes up to max events from the queue; see pi_poll. */
    std::vector<event> poll(int timeout_ms = -1, std::size_t max = 16)
    {
        std::vector<pi_event *> raw(max);
        std::vector<event> out;
        out.reserve(max);
        const int n = detail::check(pi_poll(e_.get(), raw.data(), raw.size(), timeout_ms));
        for (int i = 0; i < n; i++) out.emplace_back(raw[static_cast<std::size_t>(i)]);
        return out;
    }
    /* Readable while the queue has events. */
    int poll_fd() const { return detail::check(pi_poll_fd(e_.get())); }
    /* All events until no request without a callback is left, or until a wait of timeout_ms. An event is valid until
     * the next one. */
    event_range events(int timeout_ms = -1);

private:
    template <class T> T fact(int (*fn)(const pi_engine *, T *)) const
    {
        auto t = detail::sized<T>();
        detail::check(fn(e_.get(), &t));
        return t;
    }
    std::shared_ptr<log_function> log_; /* destroyed after e_ */
    detail::handle<pi_engine, pi_engine_close> e_;
};

/* Events of an engine, as an input range. */
class event_range {
public:
    event_range(engine &e, int timeout_ms) : e_(&e), timeout_ms_(timeout_ms) {}

    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = event;
        using difference_type = std::ptrdiff_t;
        using pointer = const event *;
        using reference = const event &;
        explicit iterator(event_range *r = nullptr) : r_(r) { check_end(); }
        reference operator*() const { return r_->batch_[r_->at_]; }
        pointer operator->() const { return &r_->batch_[r_->at_]; }
        iterator &operator++()
        {
            r_->next();
            check_end();
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(const iterator &other) const { return r_ == other.r_; }
        bool operator!=(const iterator &other) const { return r_ != other.r_; }

    private:
        void check_end()
        {
            if (r_ && r_->batch_.empty()) r_ = nullptr;
        }
        event_range *r_;
    };
    iterator begin()
    {
        fill();
        return iterator(this);
    }
    iterator end() { return iterator(); }

private:
    void fill()
    {
        batch_ = e_->poll(timeout_ms_);
        at_ = 0;
    }
    void next()
    {
        if (++at_ == batch_.size()) fill();
    }
    engine *e_;
    int timeout_ms_;
    std::vector<event> batch_;
    std::size_t at_ = 0;
};

inline event_range engine::events(int timeout_ms) { return {*this, timeout_ms}; }

/* -------------------------------------------------------------------------------------------------------- requests */

/* A prompt and its answers. */
class request {
public:
    using event_function = std::function<void(const event_view &)>;

    explicit request(engine &e) : r_(detail::present(pi_request_new(e.get()))) {}
    pi_request *get() const noexcept { return r_.get(); }

    /* Sets an option from text, a number or a bool. */
    request &set(const char *key, const std::string &value)
    {
        pi_error err{};
        detail::check(pi_request_set(r_.get(), key, value.c_str(), &err), err);
        return *this;
    }
    request &set(const char *key, const char *value) { return set(key, std::string(value)); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>> request &set(const char *key, T value)
    {
        return set(key, options::text_of(value));
    }
    request &set_user(void *user)
    {
        pi_request_set_user(r_.get(), user);
        return *this;
    }
    request &prompt(std::string_view text)
    {
        pi_error err{};
        detail::check(pi_request_prompt_text(r_.get(), text.data(), text.size(), &err), err);
        return *this;
    }
    request &prompt(const std::vector<std::int32_t> &ids)
    {
        pi_error err{};
        detail::check(pi_request_prompt_tokens(r_.get(), ids.data(), ids.size(), &err), err);
        return *this;
    }
    /* Sets a conversation as the prompt. The arguments are JSON; "" = none. */
    request &chat(const std::string &messages, const std::string &tools = {}, const std::string &chat_options = {})
    {
        pi_error err{};
        detail::check(pi_request_prompt_chat(r_.get(), messages.c_str(), detail::text_or_null(tools),
                                             detail::text_or_null(chat_options), &err), err);
        return *this;
    }
    request &image(const pi_image &picture)
    {
        pi_error err{};
        detail::check(pi_request_image(r_.get(), &picture, &err), err);
        return *this;
    }
    /* Sends this request's events to fn, on the engine's dispatch thread, instead of the queue. If fn throws, the
     * request is canceled, and wait throws the exception. */
    request &on_event(event_function fn)
    {
        call_ = std::make_unique<callback>();
        call_->fn = std::move(fn);
        pi_request_on_event(r_.get(), run, call_.get());
        return *this;
    }
    request &submit()
    {
        pi_error err{};
        detail::check(pi_request_submit(r_.get(), &err), err);
        return *this;
    }
    void cancel() noexcept { pi_request_cancel(r_.get()); }
    /* Waits until all samples have ended, and the last callback has returned. Returns false at the time limit. */
    bool wait(int timeout_ms = -1)
    {
        const int rc = pi_request_wait(r_.get(), timeout_ms);
        if (rc == PI_ETIMEDOUT) return false;
        detail::check(rc);
        if (call_) call_->wait();
        return true;
    }
    /* The outcome of the request, or of one sample; the counts so far while it runs. */
    pi_result result() const
    {
        auto t = detail::sized<pi_result>();
        const int rc = pi_request_result(r_.get(), &t);
        if (rc != PI_EBUSY) detail::check(rc);
        return t;
    }
    pi_result result(std::uint32_t sample) const
    {
        auto t = detail::sized<pi_result>();
        const int rc = pi_request_sample(r_.get(), sample, &t);
        if (rc != PI_EBUSY) detail::check(rc);
        return t;
    }
    std::vector<std::int32_t> tokens(std::uint32_t sample = 0) const
    {
        return detail::filled<std::vector<std::int32_t>>(256, [&](std::int32_t *p, std::size_t cap) {
            return pi_request_sample_tokens(r_.get(), sample, p, cap);
        });
    }
    /* Submits the request, waits, and returns the text of sample 0. Replaces a callback. Throws if the request
     * fails. */
    std::string run_text()
    {
        std::string text;
        on_event([&](const event_view &ev) {
            if (!ev.sample()) text += ev.text();
        });
        submit();
        wait();
        const pi_result res = result();
        if (res.code) detail::raise(res.code, res.msg);
        return text;
    }

private:
    struct callback {
        event_function fn;
        std::mutex lock;
        std::condition_variable changed;
        std::exception_ptr thrown; /* the first exception of fn */
        bool ended = false;        /* the last call of fn has returned */
        void call(const pi_event *ev) noexcept
        {
            try {
                fn(event_view(ev));
            } catch (...) {
                std::lock_guard<std::mutex> held(lock);
                if (!thrown) thrown = std::current_exception();
                pi_request_cancel(ev->request);
            }
            if (ev->kind != PI_EVENT_DONE || ev->n_left) return;
            std::lock_guard<std::mutex> held(lock);
            ended = true;
            changed.notify_all();
        }
        void wait()
        {
            std::unique_lock<std::mutex> held(lock);
            changed.wait(held, [this] { return ended; });
            if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
        }
    };
    static void run(void *ud, const pi_event *ev)
    {
        static_cast<callback *>(ud)->call(ev);
    }
    std::unique_ptr<callback> call_; /* destroyed after r_ */
    detail::handle<pi_request, pi_request_free> r_;
};

/* --------------------------------------------------------------------------------------------------------- answers */

/* Splits the answer to a conversation into thoughts, content and tool calls. */
class chat_parser {
public:
    explicit chat_parser(const engine &e, const std::string &tools = {}, const std::string &chat_options = {})
    {
        pi_error err{};
        pi_chat_parser *p = nullptr;
        detail::check(pi_chat_parser_new(&p, e.get(), detail::text_or_null(tools), detail::text_or_null(chat_options),
                                         &err), err);
        p_.reset(p);
    }
    pi_chat_parser *get() const noexcept { return p_.get(); }
    void feed(std::string_view text) { detail::check(pi_chat_parser_feed(p_.get(), text.data(), text.size())); }
    /* Feeds the text of an event; ends the answer with the event's finish reason. */
    void feed(const event_view &ev)
    {
        feed(ev.text());
        if (ev.calls_bound()) pi_chat_parser_bind(p_.get());
        if (ev.done()) end(ev.finish_reason());
    }
    /* Returns PI_FINISH_*. */
    int end(int finish) { return detail::check(pi_chat_parser_end(p_.get(), finish)); }
    /* The next delta; its strings are valid until the next feed. nullopt = none yet. */
    std::optional<pi_chat_delta> next()
    {
        auto d = detail::sized<pi_chat_delta>();
        if (!pi_chat_parser_next(p_.get(), &d)) return std::nullopt;
        return d;
    }
    std::string_view content() const { return part(pi_chat_parser_content); }
    std::string_view reasoning() const { return part(pi_chat_parser_reasoning); }
    /* Complete calls; their strings are valid until the next feed. */
    std::vector<pi_chat_call> calls() const
    {
        std::vector<pi_chat_call> out;
        auto c = detail::sized<pi_chat_call>();
        for (std::uint32_t i = 0; pi_chat_parser_call(p_.get(), i, &c) == PI_OK; i++) out.push_back(c);
        return out;
    }

private:
    std::string_view part(std::size_t (*fn)(const pi_chat_parser *, const char **)) const
    {
        const char *text = "";
        const std::size_t n = fn(p_.get(), &text);
        return {text, n};
    }
    detail::handle<pi_chat_parser, pi_chat_parser_free> p_;
};

} // namespace pagedinfer

#endif
