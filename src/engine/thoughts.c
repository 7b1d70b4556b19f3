/* Limits of thinking tokens (see thoughts.h).
 *
 * A tag that is a single token of the vocabulary is matched by its id, anywhere. Other tags are searched in the bytes
 * of the answer. An opening tag in text counts only before all other text, so an answer that mentions tags does not
 * start thinking.
 *
 *     answer   <think> I  wonder  if  |  Enough. </think>  The answer is
 *     counted           1   2      3  |  forced            free again */
#include "engine/thoughts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_form.h"

enum { LONGEST_TAG = 32, MAX_TOKEN = 256 };
enum { BEFORE, THOUGHT, ANSWER };

typedef struct pair {
    int32_t open, close; /* ids of the tags; -1 = not a single token, match the text */
    pi__ids forced;      /* message and closing tag */
} pair;

struct pi__thoughts {
    const pi__vocab *v;
    int32_t budget;         /* max thinking tokens */
    pair pair[PI__N_THOUGHT_TAGS];
    int state;              /* BEFORE, THOUGHT, ANSWER */
    int which;              /* THOUGHT: pair of the opening tag */
    int32_t n_thought;      /* THOUGHT: tokens since the opening tag */
    size_t n_forced;        /* tokens forced so far */
    bool forcing;           /* the next token is forced */
    char tail[LONGEST_TAG]; /* last bytes of prompt or answer */
    size_t n_tail;          /* bytes in tail */
};

/* Tokenizes text, which may contain a special token. *id: the token if text is a single one, else -1. */
static int one_token(const pi__vocab *v, const char *text, int32_t *id)
{
    pi__ids ids = {0};
    int rc = pi__tokenize(v, text, strlen(text), false, true, &ids);
    *id = !rc && ids.n == 1 ? ids.p[0] : -1;
    pi__free(ids.p);
    return rc;
}

static int make_pair(pair *p, const pi__vocab *v, int i, const char *message)
{
    const size_t n_message = message ? strlen(message) : 0, n_close = strlen(pi__thought_tags_of[i].close);
    char *text = pi__malloc(n_message + n_close + 1);
    if (!text) return PI_ENOMEM;
    if (n_message) memcpy(text, message, n_message);
    memcpy(text + n_message, pi__thought_tags_of[i].close, n_close + 1);
    int rc = pi__tokenize(v, text, n_message + n_close, false, true, &p->forced);
    pi__free(text);
    if (!rc) rc = one_token(v, pi__thought_tags_of[i].open, &p->open);
    return rc ? rc : one_token(v, pi__thought_tags_of[i].close, &p->close);
}

void pi__thoughts_free(pi__thoughts *t)
{
    if (!t) return;
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++) pi__free(t->pair[i].forced.p);
    pi__free(t);
}

static bool is_white(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Appends the token's bytes to the tail and keeps its last bytes. */
static void add_bytes(pi__thoughts *t, int32_t id)
{
    char bytes[LONGEST_TAG + MAX_TOKEN];
    size_t n = pi__token_bytes(t->v, id, true, bytes + t->n_tail, MAX_TOKEN);
    memcpy(bytes, t->tail, t->n_tail);
    n = t->n_tail + (n < MAX_TOKEN ? n : MAX_TOKEN);
    t->n_tail = n < LONGEST_TAG ? n : LONGEST_TAG;
    memcpy(t->tail, bytes + n - t->n_tail, t->n_tail);
}

/* True if the last bytes of the text (`tail`) contain tag. */
static bool tail_has_tag(const pi__thoughts *t, const char *tag)
{
    const size_t len = strlen(tag);
    for (size_t i = t->n_tail; i >= len; i--)
        if (!memcmp(t->tail + i - len, tag, len)) return true;
    return false;
}

static void enter_state(pi__thoughts *t, int state, int which)
{
    t->state = state;
    t->which = which;
    t->n_thought = 0;
    t->n_tail = 0; /* bytes of the tag are not matched again */
}

/* True if an opening tag ends with this token, and enters THOUGHT. text: also match tags in the text. */
static bool opens_thought(pi__thoughts *t, int32_t id, bool text)
{
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++) {
        if (t->pair[i].open >= 0 ? t->pair[i].open != id : !text || !tail_has_tag(t, pi__thought_tags_of[i].open))
            continue;
        enter_state(t, THOUGHT, i);
        return true;
    }
    return false;
}

static bool closes_thought(const pi__thoughts *t, int32_t id)
{
    const pair *p = &t->pair[t->which];
    return p->close >= 0 ? p->close == id : tail_has_tag(t, pi__thought_tags_of[t->which].close);
}

/* True if the tail does not end within a UTF-8 character. */
static bool whole_characters(const pi__thoughts *t)
{
    for (size_t back = 1; back <= 3 && back <= t->n_tail; back++) {
        const unsigned char c = (unsigned char) t->tail[t->n_tail - back];
        if (c < 0x80) return true;
        if (c >= 0xC0) return back >= (c >= 0xF0 ? 4u : c >= 0xE0 ? 3u : 2u);
    }
    return true;
}

/* True if the text so far may still become an opening tag. */
static bool is_blank_or_begun(const pi__thoughts *t)
{
    size_t at = 0;
    while (at < t->n_tail && is_white(t->tail[at])) at++;
    const size_t n = t->n_tail - at;
    if (!n) return true;
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++)
        if (n < strlen(pi__thought_tags_of[i].open) && !memcmp(pi__thought_tags_of[i].open, t->tail + at, n))
            return true;
    return false;
}

/* Starts forcing the closing tag if the limit is reached, but not within a UTF-8 character. */
static void look_at_budget(pi__thoughts *t)
{
    t->forcing = t->state == THOUGHT && t->n_thought >= t->budget && whole_characters(t);
    t->n_forced = 0;
}

static bool is_blank(const pi__thoughts *t)
{
    for (size_t i = 0; i < t->n_tail; i++)
        if (!is_white(t->tail[i])) return false;
    return true;
}

/* Reads the prompt. It may end while thinking: after an unclosed tag; for tags in text, only directly after the
 * opening tag. */
static void read_prompt(pi__thoughts *t, const int32_t *prompt, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        add_bytes(t, prompt[i]);
        if (t->state == THOUGHT && (closes_thought(t, prompt[i]) || (t->pair[t->which].open < 0 && !is_blank(t))))
            enter_state(t, BEFORE, 0);
        if (t->state == BEFORE) opens_thought(t, prompt[i], true);
    }
    t->n_tail = 0;
    look_at_budget(t);
}

void pi__thoughts_accept(pi__thoughts *t, int32_t id)
{
    if (t->forcing) {
        if (++t->n_forced < t->pair[t->which].forced.n) return;
        t->forcing = false;
        enter_state(t, ANSWER, 0);
        return;
    }
    add_bytes(t, id);
    if (t->state == THOUGHT) {
        t->n_thought++;
        if (closes_thought(t, id)) enter_state(t, ANSWER, 0);
    } else if (!opens_thought(t, id, t->state == BEFORE) && !is_blank_or_begun(t)) {
        t->state = ANSWER;
    }
    look_at_budget(t);
}

int32_t pi__thoughts_forced(const pi__thoughts *t)
{
    return t && t->forcing ? t->pair[t->which].forced.p[t->n_forced] : -1;
}

int pi__thoughts_new(pi__thoughts **out, const pi__vocab *v, int32_t budget, const char *message, const int32_t *prompt,
                     size_t n_prompt, pi_error *err)
{
    *out = NULL;
    pi__thoughts *t = pi__calloc(1, sizeof *t);
    int rc = t ? PI_OK : PI_ENOMEM;
    if (t) *t = (pi__thoughts) {.v = v, .budget = budget};
    for (int i = 0; i < PI__N_THOUGHT_TAGS && !rc; i++) rc = make_pair(&t->pair[i], v, i, message);
    if (!rc) {
        read_prompt(t, prompt, n_prompt);
        *out = t;
        return PI_OK;
    }
    pi__thoughts_free(t);
    return rc == PI_ENOMEM ? pi__fail_mem(err, "the budget of thoughts")
                           : pi__fail(err, rc, "reasoning-budget-message: %s", pi_strerror(rc));
}
