#include "lexer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "module.h"

namespace simt {
namespace ptx {

lexer::lexer(const std::string &name, const std::string &bytes) : file(name), text(bytes) { scan(); }

void lexer::skip_blanks()
{
    while (at < text.size()) {
        const char c = text[at];
        if (c == '\n') now_line++;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            at++;
        } else if (!text.compare(at, 2, "//")) {
            at = std::min(text.find('\n', at), text.size());
        } else if (!text.compare(at, 2, "/*")) {
            const size_t end = std::min(text.find("*/", at), text.size());
            for (; at < end; at++) now_line += text[at] == '\n';
            at = std::min(at + 2, text.size());
        } else {
            return;
        }
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("_$%.", c);
}

/* Two colons belong to a name (shared::cta), one ends it (a label). */
void lexer::scan()
{
    skip_blanks();
    ahead_line = now_line;
    const size_t begin = at;
    if (at >= text.size()) {
        ahead.clear();
        return;
    }
    if (text[at] == '"') {
        at = std::min(text.find('"', at + 1), text.size() - 1) + 1;
    } else if (is_name(text[at])) {
        while (at < text.size() && text[at] && (is_name(text[at]) || !text.compare(at, 2, "::")))
            at += text[at] == ':' ? 2 : 1;
    } else {
        at++;
    }
    ahead.assign(text, begin, at - begin);
}

const std::string &lexer::next()
{
    if (ahead.empty()) throw error(file, now_line, "the text ends too early");
    current.swap(ahead);
    scan();
    return current;
}

bool lexer::peek_label() const { return at < text.size() && text[at] == ':' && is_name(ahead[0]); }

bool lexer::accept(const char *word)
{
    if (ahead != word) return false;
    next();
    return true;
}

void lexer::expect(const char *word)
{
    if (!accept(word)) throw error(file, ahead_line, std::string("'") + word + "' expected before '" + ahead + "'");
}

void lexer::skip_past(const char *word)
{
    while (next() != word) continue;
}

void lexer::skip_line()
{
    const int line = ahead_line;
    while (!ahead.empty() && ahead_line == line) next();
}

void lexer::skip_pointer()
{
    if (ahead == ".global" || ahead == ".shared" || ahead == ".const" || ahead == ".local") next();
    if (accept(".align")) next();
}

bool parse_number(const std::string &word, uint64_t *v)
{
    char *end = nullptr;
    if (word.empty() || word[0] < '0' || word[0] > '9') return false;
    const bool bits = word[0] == '0' && word.size() > 1 && strchr("fFdD", word[1]);
    if (bits) {
        *v = strtoull(word.c_str() + 2, &end, 16);
    } else if (word.find('.') != std::string::npos) {
        const double d = strtod(word.c_str(), &end);
        std::memcpy(v, &d, sizeof d);
    } else {
        *v = strtoull(word.c_str(), &end, 0);
    }
    return !*end || (!strcmp(end, "U") && !bits);
}

int special_of(const std::string &word)
{
    static const struct {
        const char *name;
        int first;
    } vectors[] = {{"%tid.", TID}, {"%ntid.", NTID}, {"%ctaid.", CTAID}, {"%nctaid.", NCTAID}};
    if (word == "%laneid") return LANEID;
    if (word == "%clock64") return CLOCK;
    for (const auto &s : vectors) {
        const size_t n = strlen(s.name);
        if (word.size() == n + 1 && !word.compare(0, n, s.name) && word[n] >= 'x' && word[n] <= 'z')
            return s.first + (word[n] - 'x');
    }
    return -1;
}

} // namespace ptx
} // namespace simt
