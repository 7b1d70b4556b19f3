/* Fuzzer of the server's HTTP reader: the first byte says how the rest is cut into reads. Whatever comes, it ends with
 * whole requests within their limits, or with a refusal that has a status and a text. How it was cut changes no request, nor
 * whether there is a refusal; of two reasons for one, which is seen first may depend on it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 2048, BODY = 4096 };

struct seen { /* of one run over the bytes */
    size_t n;         /* whole requests */
    size_t sum;       /* of their parts */
    int status;       /* of the refusal; 0: none */
};

static void look(struct seen *s, const http_request *r)
{
    if (r->body.n > BODY || r->path_len > r->target.n || !r->target.n) __builtin_trap();
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
    http_in_init(&in, &limits);
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
        if (what == HTTP_WHOLE) look(&s, &r);
        bool more = what == HTTP_WHOLE && r.keep_alive;
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
    struct seen whole = run(p, size - 1, size), cut = run(p, size - 1, 1 + data[0] % 97);
    if (whole.n != cut.n || whole.sum != cut.sum || !whole.status != !cut.status) __builtin_trap();
    return 0;
}
