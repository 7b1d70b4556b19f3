/* The terminal for user input: no echo while output is written, and its modes restored afterwards.
 *
 * From open to close, keys are neither echoed nor edited by the kernel. Keys, including Ctrl-D, are buffered until the
 * program reads them; Ctrl-C and Ctrl-Z remain signals. A paste arrives between "\033[200~" and "\033[201~" if the
 * terminal supports bracketed paste. The original modes are restored at close, at exit, during suspension, and when a
 * signal ends the process. There is one terminal per process; the state is static because signal handlers need it. */
#ifndef PAGEDINFER_TERMINAL_H
#define PAGEDINFER_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Saves the terminal's modes. Returns false if standard input and standard error are not both terminals. */
bool terminal_find(void);
void terminal_open(void);  /* after terminal_find, and after libedit has configured the terminal */
void terminal_close(void); /* async-signal-safe; may be called twice */
/* True once after the process was suspended and continued; the screen content may be lost. */
bool terminal_continued(void);
/* True if the terminal supports escape sequences: TERM is neither empty nor dumb. */
bool terminal_has_escapes(void);
void terminal_size(size_t *rows, size_t *columns);

#endif
