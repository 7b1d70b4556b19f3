/* Names of repositories, cache folders and model files. They come from a network, a cache folder or a command line, so
 * each one is checked before it becomes part of a path. Pure functions: thread-safe. */
#ifndef PAGEDINFER_HUB_NAMES_H
#define PAGEDINFER_HUB_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Splits "user/name:quant"; quant is "" if it is missing. Returns false if the text is malformed. */
bool hub_split_name(const char *text, char id[257], char quant[65]);
/* Parses the name of a repository's cache folder, "models--USER--NAME", to "USER/NAME". Returns false for any other. */
bool hub_id_of_folder(const char *folder, char id[257]);
/* True for n hexadecimal digits. */
bool hub_is_hex(const char *s, size_t n);
/* True if the path is relative, stays below its directory, and has no control characters. */
bool hub_is_inside(const char *path);
/* Parses the target of a link to a blob: ../ depth times, then blobs/ and 40 or 64 hexadecimal digits, which are copied
 * to oid. Returns false for any other text. */
bool hub_blob_of_link(const char *target, int depth, char oid[65]);
/* True for a name that ends in .gguf. */
bool hub_is_gguf(const char *path);
/* True if path contains the quant name, followed by . or -. */
bool hub_has_quant(const char *path, const char *quant);
/* Finds the last name of a quantization or number format in a file's path, such as "Q4_K_M", in capitals; "" = none. */
void hub_quant_of(const char *path, char quant[65]);

/* Returns the number of parts from a file's name; 1 = not split. */
int hub_parts(const char *path);
/* Returns the number of the part from a file's name, from 1; 1 if the file is not split. */
int hub_part_number(const char *path);
/* Returns the path of part i, derived from the path of part 1. The caller frees it. NULL = out of memory. */
char *hub_part_name(const char *path, int i);

#endif
