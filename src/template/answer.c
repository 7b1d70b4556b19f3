/* Splits answers (see answer.h) into reasoning, content and calls.
 *
 *     BEGIN    only white space so far: reasoning may begin
 *     THOUGHT  reasoning, up to the closing tag
 *     UNCLOSED a call inside reasoning: it counts only if the reasoning never ends, which is known at the answer's end
 *     TEXT     up to the possible start of a call
 *     CALL     the steps of its form; a failed call becomes text again
 *     MESSAGE  replaces the first three if an answer consists of messages (answer_harmony.c)
 *
 * White space is held back until something follows: before a tag it belongs to neither side. */
#include "template/answer_impl.h"

#include <string.h>

#include "base/error.h"
#include "base/versioned.h"

enum { BEGIN, THOUGHT, UNCLOSED, TEXT, CALL, MESSAGE };
enum { MAX_MARKERS = 12 };

/* ------------------------------------------------------------------------------------------------------------ text */

void pi__answer_record(pi__answer *a, int kind, uint32_t call, size_t from, size_t n)
{
    pi__answer_delta *last = a->n_delta > a->next_delta ? &a->delta[a->n_delta - 1] : NULL;
    if (last && n && last->kind == kind && last->call == call && last->from + last->n == from) {
        last->n += n;
        return;
    }
    if (!pi__grow(&a->delta, &a->cap_delta, a->n_delta + 1, sizeof *a->delta)) {
        a->code = PI_ENOMEM;
        return;
    }
    a->delta[a->n_delta++] = (pi__answer_delta) {kind, call, from, n};
}

void pi__answer_put(pi__answer *a, bool thought, size_t n)
{
    const char *p = a->buf + a->at;
    pi__text *t = thought ? &a->thoughts : &a->content;
    a->at += n;
    a->seek = a->at;
    if (a->dropped) return;
    while (a->trim && n && pi__answer_white(*p)) p++, n--;
    if (!n) return;
    a->trim = false;
    if (!thought) a->bare = false;
    pi__text_add(t, p, n);
    if (t->code) a->code = PI_ENOMEM;
    else pi__answer_record(a, thought ? PI_CHAT_REASONING : PI_CHAT_CONTENT, 0, t->n - n, n);
}

void pi__answer_skip_white(pi__answer *a)
{
    while (a->at < a->n && pi__answer_white(a->buf[a->at])) a->at++;
}

int pi__answer_matches(const pi__answer *a, size_t at, const char *s)
{
    static const char cut_char[] = "\xEF\xBF\xBD";
    const size_t len = strlen(s), n = a->n - at < len ? a->n - at : len;
    if (!memcmp(a->buf + at, s, n)) return n == len;
    /* The text may end with U+FFFD in place of a character that was cut off. */
    if (a->n - at < 3 || a->n - at - 3 >= len || memcmp(a->buf + a->n - 3, cut_char, 3) != 0) return -1;
    const size_t same = a->n - at - 3;
    return !memcmp(a->buf + at, s, same) && (unsigned char) s[same] >= 0xC0 ? 0 : -1;
}

int pi__answer_pick(pi__answer *a, const char *const *literal, int n)
{
    bool wait = false;
    for (int i = 0; i < n; i++) {
        int m = literal[i] ? pi__answer_matches(a, a->at, literal[i]) : -1;
        if (m > 0) {
            a->at += strlen(literal[i]);
            return i;
        }
        wait |= !m;
    }
    return wait ? -1 : -2;
}

int pi__answer_until(const pi__answer *a, const char *s, size_t max, size_t *n)
{
    size_t room = a->n - a->at, len = strlen(s), look = room < max + len ? room : max + len;
    const char *p = look ? memmem(a->buf + a->at, look, s, len) : NULL;
    *n = p ? (size_t) (p - a->buf) - a->at : 0;
    return p ? PI__GO : look == max + len ? PI__FAIL : PI__WAIT;
}

size_t pi__answer_find(pi__answer *a, const char *s)
{
    size_t len = strlen(s);
    if (a->seek < a->at) a->seek = a->at;
    const char *p = a->n > a->seek ? memmem(a->buf + a->seek, a->n - a->seek, s, len) : NULL;
    if (p) return (size_t) (p - a->buf);
    if (a->n >= len && a->n - len + 1 > a->seek) a->seek = a->n - len + 1;
    return SIZE_MAX;
}

/* ---------------------------------------------------------------------------------------------------------- markers */

/* True if spaces between content and this marker belong to the content. */
static bool begins_call(const pi__answer *a, const char *marker)
{
    return a->form && a->form->spaces && (marker == a->form->open || marker == a->form->call);
}

void pi__answer_scan_text(pi__answer *a, bool thought, const char *const *marker, int n, int *hit)
{
    size_t i = a->seek > a->at ? a->seek : a->at, plain = a->at;
    *hit = -1;
    while (i < a->n) {
        if (pi__answer_white(a->buf[i])) {
            i++;
            continue;
        }
        bool wait = false;
        for (int k = 0; k < n && *hit < 0; k++) {
            int m = pi__answer_matches(a, i, marker[k]);
            if (m > 0) *hit = k;
            wait |= !m;
        }
        if (*hit >= 0) {
            if (!thought && begins_call(a, marker[*hit]) && (plain > a->at || !a->bare) &&
                !memchr(a->buf + plain, '\n', i - plain))
                plain = i;
            break;
        }
        if (wait) {
            if (plain > a->at) pi__answer_put(a, thought, plain - a->at);
            return; /* a->seek stays: white space before it may be checked again, for at most a tag's length */
        }
        plain = ++i;
    }
    if (plain > a->at) pi__answer_put(a, thought, plain - a->at);
    if (a->seek < i) a->seek = i;
}

/* Lists the n markers that may occur in content: calls (*n_calls), then tags around content (*n_tags), then reasoning.
 * Returns n. */
static int markers(const pi__answer *a, const char *out[MAX_MARKERS], int *n_calls, int *n_tags)
{
    int n = 0;
    const bool calls = a->form && (!a->structured || !a->content.n);
    if (calls && a->form->open) out[n++] = a->form->open;
    if (calls && a->form->call) out[n++] = a->form->call;
    *n_calls = n;
    if (a->text && a->text->answer_close) {
        out[n++] = a->text->answer_open;
        out[n++] = a->text->answer_close;
        if (a->text->end) out[n++] = a->text->end;
    }
    *n_tags = n - *n_calls;
    for (int i = 0; i < PI__N_THOUGHT_TAGS && a->tags >= 0; i++)
        if (pi__thought_tags_of[i].anywhere) out[n++] = pi__thought_tags_of[i].open;
    return n;
}

/* ----------------------------------------------------------------------------------------------------------- states */

static void enter(pi__answer *a, int state, bool trim)
{
    a->state = state;
    a->trim = trim;
    a->seek = a->at;
}

static bool begin(pi__answer *a)
{
    const char *open[PI__N_THOUGHT_TAGS];
    size_t start = a->at;
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++) open[i] = pi__thought_tags_of[i].open;
    pi__answer_skip_white(a);
    int i = pi__answer_pick(a, open, PI__N_THOUGHT_TAGS);
    if (i < 0) a->at = start;
    if (i == -1) return false;
    if (i >= 0) a->tags = i;
    enter(a, i >= 0 ? THOUGHT : TEXT, i >= 0);
    return true;
}

/* Appends text to the thoughts, up to their closing tag or the opening tag of the content. Returns false if more input
 * is needed. */
static bool thought(pi__answer *a)
{
    const char *marker[3] = {pi__thought_tags_of[a->tags].close};
    int n = 1, hit;
    if (a->text && a->text->answer_close) marker[n++] = a->text->answer_open;
    const int n_ends = n;
    if (a->form && a->form->open && (a->form->kind == PI__FORM_TAGS || a->form->keyed)) marker[n++] = a->form->open;
    pi__answer_scan_text(a, true, marker, n, &hit);
    if (hit < 0) return false;
    if (hit == n_ends) {
        enter(a, UNCLOSED, a->trim);
        return true;
    }
    pi__answer_skip_white(a);
    a->at += strlen(marker[hit]);
    enter(a, TEXT, !a->content.n);
    return true;
}

/* Decides about a call inside reasoning. If the closing tag follows, all text up to it is reasoning. At the end of an
 * answer without the tag, reasoning ended before the call. Returns false if more input is needed. */
static bool unclosed(pi__answer *a)
{
    const size_t end = pi__answer_find(a, pi__thought_tags_of[a->tags].close);
    if (end != SIZE_MAX) {
        size_t n = end - a->at;
        while (n && pi__answer_white(a->buf[a->at + n - 1])) n--;
        pi__answer_put(a, true, n);
        a->state = THOUGHT;
        return true;
    }
    if (!a->last || a->cut) return false;
    a->unclosed = true;
    enter(a, TEXT, true);
    return true;
}

void pi__answer_enter_call(pi__answer *a, int step, size_t n_marker)
{
    a->raw = a->at;
    pi__answer_skip_white(a);
    a->at += n_marker;
    a->seek = a->at;
    a->state = CALL;
    a->step = step;
}

/* Starts a bare call if the content begins with '{' (or a Python list) and the form allows this: PI__GO, PI__WAIT or
 * PI__FAIL. */
static int bare(pi__answer *a)
{
    size_t i = a->at;
    if (!a->form || !a->bare || (!a->form->bare && a->form->kind != PI__FORM_LLAMA)) return PI__FAIL;
    while (i < a->n && pi__answer_white(a->buf[i])) i++;
    if (i == a->n) return PI__WAIT;
    if (a->buf[i] != '{' && (a->buf[i] != '[' || a->form->kind != PI__FORM_PYTHON)) return PI__FAIL;
    pi__answer_enter_call(a, PI__STEP_BARE, 0);
    return PI__GO;
}

static bool text(pi__answer *a)
{
    const char *marker[MAX_MARKERS];
    int n_calls, n_tags, hit, b = bare(a);
    if (b != PI__FAIL) return b == PI__GO;
    int n = markers(a, marker, &n_calls, &n_tags);
    if (!n) pi__answer_put(a, false, a->n - a->at);
    if (!n) return false;
    pi__answer_scan_text(a, false, marker, n, &hit);
    if (hit < 0) return false;
    if (hit < n_calls) {
        pi__answer_enter_call(a, marker[hit] == a->form->open ? PI__STEP_OPEN : PI__STEP_CALL, strlen(marker[hit]));
        return true;
    }
    pi__answer_skip_white(a);
    a->at += strlen(marker[hit]);
    if (hit < n_calls + n_tags) {
        enter(a, TEXT, !a->content.n);
        return true;
    }
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++)
        if (marker[hit] == pi__thought_tags_of[i].open) a->tags = i;
    enter(a, THOUGHT, a->thoughts.n == 0);
    return true;
}

/* Drops the open call, and makes its text, from a->raw to a->at, content or reasoning again. */
static void fail_call(pi__answer *a)
{
    size_t n = a->at - a->raw;
    pi__answer_drop_call(a);
    a->at = a->raw;
    a->state = a->harmony ? MESSAGE : a->unclosed ? THOUGHT : TEXT;
    a->trim = a->trim && !a->unclosed;
    pi__answer_put(a, a->unclosed, n);
    a->unclosed = false;
    if (a->harmony) pi__answer_harmony_start(a, true);
}

static bool call(pi__answer *a)
{
    static int (*const step[])(pi__answer *a) = {
        [PI__FORM_TAGS] = pi__answer_tags, [PI__FORM_GEMMA] = pi__answer_gemma, [PI__FORM_MISTRAL] = pi__answer_mistral,
        [PI__FORM_LLAMA] = pi__answer_llama, [PI__FORM_PYTHON] = pi__answer_python,
        [PI__FORM_HARMONY] = pi__answer_harmony,
    };
    int go = step[a->form->kind](a);
    if (go == PI__FAIL) fail_call(a);
    if (go == PI__LEAVE) enter(a, a->harmony ? MESSAGE : TEXT, a->trim);
    return go != PI__WAIT;
}

static void run(pi__answer *a)
{
    bool more = true;
    while (more && !a->code) {
        switch (a->state) {
        case BEGIN: more = begin(a); break;
        case THOUGHT: more = thought(a); break;
        case UNCLOSED: more = unclosed(a); break;
        case TEXT: more = text(a); break;
        case MESSAGE: more = pi__answer_harmony(a) != PI__WAIT; break;
        default: more = call(a);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------ input */

/* Outside of a call, removes the bytes before a->at from buf. Empties the list of deltas if all were read. */
static void compact(pi__answer *a)
{
    size_t done = a->state == CALL ? 0 : a->at;
    if (a->next_delta == a->n_delta) a->next_delta = a->n_delta = 0;
    if (!done) return;
    memmove(a->buf, a->buf + done, a->n - done);
    a->n -= done;
    a->at = 0;
    a->seek = a->seek > done ? a->seek - done : 0;
}

int pi__answer_feed(pi__answer *a, const char *text, size_t n)
{
    size_t room;
    if (a->code || a->ended) return a->code;
    compact(a);
    if (!pi__mul_ok(n + 4, 3, &room) || !pi__add_ok(room, a->n + 16, &room) ||
        !pi__grow(&a->buf, &a->cap, room, 1))
        return a->code = PI_ENOMEM;
    a->n += pi__utf8_feed(&a->hold, text, n, a->buf + a->n);
    run(a);
    return a->code;
}

int pi__answer_tokens(pi__answer *a, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n && !a->code; i++) {
        char small[256], *p = small;
        if (pi__vocab_is_eog(a->c->v, ids[i])) continue;
        size_t len = pi__token_bytes(a->c->v, ids[i], true, small, sizeof small);
        if (len > sizeof small) {
            if (!(p = pi__malloc(len))) return a->code = PI_ENOMEM;
            pi__token_bytes(a->c->v, ids[i], true, p, len);
        }
        pi__answer_feed(a, p, len);
        if (p != small) pi__free(p);
    }
    return a->code;
}

void pi__answer_bind(pi__answer *a)
{
    pi__call *c = a->open ? &a->call[a->n_call - 1] : NULL;
    a->bound = true;
    if (c) c->sure |= !c->told;
}

/* Returns the offset in buf of a tag that the buffer's end cuts off; a->n if there is none. If a call was required, all
 * remaining text counts as its start. */
static size_t begun_tag(const pi__answer *a)
{
    const char *tag[PI__N_THOUGHT_TAGS + MAX_MARKERS];
    int n = 0, n_calls, n_tags;
    const bool thinks = a->state == THOUGHT || a->state == UNCLOSED || a->in_thought;
    if (a->must_call && !thinks) return a->at;
    if (a->state == MESSAGE) return pi__answer_harmony_begun(a);
    if (thinks) tag[n++] = pi__thought_tags_of[a->tags].close;
    else n = markers(a, tag, &n_calls, &n_tags);
    for (int i = 0; i < PI__N_THOUGHT_TAGS && a->state == BEGIN; i++) tag[n++] = pi__thought_tags_of[i].open;
    for (size_t i = a->at; i < a->n; i++)
        for (int k = 0; k < n; k++)
            if (!pi__answer_matches(a, i, tag[k])) return i;
    return a->n;
}

int pi__answer_end(pi__answer *a, bool cut)
{
    if (a->code || a->ended) return a->code;
    compact(a);
    if (!pi__grow(&a->buf, &a->cap, a->n + 16, 1)) return a->code = PI_ENOMEM;
    /* the buffer's end may be inside a character */
    const bool in_tag = cut && (a->state == CALL || begun_tag(a) < a->n);
    if (!in_tag) a->n += pi__utf8_flush(&a->hold, a->buf + a->n);
    a->last = true;
    a->cut = cut;
    run(a);
    a->ended = true;
    if (a->code) return a->code;
    if (a->state == CALL && pi__answer_only_close(a) && pi__answer_end_call(a)) return a->code;
    if (a->state == CALL && cut) {
        pi__answer_drop_call(a);
        return a->code;
    }
    if (a->state == CALL) {
        a->at = a->open ? a->n : a->raw;
        fail_call(a);
    }
    if (cut) a->n = begun_tag(a);
    size_t white = a->at;
    while (white < a->n && pi__answer_white(a->buf[white])) white++;
    const bool thinks = a->state == THOUGHT || a->state == UNCLOSED || a->in_thought;
    if (white == a->n && a->n_done && !thinks) return a->code; /* between calls and the end */
    pi__answer_put(a, thinks, a->n - a->at);
    return a->code;
}

bool pi__answer_next(pi__answer *a, pi_chat_delta *out)
{
    if (a->next_delta == a->n_delta) return false;
    const pi__answer_delta *d = &a->delta[a->next_delta++];
    bool of_call = d->kind >= PI_CHAT_CALL;
    pi__call *c = of_call ? &a->call[d->call] : NULL;
    const pi__text *t = of_call ? &c->args : d->kind == PI_CHAT_REASONING ? &a->thoughts : &a->content;
    pi_chat_delta full = {.kind = d->kind, .index = d->call, .text = d->n ? t->p + d->from : "", .text_len = d->n,
                          .id = of_call ? c->id : "", .name = of_call ? c->name : "", .sure = of_call && c->sure};
    if (d->kind == PI_CHAT_CALL) c->told = true;
    return pi__versioned_copy(out, &full, sizeof full) == PI_OK;
}

pi__str pi__answer_content(const pi__answer *a) { return (pi__str) {a->content.p ? a->content.p : "", a->content.n}; }

pi__str pi__answer_reasoning(const pi__answer *a)
{
    return (pi__str) {a->thoughts.p ? a->thoughts.p : "", a->thoughts.n};
}

/* ------------------------------------------------------------------------------------------------------------- life */

/* Reads the tools and options, and sets form, text, must_call and structured from them. *goes_on: the answer continues
 * a message of the prompt. */
static int read_options(pi__answer *a, const char *options, bool *reasoning, bool *goes_on, pi_error *err)
{
    pi__val o, *v;
    pi__chat_choice choice;
    int rc = pi__chat_read_tools(&a->zone, a->json, options, &a->tools, &o, &choice, err);
    if (rc) return rc;
    v = pi__dict_get_str(o.map, "parse_reasoning");
    if (v && v->type != PI__V_BOOL) return pi__fail(err, PI_EINVAL, "parse_reasoning: must be true or false");
    *reasoning = !v || v->b;
    v = pi__dict_get_str(o.map, "continue_final_message");
    *goes_on = v && v->type == PI__V_BOOL && v->b;
    bool calls = a->tools.type == PI__V_LIST && choice.kind != PI__CHOICE_NONE;
    a->must_call = choice.kind == PI__CHOICE_REQUIRED;
    v = pi__dict_get_str(o.map, "answer_format");
    if (v && v->type != PI__V_BOOL) return pi__fail(err, PI_EINVAL, "answer_format: must be true or false");
    a->structured = v && v->b;
    a->form = a->text = a->c->form;
    a->harmony = a->form && a->form->kind == PI__FORM_HARMONY;
    if (!calls) a->form = NULL;
    return PI_OK;
}

/* Renders a small prompt. If reasoning is open at its end, the answer begins inside reasoning (state THOUGHT). */
static int look_at_prompt(pi__answer *a, const char *options, int64_t now)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"?\"}]";
    pi__text t = {0};
    pi_error err;
    int rc = pi__chat_render(a->c, messages, a->json, options, now, &t, &err);
    int tags = rc ? -1 : pi__thought_open_at_end(t.p ? t.p : "", t.n);
    pi__free(t.p);
    if (tags >= 0) {
        a->tags = tags;
        enter(a, THOUGHT, true);
    }
    return rc == PI_ENOMEM ? rc : PI_OK; /* a template that fails has nothing open */
}

int pi__answer_new(pi__answer **out, const pi__chat *c, const char *tools, const char *options, int64_t now,
                   pi_error *err)
{
    *out = NULL;
    pi__answer *a = pi__calloc(1, sizeof *a);
    bool reasoning = true, goes_on = false;
    if (!a) return pi__fail_mem(err, "the answer's parser");
    a->c = c;
    a->bare = true;
    a->content.limit = a->thoughts.limit = SIZE_MAX / 4;
    int rc = PI_OK;
    if (tools && *tools && !(a->json = pi__strdup(tools))) rc = pi__fail_mem(err, "the answer's parser");
    if (!rc) rc = read_options(a, options, &reasoning, &goes_on, err);
    if (!rc && !reasoning) a->tags = -1;
    if (!rc && a->harmony) {
        enter(a, MESSAGE, false);
        if (goes_on) pi__answer_harmony_body(a);
        else pi__answer_harmony_start(a, false);
    } else if (!rc && (!reasoning || goes_on)) {
        enter(a, TEXT, false);
    } else if (!rc && look_at_prompt(a, options, now)) {
        rc = pi__fail_mem(err, "the answer's parser");
    }
    if (rc) {
        pi__answer_free(a);
        return rc;
    }
    *out = a;
    return PI_OK;
}

void pi__answer_free(pi__answer *a)
{
    if (!a) return;
    for (size_t i = 0; i < a->n_call; i++) pi__free(a->call[i].args.p);
    pi__free(a->call);
    pi__free(a->delta);
    pi__free(a->content.p);
    pi__free(a->thoughts.p);
    pi__free(a->buf);
    pi__free(a->json);
    pi__zone_free(&a->zone);
    pi__free(a);
}
