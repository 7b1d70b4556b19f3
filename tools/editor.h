/* A line editor for terminals, used in builds without libedit and with --simple-io: arrow keys, Home and End, words,
 * history, multi-line text, pastes. The caller feeds bytes; the editor draws to a stream and never blocks. On a
 * terminal without escape sequences, cursor keys do nothing.
 *
 * Text is UTF-8; invalid bytes are kept and drawn as '?'. Not thread-safe; buffers are malloc'd and grow. */
#ifndef PAGEDINFER_EDITOR_H
#define PAGEDINFER_EDITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct editor editor;

enum { EDITOR_MORE, EDITOR_LINE, EDITOR_END, EDITOR_NO_MEMORY };

/* Returns NULL if out of memory. `size` returns the terminal's size before each drawing. */
editor *editor_new(FILE *out, bool escapes, void (*size)(size_t *rows, size_t *columns));
void editor_free(editor *e);
/* Starts an empty text after the prompt. columns: width of the prompt. The prompt must stay valid until the text is
 * done. */
void editor_start(editor *e, const char *prompt, size_t columns);
/* Processes the next typed byte. EDITOR_MORE: the text is not done yet. EDITOR_LINE: the text is done and added to the
 * history. EDITOR_END: Ctrl-D in an empty text. EDITOR_NO_MEMORY: the byte may be lost. */
int editor_feed(editor *e, unsigned char byte);
/* Returns the text so far, NUL-terminated, valid until the next byte. */
const char *editor_text(const editor *e, size_t *len);
/* Adds a text to the history, unless it is the last one or empty. Out of memory only skips the entry. */
void editor_remember(editor *e, const char *text);
/* Redraws everything after other output on the screen. */
void editor_redraw(editor *e);

/* A paste, up to "\033[201~". Line ends are stored as \n in all terminal modes; NUL bytes are dropped. */
typedef struct paste {
    char *text;     /* [n]; the caller frees it */
    size_t n, cap;  /* bytes in text, allocated */
    size_t matched; /* bytes of the end marker matched so far */
    bool cr;        /* the last byte was \r: a following \n belongs to the same line end */
} paste;
/* Appends the next byte of the paste to p->text. Returns 1 at the end marker, 0 if more bytes follow, -1 if out of
 * memory. */
int paste_feed(paste *p, unsigned char byte);

#endif
