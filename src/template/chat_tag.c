/* Tags: images within the text of messages, on their way to the places where a template shows them.
 *
 * A content part {"type": "image"} becomes a tag in the message's text, so that messages can be merged and converted
 * like any text. Flags next to the bytes (value.h, TRUST) make a tag an image, not its letters: text of a client can
 * spell a tag, and never has the flags. The flags also hold the image's number:
 *
 *     text    L o o k :   < _ _ m e d i a _ _ >   W h y ?
 *     flags   0 0 0 0 0 0 2 n n n n n n n n n n 0 0 0 0 0       n: 3 + one hexadecimal digit of the number
 *
 * Memory: strings of a zone. */
#include <string.h>

#include "template/chat_impl.h"

static const char tag[] = "<__media__>";
enum { TAG = PI__IMAGE_TAG, DIGITS = TAG - 1 };
_Static_assert(sizeof tag - 1 == TAG, "length of a tag");

bool pi__chat_image_tag(pi__zone *z, size_t number, pi__str *out)
{
    char flags[TAG] = {PI__TRUST_IMAGE};
    for (int i = 0; i < DIGITS; i++, number /= 16) flags[1 + i] = (char) (PI__TRUST_IMAGE_MORE + number % 16);
    *out = pi__zone_concat(z, (pi__str) {"", 0}, (pi__str) {tag, TAG});
    if (!out->p) return false;
    pi__zone_set_trust(z, out->p, TAG, flags);
    return true;
}

bool pi__chat_tag_number(const char *p, const char *flags, size_t *number)
{
    size_t n = 0;
    if (*flags != PI__TRUST_IMAGE || memcmp(p, tag, TAG) != 0) return false;
    for (int i = DIGITS; i > 0; i--) {
        const int digit = flags[i] - PI__TRUST_IMAGE_MORE;
        if (digit < 0 || digit > 15) return false;
        n = n * 16 + (size_t) digit;
    }
    *number = n;
    return true;
}

size_t pi__chat_next_tag(const pi__zone *z, pi__str s, size_t from)
{
    char flags[TAG];
    size_t number;
    while (s.n - from >= TAG) {
        const char *p = memmem(s.p + from, s.n - from, tag, TAG);
        if (!p) break;
        pi__zone_trust(z, p, TAG, flags);
        if (pi__chat_tag_number(p, flags, &number)) return (size_t) (p - s.p);
        from = (size_t) (p - s.p) + 1;
    }
    return SIZE_MAX;
}
