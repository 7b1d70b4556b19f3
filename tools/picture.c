/* Image files of messages (see picture.h). A message keeps the path; each turn reads and decodes the file again, which
 * takes little time next to the model. The cache finds images by their bytes. */
#include "picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "media/image.h"

/* Reads a file and its header; the caller frees *bytes. */
static int load(const char *path, uint8_t **bytes, size_t *n, image_head *head, pi_error *err)
{
    const image_limits limits = image_default_limits();
    pi_error why = {0};
    *bytes = NULL;
    int rc = image_read_file(path, &limits, bytes, n, err);
    if (rc) return rc;
    rc = image_head_read(*bytes, *n, &limits, head, &why);
    if (!rc) return PI_OK;
    free(*bytes);
    *bytes = NULL;
    *err = (pi_error) {.code = rc};
    snprintf(err->msg, sizeof err->msg, "%.100s: %.130s", path, why.msg);
    return rc;
}

int picture_part(const cli *c, const char *path, json_t *list)
{
    uint8_t *bytes;
    size_t n;
    image_head head;
    pi_error err = {0};
    if (load(path, &bytes, &n, &head, &err)) return cli_pi_error(c, &err);
    free(bytes);
    char *full = realpath(path, NULL);
    json_t *part = full ? json_pack("{s:s, s:s}", "type", "image", "path", full) : NULL;
    free(full);
    if (part && !json_array_append_new(list, part)) return CLI_OK;
    return cli_error(c, CLI_OS, "%s: out of memory, or the name is not UTF-8", path);
}

int picture_parts(const cli *c, json_t *list)
{
    int code = CLI_OK;
    for (size_t i = 0; i < cli_n(c, "image") && !code; i++) {
        char *all = strdup(cli_nth(c, "image", i)), *next;
        if (!all) return cli_error(c, CLI_OS, "out of memory");
        for (char *p = all; p && !code; p = next) {
            next = strchr(p, ',');
            if (next) *next++ = 0;
            if (*p) code = picture_part(c, p, list);
        }
        free(all);
    }
    return code;
}

json_t *picture_content(const json_t *parts, const char *text, size_t n)
{
    json_t *list = json_array(), *said = n ? json_stringn(text, n) : NULL;
    bool ok = list && !json_array_extend(list, (json_t *) parts) && (said || !n);
    if (ok && n) ok = !json_array_append_new(list, json_pack("{s:s, s:O}", "type", "text", "text", said));
    json_decref(said);
    if (ok) return list;
    json_decref(list);
    return NULL;
}

static int add(const char *path, pi_request *r, pi_error *err)
{
    uint8_t *bytes, *rgb = NULL;
    size_t n;
    image_head head;
    int rc = load(path, &bytes, &n, &head, err);
    if (rc) return rc;
    rc = image_decode(bytes, n, &head, NULL, &rgb, err);
    const pi_image image = {.size = sizeof image, .width = head.width, .height = head.height, .rgb = rgb,
                            .source = bytes, .source_len = n};
    if (!rc) rc = pi_request_image(r, &image, err);
    free(rgb);
    free(bytes);
    return rc;
}

int picture_add(const json_t *messages, pi_request *r, pi_error *err)
{
    const json_t *m, *part;
    size_t i, k;
    int rc = PI_OK;
    json_array_foreach(messages, i, m) {
        json_array_foreach(json_object_get(m, "content"), k, part) {
            const char *path = json_string_value(json_object_get(part, "path"));
            if (!rc && path) rc = add(path, r, err);
        }
    }
    return rc;
}
