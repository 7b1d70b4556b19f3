/* Values of chat templates and of JSON: none, bool, int, float, string, list, map, and the extra types of templates.
 *
 * All values of a rendering are in one ZONE, which has a limit and is freed in one step. Values are never freed one by
 * one, may reference each other in cycles, and copying one copies 24 bytes. Strings are immutable UTF-8, so values can
 * share bytes. Code that walks values counts the depth (PI__VAL_DEPTH), because a template can put a list into itself.
 * A zone and its values belong to one thread. Once writing has ended, any thread may read them. */
#ifndef PI__VALUE_H
#define PI__VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/work.h"
#include "gguf/gguf.h"

enum { PI__VAL_DEPTH = 128 }; /* nesting of lists and maps; deeper JSON is rejected */

/* ----------------------------------------------------------------------------------------------------------- zones */

typedef struct pi__zone_chunk pi__zone_chunk;
typedef struct pi__zone {
    pi__zone_chunk *chunk; /* the newest chunk */
    char *at, *end;        /* free bytes of the newest chunk: from at to end */
    size_t used;           /* bytes of all chunks */
    size_t limit;          /* maximum of `used` */
    /* budget for the zone's memory and for work done with it; set before the first take; NULL = unlimited */
    pi__work *work;
    int code;              /* first error: PI_ENOMEM, PI_ETOOBIG (the limit) or work's code; PI_OK = none */
    struct {
        char *end, *cap;   /* end of a string made by pi__zone_concat; end of the spare bytes after it */
    } tail[4];             /* last 4 strings with spare bytes: growing a string step by step takes linear memory */
    uint32_t n_tail;       /* strings recorded in tail so far; the next one replaces entry n_tail % 4 */
    bool keeps_trust;      /* records for each byte of a string whether it is trusted; set before the first take */
    const struct pi__zone *trusted; /* zone in which all strings are trusted (the template's own); NULL = none */
} pi__zone;

void pi__zone_init(pi__zone *z, size_t limit);
/* Calls pi__fail with z->code; `what` names the text or option. */
int pi__zone_fail(const pi__zone *z, pi_error *err, const char *what);
void pi__zone_free(pi__zone *z);
/* Returns n zeroed bytes of the zone, aligned for any type. NULL: z->code is set. */
void *pi__zone_take(pi__zone *z, size_t n);
/* Returns a followed by b; extends a in place if a is recorded in tail and b fits into its spare bytes, else copies
 * both. p NULL: z->code is set. */
pi__str pi__zone_concat(pi__zone *z, pi__str a, pi__str b);
/* TRUST. In a zone with keeps_trust, a copied byte is trusted if its source byte was: in this zone, or in the zone
 * `trusted`. All other memory (parsed JSON, the program's own literals) is untrusted, and so is text built from single
 * characters. So a byte is trusted only if it was copied unchanged from a trusted text. Flags above 1 mark images
 * (chat_tag.c); copies keep them too.
 * Writes 1 (trusted), 0 or an image's flag for each of the n bytes at p, which must be in one string. */
void pi__zone_trust(const pi__zone *z, const char *p, size_t n, char *out);
/* Sets the trust flags of the n bytes at p, in a string of z. z must keep trust. */
void pi__zone_set_trust(pi__zone *z, const char *p, size_t n, const char *flags);
/* Returns a copy of s with all bytes trusted. p NULL: z->code is set. */
pi__str pi__zone_trusted_copy(pi__zone *z, pi__str s);

/* ---------------------------------------------------------------------------------------------------------- values */

enum pi__val_type {
    PI__V_UNDEFINED, /* a missing name or member; s: its name */
    PI__V_NONE, PI__V_BOOL, PI__V_INT, PI__V_FLOAT, PI__V_STR, PI__V_LIST, PI__V_MAP,
    PI__V_NAMESPACE, /* namespace(): a map with assignable members */
    PI__V_LOOP, PI__V_MACRO, PI__V_FUNC, PI__V_METHOD, /* jinja_impl.h */
};

typedef struct pi__val pi__val;
typedef struct pi__list pi__list;
typedef struct pi__dict pi__dict;

struct pi__val {
    uint8_t type; /* enum pi__val_type */
    uint32_t n_text; /* FLOAT: bytes of `text`; 0 = the number has no text */
    union {
        bool b;
        int64_t i; /* INT; FUNC: number of the function */
        struct {
            double f;
            const char *text; /* the digits in the JSON source; valid if n_text > 0 */
        };
        pi__str s;
        pi__list *list;
        pi__dict *map;
        void *obj; /* LOOP, MACRO, METHOD */
    };
};

struct pi__list {
    pi__val *v;    /* [n] */
    size_t n, cap;
    bool tuple;    /* prints as a tuple */
};

typedef struct pi__entry {
    pi__val key; /* STR, INT, BOOL, FLOAT or NONE */
    pi__val value;
} pi__entry;

struct pi__dict { /* in insertion order */
    pi__entry *e;    /* [n] */
    size_t n, cap;
    uint32_t *slot;  /* hash table: [n_slot] 1 + index of an entry, 0 = free. NULL: few entries, linear search */
    size_t n_slot;   /* a power of two, or 0 */
};

static inline pi__val pi__val_none(void) { return (pi__val) {.type = PI__V_NONE}; }
static inline pi__val pi__val_bool(bool b) { return (pi__val) {.type = PI__V_BOOL, .b = b}; }
static inline pi__val pi__val_int(int64_t i) { return (pi__val) {.type = PI__V_INT, .i = i}; }
static inline pi__val pi__val_float(double f) { return (pi__val) {.type = PI__V_FLOAT, .f = f}; }
static inline pi__val pi__val_str(pi__str s) { return (pi__val) {.type = PI__V_STR, .s = s}; }
static inline pi__val pi__val_undefined(pi__str name) { return (pi__val) {.type = PI__V_UNDEFINED, .s = name}; }
static inline pi__str pi__str_of(const char *text) { return (pi__str) {text, __builtin_strlen(text)}; }
static inline bool pi__str_eq(pi__str a, pi__str b) { return a.n == b.n && (!a.n || !__builtin_memcmp(a.p, b.p, a.n)); }
static inline bool pi__str_is(pi__str a, const char *text) { return pi__str_eq(a, pi__str_of(text)); }

/* Create an empty list with capacity cap, or an empty map. False: z->code is set. */
bool pi__val_new_list(pi__zone *z, size_t cap, pi__val *out);
bool pi__val_new_map(pi__zone *z, pi__val *out);
bool pi__list_add(pi__zone *z, pi__list *l, pi__val v);
/* Sets m[key] = value. An existing key keeps its position; key must have a type that pi__entry.key lists. False:
 * z->code is set. */
bool pi__dict_set(pi__zone *z, pi__dict *m, pi__val key, pi__val value);
bool pi__dict_set_str(pi__zone *z, pi__dict *m, const char *key, pi__val value); /* does not copy the key */
/* Returns a pointer to m[key], valid until the map grows; NULL if the key is missing. */
pi__val *pi__dict_get(const pi__dict *m, pi__val key);
pi__val *pi__dict_get_str(const pi__dict *m, const char *key);
bool pi__dict_remove(pi__zone *z, pi__dict *m, pi__val key); /* false: z->code is set */

bool pi__val_is_number(const pi__val *v); /* INT, FLOAT or BOOL (counts as 0 or 1) */
double pi__val_f64(const pi__val *v);     /* v must be a number */
bool pi__val_truth(const pi__val *v);
/* Compares values as Python's ==. *work: number of comparisons left, reduced by the call. If it runs out, or the values
 * are nested too deeply, *work becomes 0 and the result is false. */
bool pi__val_equal(const pi__val *a, const pi__val *b, int depth, uint64_t *work);
/* Compares two strings or two numbers: sets *out to -1, 0 or 1. False if the values have no order. */
bool pi__val_compare(const pi__val *a, const pi__val *b, int *out);
/* Returns the type's name for messages, for example "a string". */
const char *pi__val_type_name(const pi__val *v);

/* Returns the number of code points of s. */
size_t pi__str_length(pi__str s);

/* ------------------------------------------------------------------------------------------------------- as text */

typedef struct pi__text { /* growable, on the heap; free with pi__free(t.p) */
    char *p;
    size_t n, cap;
    size_t limit; /* maximum size in bytes */
    pi__work *work; /* work of the rendering; NULL = unlimited */
    int code;     /* first error: PI_ENOMEM or PI_ETOOBIG; later additions are ignored; PI_OK = none */
    bool keeps_trust; /* as in a zone; set while the text is empty */
    const pi__zone *zone; /* determines which added bytes are trusted; NULL = none */
} pi__text;

/* Returns a flag per byte: 1 = trusted. The flags lie after the text in the same memory. NULL if trust is not kept.
 * Valid until the next addition. */
static inline char *pi__text_trust(const pi__text *t) { return t->p && t->keeps_trust ? t->p + t->cap : NULL; }

void pi__text_add(pi__text *t, const char *p, size_t n);
void pi__text_str(pi__text *t, const char *text);
/* Copies the text from byte `from` on into a string of the zone. p NULL: z->code is set. */
pi__str pi__text_copy(const pi__text *t, size_t from, pi__zone *z);
/* Append Python's str() and repr() of a value. Nested too deeply: PI_ETOOBIG. */
void pi__text_value(pi__text *t, const pi__val *v);
void pi__text_repr(pi__text *t, const pi__val *v, int depth);

typedef struct pi__json_style { /* options of json.dumps */
    bool ascii;     /* write all non-ASCII characters as \uXXXX */
    bool sort_keys; /* sort keys by their text */
    bool pretty;    /* each member on its own line */
    pi__str indent; /* indentation of one level */
    pi__str item_sep, key_sep;
} pi__json_style;
/* Appends v as json.dumps does. False: *what names a value in v that JSON cannot represent; t->code is unchanged. */
bool pi__text_json(pi__text *t, const pi__val *v, const pi__json_style *style, const char **what);
pi__json_style pi__json_plain(void); /* {"a": 1, "b": [2]} */

/* Parses one JSON value (RFC 8259) with only white space around it; lone surrogates become U+FFFD. Strings without
 * escapes, and the digits of a FLOAT, point into text, which must outlive the value. PI_EINVAL (err has line and
 * column), PI_ENOMEM, PI_ETOOBIG. what: name of the text in messages. */
int pi__json_read(pi__zone *z, const char *text, size_t n, const char *what, pi__val *out, pi_error *err);

/* Reads a decimal number at the start of p ("-12.5e3"), independent of the locale. Returns its length, or 0. Integers
 * that fit become INT, others FLOAT. */
size_t pi__number_read(const char *p, size_t n, pi__val *out);

#endif
