/* A line editor for terminals, for builds without libedit and for --simple-io: arrows, Home and End, words, history,
 * text of several lines, pastes. Bytes go in, drawing goes out to a stream; it waits for nothing. Where the terminal
 * has no escape sequences, keys that would move the cursor do nothing.
 *
 * Text is UTF-8; what is not is kept as it came and drawn as '?'. One thread; memory is malloc'd and grows. */
#ifndef PAGEDINFER_EDITOR_H
#define PAGEDINFER_EDITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct editor editor;

enum { EDITOR_MORE, EDITOR_LINE, EDITOR_END, EDITOR_NO_MEMORY };

/* NULL: out of memory. size tells the terminal's size whenever it is drawn on. */
editor *editor_new(FILE *out, bool escapes, void (*size)(size_t *rows, size_t *columns));
void editor_free(editor *e);
/* An empty text behind prompt, which takes so many columns and lives until the text is done. */
void editor_start(editor *e, const char *prompt, size_t columns);
/* The next byte typed. EDITOR_LINE: the text is done and part of the history; EDITOR_END: Ctrl-D in an empty text. */
int editor_feed(editor *e, unsigned char byte);
/* The text so far, valid until the next byte; a NUL follows it. */
const char *editor_text(const editor *e, size_t *len);
/* Draws all of it anew: somebody else wrote on the screen. */
void editor_redraw(editor *e);

/* What was pasted, up to "\033[201~": lines end in \n whatever the terminal made of them; NUL is left out. */
typedef struct paste {
    char *text;     /* [n]; free it */
    size_t n, cap;  /* bytes in text, allocated */
    size_t matched; /* bytes of the end mark seen */
    bool cr;        /* the last byte was \r: a \n behind it is the same end of a line */
} paste;
/* 1: that was the end mark, 0: more is to come, -1: out of memory. */
int paste_feed(paste *p, unsigned char byte);

#endif
