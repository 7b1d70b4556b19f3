/* Fuzzes the server's HTTP readers: the first byte selects the reader, and how the rest is cut into reads.
 *
 *     0..193      requests (http.h), in reads of 1 + byte % 97 bytes
 *     194..224    a model process's response (front_fuzz.h), in reads of byte - 193 bytes; odd bytes: to a HEAD request
 *     225..255    the model's name in a body or a query string (front_fuzz.h)
 *
 * Any input gives complete requests within their limits, or a refusal with a status and a text. The cut changes neither
 * the requests nor the occurrence of a refusal. With two reasons for a refusal, the reported one may depend on the
 * cut. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "front_fuzz.h"
#include "serve/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 2048, BODY = 4096, REPLIES = 194, NAMES = 225 };

struct seen { /* results of one run over the bytes */
    size_t n;         /* complete requests */
    size_t sum;       /* checksum of their parts */
    int status;       /* status of the refusal; 0 = not refused */
};

/* A value has no control characters and no surrounding white space; a target has visible characters only. */
static void look_at_bytes(const http_request *r)
{
    for (size_t i = 0; i < r->target.n; i++)
        if (r->target.p[i] < '!' || r->target.p[i] > '~') __builtin_trap();
    if (r->target.p[0] != '/' && strcmp(r->target.p, "*") != 0) __builtin_trap();
    if (r->path_len > 1 && r->target.p[r->path_len - 1] == '/') __builtin_trap();
    for (int i = 0; i < HTTP_N_FIELDS; i++) {
        const buf *b = &r->field[i];
        for (size_t k = 0; k < b->n; k++) {
            const unsigned char c = (unsigned char) b->p[k];
            if ((c < 32 && c != '\t') || c == 127) __builtin_trap();
        }
        if (b->n && (strchr(" \t", b->p[0]) || strchr(" \t", b->p[b->n - 1]))) __builtin_trap();
    }
}

/* The head is final before the body is read: later bytes, such as a trailer, add nothing to the request. */
static int on_head(void *ud, const http_request *r, const char **why)
{
    size_t *sum = ud;
    (void) why;
    *sum = r->target.n;
    for (int i = 0; i < HTTP_N_FIELDS; i++) *sum = *sum * 31 + r->field[i].n + !r->field[i].p;
    return 0;
}

static void look(struct seen *s, const http_request *r, size_t head)
{
    size_t now;
    if (r->body.n > BODY || r->path_len > r->target.n || !r->target.n || !*r->verb) __builtin_trap();
    look_at_bytes(r);
    on_head(&now, r, NULL);
    if (now != head) __builtin_trap();
    s->n++;
    s->sum = s->sum * 31 + r->body.n * 7 + r->target.n + (size_t) r->method + (size_t) r->keep_alive;
    for (int i = 0; i < HTTP_N_FIELDS; i++) {
        const buf *b = &r->field[i];
        if (b->n > HEADER || (b->p && strlen(b->p) > b->n)) __builtin_trap();
        s->sum = s->sum * 31 + b->n;
    }
}

static struct seen run(const char *p, size_t n, size_t step)
{
    static const http_limits limits = {HEADER, BODY};
    struct seen s = {0};
    http_in in;
    size_t head = 0;
    http_in_init(&in, &limits);
    in.on_head = on_head;
    in.ud = &head;
    for (size_t at = 0; at < n && !s.status;) {
        size_t used, len = n - at < step ? n - at : step;
        enum http_what what = http_feed(&in, p + at, len, &used);
        if (used > len || (what == HTTP_MORE && used < len)) __builtin_trap();
        at += used;
        if (what == HTTP_MORE) continue;
        if (what == HTTP_REFUSED) {
            s.status = in.status;
            if (in.status < 400 || in.status > 599 || !in.why || !*http_reason(in.status)) __builtin_trap();
        }
        http_request r;
        http_take(&in, &r);
        if (what == HTTP_COMPLETE) look(&s, &r, head);
        bool more = what == HTTP_COMPLETE && r.keep_alive;
        http_request_free(&r);
        if (!more) break;
    }
    http_in_free(&in);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const char *p = (const char *) data + 1;
    if (data[0] >= NAMES) return front_names(p, size - 1), 0;
    if (data[0] >= REPLIES) return front_reply(p, size - 1, data[0] - REPLIES + 1u, data[0] & 1), 0;
    struct seen whole = run(p, size - 1, size), cut = run(p, size - 1, 1 + data[0] % 97);
    if (whole.n != cut.n || whole.sum != cut.sum || !whole.status != !cut.status) __builtin_trap();
    return 0;
}
