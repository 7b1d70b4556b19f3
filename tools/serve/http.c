/* Parser of HTTP/1.1 requests (see http.h). Lines are collected and then parsed; the body is copied. */
#include "serve/http.h"

#include <string.h>
#include <strings.h>

enum {
    MAX_BLANK = 8,   /* maximum empty lines before a request */
    CHUNK_LINE = 32, /* bytes allowed for a chunk size and the end of the body, not counted as header */
};

static const struct {
    const char *name;
    bool once;
} fields[HTTP_N_FIELDS] = {
#define HTTP_X(id, name, once) {name, once},
    HTTP_FIELDS(HTTP_X)
#undef HTTP_X
};

static bool refuse(http_in *in, int status, const char *why)
{
    if (!in->status) {
        in->status = status;
        in->why = why;
    }
    return false;
}

static bool append(http_in *in, buf *b, const char *p, size_t n)
{
    buf_put(b, p, n);
    return !b->failed || refuse(in, 503, "out of memory for the request");
}

static bool is_alnum(char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); }
static bool is_token_char(char c) { return is_alnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c)); }

static size_t token_length(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && is_token_char(p[i])) i++;
    return i;
}

static bool same(const char *p, size_t n, const char *word) { return strlen(word) == n && !strncasecmp(p, word, n); }

/* ---------------------------------------------------------------------------------------------------- request line */

/* Returns the length of "http://host:port" at the start of an absolute target; 0 if the target is not absolute. */
static size_t origin_length(const char *p, size_t n)
{
    size_t i = n > 7 && !strncasecmp(p, "http://", 7) ? 7 : n > 8 && !strncasecmp(p, "https://", 8) ? 8 : 0;
    const size_t host = i;
    while (i && i < n && p[i] != '/' && p[i] != '?') i++;
    return i > host && !memchr(p, '@', i) ? i : 0;
}

static bool read_target(http_in *in, const char *p, size_t n)
{
    http_request *r = &in->req;
    for (size_t i = 0; i < n; i++)
        if (p[i] < '!' || p[i] > '~' || p[i] == '#')
            return refuse(in, 400, "the request's target has a character that is invalid in URLs");
    if (r->method == HTTP_CONNECT) return refuse(in, 405, "this server is not a proxy");
    const size_t cut = *p == '/' ? 0 : origin_length(p, n);
    const bool star = r->method == HTTP_OPTIONS && n == 1 && *p == '*';
    if (*p != '/' && !cut && !star) return refuse(in, 400, "the request's target must be a path or an http URL");
    if (cut && (cut == n || p[cut] == '?') && !append(in, &r->target, "/", 1)) return false;
    if (!append(in, &r->target, p + cut, n - cut)) return false;
    const char *q = memchr(r->target.p, '?', r->target.n);
    r->path_len = q ? (size_t) (q - r->target.p) : r->target.n;
    while (r->path_len > 1 && r->target.p[r->path_len - 1] == '/') r->path_len--;
    return true;
}

static bool read_version(http_in *in, const char *p, size_t n)
{
    if (n != 8 || memcmp(p, "HTTP/", 5) != 0 || p[5] < '0' || p[5] > '9' || p[6] != '.' || p[7] < '0' || p[7] > '9')
        return refuse(in, 400, "the request line must end with HTTP/1.1");
    if (p[5] != '1') return refuse(in, 505, "use HTTP/1.1");
    in->req.http10 = p[7] == '0';
    return true;
}

static bool read_request_line(http_in *in, const char *p, size_t n)
{
    static const char form[] = "the request line must be a method, a target and HTTP/1.1 with one space between";
    http_request *r = &in->req;
    if (!n) return ++in->n_blank <= MAX_BLANK || refuse(in, 400, "too many empty lines before the request");
    const size_t verb = token_length(p, n);
    const bool has_target = verb && verb < n && p[verb] == ' ';
    const char *target = p + verb + 1, *end = has_target ? memchr(target, ' ', n - verb - 1) : NULL;
    if (!end || end == target) return refuse(in, 400, form);
    if (verb >= sizeof r->verb) return refuse(in, 501, "unknown request method");
    memcpy(r->verb, p, verb);
    r->verb[verb] = 0;
    r->method = HTTP_GET;
    while (r->method < HTTP_OTHER && strcmp(http_method_name(r->method), r->verb) != 0) r->method++;
    if (!read_version(in, end + 1, n - (size_t) (end + 1 - p))) return false;
    in->step = HTTP_FIELD_LINE;
    return read_target(in, target, (size_t) (end - target));
}

/* ---------------------------------------------------------------------------------------------------------- fields */

static bool read_length(http_in *in, const char *p, size_t n)
{
    if (in->has_length) return refuse(in, 400, "the request has several Content-Length fields");
    in->has_length = true;
    in->left = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return refuse(in, 400, "Content-Length must be decimal digits");
        /* else above any limit already */
        if (in->left < UINT64_MAX / 100) in->left = in->left * 10 + (uint64_t) (p[i] - '0');
    }
    return n || refuse(in, 400, "Content-Length must be decimal digits");
}

static bool read_coding(http_in *in, const char *p, size_t n)
{
    if (in->chunked || !same(p, n, "chunked")) return refuse(in, 400, "Transfer-Encoding must be chunked, once");
    if (in->req.http10) return refuse(in, 400, "HTTP/1.0 has no Transfer-Encoding");
    in->chunked = true;
    return true;
}

static bool read_host(http_in *in, const char *p, size_t n)
{
    if (in->has_host) return refuse(in, 400, "the request has several Host fields");
    in->has_host = true;
    for (size_t i = 0; i < n; i++)
        if (!is_alnum(p[i]) && !strchr("-._~!$&'()*+,;=:[]%", p[i]))
            return refuse(in, 400, "Host must be a name or an address");
    return true;
}

static void read_connection(http_in *in, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t k = token_length(p + i, n - i);
        in->close |= same(p + i, k, "close");
        in->keep |= same(p + i, k, "keep-alive");
        i += k ? k : 1;
    }
}

static bool keep_field(http_in *in, int i, const char *p, size_t n)
{
    buf *b = &in->req.field[i];
    if (b->p && fields[i].once) return refuse(in, 400, "the request has several API keys: send one");
    b->n = 0;
    return append(in, b, p, n);
}

/* Parses "Name: value". Control characters were refused before. Trailer fields are only checked. */
static bool read_field(http_in *in, const char *p, size_t n)
{
    const size_t name = token_length(p, n);
    if (*p == ' ' || *p == '\t') return refuse(in, 400, "a header line must not begin with white space");
    if (!name || name == n || p[name] != ':')
        return refuse(in, 400, "a header line must be a name, a colon and a value");
    if (in->step == HTTP_TRAILER) return true;
    const char *v = p + name + 1, *end = p + n;
    while (v < end && (*v == ' ' || *v == '\t')) v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t')) end--;
    const size_t len = (size_t) (end - v);
    if (same(p, name, "content-length")) return read_length(in, v, len);
    if (same(p, name, "transfer-encoding")) return read_coding(in, v, len);
    if (same(p, name, "host")) return read_host(in, v, len);
    if (same(p, name, "connection")) read_connection(in, v, len);
    for (int i = 0; i < HTTP_N_FIELDS; i++)
        if (same(p, name, fields[i].name)) return keep_field(in, i, v, len);
    return true;
}

static bool end_head(http_in *in)
{
    http_request *r = &in->req;
    const char *why = NULL;
    in->has_head = true;
    r->keep_alive = !in->close && (!r->http10 || in->keep);
    if (in->chunked && in->has_length)
        return refuse(in, 400, "the request has both Transfer-Encoding and Content-Length");
    if (in->has_length && in->left > in->limits.body) return refuse(in, 413, "the request's body is too large");
    const int status = in->on_head ? in->on_head(in->ud, r, &why) : 0;
    if (status) return refuse(in, status, why);
    in->step = in->chunked ? HTTP_CHUNK_SIZE : HTTP_BODY;
    in->whole = !in->chunked && !in->left;
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- chunks */

/* Parses hexadecimal digits. Extensions after a semicolon count as header and are dropped. */
static bool read_chunk_size(http_in *in, const char *p, size_t n)
{
    size_t i = 0;
    for (in->left = 0; i < n && i <= 16; i++) {
        const char c = p[i], low = (char) (c | 32);
        const bool digit = c >= '0' && c <= '9';
        if (!digit && (low < 'a' || low > 'f')) break;
        in->left = in->left << 4 | (uint64_t) (digit ? c - '0' : low - 'a' + 10);
    }
    if (!i || i > 16 || (i < n && p[i] != ';'))
        return refuse(in, 400, "a chunk must begin with its size in hexadecimal digits");
    in->n_header += n - i;
    if (in->left > in->limits.body - in->req.body.n) return refuse(in, 413, "the request's body is too large");
    in->step = in->left ? HTTP_CHUNK : HTTP_TRAILER;
    return true;
}

/* --------------------------------------------------------------------------------------------------------- reading */

/* Parses a line without its line end. */
static bool read_line(http_in *in, const char *p, size_t n)
{
    switch (in->step) {
    case HTTP_REQUEST_LINE: return read_request_line(in, p, n);
    case HTTP_FIELD_LINE: return n ? read_field(in, p, n) : end_head(in);
    case HTTP_CHUNK_SIZE: return read_chunk_size(in, p, n);
    case HTTP_CHUNK_END:
        in->step = HTTP_CHUNK_SIZE;
        return !n || refuse(in, 400, "a chunk is longer than its size");
    default:
        in->whole = !n;
        return !n || read_field(in, p, n);
    }
}

/* Collects the bytes of the current line. Refuses an invalid byte immediately. Returns the number of bytes
 * consumed. */
static size_t take_line(http_in *in, const char *p, size_t n)
{
    const char *lf = memchr(p, '\n', n);
    const size_t take = lf ? (size_t) (lf - p) + 1 : n, from = in->line.n ? in->line.n - 1 : 0;
    const size_t count = in->n_header < in->limits.header ? in->limits.header - in->n_header : 0;
    const size_t room = in->step > HTTP_BODY ? count + CHUNK_LINE : count;
    buf *b = &in->line;
    if (take > room || b->n > room - take) {
        refuse(in, 431, "the request's header is too long");
        return 0;
    }
    if (!append(in, b, p, take)) return 0;
    for (size_t i = from; i < b->n; i++) {
        const unsigned char c = (unsigned char) b->p[i];
        const bool end = c == '\r' && (i + 1 == b->n || b->p[i + 1] == '\n');
        const bool lf_behind_cr = c == '\n' && i && b->p[i - 1] == '\r';
        if ((c < 32 && c != '\t' && !end && !lf_behind_cr) || c == 127)
            return refuse(in, 400, "a header line has a control character, or does not end with CR LF"), 0;
    }
    if (!lf) return take;
    if (b->n > 2 && in->step != HTTP_CHUNK_SIZE) in->n_header += b->n; /* read_chunk_size counts its own bytes */
    read_line(in, b->p, b->n - 2);
    b->n = 0;
    return take;
}

static size_t take_body(http_in *in, const char *p, size_t n)
{
    const size_t take = in->left < n ? (size_t) in->left : n;
    if (!append(in, &in->req.body, p, take)) return 0;
    in->left -= take;
    if (in->left) return take;
    if (in->step == HTTP_CHUNK) in->step = HTTP_CHUNK_END;
    else in->whole = true;
    return take;
}

void http_in_init(http_in *in, const http_limits *limits) { *in = (http_in) {.limits = *limits}; }

enum http_what http_feed(http_in *in, const char *p, size_t n, size_t *used)
{
    *used = 0;
    while (!in->status && !in->whole && *used < n) {
        const bool body = in->step == HTTP_BODY || in->step == HTTP_CHUNK;
        *used += (body ? take_body : take_line)(in, p + *used, n - *used);
    }
    return in->status ? HTTP_REFUSED : in->whole ? HTTP_COMPLETE : HTTP_MORE;
}

void http_take(http_in *in, http_request *out)
{
    *out = in->req;
    *in = (http_in) {.limits = in->limits, .line = in->line, .status = in->status, .why = in->why,
                     .on_head = in->on_head, .ud = in->ud};
    in->line.n = 0;
}

bool http_is_idle(const http_in *in) { return !in->has_head && !in->n_header && !in->line.n; }

void http_request_free(http_request *r)
{
    buf_free(&r->target);
    buf_free(&r->body);
    for (int i = 0; i < HTTP_N_FIELDS; i++) buf_free(&r->field[i]);
}

void http_in_free(http_in *in)
{
    http_request_free(&in->req);
    buf_free(&in->line);
}

const char *http_field(const http_request *r, int field) { return r->field[field].p; }

const char *http_method_name(enum http_method m)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "DELETE", "OPTIONS", "CONNECT"};
    return m < HTTP_OTHER ? names[m] : "";
}

const char *http_reason(int status)
{
    static const struct { int status; const char *text; } list[] = {
        {200, "OK"}, {204, "No Content"}, {400, "Bad Request"}, {401, "Unauthorized"}, {403, "Forbidden"},
        {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"}, {409, "Conflict"},
        {413, "Payload Too Large"}, {415, "Unsupported Media Type"}, {422, "Unprocessable Content"},
        {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {502, "Bad Gateway"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].status == status) return list[i].text;
    return "Unknown";
}
