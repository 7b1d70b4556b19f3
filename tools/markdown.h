/* Shows an answer on a terminal: wraps words at its width, and renders simple Markdown: headings, bold and italic text,
 * code, lists and quotes. Text arrives in pieces of any size; the output does not depend on the pieces. A word appears
 * when its end has arrived.
 *
 * Control characters except newline and tab are dropped, so that an answer cannot control the terminal. Lines of code
 * and of tables are not wrapped. Memory: the buffers grow with the longest word. Not thread-safe. */
#ifndef PAGEDINFER_MARKDOWN_H
#define PAGEDINFER_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct markdown markdown;

/* Writes n bytes of output. Returns false on failure; the renderer then writes no more. */
typedef bool (*markdown_put)(void *ud, const char *text, size_t n);

/* Returns NULL if out of memory. columns: width of the terminal; 0 = no wrapping. styles: use escape sequences and
 * render Markdown; false: only wrap. */
markdown *markdown_new(size_t columns, bool styles, markdown_put put, void *ud);
/* Adds the next n bytes, UTF-8; a character may be split between two calls. Returns false if out of memory, or if
 * writing failed. */
bool markdown_feed(markdown *m, const char *text, size_t n);
/* Ends the text: writes what is buffered and resets the styles. Returns false as markdown_feed does. */
bool markdown_end(markdown *m);
void markdown_free(markdown *m);

#endif
