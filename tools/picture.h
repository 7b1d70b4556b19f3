/* Image files of `run` and `chat`, as parts of messages: {"type": "image", "path": "photo.jpg"}. Not thread-safe. */
#ifndef PAGEDINFER_PICTURE_H
#define PAGEDINFER_PICTURE_H

#include <jansson.h>

#include "cli.h"

/* Appends a part for the image file to list, with its absolute path. Reads the file's header. Prints errors; returns an
 * exit code. */
int picture_part(const cli *c, const char *path, json_t *list);
/* Appends the parts of all files of --image. */
int picture_parts(const cli *c, json_t *list);
/* Makes the content of a message with parts, a list of images, before a text of n bytes. NULL = out of memory. */
json_t *picture_content(const json_t *parts, const char *text, size_t n);
/* Adds the images of all messages to r, before its prompt. Returns PI_OK or a negative code with a text in err. */
int picture_add(const json_t *messages, pi_request *r, pi_error *err);

#endif
