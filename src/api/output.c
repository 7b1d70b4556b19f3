/* The text of an answer as it grows (see output.h).
 *
 * Invariant between calls: buf[shown .. n) is held back, at most the length of the longest stop string. buf always
 * has capacity for the bytes of pi__output_finish, so that the end of an answer needs no memory. */
#include "api/output.h"

#include <string.h>

#include "base/alloc.h"

enum { FLUSH_ROOM = 16 }; /* bytes that pi__utf8_flush may write, plus a reserve */

/* -------------------------------------------------------------------------------------------------- stop strings */

static int32_t child_of(const pi__stops *a, int32_t node, uint8_t byte)
{
    int32_t k = a->node[node].child;
    while (k >= 0 && a->node[k].byte != byte) k = a->node[k].sibling;
    return k;
}

static void add_text(pi__stops *a, const char *text, int32_t index)
{
    int32_t at = 0;
    for (const char *p = text; *p; p++) {
        int32_t next = child_of(a, at, (uint8_t) *p);
        if (next < 0) {
            next = a->n_node++;
            a->node[next] = (pi__stop_node) {.child = -1, .sibling = a->node[at].child, .hit = -1,
                                             .depth = a->node[at].depth + 1, .byte = (uint8_t) *p};
            a->node[at].child = next;
        }
        at = next;
    }
    if (a->node[at].hit < 0) a->node[at].hit = index;
}

/* Returns the automaton's next node for a byte. */
static int32_t next_node(const pi__stops *a, int32_t node, uint8_t byte)
{
    int32_t k;
    while ((k = child_of(a, node, byte)) < 0 && node) node = a->node[node].link;
    return k < 0 ? 0 : k;
}

/* Sets the links in order of depth: links of shallower nodes are ready. queue has capacity for all nodes. */
static void link_nodes(pi__stops *a, int32_t *queue)
{
    int32_t n = 0;
    queue[n++] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t from = queue[i];
        for (int32_t k = a->node[from].child; k >= 0; k = a->node[k].sibling) {
            pi__stop_node *c = &a->node[k];
            c->link = from ? next_node(a, a->node[from].link, c->byte) : 0;
            if (c->hit < 0) c->hit = a->node[c->link].hit; /* hit >= 0: the node's text is itself a stop string */
            queue[n++] = k;
        }
    }
}

int pi__stops_make(pi__stops *a, char *const *text, size_t n)
{
    size_t bytes = 0;
    *a = (pi__stops) {.text = text};
    for (size_t i = 0; i < n; i++) bytes += strlen(text[i]);
    if (!bytes) return PI_OK;
    if (bytes >= INT32_MAX) return PI_ENOMEM;
    int32_t *queue = pi__calloc(bytes + 1, sizeof *queue);
    a->node = pi__calloc(bytes + 1, sizeof *a->node);
    if (!queue || !a->node) {
        pi__free(queue);
        pi__stops_free(a);
        return PI_ENOMEM;
    }
    a->node[a->n_node++] = (pi__stop_node) {.child = -1, .sibling = -1, .hit = -1};
    for (size_t i = 0; i < n; i++)
        if (*text[i]) add_text(a, text[i], (int32_t) i);
    link_nodes(a, queue);
    pi__free(queue);
    return PI_OK;
}

void pi__stops_free(pi__stops *a)
{
    pi__free(a->node);
    *a = (pi__stops) {0};
}

/* --------------------------------------------------------------------------------------------------------- output */

int pi__output_init(pi__output *o, const pi__stops *stops)
{
    memset(o, 0, sizeof *o);
    if (stops && stops->node) o->stops = stops;
    return pi__grow(&o->buf, &o->cap, 256, 1) ? PI_OK : PI_ENOMEM;
}

void pi__output_free(pi__output *o)
{
    pi__free(o->buf);
    memset(o, 0, sizeof *o);
}

/* Matches buf[from .. n) and sets shown. If a byte completes several stop strings, the longest one ends the text. */
static void scan_stops(pi__output *o, size_t from)
{
    const pi__stops *a = o->stops;
    for (size_t i = from; a && i < o->n; i++) {
        o->at = next_node(a, o->at, (uint8_t) o->buf[i]);
        const int32_t hit = a->node[o->at].hit;
        if (hit < 0) continue;
        o->hit = a->text[hit];
        o->n = o->shown = i + 1 - strlen(o->hit);
        return;
    }
    o->shown = o->n - (a ? (size_t) a->node[o->at].depth : 0);
}

/* Removes the text that the last call released. */
static void compact_output(pi__output *o)
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
    compact_output(o);
    size_t from = o->n;
    o->n += pi__utf8_feed(&o->hold, bytes, n_bytes, o->buf + o->n);
    scan_stops(o, from);
    *text = o->buf;
    *n = o->shown;
    return PI_OK;
}

char *pi__output_finish(pi__output *o, size_t *n)
{
    compact_output(o);
    if (!o->hit) {
        size_t from = o->n;
        o->n += pi__utf8_flush(&o->hold, o->buf + o->n);
        scan_stops(o, from);
        if (!o->hit) o->shown = o->n;
    }
    char *text = o->buf;
    *n = o->shown;
    if (text) text[*n] = 0;
    o->buf = NULL;
    o->n = o->cap = o->shown = 0;
    return text;
}
