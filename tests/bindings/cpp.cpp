/* cpp.cpp: calls every part of pagedinfer.hpp on a model, for tests/scripts/check_bindings.py.
 *
 *     cpp MODEL CHAT_MODEL
 *
 * Prints one line per fault; status 1 if there is any. */
#include <pagedinfer.hpp>

#include <atomic>
#include <clocale>
#include <iostream>

static int faults;
#define EXPECT(x) ((x) ? void() : void((faults++, std::cout << __LINE__ << ": " #x "\n")))

template <class F> static int code_of(F f)
{
    try {
        f();
    } catch (const pagedinfer::error &e) {
        EXPECT(*e.what());
        return e.code();
    }
    return PI_OK;
}

static void errors(const char *model)
{
    pagedinfer::options o;
    EXPECT(code_of([&] { o.set("no-such-key", 1); }) == PI_EINVAL);
    EXPECT(code_of([&] { o.set("ctx-size", "many"); }) == PI_EINVAL);
    o.set("model", std::string(model) + ".none");
    EXPECT(code_of([&] { pagedinfer::engine e(o); }) == PI_ENOENT);
    EXPECT(code_of([&] { o.plan(); }) == PI_ENOENT);
    const pagedinfer::error busy(PI_EBUSY, ""), wrong(PI_EINVAL, "x");
    EXPECT(busy.retryable() && !wrong.retryable() && std::string(wrong.name()) == "PI_EINVAL");
    EXPECT(std::string(wrong.what()) == "x" && std::string(busy.what()) == pi_strerror(PI_EBUSY));
    EXPECT(pagedinfer::options::text_of(true) == "true" && pagedinfer::options::text_of(-7) == "-7");
    EXPECT(std::stod(pagedinfer::options::text_of(1e-7)) == 1e-7 && pagedinfer::options::text_of(0.5) == "0.5");
}

static void facts(pagedinfer::engine &e)
{
    EXPECT(e.info().n_vocab > 0 && e.memory().total_bytes > 0 && e.state() == PI_STATE_READY && e.poll_fd() >= 0);
    EXPECT(e.meta("general.architecture").value_or("") == e.info().arch && !e.meta("no.such.key"));
    const std::string text = "The lighthouse at the end of the pier.";
    const auto ids = e.tokenize(text, 0);
    EXPECT(ids.size() > 4 && e.detokenize(ids) == text);
    const std::string all(3000, 'x'); /* longer than the first buffers */
    EXPECT(e.detokenize(e.tokenize(all, 0)) == all);
    e.cache_clear();
}

static std::string alone(pagedinfer::engine &e, const std::string &prompt)
{
    pagedinfer::request r(e);
    return r.set("temp", 0).set("max-tokens", 12).prompt(prompt).run_text();
}

static void requests(pagedinfer::engine &e)
{
    const std::string prompts[] = {"Once upon a time", "The capital of France is", "1, 2, 3, 4,"};
    std::vector<pagedinfer::request> r;
    std::string text[3], want[3];
    for (int i = 0; i < 3; i++) want[i] = alone(e, prompts[i]);
    for (int i = 0; i < 3; i++) {
        r.emplace_back(e);
        r.back().set("temp", 0.0).set("max-tokens", 12).set_user(&text[i]).prompt(prompts[i]).submit();
    }
    std::size_t n_done = 0;
    for (const pagedinfer::event &ev : e.events()) {
        *static_cast<std::string *>(ev.user()) += ev.text();
        n_done += ev.done();
    }
    for (int i = 0; i < 3; i++) EXPECT(text[i] == want[i] && !text[i].empty());
    EXPECT(n_done == 3 && r[0].wait() && r[0].result().generated_tokens == r[0].tokens().size());
    EXPECT(e.stats().n_finished >= 6);
    EXPECT(code_of([&] { r[0].submit(); }) == PI_EINVAL);
    pagedinfer::request wrong(e);
    EXPECT(code_of([&] { wrong.prompt(std::string(400000, 'x') + " y").submit(); }) == PI_ETOOBIG);
}

static void probabilities(pagedinfer::engine &e)
{
    pagedinfer::request r(e);
    std::size_t rows = 0;
    r.set("temp", 0).set("max-tokens", 3).set("logprobs", 2).prompt(e.tokenize("The sea is")).submit();
    for (const pagedinfer::event &ev : e.events())
        for (std::size_t i = 0; i < ev.tokens().size(); i++) {
            EXPECT(ev.logprobs(i).size() == 3 && ev.logprobs(i)[0].id == ev.tokens()[i]);
            rows++;
        }
    EXPECT(rows == r.tokens().size() && rows > 0);
}

static void callbacks(pagedinfer::engine &e)
{
    std::atomic<int> n{0};
    pagedinfer::request endless(e), throws(e);
    endless.set("ignore-eos", true).prompt("Tell").on_event([&](const pagedinfer::event_view &) {
        if (++n == 2) endless.cancel();
    });
    EXPECT(!endless.submit().wait(0) && endless.wait() && endless.result().finish_reason == PI_FINISH_CANCEL);
    throws.set("ignore-eos", true).prompt("Tell").on_event([](const pagedinfer::event_view &) { throw 7; });
    int got = 0;
    try {
        throws.submit().wait();
    } catch (int x) {
        got = x;
    }
    EXPECT(got == 7);
    pagedinfer::request dropped(e); /* freed while it runs */
    dropped.set("ignore-eos", true).prompt("Tell").on_event([](const pagedinfer::event_view &) {}).submit();
}

static void moves(pagedinfer::engine &e)
{
    pagedinfer::request a(e);
    pagedinfer::request b = std::move(a);
    a = pagedinfer::request(e);
    b.set("max-tokens", 2).prompt("a").submit();
    auto batch = e.poll();
    EXPECT(!batch.empty());
    pagedinfer::event ev = std::move(batch[0]);
    EXPECT(ev.request() == b.get());
    while (!e.poll().empty()) {}
    EXPECT(b.wait() && a.get() && a.get() != b.get());
}

static void conversation(const char *model)
{
    int lines = 0;
    pagedinfer::options o;
    o.set("model", model).set("ctx-size", 1024).on_log([&](int, std::string_view) { lines++; });
    pagedinfer::engine e(o);
    const std::string chat = "[{\"role\": \"user\", \"content\": \"Name a colour.\"}]";
    EXPECT(e.render(chat).find("Name a colour.") != std::string::npos);
    EXPECT(code_of([&] { e.render("{"); }) == PI_EINVAL);
    pagedinfer::request r(e);
    pagedinfer::chat_parser p(e);
    std::string content;
    r.set("temp", 0).set("max-tokens", 16).set("special", true).chat(chat).submit();
    for (const pagedinfer::event &ev : e.events()) {
        p.feed(ev);
        while (auto d = p.next())
            if (d->kind == PI_CHAT_CONTENT) content.append(d->text, d->text_len);
    }
    EXPECT(!content.empty() && p.content() == content && p.reasoning().empty() && p.calls().empty() && lines > 0);
    EXPECT(e.drain() && e.state() == PI_STATE_DRAINING);
    EXPECT(code_of([&] { pagedinfer::request(e).prompt("a").submit(); }) == PI_ECLOSED);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    std::setlocale(LC_ALL, "de_DE.UTF-8"); /* numbers with a comma, if the locale is installed */
    try {
        errors(argv[1]);
        pagedinfer::options o;
        pagedinfer::engine e(o.set("model", argv[1]).set("ctx-size", 2048));
        facts(e);
        requests(e);
        probabilities(e);
        callbacks(e);
        moves(e);
        conversation(argv[2]);
    } catch (const std::exception &x) {
        std::cout << "unexpected: " << x.what() << '\n';
        faults++;
    }
    return faults != 0;
}
