/* The history of typed lines in a file, for `pagedinfer chat` on a terminal.
 *
 * The file has one JSON string per line, oldest first. It is private (mode 0600), and a file of another user, or a
 * link, is refused. It has at most 1 MiB: when it grows beyond, the older half is dropped. Several processes may
 * append. */
#ifndef PAGEDINFER_RECALL_H
#define PAGEDINFER_RECALL_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the path for the value of --history-file: "auto" is $XDG_STATE_HOME/pagedinfer/history or
 * ~/.local/state/pagedinfer/history; "none" and "" are no file. The caller frees it. NULL = no file. */
char *recall_path(const char *option);
/* Calls add for the last entries of the file, oldest first. A missing file has none. Returns NULL, or an error text. */
const char *recall_load(const char *path, void (*add)(void *ud, const char *text), void *ud);
/* Appends a line of n bytes, UTF-8; creates the file and its folders. Empty lines, lines that begin with a space, and
 * lines of more than 64 KiB are not stored. Returns NULL, or an error text. */
const char *recall_add(const char *path, const char *text, size_t n);

#endif
