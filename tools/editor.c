/* The line editor (see editor.h).
 *
 * The text is one buffer with a cursor. After each key that changes more than the end, the text is redrawn, limited to
 * the rows around the cursor that fit the screen. */
#include "editor.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { MOST_HISTORY = 1000, TAB = 8 };

struct editor {
    FILE *out;
    bool escapes;
    void (*size)(size_t *rows, size_t *columns);
    const char *prompt;
    size_t prompt_columns;
    char *s;            /* [cap] the text of n bytes, NUL-terminated */
    size_t n, cap, at;  /* bytes; bytes allocated; byte offset of the cursor */
    size_t above;       /* rows between the first drawn row and the cursor's row */
    char key[16];       /* current escape sequence, without the escape */
    size_t n_key;       /* bytes in key; 0 = no sequence; 1 with key[0] == 0 = only the escape so far */
    paste paste;
    bool pasting;
    char **past;        /* [n_past] sent texts, oldest first */
    size_t n_past, look; /* entries of past; the one shown, n_past = not browsing the history */
    char *kept;         /* the typed text while browsing the history, or NULL */
};

/* ----------------------------------------------------------------------------------------------------------- paste */

static bool room(char **s, size_t *cap, size_t want)
{
    if (want < *cap) return true;
    size_t more = want > SIZE_MAX / 2 ? 0 : (want + 1) * 2;
    char *p = more ? realloc(*s, more) : NULL;
    if (!p) return false;
    *s = p;
    *cap = more;
    return true;
}

static bool paste_byte(paste *p, unsigned char byte)
{
    bool again = p->cr && byte == '\n';
    p->cr = byte == '\r';
    if (again || !byte) return true;
    if (!room(&p->text, &p->cap, p->n + 1)) return false;
    p->text[p->n++] = (char) (byte == '\r' ? '\n' : byte);
    p->text[p->n] = 0;
    return true;
}

int paste_feed(paste *p, unsigned char byte)
{
    static const char mark[] = "\033[201~";
    if (byte == (unsigned char) mark[p->matched]) return ++p->matched == sizeof mark - 1;
    bool ok = true;
    size_t n = p->matched;
    p->matched = 0;
    for (size_t i = 0; i < n; i++) ok &= paste_byte(p, (unsigned char) mark[i]);
    if (byte == '\033') p->matched = 1;
    else ok &= paste_byte(p, byte);
    return ok ? 0 : -1;
}

/* ------------------------------------------------------------------------------------------------------ characters */

/* Returns the length of the character at s (n > 0). *wc is the character; 0 if it is invalid. */
static size_t character(const char *s, size_t n, wchar_t *wc)
{
    mbstate_t state = {0};
    size_t used = mbrtowc(wc, s, n, &state);
    if (used > 0 && used <= n) return used;
    *wc = 0;
    return 1;
}

static size_t next(const editor *e, size_t at)
{
    wchar_t wc;
    return at < e->n ? at + character(e->s + at, e->n - at, &wc) : at;
}

static size_t previous(const editor *e, size_t at)
{
    size_t from = at < 4 ? 0 : at - 4;
    for (; from + 1 < at; from++)
        if (next(e, from) == at) return from;
    return at ? at - 1 : 0;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t'; }

static size_t word_left(const editor *e, size_t at)
{
    while (at && is_space(e->s[at - 1])) at--;
    while (at && !is_space(e->s[at - 1])) at--;
    return at;
}

static size_t word_right(const editor *e, size_t at)
{
    while (at < e->n && is_space(e->s[at])) at++;
    while (at < e->n && !is_space(e->s[at])) at++;
    return at;
}

static size_t line_start(const editor *e, size_t at)
{
    while (at && e->s[at - 1] != '\n') at--;
    return at;
}

static size_t line_end(const editor *e, size_t at)
{
    while (at < e->n && e->s[at] != '\n') at++;
    return at;
}

/* --------------------------------------------------------------------------------------------------------- drawing */

typedef struct place { size_t row, column; } place; /* row 0 contains the prompt */

/* Formats the character at s for display at `column`: cell is its text, *columns its width. Returns its bytes. */
static size_t shown(const char *s, size_t n, size_t column, char cell[TAB + 1], size_t *columns)
{
    wchar_t wc;
    size_t used = character(s, n, &wc);
    int width = wc ? wcwidth(wc) : -1;
    if (*s == '\t') {
        *columns = TAB - column % TAB;
        memset(cell, ' ', *columns);
        cell[*columns] = 0;
    } else if ((unsigned char) *s < 32 || *s == 127) {
        snprintf(cell, TAB + 1, "^%c", *s ^ 64);
        *columns = 2;
    } else if (width < 0) {
        snprintf(cell, TAB + 1, "?");
        *columns = 1;
    } else {
        snprintf(cell, TAB + 1, "%.*s", (int) used, s);
        *columns = (size_t) width;
    }
    return used;
}

/* Returns the screen position of byte upto. If out is set, also draws rows first to last. */
static place lay(const editor *e, size_t upto, size_t columns, FILE *out, size_t first, size_t last)
{
    place p = {0, e->prompt_columns};
    if (out && !first) fputs(e->prompt, out);
    for (size_t i = 0; i <= upto; ) {
        char cell[TAB + 1];
        size_t wide = 0;
        bool newline = i < e->n && e->s[i] == '\n', ends = i == upto;
        size_t used = i < e->n && !newline ? shown(e->s + i, e->n - i, p.column, cell, &wide) : 1;
        bool wraps = i < e->n && !newline ? p.column + wide > columns : p.column >= columns && i == e->n;
        if (wraps || (newline && !ends)) {
            if (out && p.row >= first && p.row < last) fputc('\n', out);
            p = (place) {p.row + 1, 0};
        }
        if (ends) break;
        if (!newline && out && p.row >= first && p.row <= last) fputs(cell, out);
        p.column += wide;
        i += used;
    }
    if (p.column >= columns) p.column = columns - 1;
    return p;
}

static void draw(editor *e)
{
    size_t rows, columns;
    e->size(&rows, &columns);
    if (columns < e->prompt_columns + 2) columns = e->prompt_columns + 2;
    if (rows < 3) rows = 3;
    place end = lay(e, e->n, columns, NULL, 0, 0), cursor = lay(e, e->at, columns, NULL, 0, 0);
    size_t most = rows - 1, first = 0, last = end.row;
    if (end.row >= most) {
        first = cursor.row < most ? 0 : cursor.row - most + 1;
        last = first + most - 1 < end.row ? first + most - 1 : end.row;
    }
    if (e->above) fprintf(e->out, "\033[%zuA", e->above);
    fputs("\r\033[J", e->out);
    lay(e, e->n, columns, e->out, first, last);
    if (last > cursor.row) fprintf(e->out, "\033[%zuA", last - cursor.row);
    fputc('\r', e->out);
    if (cursor.column) fprintf(e->out, "\033[%zuC", cursor.column);
    fflush(e->out);
    e->above = cursor.row - first;
}

void editor_redraw(editor *e)
{
    e->above = 0;
    if (e->escapes) {
        draw(e);
        return;
    }
    fprintf(e->out, "%s%s", e->prompt, e->s);
    fflush(e->out);
}

/* Terminals without escapes can only edit the end: characters are appended and erased there. */
static void wipe_end(editor *e, size_t upto)
{
    while (e->n > upto) {
        char cell[TAB + 1];
        size_t wide, from = previous(e, e->n);
        shown(e->s + from, e->n - from, 0, cell, &wide);
        while (wide--) fputs("\b \b", e->out);
        e->s[e->n = from] = 0;
    }
    e->at = e->n;
    fflush(e->out);
}

/* ------------------------------------------------------------------------------------------------------------ text */

static bool insert(editor *e, const char *s, size_t n)
{
    if (!room(&e->s, &e->cap, e->n + n)) return false;
    memmove(e->s + e->at + n, e->s + e->at, e->n - e->at + 1);
    memcpy(e->s + e->at, s, n);
    e->n += n;
    e->at += n;
    return true;
}

static void erase(editor *e, size_t from, size_t to)
{
    if (!e->escapes) {
        if (to == e->n) wipe_end(e, from);
        return;
    }
    memmove(e->s + from, e->s + to, e->n - to + 1);
    e->n -= to - from;
    e->at = from;
    draw(e);
}

static void move(editor *e, size_t at)
{
    if (!e->escapes) return;
    e->at = at;
    draw(e);
}

/* Inserts a text byte. It is drawn when its character is complete. */
static int type(editor *e, unsigned char byte)
{
    bool at_end = e->at == e->n;
    char c = (char) byte;
    wchar_t wc = 0;
    if (!insert(e, &c, 1)) return EDITOR_NO_MEMORY;
    size_t from = previous(e, e->at);
    if (e->escapes && !(at_end && byte >= 32 && byte < 127)) {
        if (byte < 0x80 || (character(e->s + from, e->at - from, &wc) && wc)) draw(e);
        return EDITOR_MORE;
    }
    if (!e->escapes) {
        if (byte < 32) fputc(byte == '\t' ? ' ' : '?', e->out);
        else fputc(byte, e->out);
        fflush(e->out);
        return EDITOR_MORE;
    }
    size_t rows, columns;
    e->size(&rows, &columns);
    if (lay(e, e->at, columns, NULL, 0, 0).column > 1) { /* not at the start of a row */
        fputc(byte, e->out);
        fflush(e->out);
    } else {
        draw(e);
    }
    return EDITOR_MORE;
}

/* --------------------------------------------------------------------------------------------------------- history */

void editor_remember(editor *e, const char *sent)
{
    if (!*sent || (e->n_past && !strcmp(e->past[e->n_past - 1], sent))) return;
    if (e->n_past == MOST_HISTORY) {
        free(e->past[0]);
        memmove(e->past, e->past + 1, --e->n_past * sizeof *e->past);
    }
    char **past = realloc(e->past, (e->n_past + 1) * sizeof *past), *text = past ? strdup(sent) : NULL;
    if (past) e->past = past;
    if (text) e->past[e->n_past++] = text; /* out of memory only skips the history entry */
}

static int show(editor *e, const char *text)
{
    size_t n = strlen(text);
    if (!room(&e->s, &e->cap, n)) return EDITOR_NO_MEMORY;
    memcpy(e->s, text, n + 1);
    e->n = e->at = n;
    draw(e);
    return EDITOR_MORE;
}

static int look_at(editor *e, size_t which)
{
    if (!e->escapes || which > e->n_past || which == e->look) return EDITOR_MORE;
    if (e->look == e->n_past) {
        free(e->kept);
        e->kept = strdup(e->s);
        if (!e->kept) return EDITOR_NO_MEMORY;
    }
    e->look = which;
    return show(e, which == e->n_past ? e->kept : e->past[which]);
}

/* Up and down keys: move between lines of a text, and at its first or last line to the history. */
static int vertical(editor *e, bool up)
{
    size_t start = line_start(e, e->at), end = line_end(e, e->at), to, column = 0;
    if (up ? !start : end == e->n) return look_at(e, up ? e->look - 1 : e->look + 1);
    for (size_t i = start; i < e->at; i = next(e, i)) column++;
    to = up ? line_start(e, start - 1) : end + 1;
    for (; column && to < e->n && e->s[to] != '\n'; column--) to = next(e, to);
    move(e, to);
    return EDITOR_MORE;
}

/* ------------------------------------------------------------------------------------------------------------ keys */

static int control(editor *e, unsigned char key)
{
    switch (key) {
    case 1: move(e, line_start(e, e->at)); break;         /* Ctrl-A */
    case 2: move(e, previous(e, e->at)); break;           /* Ctrl-B */
    case 4:                                               /* Ctrl-D */
        if (!e->n) return EDITOR_END;
        erase(e, e->at, next(e, e->at));
        break;
    case 5: move(e, line_end(e, e->at)); break;           /* Ctrl-E */
    case 6: move(e, next(e, e->at)); break;               /* Ctrl-F */
    case 8:
    case 127: erase(e, previous(e, e->at), e->at); break; /* backspace */
    case 9: return type(e, key);                          /* tab */
    case 11: erase(e, e->at, line_end(e, e->at)); break;  /* Ctrl-K */
    case 12:                                              /* Ctrl-L */
        if (e->escapes) fputs("\033[H\033[2J", e->out);
        editor_redraw(e);
        break;
    case 14: return vertical(e, false);                   /* Ctrl-N */
    case 16: return vertical(e, true);                    /* Ctrl-P */
    case 21: erase(e, line_start(e, e->at), e->at); break; /* Ctrl-U */
    case 23: erase(e, word_left(e, e->at), e->at); break; /* Ctrl-W */
    default: break;
    }
    return EDITOR_MORE;
}

/* Runs a complete escape sequence, without the escape. */
static int sequence(editor *e, const char *key)
{
    static const struct { const char *key; unsigned char as; } keys[] = {
        {"[D", 2}, {"OD", 2}, {"[C", 6}, {"OC", 6}, {"[H", 1}, {"OH", 1}, {"[1~", 1}, {"[7~", 1}, {"[F", 5}, {"OF", 5},
        {"[4~", 5}, {"[8~", 5}, {"[A", 16}, {"OA", 16}, {"[B", 14}, {"OB", 14}, {"\177", 23}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i].key)) return control(e, keys[i].as);
    if (!strcmp(key, "b") || !strcmp(key, "[1;5D") || !strcmp(key, "[1;3D")) move(e, word_left(e, e->at));
    else if (!strcmp(key, "f") || !strcmp(key, "[1;5C") || !strcmp(key, "[1;3C")) move(e, word_right(e, e->at));
    else if (!strcmp(key, "d")) erase(e, e->at, word_right(e, e->at));
    else if (!strcmp(key, "[3~")) erase(e, e->at, next(e, e->at));
    else if (!strcmp(key, "[200~")) e->pasting = true;
    return EDITOR_MORE;
}

/* Collects the bytes after an escape. Unknown or too long sequences are dropped. */
static int escaped(editor *e, unsigned char byte)
{
    if (byte == '\033') {
        e->n_key = 1;
        e->key[0] = 0;
        return EDITOR_MORE;
    }
    size_t at = e->key[0] ? e->n_key : 0;
    if (at < sizeof e->key - 1) e->key[at++] = (char) byte;
    e->key[e->n_key = at] = 0;
    bool whole = at == 1 ? byte != '[' && byte != 'O' : e->key[0] == 'O' || (byte >= 0x40 && byte <= 0x7E);
    if (!whole) return EDITOR_MORE;
    e->n_key = 0;
    return sequence(e, e->key);
}

static int pasted(editor *e, unsigned char byte)
{
    int rc = paste_feed(&e->paste, byte);
    bool ok = rc >= 0;
    if (rc > 0) {
        ok = !e->paste.n || insert(e, e->paste.text, e->paste.n);
        free(e->paste.text);
        e->paste = (paste) {0};
        e->pasting = false;
        if (ok && e->escapes) draw(e);
        else if (ok) editor_redraw(e);
    }
    return ok ? EDITOR_MORE : EDITOR_NO_MEMORY;
}

static int enter(editor *e)
{
    if (e->escapes) move(e, e->n);
    fputc('\n', e->out);
    fflush(e->out);
    editor_remember(e, e->s);
    return EDITOR_LINE;
}

int editor_feed(editor *e, unsigned char byte)
{
    if (e->pasting) return pasted(e, byte);
    if (e->n_key) return escaped(e, byte);
    if (byte == '\r' || byte == '\n') return enter(e);
    if (byte == '\033') {
        e->n_key = 1;
        e->key[0] = 0;
        return EDITOR_MORE;
    }
    return byte < 32 || byte == 127 ? control(e, byte) : type(e, byte);
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

editor *editor_new(FILE *out, bool escapes, void (*size)(size_t *, size_t *))
{
    editor *e = calloc(1, sizeof *e);
    if (!e || !room(&e->s, &e->cap, 80)) {
        free(e);
        return NULL;
    }
    e->out = out;
    e->escapes = escapes;
    e->size = size;
    e->s[0] = 0;
    e->prompt = "";
    return e;
}

void editor_free(editor *e)
{
    if (!e) return;
    for (size_t i = 0; i < e->n_past; i++) free(e->past[i]);
    free(e->past);
    free(e->kept);
    free(e->paste.text);
    free(e->s);
    free(e);
}

void editor_start(editor *e, const char *prompt, size_t columns)
{
    e->prompt = prompt;
    e->prompt_columns = columns;
    e->n = e->at = e->n_key = 0;
    e->s[0] = 0;
    e->look = e->n_past;
    editor_redraw(e);
}

const char *editor_text(const editor *e, size_t *len)
{
    *len = e->n;
    return e->s;
}
