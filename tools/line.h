/* Reads lines from a terminal or a pipe. On a terminal there is editing and history: from libedit if it was built in,
 * else from editor.h. A paste of several lines is one line with newlines in it. Input typed between two reads is
 * buffered (terminal.h). */
#ifndef PAGEDINFER_LINE_H
#define PAGEDINFER_LINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_input line_input;

/* Returns NULL if out of memory. simple: do not use libedit. color: highlight prompts. Only one may be open at a
 * time. */
line_input *line_open(bool simple, bool color);
void line_close(line_input *l);
bool line_is_terminal(const line_input *l);
/* Returns the next line without its newline, valid until the next call. On a terminal, prompt (short, ASCII) is shown
 * on standard error before it. Result: 1, 0 at the end of input, -1 after a signal (cli_signal), -2 if out of
 * memory. */
int line_read(line_input *l, const char *prompt, const char **text, size_t *len);
/* True if the text continues after this line; the continuation mark is removed from *n. A trailing backslash means
 * that it continues, or with multiline (--multiline-input) that it ends. */
bool line_goes_on(bool multiline, const char *line, size_t *n);

#endif
