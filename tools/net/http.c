/* HTTP by libcurl (see http.h). */
#include "net/http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

enum { CONNECT_S = 20, SILENT_S = 60, MAX_REDIRECTS = 10 };

struct http {
    CURL *curl; /* keeps connections alive between requests */
};

typedef struct run { /* a request in progress */
    http *h;
    const http_request *q;
    http_reply *r;
    bool started; /* q->start was called */
    bool refused; /* refused by q->start or q->body */
    size_t n_text; /* bytes in r->text */
} run;

http *http_new(void)
{
    http *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) || !(h->curl = curl_easy_init())) {
        free(h);
        return NULL;
    }
    return h;
}

void http_free(http *h)
{
    if (!h) return;
    curl_easy_cleanup(h->curl);
    curl_global_cleanup();
    free(h);
}

bool http_passes(long status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

/* --------------------------------------------------------------------------------------------------------- answers */

/* Returns the value after "name:" in a header line, without surrounding spaces; NULL for another header. */
static const char *value_of(const char *line, size_t n, const char *name, size_t *len)
{
    const size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k)) return NULL;
    const char *p = line + k + 1, *end = line + n;
    while (p < end && isspace((unsigned char) *p)) p++;
    while (end > p && isspace((unsigned char) end[-1])) end--;
    *len = (size_t) (end - p);
    return p;
}

static void keep(char *dst, size_t cap, const char *p, size_t n)
{
    snprintf(dst, cap, "%.*s", (int) (n < cap ? n : 0), p);
}

static uint64_t number(const char *p, size_t n)
{
    char text[24];
    if (!n || n >= sizeof text || strspn(p, "0123456789") < n) return UINT64_MAX;
    keep(text, sizeof text, p, n);
    return strtoull(text, NULL, 10);
}

/* Stores 64 hexadecimal digits, optionally in quotes: the hash of a file that the hub stores on another host. */
static void linked_sha256(http_reply *r, const char *p, size_t n)
{
    if (n == 66 && *p == '"') p++, n -= 2;
    if (n == 64 && strspn(p, "0123456789abcdefABCDEF") >= 64) keep(r->linked_sha256, sizeof r->linked_sha256, p, n);
}

/* Parses <https://...>; rel="next". */
static void next_page(http_reply *r, const char *p, size_t n)
{
    const char *lt = memchr(p, '<', n), *gt = memchr(p, '>', n);
    if (lt && gt && lt < gt && memmem(gt, (size_t) (p + n - gt), "rel=\"next\"", 10))
        keep(r->next, sizeof r->next, lt + 1, (size_t) (gt - lt - 1));
}

static size_t on_header(char *line, size_t one, size_t n, void *ud)
{
    http_reply *r = ((run *) ud)->r;
    size_t len;
    const char *p;
    n *= one;
    /* a new response begins; values of linked files come from the previous one */
    if (n > 5 && !strncmp(line, "HTTP/", 5)) {
        r->length = r->first = UINT64_MAX;
        *r->etag = *r->next = 0;
        r->retry_after = 0;
    }
    if ((p = value_of(line, n, "content-length", &len))) r->length = number(p, len);
    else if ((p = value_of(line, n, "etag", &len))) keep(r->etag, sizeof r->etag, p, len);
    else if ((p = value_of(line, n, "x-linked-etag", &len))) linked_sha256(r, p, len);
    else if ((p = value_of(line, n, "x-linked-size", &len))) r->linked_size = number(p, len);
    else if ((p = value_of(line, n, "link", &len))) next_page(r, p, len);
    else if ((p = value_of(line, n, "retry-after", &len)) && number(p, len) < 600)
        r->retry_after = (double) number(p, len);
    else if ((p = value_of(line, n, "content-range", &len)) && len > 6 && !strncasecmp(p, "bytes ", 6))
        r->first = number(p + 6, strspn(p + 6, "0123456789"));
    return n;
}

static size_t on_body(char *p, size_t one, size_t n, void *ud)
{
    run *x = ud;
    n *= one;
    curl_easy_getinfo(x->h->curl, CURLINFO_RESPONSE_CODE, &x->r->status);
    if (x->r->status < 200 || x->r->status > 299) { /* text of an error response */
        const size_t room = sizeof x->r->text - 1 - x->n_text;
        memcpy(x->r->text + x->n_text, p, n < room ? n : room);
        x->n_text += n < room ? n : room;
        return n;
    }
    if (!x->started) x->refused = x->q->start && !x->q->start(x->q->ud, x->r);
    x->started = true;
    if (!x->refused) x->refused = x->q->body && !x->q->body(x->q->ud, p, n);
    return x->refused ? 0 : n;
}

static int on_wait(void *ud, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void) ud, (void) a, (void) b, (void) c, (void) d;
    return cli_signal() != 0;
}

/* -------------------------------------------------------------------------------------------------------- requests */

static bool add_header(struct curl_slist **list, const char *fmt, const char *value)
{
    char line[700];
    if (snprintf(line, sizeof line, fmt, value) >= (int) sizeof line) return false;
    struct curl_slist *more = curl_slist_append(*list, line);
    if (more) *list = more;
    return more != NULL;
}

static bool headers_of(const http_request *q, struct curl_slist **list)
{
    bool ok = true;
    if (q->json) ok = add_header(list, "Accept: %s", "application/json");
    /* libcurl sends this header to the first host only. */
    if (q->token && *q->token) ok = ok && add_header(list, "Authorization: Bearer %s", q->token);
    if (q->from && q->if_range) ok = ok && add_header(list, "If-Range: %s", q->if_range);
    return ok;
}

static void protocols(CURL *e, const char *url)
{
    const bool tls = !strncasecmp(url, "https:", 6);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
#else
    curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS, (long) (tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static void set_up(run *x, struct curl_slist *headers, char error[CURL_ERROR_SIZE])
{
    CURL *e = x->h->curl;
    char agent[64], range[32];
    snprintf(agent, sizeof agent, "pagedinfer/%s", pi_version());
    snprintf(range, sizeof range, "%llu-", (unsigned long long) x->q->from);
    curl_easy_reset(e);
    protocols(e, x->q->url);
    curl_easy_setopt(e, CURLOPT_URL, x->q->url);
    curl_easy_setopt(e, CURLOPT_USERAGENT, agent);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(e, CURLOPT_NOBODY, (long) x->q->head);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, (long) !x->q->direct);
    curl_easy_setopt(e, CURLOPT_TIMEOUT, x->q->seconds);
    curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long) MAX_REDIRECTS);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long) CONNECT_S);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long) SILENT_S);
    curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, error);
    if (x->q->from) curl_easy_setopt(e, CURLOPT_RANGE, range);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, x);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_wait);
}

static enum http_result result_of(const run *x, CURLcode rc)
{
    if (x->refused || rc == CURLE_ABORTED_BY_CALLBACK) return HTTP_STOPPED;
    switch (rc) {
    case CURLE_OK: return HTTP_DONE;
    case CURLE_UNSUPPORTED_PROTOCOL: case CURLE_URL_MALFORMAT: case CURLE_TOO_MANY_REDIRECTS: case CURLE_OUT_OF_MEMORY:
    case CURLE_PEER_FAILED_VERIFICATION: case CURLE_SSL_CACERT_BADFILE: return HTTP_REFUSED;
    default: return HTTP_NETWORK;
    }
}

enum http_result http_run(http *h, const http_request *q, http_reply *r)
{
    char error[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    run x = {.h = h, .q = q, .r = r};
    *r = (http_reply) {.length = UINT64_MAX, .first = UINT64_MAX, .linked_size = UINT64_MAX};
    if (!headers_of(q, &headers)) {
        curl_slist_free_all(headers);
        snprintf(r->error, sizeof r->error, "out of memory, or a token that is too long");
        return HTTP_REFUSED;
    }
    set_up(&x, headers, error);
    const CURLcode rc = curl_easy_perform(h->curl);
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &r->status);
    /* no body */
    if (!rc && !x.started && r->status / 100 == 2 && q->start && !q->head) x.refused = !q->start(q->ud, r);
    if (rc) snprintf(r->error, sizeof r->error, "%s", *error ? error : curl_easy_strerror(rc));
    curl_slist_free_all(headers);
    return result_of(&x, rc);
}
