/* The terminal that a person types at: quiet while an answer is written, and given back as it was.
 *
 * From open to close keys are neither echoed nor edited by the kernel, they wait until somebody reads them, Ctrl-D
 * among them; Ctrl-C and Ctrl-Z are signals as ever. A paste comes between "\033[200~" and "\033[201~" where the
 * terminal knows such things. What was there before comes back at close, at exit, while the process is suspended, and
 * when a signal ends it. One terminal a process; the state is static because signal handlers need it. */
#ifndef PAGEDINFER_TERMINAL_H
#define PAGEDINFER_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Remembers how the terminal is. False: standard input and standard error are not both terminals. */
bool terminal_find(void);
void terminal_open(void);  /* after terminal_find, and after others (libedit) set it up */
void terminal_close(void); /* may be called from a signal handler, and twice */
/* True once after the process was suspended and went on: what was on the screen may be gone. */
bool terminal_continued(void);
/* Whether it understands escape sequences: TERM is neither empty nor dumb. */
bool terminal_has_escapes(void);
void terminal_size(size_t *rows, size_t *columns);

#endif
