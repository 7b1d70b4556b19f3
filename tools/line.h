/* Lines that a person types, or that come through a pipe. On a terminal there is editing and history: libedit's where
 * it was built in, else those of editor.h; a paste of several lines is one line with newlines in it, and what is typed
 * while nobody reads waits (terminal.h). */
#ifndef PAGEDINFER_LINE_H
#define PAGEDINFER_LINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_input line_input;

/* NULL: out of memory. simple: not libedit. color: prompts stand out. One at a time. */
line_input *line_open(bool simple, bool color);
void line_close(line_input *l);
bool line_is_terminal(const line_input *l);
/* The next line without its newline, valid until the next call. On a terminal, prompt (short, ASCII) is shown on
 * standard error before it. Returns 1, 0 at the end of input, -1 when a signal came (cli_signal), -2 out of memory. */
int line_read(line_input *l, const char *prompt, const char **text, size_t *len);
/* Whether the text goes on behind this line; the mark is taken off *n. A backslash at the end says it does, or with
 * multiline (--multiline-input) that it does not. */
bool line_goes_on(bool multiline, const char *line, size_t *n);

#endif
