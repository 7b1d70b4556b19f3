/* first.cpp: a first program in C++: prompts that share an engine.
 *
 *     first_cpp MODEL PROMPT...
 *
 * The prompts run at the same time; their texts are printed in order. Errors are exceptions. */
#include <pagedinfer.hpp>

#include <iostream>
#include <list>

namespace {

struct answer {
    explicit answer(pagedinfer::engine &e) : request(e) {}
    pagedinfer::request request;
    std::string text;
};

void run(const char *model, char **prompt, int n)
{
    pagedinfer::options options;
    options.set("model", model).set("temp", 0).set("max-tokens", 48);
    pagedinfer::engine engine(options);

    std::list<answer> answers; /* destroyed before the engine */
    for (int i = 0; i < n; i++) {
        answer &a = answers.emplace_back(engine);
        a.request.set_user(&a).prompt(prompt[i]).submit();
    }
    for (const pagedinfer::event &ev : engine.events()) {
        answer *a = static_cast<answer *>(ev.user());
        a->text += ev.text();
        if (ev.done() && ev.code()) throw pagedinfer::error(ev.code(), a->request.result().msg);
    }
    for (const answer &a : answers) std::cout << a.text << '\n';
    std::cout.flush();
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "usage: first_cpp MODEL PROMPT...\n";
        return 2;
    }
    try {
        run(argv[1], argv + 2, argc - 2);
    } catch (const std::exception &e) {
        std::cerr << "first_cpp: " << e.what() << '\n';
        return 1;
    }
    return 0;
}
