/* Values of chat templates and of JSON: none, bool, int, float, string, list, map, and what a template adds to them.
 *
 * Everything that a rendering makes lies in one ZONE, which has a limit and is freed as a whole: values are never
 * freed one by one, may point at each other in circles, and copying one copies 24 bytes. Strings are UTF-8 and never
 * change, so that many may share their bytes. Whoever walks values counts the depth (PI__VAL_DEPTH), because a template
 * can put a list into itself. A zone and its values belong to one thread; what is not written any more may be read by
 * all. */
#ifndef PI__VALUE_H
#define PI__VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/work.h"
#include "gguf/gguf.h"

enum { PI__VAL_DEPTH = 128 }; /* lists and maps in each other; JSON that is deeper is refused */

/* ----------------------------------------------------------------------------------------------------------- zones */

typedef struct pi__zone_chunk pi__zone_chunk;
typedef struct pi__zone {
    pi__zone_chunk *chunk; /* the newest, in which there may be room */
    char *at, *end;        /* that room */
    size_t used;           /* bytes asked of the allocator */
    size_t limit;          /* and how many it may become */
    pi__work *work;        /* pays for the zone's memory and for what is made in it; set before the first take, or NULL */
    int code;              /* PI_OK; PI_ENOMEM, PI_ETOOBIG (the limit) or work's code, once something could not be had */
    struct {
        char *end, *cap;   /* a string that pi__zone_concat made, and the room behind it */
    } tail[4];             /* the last ones, so that growing a string piece by piece takes linear memory */
    uint32_t n_tail;       /* strings put there so far */
    bool keeps_trust;      /* for each byte of a string it is known whether it is trusted; set before the first take */
    const struct pi__zone *trusted; /* all strings of that zone are (a template's own), or NULL */
} pi__zone;

void pi__zone_init(pi__zone *z, size_t limit);
/* pi__fail with z->code, for the text or option `what`. */
int pi__zone_fail(const pi__zone *z, pi_error *err, const char *what);
void pi__zone_free(pi__zone *z);
/* Zeroed, aligned for anything. NULL: z->code says why. */
void *pi__zone_take(pi__zone *z, size_t n);
/* The bytes of a and b; in place where b can be put behind a. p NULL: z->code. */
pi__str pi__zone_concat(pi__zone *z, pi__str a, pi__str b);
/* TRUST. In a zone with keeps_trust a copy of a byte is trusted where the byte was: in this zone, or in the zone
 * `trusted`; all other memory (JSON that was read, the program's own literals) is not. Whatever is made of single
 * characters is not either. So a byte is trusted only where it was copied, unchanged, from a trusted text.
 * Writes for each of the n bytes at p, which lie in one string, 1 (trusted) or 0. */
void pi__zone_trust(const pi__zone *z, const char *p, size_t n, char *out);
/* The opposite: for bytes that were just put into a string of z, which keeps trust. */
void pi__zone_set_trust(pi__zone *z, const char *p, size_t n, const char *flags);
/* A copy of s, all of it trusted. p NULL: z->code. */
pi__str pi__zone_trusted_copy(pi__zone *z, pi__str s);

/* ---------------------------------------------------------------------------------------------------------- values */

enum pi__val_type {
    PI__V_UNDEFINED, /* a name or member that is not there; s: its name */
    PI__V_NONE, PI__V_BOOL, PI__V_INT, PI__V_FLOAT, PI__V_STR, PI__V_LIST, PI__V_MAP,
    PI__V_NAMESPACE, /* namespace(): a map whose members may be set */
    PI__V_LOOP, PI__V_MACRO, PI__V_FUNC, PI__V_METHOD, /* jinja_impl.h */
};

typedef struct pi__val pi__val;
typedef struct pi__list pi__list;
typedef struct pi__dict pi__dict;

struct pi__val {
    uint8_t type; /* enum pi__val_type */
    uint32_t n_text; /* FLOAT: bytes of text, 0: none */
    union {
        bool b;
        int64_t i; /* also the number of a function */
        struct {
            double f;
            const char *text; /* the digits as JSON had them, where it was read from there */
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
    bool tuple;    /* prints as one */
};

typedef struct pi__entry {
    pi__val key; /* STR, INT, BOOL, FLOAT or NONE */
    pi__val value;
} pi__entry;

struct pi__dict { /* in the order in which keys came */
    pi__entry *e;    /* [n] */
    size_t n, cap;
    uint32_t *slot;  /* [n_slot] 1 + index of an entry, 0: free; open addressing. NULL: few entries, just searched */
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

/* Empty ones. false: z->code. */
bool pi__val_new_list(pi__zone *z, size_t cap, pi__val *out);
bool pi__val_new_map(pi__zone *z, pi__val *out);
bool pi__list_add(pi__zone *z, pi__list *l, pi__val v);
/* A key that is there keeps its position and gets the new value. The key is of a type that a key may have. */
bool pi__dict_set(pi__zone *z, pi__dict *m, pi__val key, pi__val value);
bool pi__dict_set_str(pi__zone *z, pi__dict *m, const char *key, pi__val value); /* key is not copied */
/* NULL: not there. Stays valid until the map grows. */
pi__val *pi__dict_get(const pi__dict *m, pi__val key);
pi__val *pi__dict_get_str(const pi__dict *m, const char *key);
bool pi__dict_remove(pi__zone *z, pi__dict *m, pi__val key); /* false: z->code */

bool pi__val_is_number(const pi__val *v); /* INT, FLOAT or BOOL, which counts as 0 and 1 */
double pi__val_f64(const pi__val *v);     /* of a number */
bool pi__val_truth(const pi__val *v);
/* As Python's ==. *work is how much may be compared, and what is left of it: where it is used up, or the values are
 * nested too deeply, it becomes 0 and they count as unequal. */
bool pi__val_equal(const pi__val *a, const pi__val *b, int depth, uint64_t *work);
/* -1, 0 or 1 in *out; false: the two have no order. */
bool pi__val_compare(const pi__val *a, const pi__val *b, int *out);
/* "a string", for messages. */
const char *pi__val_type_name(const pi__val *v);

/* Code points. */
size_t pi__str_length(pi__str s);

/* ------------------------------------------------------------------------------------------------------- as text */

typedef struct pi__text { /* growable, on the heap; pi__free(t.p) */
    char *p;
    size_t n, cap;
    size_t limit; /* bytes it may have */
    pi__work *work; /* of what is rendered into it, or NULL */
    int code;     /* PI_OK, PI_ENOMEM or PI_ETOOBIG, once something did not fit; adding does nothing from then on */
    bool keeps_trust; /* as in a zone; set while it is empty */
    const pi__zone *zone; /* tells which of the bytes added are trusted; NULL: none */
} pi__text;

/* For each byte whether it is trusted (1 or 0), behind the text in its memory; NULL where that is not kept. Valid until
 * something is added. */
static inline char *pi__text_trust(const pi__text *t) { return t->p && t->keeps_trust ? t->p + t->cap : NULL; }

void pi__text_add(pi__text *t, const char *p, size_t n);
void pi__text_str(pi__text *t, const char *text);
/* The text from byte `from` on as a string of the zone. p NULL: z->code. */
pi__str pi__text_copy(const pi__text *t, size_t from, pi__zone *z);
/* As Python's str() and repr(). Too deep: PI_ETOOBIG. */
void pi__text_value(pi__text *t, const pi__val *v);
void pi__text_repr(pi__text *t, const pi__val *v, int depth);

typedef struct pi__json_style { /* as json.dumps takes it */
    bool ascii;     /* \uXXXX for all that is not ASCII */
    bool sort_keys; /* by their text */
    bool pretty;    /* each member on a line of its own */
    pi__str indent; /* one level's */
    pi__str item_sep, key_sep;
} pi__json_style;
/* As json.dumps. false: v holds something that JSON has no form for (t->code stays as it is), named in *what. */
bool pi__text_json(pi__text *t, const pi__val *v, const pi__json_style *style, const char **what);
pi__json_style pi__json_plain(void); /* {"a": 1, "b": [2]} */

/* Reads one JSON value (RFC 8259, nothing around it but white space, no lone surrogates). Strings without escapes, and
 * the digits of a FLOAT, point into text, which must outlive the value. PI_EINVAL (err says line and column), PI_ENOMEM,
 * PI_ETOOBIG. what: the name of the text in messages. */
int pi__json_read(pi__zone *z, const char *text, size_t n, const char *what, pi__val *out, pi_error *err);

/* A decimal number at the start of p ("-12.5e3"), independent of the locale. Returns its length, 0: none. Integers that
 * fit become INT, others FLOAT. */
size_t pi__number_read(const char *p, size_t n, pi__val *out);

#endif
