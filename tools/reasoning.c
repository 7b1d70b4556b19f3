/* Thoughts and answers told apart (see reasoning.h). A byte at a time: what could still become a tag is held back. */
#include "reasoning.h"

#include <string.h>

enum { BEFORE, THOUGHT, ANSWER };

static const struct {
    const char *open, *close;
} pairs[] = {
    {"<think>", "</think>"}, {"<|channel>thought", "<channel|>"}, {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"}, {"<thinking>", "</thinking>"},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

void reasoning_start(reasoning *r, const char *prompt, size_t n)
{
    *r = (reasoning) {.state = BEFORE};
    while (n && is_white(prompt[n - 1])) n--;
    for (int i = 0; i < N_PAIRS; i++) {
        size_t len = strlen(pairs[i].open);
        if (n < len || memcmp(prompt + n - len, pairs[i].open, len) != 0) continue;
        r->state = THOUGHT;
        r->pair = i;
    }
}

struct out { /* text on its way to fn */
    reasoning *r;
    reasoning_fn fn;
    void *ud;
    char buf[256];
    size_t n; /* bytes in buf, all of the state that r is in */
};

static void flush(struct out *o)
{
    if (o->n) o->fn(o->ud, o->r->state == THOUGHT, o->buf, o->n);
    o->n = 0;
}

/* A byte of text; white space in front of it all is dropped. */
static void put(struct out *o, char c)
{
    if (!o->r->text && is_white(c)) return;
    o->r->text = true;
    if (o->n == sizeof o->buf) flush(o);
    o->buf[o->n++] = c;
}

static void enter(struct out *o, int state)
{
    flush(o);
    o->r->state = state;
    o->r->text = false;
}

/* Before anything: an opening tag, or the answer begins. */
static void before(struct out *o, char c)
{
    reasoning *r = o->r;
    if (!r->n_hold && is_white(c)) return;
    r->hold[r->n_hold++] = c;
    for (int i = 0; i < N_PAIRS; i++) {
        size_t len = strlen(pairs[i].open);
        if (r->n_hold > len || memcmp(pairs[i].open, r->hold, r->n_hold) != 0) continue;
        if (r->n_hold < len) return;
        r->pair = i;
        r->n_hold = 0;
        enter(o, THOUGHT);
        return;
    }
    enter(o, ANSWER);
    for (size_t i = 0; i < r->n_hold; i++) put(o, r->hold[i]);
    r->n_hold = 0;
}

/* In thoughts: the closing tag ends them. */
static void thought(struct out *o, char c)
{
    reasoning *r = o->r;
    const char *close = pairs[r->pair].close;
    r->hold[r->n_hold++] = c;
    while (r->n_hold && memcmp(close, r->hold, r->n_hold) != 0) {
        put(o, r->hold[0]);
        memmove(r->hold, r->hold + 1, --r->n_hold);
    }
    if (r->n_hold < strlen(close)) return;
    r->n_hold = 0;
    enter(o, ANSWER);
}

void reasoning_feed(reasoning *r, const char *text, size_t n, reasoning_fn fn, void *ud)
{
    struct out o = {.r = r, .fn = fn, .ud = ud};
    for (size_t i = 0; i < n; i++) {
        if (r->state == BEFORE) before(&o, text[i]);
        else if (r->state == THOUGHT) thought(&o, text[i]);
        else put(&o, text[i]);
    }
    flush(&o);
}

void reasoning_end(reasoning *r, reasoning_fn fn, void *ud)
{
    struct out o = {.r = r, .fn = fn, .ud = ud};
    if (r->state == BEFORE) enter(&o, ANSWER);
    for (size_t i = 0; i < r->n_hold; i++) put(&o, r->hold[i]);
    r->n_hold = 0;
    flush(&o);
}
