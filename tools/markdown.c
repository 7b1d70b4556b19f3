/* Markdown on a terminal (see markdown.h).
 *
 * One character at a time: at the start of a line, marks are collected until the kind of line is known. Within a line,
 * a run of * or ` is collected until the next character. Characters go to the current word, styles included. A word is
 * written at the next space or line end, on a new row if it does not fit. */
#include "markdown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

enum { MAX_MARKS = 80, MAX_HANG = 24 };

enum line { /* kind of the current line */
    LINE_START,   /* not known yet */
    LINE_TEXT,
    LINE_HEADING,
    LINE_FENCE,   /* begins or ends a block of code; not shown */
    LINE_CODE,
    LINE_TABLE,
};

struct markdown {
    markdown_put put;
    void *ud;
    size_t columns;      /* 0 = no wrapping */
    bool styles, failed;
    char utf8[4];        /* [n_utf8] bytes of an incomplete character */
    size_t n_utf8;
    enum line line;
    char mark[MAX_MARKS]; /* [n_mark] bytes at the start of the line */
    size_t n_mark;
    char run;            /* '*' or '`': a run of this character is being read; 0 = none */
    size_t n_run;
    bool after_space;    /* the character before the run is a space, or the start of the line */
    bool after_word;     /* the character before is a letter, a digit, or not ASCII */
    bool bold, italic, code, fenced;
    char *word;          /* [n] bytes not yet written, escape sequences included */
    size_t n, cap;
    size_t width;        /* columns of the word */
    size_t spaces;       /* columns of spaces before the word */
    size_t column;       /* columns written in this row */
    size_t hang;         /* columns at which wrapped rows begin */
};

static void write_all(markdown *m, const char *s, size_t n)
{
    if (n && !m->failed && !m->put(m->ud, s, n)) m->failed = true;
}

static void add(markdown *m, const char *s, size_t n)
{
    if (m->cap - m->n < n) {
        const size_t cap = (m->n + n) * 2 + 64;
        char *p = realloc(m->word, cap);
        if (!p) {
            m->failed = true;
            return;
        }
        m->word = p;
        m->cap = cap;
    }
    memcpy(m->word + m->n, s, n);
    m->n += n;
}

static void add_text(markdown *m, const char *s)
{
    add(m, s, strlen(s));
    m->width += strlen(s);
}

/* Adds the escape sequence of the current styles to the word. */
static void add_style(markdown *m)
{
    char s[40] = "\033[0";
    if (!m->styles) return;
    if (m->bold || m->line == LINE_HEADING) strcat(s, ";1");
    if (m->line == LINE_HEADING) strcat(s, ";4");
    if (m->italic) strcat(s, ";3");
    if (m->code || m->line == LINE_CODE) strcat(s, ";36");
    strcat(s, "m");
    add(m, s, strlen(s));
}

static void put_spaces(markdown *m, size_t n)
{
    static const char blank[] = "                                ";
    for (; n; n -= n < 32 ? n : 32) write_all(m, blank, n < 32 ? n : 32);
}

/* Writes the word, on a new row if it does not fit. */
static void end_word(markdown *m)
{
    if (!m->n) return;
    const bool wraps = m->columns && (m->line == LINE_TEXT || m->line == LINE_HEADING);
    if (wraps && m->width && m->column > m->hang && m->column + m->spaces + m->width > m->columns) {
        write_all(m, "\n", 1);
        put_spaces(m, m->hang);
        m->column = m->hang;
        m->spaces = 0;
    }
    put_spaces(m, m->spaces);
    write_all(m, m->word, m->n);
    m->column += m->spaces + m->width;
    m->n = m->width = m->spaces = 0;
}

/* ---------------------------------------------------------------------------------------------------------- inline */

/* Ends a run of * or `: it changes a style, or is text. next_space: a space or the line's end follows. */
static void end_run(markdown *m, bool next_space)
{
    const size_t n = m->n_run;
    const char run = m->run;
    m->run = 0;
    if (!run) return;
    if (run == '`' && n == 1) {
        m->code = !m->code;
        add_style(m);
        return;
    }
    const bool opens = !next_space && !m->after_word, closes = !m->after_space;
    const bool bold = n >= 2 && n <= 3 && (m->bold ? closes : opens);
    const bool italic = (n == 1 || n == 3) && (m->italic ? closes : opens);
    if (run == '*' && !m->code && (n == 2 ? bold : n == 1 ? italic : bold && italic)) {
        m->bold ^= bold;
        m->italic ^= italic;
        add_style(m);
        return;
    }
    for (size_t i = 0; i < n; i++) add_text(m, run == '*' ? "*" : "`");
}

/* Adds a character of a line of text. */
static void text_char(markdown *m, const char *s, size_t n, wchar_t wc)
{
    const bool space = wc == L' ' || wc == L'\t';
    const bool marks = m->styles && (m->line == LINE_TEXT || m->line == LINE_HEADING || m->line == LINE_TABLE);
    if (m->run && (wchar_t) m->run != wc) end_run(m, space);
    if (marks && (wc == L'`' || (wc == L'*' && !m->code))) {
        if (!m->run) {
            m->run = (char) wc;
            m->n_run = 0;
            m->after_space = !m->width;
        }
        m->n_run++;
        return;
    }
    m->after_word = wc >= 0x80 || iswalnum((wint_t) wc);
    if (space) {
        end_word(m);
        m->spaces += wc == L'\t' ? 4 : 1;
        return;
    }
    const int columns = wcwidth(wc);
    add(m, s, n);
    m->width += columns > 0 ? (size_t) columns : 0;
    if (columns > 1) end_word(m); /* scripts without spaces: each character may begin a row */
}

/* ------------------------------------------------------------------------------------------------------ line start */

static size_t count(const char *s, char c)
{
    size_t n = 0;
    while (s[n] == c) n++;
    return n;
}

static void replay(markdown *m, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) text_char(m, s + i, 1, (wchar_t) s[i]);
}

/* Begins a line of text whose wrapped rows are indented. shown: the marks to show, of `columns` columns. */
static void begin_text(markdown *m, const char *shown, size_t columns)
{
    m->line = LINE_TEXT;
    m->hang = columns < MAX_HANG ? columns : MAX_HANG;
    add(m, shown, strlen(shown));
    m->width = columns;
    end_word(m);
}

/* Decides the kind of the line by its first characters. end: the line has no more of them. Returns false if more
 * characters are needed. */
static bool begin_line(markdown *m, bool end)
{
    char shown[MAX_MARKS + 8];
    m->mark[m->n_mark] = 0;
    const size_t indent = count(m->mark, ' ');
    const char *p = m->mark + indent;
    const size_t left = m->n_mark - indent, digits = strspn(p, "0123456789");
    const bool full = end || m->n_mark >= MAX_MARKS - 2;
    if (!full && !left) return false;
    if (count(p, '`') >= 3 || (!full && left < 3 && count(p, '`') == left)) {
        if (count(p, '`') < 3) return false;
        m->fenced = !m->fenced;
        m->line = m->styles ? LINE_FENCE : LINE_CODE;
        if (!m->styles) replay(m, m->mark, m->n_mark);
        return true;
    }
    if (m->fenced) {
        m->line = LINE_CODE;
        add_style(m);
        replay(m, m->mark, m->n_mark);
        return true;
    }
    const size_t hashes = count(p, '#');
    if (!full && hashes && hashes <= 6 && hashes == left) return false;
    if (m->styles && hashes && hashes <= 6 && p[hashes] == ' ') {
        m->line = LINE_HEADING;
        add_style(m);
        return true;
    }
    const bool bullet = left && strchr("-+*", *p) != NULL;
    if (!full && left == 1 && (bullet || *p == '>')) return false;
    if (!full && digits && digits == left && digits < 4) return false;
    if (!full && digits && digits < 4 && left == digits + 1 && strchr(".)", p[digits])) return false;
    if (bullet && p[1] == ' ') {
        snprintf(shown, sizeof shown, "%*s\u2022 ", (int) indent, "");
        begin_text(m, m->styles ? shown : m->mark, indent + 2);
        return true;
    }
    if (digits && digits < 4 && left == digits + 2 && strchr(".)", p[digits]) && p[digits + 1] == ' ') {
        begin_text(m, m->mark, m->n_mark);
        return true;
    }
    if (left && *p == '>' && p[1] == ' ') {
        snprintf(shown, sizeof shown, "%*s\u2502 ", (int) indent, "");
        begin_text(m, m->styles ? shown : m->mark, indent + 2);
        return true;
    }
    m->line = *p == '|' ? LINE_TABLE : LINE_TEXT;
    m->hang = indent < MAX_HANG ? indent : MAX_HANG;
    replay(m, m->mark, m->n_mark);
    return true;
}

static void end_line(markdown *m)
{
    if (m->line == LINE_START) begin_line(m, true);
    end_run(m, true);
    if (m->bold || m->italic || m->code || m->line == LINE_HEADING || m->line == LINE_CODE) {
        m->bold = m->italic = m->code = false;
        if (m->styles) add(m, "\033[0m", 4);
    }
    end_word(m);
    if (m->line != LINE_FENCE) write_all(m, "\n", 1);
    m->line = LINE_START;
    m->n_mark = m->column = m->hang = m->spaces = 0;
    m->after_word = false;
}

static void take(markdown *m, const char *s, size_t n, wchar_t wc)
{
    if (wc == L'\n') {
        end_line(m);
    } else if (wc != L'\t' && (wc < L' ' || (wc >= 0x7f && wc < 0xa0))) {
        return;
    } else if (m->line == LINE_START && n == 1 && wc != L'\t') {
        m->mark[m->n_mark++] = *s;
        const bool plain = !strchr(" `#-+*>0123456789.)", *s);
        if (begin_line(m, plain)) m->n_mark = 0;
    } else if (m->line == LINE_START) {
        begin_line(m, true);
        m->n_mark = 0;
        text_char(m, s, n, wc);
    } else if (m->line != LINE_FENCE) {
        text_char(m, s, n, wc);
    }
}

/* ---------------------------------------------------------------------------------------------------------- public */

markdown *markdown_new(size_t columns, bool styles, markdown_put put, void *ud)
{
    markdown *m = calloc(1, sizeof *m);
    if (m) *m = (markdown) {.put = put, .ud = ud, .columns = columns, .styles = styles};
    return m;
}

/* Returns the number of bytes of the character that begins with this byte; 1 if the byte is invalid. */
static size_t length_of(unsigned char c)
{
    if (c < 0xc0 || c >= 0xf8) return 1;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Decodes a complete character; the replacement character if it is malformed. */
static wchar_t decode(const char *s, size_t n)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    wchar_t wc = (wchar_t) ((unsigned char) *s & first[n]);
    if (n == 1) return (unsigned char) *s < 0x80 ? wc : 0xfffd;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char) s[i] & 0xc0) != 0x80) return 0xfffd;
        wc = wc << 6 | ((unsigned char) s[i] & 0x3f);
    }
    return wc;
}

bool markdown_feed(markdown *m, const char *text, size_t n)
{
    for (size_t i = 0; i < n && !m->failed; i++) {
        m->utf8[m->n_utf8++] = text[i];
        const size_t len = length_of((unsigned char) m->utf8[0]);
        if (m->n_utf8 < len) continue;
        const wchar_t wc = decode(m->utf8, len);
        m->n_utf8 = 0;
        if (wc == 0xfffd) take(m, "\xef\xbf\xbd", 3, wc);
        else take(m, m->utf8, len, wc);
    }
    return !m->failed;
}

bool markdown_end(markdown *m)
{
    const bool fresh = m->line == LINE_START && !m->n_mark && !m->column;
    if (m->line == LINE_START && !fresh) begin_line(m, true);
    end_run(m, true);
    if (!fresh && m->styles && (m->bold || m->italic || m->code || m->line == LINE_HEADING || m->line == LINE_CODE))
        add(m, "\033[0m", 4);
    end_word(m);
    m->bold = m->italic = m->code = m->fenced = false;
    m->line = LINE_START;
    m->n_mark = m->column = m->hang = m->spaces = m->n_utf8 = 0;
    return !m->failed;
}

void markdown_free(markdown *m)
{
    if (!m) return;
    free(m->word);
    free(m);
}
