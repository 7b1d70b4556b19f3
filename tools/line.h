/* Reads lines from a terminal or a pipe. On a terminal there is editing and history: from libedit if it was built in,
 * else from editor.h. A paste of several lines is one line with newlines in it. Input typed between two reads is
 * buffered (terminal.h). */
#ifndef PAGEDINFER_LINE_H
#define PAGEDINFER_LINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_input line_input;

/* Opens standard input for reading lines. Returns NULL if out of memory. simple: do not use libedit. color: highlight
 * prompts. file: on a terminal, the file that keeps the lines (recall.h), copied; NULL = none. Only one line_input
 * may be open at a time. */
line_input *line_open(bool simple, bool color, const char *file);
void line_close(line_input *l);
bool line_is_terminal(const line_input *l);
/* Stores the next line without its newline in *text and *len, valid until the next call. On a terminal, first shows
 * prompt (short, ASCII) on standard error. Returns 1, 0 at the end of input, -1 after a signal (cli_signal), -2 if out
 * of memory. */
int line_read(line_input *l, const char *prompt, const char **text, size_t *len);
/* True if a signal ended the last line_read after keys were typed; the text is now the last one of the history. */
bool line_was_kept(const line_input *l);
/* True if the text continues after this line of *n bytes; removes the continuation mark from *n. A trailing backslash
 * means that the text continues, or with multiline (--multiline-input) that it ends. */
bool line_goes_on(bool multiline, const char *line, size_t *n);

#endif
