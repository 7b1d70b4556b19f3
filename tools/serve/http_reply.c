/* Responses of a model's process (see http_reply.h). */
#include "serve/http_reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 16 << 10, SIZE_LINE_MAX = 18 };

/* Fields that the front end writes itself. */
static const char *const own[] = {"connection", "x-request-id", "request-id", "vary", "date", "keep-alive"};

/* Moves the bytes up to the next line end to r->line. Returns REPLY_HEAD if the line is complete, without its end. */
static enum reply_what take_line(http_reply *r, const char *p, size_t n, size_t *used)
{
    const char *end = memchr(p, '\n', n);
    *used = end ? (size_t) (end - p) + 1 : n;
    r->n_head += *used;
    if (r->n_head > HEAD_MAX) return REPLY_BAD;
    buf_put(&r->line, p, *used);
    if (r->line.failed) return REPLY_BAD;
    if (!end) return REPLY_MORE;
    if (r->line.n < 2 || r->line.p[r->line.n - 2] != '\r') return REPLY_BAD;
    r->line.n -= 2;
    r->line.p[r->line.n] = 0;
    return memchr(r->line.p, 0, r->line.n) ? REPLY_BAD : REPLY_HEAD;
}

/* Parses up to 16 digits. */
static bool number(const char *s, int base, uint64_t *out)
{
    const size_t n = strspn(s, base == 16 ? "0123456789abcdefABCDEF" : "0123456789");
    *out = strtoull(s, NULL, base);
    return n && n <= 16 && !s[n];
}

static bool status_line(http_reply *r)
{
    const char *s = r->line.p;
    if (strncmp(s, "HTTP/1.1 ", 9) || strspn(s + 9, "0123456789") != 3) return false;
    r->status = atoi(s + 9);
    return r->status >= 200 && r->status <= 599;
}

static bool field_line(http_reply *r)
{
    char *colon = strchr(r->line.p, ':');
    if (!colon || colon == r->line.p) return false;
    *colon = 0;
    const char *name = r->line.p, *value = colon + 1 + strspn(colon + 1, " ");
    if (!strcasecmp(name, "content-length")) {
        if (r->has_length || r->chunked || !number(value, 10, &r->length)) return false;
        r->has_length = true;
    } else if (!strcasecmp(name, "transfer-encoding")) {
        if (r->has_length || strcasecmp(value, "chunked")) return false;
        r->chunked = true;
    } else if (!strcasecmp(name, "content-type")) {
        if (strlen(value) >= sizeof r->type) return false;
        memcpy(r->type, value, strlen(value) + 1);
    } else if (strncasecmp(name, "access-control-", 15)) {
        bool skip = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) skip |= !strcasecmp(name, own[i]);
        if (!skip) buf_fmt(&r->fields, "%s: %s\r\n", name, value);
    }
    return !r->fields.failed;
}

/* The head is complete: selects the form of the body. */
static bool begin_body(http_reply *r)
{
    if (r->no_body || r->status == 204) {
        r->step = REPLY_LAST;
    } else if (r->chunked) {
        r->step = REPLY_SIZE;
    } else if (r->has_length) {
        r->step = r->length ? REPLY_BYTES : REPLY_LAST;
        r->left = r->length;
    } else {
        return false;
    }
    return true;
}

static enum reply_what head_line(http_reply *r)
{
    bool sound;
    const bool first = r->step == REPLY_STATUS, last = !first && !r->line.n;
    if (first) sound = status_line(r);
    else if (last) sound = begin_body(r);
    else sound = field_line(r);
    r->line.n = 0;
    if (!sound) return REPLY_BAD;
    if (first) r->step = REPLY_FIELD;
    return last ? REPLY_HEAD : REPLY_MORE;
}

/* A line between chunks: a size, the end of a chunk, or the end of the body. */
static bool chunk_line(http_reply *r)
{
    const size_t n = r->line.n;
    r->line.n = r->n_head = 0;
    if (r->step == REPLY_CHUNK_END) return r->step = REPLY_SIZE, !n;
    if (n > SIZE_LINE_MAX || !number(r->line.p, 16, &r->left)) return false;
    r->step = r->left ? REPLY_CHUNK : REPLY_LAST;
    return true;
}

/* True if the rest of the input is the line after the last chunk, or nothing is expected. */
static enum reply_what last_line(http_reply *r, const char *p, size_t n, size_t *used)
{
    *used = 0;
    if (!r->chunked || r->no_body || r->status == 204) return REPLY_END;
    const enum reply_what what = take_line(r, p, n, used);
    if (what != REPLY_HEAD) return what;
    return r->line.n ? REPLY_BAD : REPLY_END;
}

enum reply_what http_reply_feed(http_reply *r, const char *p, size_t n, size_t *used, const char **body, size_t *n_body)
{
    *used = 0;
    while (*used < n || r->step == REPLY_LAST) {
        size_t k = 0;
        const char *at = p + *used;
        const size_t rest = n - *used;
        enum reply_what what = REPLY_MORE;
        if (r->step == REPLY_LAST) {
            what = last_line(r, at, rest, &k);
            *used += k;
            return what;
        }
        if (r->step == REPLY_BYTES || r->step == REPLY_CHUNK) {
            *body = at;
            *n_body = r->left < rest ? (size_t) r->left : rest;
            *used += *n_body;
            if (!(r->left -= *n_body)) r->step = r->step == REPLY_BYTES ? REPLY_LAST : REPLY_CHUNK_END;
            return REPLY_BODY;
        }
        what = take_line(r, at, rest, &k);
        *used += k;
        if (what != REPLY_HEAD) return what;
        if (r->step <= REPLY_FIELD) what = head_line(r);
        else what = chunk_line(r) ? REPLY_MORE : REPLY_BAD;
        if (what != REPLY_MORE) return what;
    }
    return REPLY_MORE;
}

void http_reply_free(http_reply *r)
{
    buf_free(&r->fields);
    buf_free(&r->line);
}
