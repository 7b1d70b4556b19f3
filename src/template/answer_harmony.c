/* Answers in messages (gpt-oss's harmony). The header makes a message reasoning, content or a call:
 *
 *     <|channel|>analysis<|message|> THOUGHTS <|end|>
 *     <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|> {ARGUMENTS} <|call|>
 *     <|start|>assistant<|channel|>final<|message|> CONTENT <|return|>
 *
 * The prompt ends after <|start|>assistant; "to=" may also precede the channel. A call of an unknown function, or with
 * arguments that are not a JSON object, becomes content including its header and end. Tokens that end an answer print
 * nothing, so the end of the text replaces the last one. */
#include "template/answer_impl.h"

#include <string.h>

enum { HEAD = PI__STEP_FORM, BODY, ARGS, ARGS_TEXT };
enum { HEADER_MAX = 512 }; /* maximum bytes before <|message|> */

static const char message[] = "<|message|>";
/* Tags between bodies; the first N_ENDS end a message, the others begin a header. */
static const char *const frames[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>", "to="};
enum { N_ENDS = 3, N_MARKS = 5, N_FRAMES = 6 };

/* Starts a message body. kept: its end tag is part of the content. */
static void begin_body(pi__answer *a, bool thought, bool kept)
{
    a->step = BODY;
    a->dropped = false;
    a->in_thought = a->trim = thought;
    a->kept = kept;
    a->seek = a->at;
}

/* Returns the word after a mark in the header, up to white space or a tag. */
static pi__str word_behind(pi__str h, const char *mark)
{
    const char *p = memmem(h.p, h.n, mark, strlen(mark));
    if (!p) return (pi__str) {NULL, 0};
    p += strlen(mark);
    size_t n = 0, left = h.n - (size_t) (p - h.p);
    while (n < left && !pi__answer_white(p[n]) && p[n] != '<') n++;
    return (pi__str) {p, n};
}

/* Takes header h at a->at and starts its message. */
static int take_header(pi__answer *a, pi__str h)
{
    static const char functions[] = "functions.";
    const size_t n = h.n + sizeof message - 1, n_functions = sizeof functions - 1;
    pi__str to = word_behind(h, "to="), channel = word_behind(h, "<|channel|>");
    const bool of_functions = to.n > n_functions && !memcmp(to.p, functions, n_functions);
    if (of_functions && a->form &&
        pi__answer_begin_call(a, (pi__str) {to.p + n_functions, to.n - n_functions}, (pi__str) {NULL, 0})) {
        pi__answer_enter_call(a, ARGS, n);
        return PI__GO;
    }
    const bool analysis = pi__str_is(channel, "analysis");
    const bool kept = (to.p && of_functions) || (analysis && a->tags < 0);
    if (kept) pi__answer_put(a, false, n);
    else a->at += n;
    begin_body(a, analysis && !kept, kept);
    a->dropped = to.p && !of_functions; /* a message to a built-in tool, which is not available, is dropped */
    return a->code ? PI__WAIT : PI__GO;
}

/* Between messages: takes end tags, a header, or text without one. */
static int head(pi__answer *a)
{
    const size_t start = a->at;
    size_t n;
    pi__answer_skip_white(a);
    const size_t from = a->at;
    const int i = from < a->n ? pi__answer_pick(a, frames, N_FRAMES) : -1;
    if (i >= 0 && i < N_ENDS) return PI__GO;
    a->at = from;
    const int go = i < 0 ? PI__FAIL : pi__answer_until(a, message, HEADER_MAX, &n);
    if (go == PI__GO) return take_header(a, (pi__str) {a->buf + from, n});
    a->at = start;
    if (i == -1 || go == PI__WAIT) return PI__WAIT;
    begin_body(a, false, true);
    if (i >= 0) pi__answer_put(a, false, from - start + strlen(frames[i])); /* begins like a header, but is not one */
    return PI__GO;
}

/* Checks a frame tag found in a body: 1 = a frame, 0 = unknown yet, -1 = text. An end tag must be followed by another
 * frame or the answer's end. A start tag must lead to <|message|> without an end tag in between. */
static int is_frame(const pi__answer *a, int hit)
{
    size_t i = a->at;
    int found = -1;
    while (pi__answer_white(a->buf[i])) i++;
    i += strlen(frames[hit]);
    if (hit < N_ENDS) {
        while (i < a->n && pi__answer_white(a->buf[i])) i++;
        if (i == a->n) return a->last;
        for (int k = 0; k < N_MARKS; k++) {
            const int m = pi__answer_matches(a, i, frames[k]);
            if (m > found) found = m;
        }
        return found;
    }
    for (const size_t from = i; i < a->n && i - from < HEADER_MAX; i++) {
        if (a->buf[i] != '<') continue;
        if (pi__answer_matches(a, i, message) > 0) return 1;
        for (int k = 0; k < N_ENDS; k++)
            if (pi__answer_matches(a, i, frames[k]) > 0) return -1;
    }
    return i < a->n ? -1 : a->last;
}

static int body(pi__answer *a)
{
    int hit;
    pi__answer_scan_text(a, a->in_thought, frames, N_MARKS, &hit);
    if (hit < 0) return PI__WAIT;
    const int frame = is_frame(a, hit);
    if (!frame) return PI__WAIT;
    if (frame < 0) {
        const size_t start = a->at;
        pi__answer_skip_white(a);
        const size_t n = a->at - start + strlen(frames[hit]);
        a->at = start;
        pi__answer_put(a, a->in_thought, n);
        return PI__GO;
    }
    a->step = HEAD;
    a->in_thought = false;
    a->dropped = false;
    if (!a->kept || hit >= N_ENDS) return PI__GO;
    const size_t from = a->at;
    pi__answer_skip_white(a);
    const size_t n = a->at - from + strlen(frames[hit]);
    a->at = from;
    pi__answer_put(a, false, n);
    return PI__GO;
}

int pi__answer_harmony(pi__answer *a)
{
    switch (a->step) {
    case BODY: return body(a);
    case ARGS:
        pi__answer_skip_white(a);
        if (a->at == a->n) return PI__WAIT;
        if (a->buf[a->at] != '{') return PI__FAIL;
        pi__answer_scan_start(a, ARGS_TEXT);
        return PI__GO;
    case ARGS_TEXT: {
        const int go = pi__answer_scan(a, true, HEAD);
        if (go != PI__GO) return go;
        return pi__answer_end_call(a) ? PI__LEAVE : PI__FAIL;
    }
    default: return head(a);
    }
}

size_t pi__answer_harmony_begun(const pi__answer *a)
{
    if (a->step != BODY) return a->at;
    for (size_t at = a->at; at < a->n; at++)
        for (int i = 0; i < N_MARKS; i++) {
            const size_t left = a->n - at;
            if (!memcmp(a->buf + at, frames[i], left < strlen(frames[i]) ? left : strlen(frames[i]))) return at;
        }
    return a->n;
}

void pi__answer_harmony_body(pi__answer *a) { begin_body(a, false, false); }

void pi__answer_harmony_start(pi__answer *a, bool text)
{
    a->step = HEAD;
    a->trim = false;
    if (text) begin_body(a, false, true);
}
