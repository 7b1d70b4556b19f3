/* Words of a PTX text. */
#ifndef SIMT_PTX_LEXER_H
#define SIMT_PTX_LEXER_H

#include <cstdint>
#include <string>

namespace simt {
namespace ptx {

/* Splits a text into words: names, numbers, strings and single characters. Comments are left out. */
class lexer {
public:
    lexer(const std::string &file, const std::string &text);
    const std::string &peek() const { return ahead; }
    bool peek_number() const { return ahead[0] >= '0' && ahead[0] <= '9'; }
    bool peek_label() const; /* the next word is a name, and a colon follows */
    const std::string &next();
    const std::string &last() const { return current; } /* the word that next() returned last */
    bool accept(const char *word);                      /* skips the next word if it is this one */
    void expect(const char *word);                      /* throws if the next word is another one */
    void skip_past(const char *word);
    void skip_line();
    void skip_pointer(); /* after .ptr: an optional space, then .align N */
    bool at_end() const { return ahead.empty(); }
    int line() const { return ahead_line; } /* line of the next word */

private:
    const std::string file, text;
    size_t at = 0; /* first byte after `ahead` */
    int now_line = 1, ahead_line = 1;
    std::string current, ahead;
    void scan();
    void skip_blanks();
};

/* Parses an integer, or the bits of a float (0f, 0d). Returns false if the word is no number. */
bool parse_number(const std::string &word, uint64_t *v);
/* Returns the special register's number (enum special), or -1. */
int special_of(const std::string &word);

} // namespace ptx
} // namespace simt

#endif
