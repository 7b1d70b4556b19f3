/* Lines that a person types, or that come through a pipe; with line editing and history where libedit was built in. */
#ifndef PAGEDINFER_LINE_H
#define PAGEDINFER_LINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct line_input line_input;

/* NULL: out of memory. On a terminal, prompt is shown on standard error before each line. One at a time. */
line_input *line_open(const char *prompt);
void line_close(line_input *l);
bool line_is_terminal(const line_input *l);
/* The next line without its newline, valid until the next call. Returns 1, 0 at the end of input, -1 when a signal came
 * (cli_signal), -2 out of memory. */
int line_read(line_input *l, const char **text, size_t *len);

#endif
