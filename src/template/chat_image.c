/* Images in conversations: typed parts for the template, and the images in its output (see chat_tag.c).
 *
 * Before rendering, tags of roles for which the template writes images itself become typed parts. The template then
 * writes its PLACEHOLDER ("<|vision_start|><|image_pad|><|vision_end|>"), which is found in the output where all of its
 * bytes are the template's own. Other tags stay in the text. Afterwards both are images: their bytes get the flags of
 * pi__trust. Memory: the rendering's zone and text. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"

enum { MAX_BETWEEN = 256 /* bytes between two marks of a probe */ };

/* ----------------------------------------------------------------------------------------------------- typed parts */

static bool add_part(pi__zone *z, pi__list *l, const char *type, const pi__str *text)
{
    pi__val part;
    return pi__val_new_map(z, &part) && pi__dict_set_str(z, part.map, "type", pi__val_str(pi__str_of(type))) &&
           (!text || pi__dict_set_str(z, part.map, "text", pi__val_str(*text))) && pi__list_add(z, l, part);
}

/* Splits text at its tags into parts of types text and image. */
static bool split(pi__zone *z, pi__str s, pi__val *out)
{
    bool ok = pi__val_new_list(z, 4, out);
    for (size_t at = 0; ok && at < s.n;) {
        const size_t next = pi__chat_next_tag(z, s, at), end = next == SIZE_MAX ? s.n : next;
        const pi__str text = {s.p + at, end - at};
        if (text.n) ok = add_part(z, out->list, "text", &text);
        if (ok && next != SIZE_MAX) ok = add_part(z, out->list, "image", NULL);
        at = next == SIZE_MAX ? s.n : end + PI__IMAGE_TAG;
    }
    return ok;
}

/* Copies m with its tags as typed parts, if the template writes images of this role. */
static bool message_parts(const pi__chat *c, pi__zone *z, const pi__val *m, pi__val *out)
{
    const pi__val *text = pi__chat_content_text(m);
    const bool typed = pi__chat_has_role(m, "user") ? c->user_images
                       : pi__chat_has_role(m, "tool") ? c->tool_images : false;
    pi__val parts;
    *out = *m;
    if (!typed || !text || pi__chat_next_tag(z, text->s, 0) == SIZE_MAX) return true;
    bool ok = split(z, text->s, &parts) && pi__val_new_map(z, out);
    for (size_t i = 0; ok && i < m->map->n; i++)
        ok = pi__dict_set(z, out->map, m->map->e[i].key, m->map->e[i].value);
    return ok && pi__dict_set_str(z, out->map, "content", parts);
}

/* Appends the numbers of the tags in a text. */
static bool add_numbers(pi__zone *z, pi__str s, pi__ids *order)
{
    char flags[PI__IMAGE_TAG];
    size_t number;
    for (size_t at = 0; (at = pi__chat_next_tag(z, s, at)) != SIZE_MAX; at += PI__IMAGE_TAG) {
        pi__zone_trust(z, s.p + at, PI__IMAGE_TAG, flags);
        if (!pi__chat_tag_number(s.p + at, flags, &number) || number > INT32_MAX) continue;
        if (!pi__grow(&order->p, &order->cap, order->n + 1, sizeof *order->p)) {
            z->code = PI_ENOMEM;
            return false;
        }
        order->p[order->n++] = (int32_t) number;
    }
    return true;
}

int pi__chat_image_parts(const pi__chat *c, pi__zone *z, const pi__val *messages, pi__val *out, pi__ids *order,
                         pi_error *err)
{
    const pi__list *l = messages->list;
    bool ok = pi__val_new_list(z, l->n, out);
    for (size_t i = 0; ok && i < l->n; i++) {
        pi__val m;
        const pi__val *text = pi__chat_content_text(&l->v[i]);
        ok = (!text || add_numbers(z, text->s, order)) && message_parts(c, z, &l->v[i], &m) &&
             pi__list_add(z, out->list, m);
    }
    return ok ? PI_OK : pi__zone_fail(z, err, "the messages");
}

/* ---------------------------------------------------------------------------------------------------- placeholders */

static bool is_token(const pi__chat *c, const char *p, size_t n)
{
    const int32_t id = pi__vocab_find(c->v, p, n);
    if (id < 0) return false;
    const int32_t attr = pi__vocab_attr(c->v, id);
    return attr == PI__TOK_CONTROL || (attr == PI__TOK_USER && c->markup[id / 8] >> (id % 8) & 1);
}

/* Narrows a text to the range from its first control token to its last one. False: it has none. */
static bool narrow(const pi__chat *c, pi__str *s)
{
    size_t from = s->n, to = 0;
    if (s->n > MAX_BETWEEN) return false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->p[i] != '<' && s->p[i] != '[') continue;
        for (size_t n = s->n - i; n > 1; n--) {
            if (!is_token(c, s->p + i, n)) continue;
            if (i < from) from = i;
            if (i + n > to) to = i + n;
            break;
        }
    }
    if (from >= to) return false;
    *s = (pi__str) {s->p + from, to - from};
    return true;
}

/* Finds mark number k in the text. */
static bool find_mark(const pi__text *t, int k, const char **begin, const char **end)
{
    char mark[32];
    const int n = snprintf(mark, sizeof mark, PI__MARK, (size_t) k);
    *begin = t->n ? memmem(t->p, t->n, mark, (size_t) n) : NULL;
    *end = *begin ? *begin + n : NULL;
    return *begin;
}

bool pi__chat_placeholder(const pi__chat *c, const pi__text *t, int first, pi__str *out)
{
    pi__str s[2];
    const char *begin, *end, *at;
    for (int i = 0; i < 2; i++) {
        if (!find_mark(t, first + i, &begin, &at) || !find_mark(t, first + i + 1, &end, &begin) || end < at)
            return false;
        s[i] = (pi__str) {at, (size_t) (end - at)};
        if (!narrow(c, &s[i])) return false;
    }
    *out = s[0];
    return pi__str_eq(s[0], s[1]);
}

/* --------------------------------------------------------------------------------------------------------- output */

/* Returns the length of the image at byte i of the text, 0 = none. *number: its number if it is a tag, else
 * SIZE_MAX. */
static size_t image_at(const pi__chat *c, const pi__text *t, const char *flags, size_t i, size_t *number)
{
    const size_t left = t->n - i, n = c->user_images ? c->placeholder.n : 0;
    *number = SIZE_MAX;
    if (left >= PI__IMAGE_TAG && pi__chat_tag_number(t->p + i, flags + i, number)) return PI__IMAGE_TAG;
    if (!n || left < n || memcmp(t->p + i, c->placeholder.p, n) != 0) return 0;
    for (size_t k = 0; k < n; k++)
        if (flags[i + k] != PI__TRUST_OWN) return 0;
    return n;
}

static void add_flagged(pi__text *t, const char *p, size_t n, const char *flags)
{
    const size_t at = t->n;
    pi__text_add(t, p, n);
    if (!t->code && n) memcpy(pi__text_trust(t) + at, flags, n);
}

/* Appends an image and the plain text that the model expects around it. */
static void add_image(const pi__chat *c, pi__text *t, const char *p, size_t n)
{
    pi__text_add(t, c->image_before.p, c->image_before.n);
    const size_t at = t->n;
    pi__text_add(t, p, n);
    if (t->code) return;
    memset(pi__text_trust(t) + at, PI__TRUST_IMAGE_MORE, n);
    pi__text_trust(t)[at] = PI__TRUST_IMAGE;
    pi__text_add(t, c->image_after.p, c->image_after.n);
}

static int mismatch(size_t n_images, size_t found, pi_error *err)
{
    if (found == n_images)
        return pi__fail(err, PI_EUNSUPPORTED, "the chat template changes the order of the messages' images: send all "
                        "images in user messages");
    return pi__fail(err, PI_EUNSUPPORTED, "the chat template shows %zu of the %zu images in the messages: move images "
                    "to the user messages, or give another template (chat-template-file)", found, n_images);
}

int pi__chat_find_images(const pi__chat *c, const pi__ids *order, pi__text *t, pi_error *err)
{
    pi__text out = {.keeps_trust = true, .limit = SIZE_MAX / 4, .work = t->work};
    const char *flags = pi__text_trust(t);
    size_t found = 0, plain = 0, number, n;
    bool ordered = true;
    if (!order->n) return PI_OK;
    for (size_t i = 0; i < t->n; i += n ? n : 1) {
        if (!(n = image_at(c, t, flags, i, &number))) continue;
        add_flagged(&out, t->p + plain, i - plain, flags + plain);
        add_image(c, &out, t->p + i, n);
        plain = i + n;
        ordered = ordered && found < order->n && (number == SIZE_MAX || number == (size_t) order->p[found]);
        found++;
    }
    add_flagged(&out, t->p + plain, t->n - plain, flags + plain);
    if (out.code || found != order->n || !ordered) {
        const int code = out.code;
        pi__free(out.p);
        return code ? pi__fail(err, code, "the conversation: %s", pi_strerror(code)) : mismatch(order->n, found, err);
    }
    pi__free(t->p);
    t->p = out.p;
    t->n = out.n;
    t->cap = out.cap;
    return PI_OK;
}
