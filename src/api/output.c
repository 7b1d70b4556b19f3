/* Text of an answer as it grows (see output.h).
 *
 * Invariant between calls: buf[shown .. n) is text that is held back, at most as long as the longest stop string, and
 * buf always has room for what pi__output_finish adds, so that the end of an answer needs no memory. */
#include "api/output.h"

#include <string.h>

#include "base/alloc.h"

enum { FLUSH_ROOM = 16 }; /* bytes that pi__utf8_flush may write, and some */

/* The Knuth-Morris-Pratt table: where matching goes on when the byte after text[0..i] differs. */
static void fill_fallback(pi__stop *s)
{
    int32_t k = 0;
    s->fallback[0] = 0;
    for (int32_t i = 1; i < s->len; i++) {
        while (k && s->text[i] != s->text[k]) k = s->fallback[k - 1];
        k += s->text[i] == s->text[k];
        s->fallback[i] = k;
    }
}

int pi__output_init(pi__output *o, char *const *stop, size_t n)
{
    memset(o, 0, sizeof *o);
    if (!pi__grow(&o->buf, &o->cap, 256, 1)) return PI_ENOMEM;
    if (n && !(o->stop = pi__calloc(n, sizeof *o->stop))) goto nomem;
    for (size_t i = 0; i < n; i++) {
        pi__stop *s = &o->stop[o->n_stop];
        s->text = stop[i];
        s->len = (int32_t) strlen(stop[i]);
        if (!s->len) continue;
        o->n_stop++;
        s->fallback = pi__calloc((size_t) s->len, sizeof *s->fallback);
        if (!s->fallback) goto nomem;
        fill_fallback(s);
    }
    return PI_OK;
nomem:
    pi__output_free(o);
    return PI_ENOMEM;
}

void pi__output_free(pi__output *o)
{
    for (size_t i = 0; i < o->n_stop; i++) pi__free(o->stop[i].fallback);
    pi__free(o->stop);
    pi__free(o->buf);
    memset(o, 0, sizeof *o);
}

/* Takes one byte of the stream into every matcher. The longest stop string that it completes, or NULL. */
static const pi__stop *step(pi__output *o, char c)
{
    const pi__stop *found = NULL;
    for (size_t i = 0; i < o->n_stop; i++) {
        pi__stop *s = &o->stop[i];
        int32_t k = s->matched;
        while (k && s->text[k] != c) k = s->fallback[k - 1];
        k += s->text[k] == c;
        if (k == s->len) {
            if (!found || s->len > found->len) found = s;
            k = s->fallback[k - 1];
        }
        s->matched = k;
    }
    return found;
}

/* Matches buf[from .. n) and sets shown. */
static void scan(pi__output *o, size_t from)
{
    for (size_t i = from; i < o->n && o->n_stop; i++) {
        const pi__stop *s = step(o, o->buf[i]);
        if (!s) continue;
        o->hit = s->text;
        o->n = o->shown = i + 1 - (size_t) s->len;
        return;
    }
    size_t held = 0;
    for (size_t i = 0; i < o->n_stop; i++) {
        if ((size_t) o->stop[i].matched > held) held = (size_t) o->stop[i].matched;
    }
    o->shown = o->n - held;
}

/* Drops what the last call released. */
static void compact(pi__output *o)
{
    if (o->shown && o->shown < o->n) memmove(o->buf, o->buf + o->shown, o->n - o->shown);
    o->n -= o->shown;
    o->shown = 0;
}

int pi__output_feed(pi__output *o, const char *bytes, size_t n_bytes, const char **text, size_t *n)
{
    *text = "";
    *n = 0;
    if (o->hit) return PI_OK;
    size_t need;
    if (!pi__mul_ok(n_bytes + 4, 3, &need) || !pi__add_ok(need, o->n + FLUSH_ROOM, &need)) return PI_ENOMEM;
    if (!pi__grow(&o->buf, &o->cap, need, 1)) return PI_ENOMEM;
    compact(o);
    size_t from = o->n;
    o->n += pi__utf8_feed(&o->hold, bytes, n_bytes, o->buf + o->n);
    scan(o, from);
    *text = o->buf;
    *n = o->shown;
    return PI_OK;
}

char *pi__output_finish(pi__output *o, size_t *n)
{
    compact(o);
    if (!o->hit) {
        size_t from = o->n;
        o->n += pi__utf8_flush(&o->hold, o->buf + o->n);
        scan(o, from);
        if (!o->hit) o->shown = o->n;
    }
    char *text = o->buf;
    *n = o->shown;
    if (text) text[*n] = 0;
    o->buf = NULL;
    o->n = o->cap = o->shown = 0;
    return text;
}
