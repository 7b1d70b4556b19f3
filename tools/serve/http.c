/* Requests of HTTP/1.1 (see http.h). http-parser calls back as it reads; here the parts are put together and counted.
 */
#include "serve/http.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *const field_names[HTTP_N_FIELDS] = {
#define HTTP_X(id, name) name,
    HTTP_FIELDS(HTTP_X)
#undef HTTP_X
};

enum { GO_ON = 0, STOP = 3 }; /* of callbacks; 1 and 2 mean something to http-parser after a header */

static int refuse(http_in *in, int status, const char *why)
{
    if (!in->status) {
        in->status = status;
        in->why = why;
    }
    return STOP;
}

static int count_header(http_in *in, size_t n)
{
    in->n_header += n;
    return in->n_header > in->limits.header ? refuse(in, 431, "the request's header is too long") : GO_ON;
}

static int append(http_in *in, buf *b, const char *p, size_t n)
{
    buf_put(b, p, n);
    return b->failed ? refuse(in, 503, "out of memory for the request") : GO_ON;
}

static int on_begin(http_parser *p)
{
    http_in *in = p->data;
    in->n_header = in->n_name = 0;
    in->in_value = false;
    return GO_ON;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    http_in *in = p->data;
    return count_header(in, n) ? STOP : append(in, &in->req.target, at, n);
}

static int on_field(http_parser *p, const char *at, size_t n)
{
    http_in *in = p->data;
    if (in->in_value) in->n_name = 0;
    in->in_value = false;
    const size_t more = in->n_name ? 0 : 4; /* ": " and the line's end, once a field, which may come in parts */
    for (size_t i = 0; i < n; i++, in->n_name++) {
        if (in->n_name < sizeof in->name) in->name[in->n_name] = (char) tolower((unsigned char) at[i]);
    }
    return count_header(in, n + more);
}

static int on_value(http_parser *p, const char *at, size_t n)
{
    http_in *in = p->data;
    bool first = !in->in_value;
    in->in_value = true;
    if (count_header(in, n)) return STOP;
    for (int i = 0; i < HTTP_N_FIELDS; i++) {
        if (strlen(field_names[i]) != in->n_name || memcmp(field_names[i], in->name, in->n_name) != 0) continue;
        if (first) in->req.field[i].n = 0; /* of several the last one counts */
        return append(in, &in->req.field[i], at, n);
    }
    return GO_ON;
}

static int on_headers(http_parser *p)
{
    http_in *in = p->data;
    http_request *r = &in->req;
    in->has_head = true;
    r->method = (enum http_method) p->method;
    r->http10 = p->http_major < 1 || (p->http_major == 1 && p->http_minor == 0);
    r->keep_alive = http_should_keep_alive(p) && !p->upgrade;
    if (p->http_major != 1) return refuse(in, 505, "HTTP/1.1 is spoken here");
    if (r->method == HTTP_CONNECT || !r->target.n) return refuse(in, 405, "this is no proxy");
    const char *q = memchr(r->target.p, '?', r->target.n);
    r->path_len = q ? (size_t) (q - r->target.p) : r->target.n;
    if (p->flags & F_CONTENTLENGTH && p->content_length > in->limits.body)
        return refuse(in, 413, "the request's body is too large");
    const char *why = NULL;
    int status = in->on_head ? in->on_head(in->ud, r, &why) : 0;
    return status ? refuse(in, status, why) : GO_ON;
}

static int on_body(http_parser *p, const char *at, size_t n)
{
    http_in *in = p->data;
    if (n > in->limits.body - in->req.body.n) return refuse(in, 413, "the request's body is too large");
    return append(in, &in->req.body, at, n);
}

static int on_complete(http_parser *p)
{
    http_in *in = p->data;
    in->whole = true;
    http_parser_pause(p, 1);
    return GO_ON;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin, .on_url = on_url, .on_header_field = on_field, .on_header_value = on_value,
    .on_headers_complete = on_headers, .on_body = on_body, .on_message_complete = on_complete,
};

void http_in_init(http_in *in, const http_limits *limits)
{
    *in = (http_in) {.limits = *limits};
    http_parser_init(&in->parser, HTTP_REQUEST);
    in->parser.data = in;
}

enum http_what http_feed(http_in *in, const char *p, size_t n, size_t *used)
{
    *used = 0;
    if (in->status) return HTTP_REFUSED;
    if (in->whole) return HTTP_WHOLE;
    *used = http_parser_execute(&in->parser, &settings, p, n);
    if (*used > n) *used = n;
    if (in->whole) return HTTP_WHOLE;
    enum http_errno e = HTTP_PARSER_ERRNO(&in->parser);
    if (e == HPE_HEADER_OVERFLOW) refuse(in, 431, "the request's header is too long");
    else if (e != HPE_OK || in->status) refuse(in, 400, http_errno_description(e));
    return in->status ? HTTP_REFUSED : HTTP_MORE;
}

void http_take(http_in *in, http_request *out)
{
    *out = in->req;
    in->req = (http_request) {0};
    in->whole = in->has_head = false;
    in->n_header = 0;
    if (HTTP_PARSER_ERRNO(&in->parser) == HPE_PAUSED) http_parser_pause(&in->parser, 0);
}

bool http_is_idle(const http_in *in) { return !in->has_head && !in->n_header; }

void http_request_free(http_request *r)
{
    buf_free(&r->target);
    buf_free(&r->body);
    for (int i = 0; i < HTTP_N_FIELDS; i++) buf_free(&r->field[i]);
}

void http_in_free(http_in *in) { http_request_free(&in->req); }

const char *http_field(const http_request *r, int field) { return r->field[field].p; }

const char *http_reason(int status)
{
    switch (status) {
#define HTTP_X(num, name, string) case num: return #string;
        HTTP_STATUS_MAP(HTTP_X)
#undef HTTP_X
    }
    return "Unknown";
}
