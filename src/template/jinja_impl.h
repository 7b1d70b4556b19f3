/* Internals of the template language: tokens, the tree, and the state of a rendering.
 *
 *     jinja_lex.c     text to tokens, including white space control
 *     jinja_expr.c    tokens to trees of expressions
 *     jinja_parse.c   tokens to trees of statements
 *     jinja_exec.c    runs statements: scopes, loops, macros
 *     jinja_eval.c    values of expressions, members, calls; jinja_op.c operators
 *     jinja_filter.c  filters of single values; jinja_seq.c of lists; jinja_test.c tests; jinja_method.c methods
 *     jinja_case.c    letter case and character classes; jinja_number.c numbers from strings
 *
 * Unless stated otherwise, a function that returns bool returns false if the template failed, after setting the
 * error. */
#ifndef PI__JINJA_IMPL_H
#define PI__JINJA_IMPL_H

#include "base/alloc.h"
#include "base/error.h"
#include "template/jinja.h"
#include "base/utf8.h"

/* Returns the number of bytes of s to show in a message: at most max, complete characters only. */
static inline int pi__jshort(pi__str s, size_t max) { return (int) pi__utf8_valid(s.p, s.n < max ? s.n : max); }

/* ---------------------------------------------------------------------------------------------------------- tokens */

enum pi__jtok_kind {
    PI__JT_END, PI__JT_DATA, PI__JT_PRINT, PI__JT_PRINT_END, PI__JT_BLOCK, PI__JT_BLOCK_END, /* {{ }} {% %} */
    PI__JT_NAME, PI__JT_STRING, PI__JT_NUMBER, PI__JT_OP,
};

typedef struct pi__jtok {
    uint8_t kind;  /* enum pi__jtok_kind */
    uint8_t op;    /* OP: its character; 'e' ==, 'n' !=, 'g' >=, 'l' <=, 'f' //, 'p' ** */
    uint32_t line; /* from 1 */
    pi__str s;     /* DATA, NAME, STRING: the text */
    pi__val v;     /* NUMBER: the value */
} pi__jtok;

/* ------------------------------------------------------------------------------------------------------------ tree */

enum pi__jnode_kind { /* with the children used; [x] = a list of nodes linked by next */
    /* statements */
    PI__JN_DATA,     /* v: the text */
    PI__JN_PRINT,    /* a: expression */
    PI__JN_IF,       /* a: condition, [d]: then, [e]: else; elif is an else that holds a single IF */
    PI__JN_FOR,      /* a: target, b: iterated value, c: filter or NULL, [d]: body, [e]: else */
    PI__JN_SET,      /* a: target, b: value */
    PI__JN_WITH,     /* [a]: SETs, [d]: body, in a new scope */
    PI__JN_MACRO,    /* name, [a]: PARAMs, [d]: body, op: PI__JM_* */
    PI__JN_CALLER,   /* a: CALL, b: MACRO that is its caller() */
    PI__JN_BREAK, PI__JN_CONTINUE,
    /* expressions */
    PI__JN_CONST,    /* v */
    PI__JN_NAME,     /* name */
    PI__JN_LIST, PI__JN_TUPLE, /* [a]: elements */
    PI__JN_DICT,     /* [a]: PAIRs */
    PI__JN_ATTR,     /* a: object, v: name */
    PI__JN_ITEM,     /* a: object, b: index */
    PI__JN_SLICE,    /* a: object; b, c, d: start, stop, step or NULL */
    PI__JN_CALL,     /* a: callee, [b]: arguments */
    PI__JN_FILTER,   /* a: input, v: name, id, [b]: arguments */
    PI__JN_TEST,     /* a: value, v: name, id, [b]: arguments */
    PI__JN_NOT, PI__JN_NEG, PI__JN_POS, /* a */
    PI__JN_BINARY,   /* op, a, b */
    PI__JN_COMPARE,  /* a: first, [b]: OPERANDs */
    PI__JN_AND, PI__JN_OR, /* a, b */
    PI__JN_COND,     /* a: condition, b: then, c: else or NULL */
    PI__JN_CAPTURE,  /* [d]: statements; the value is their output as a string */
    /* only as children of other nodes */
    PI__JN_PAIR,     /* a: key, b: value */
    PI__JN_OPERAND,  /* op, a; op 'i': in, 'o': not in */
    PI__JN_KWARG,    /* v: name, a: value */
    PI__JN_STAR, PI__JN_STARS, /* a: positional arguments from a list (*a), named arguments from a map (**a) */
    PI__JN_PARAM,    /* name, a: default or NULL */
};

enum { /* names that a macro's body uses, which become its implicit arguments */
    PI__JM_VARARGS = 1, PI__JM_KWARGS = 2, PI__JM_CALLER = 4,
};

typedef struct pi__jnode pi__jnode;
struct pi__jnode {
    uint8_t kind;  /* enum pi__jnode_kind */
    uint8_t op;    /* as in pi__jtok */
    int16_t id;    /* filter or test: index in the table; -1 = unknown */
    uint32_t line; /* line of its start */
    int32_t name;  /* variable: index in pi__jinja.names; -1 = none */
    pi__jnode *a, *b, *c, *d, *e;
    pi__jnode *next; /* next node in a list */
    pi__val v;
};

struct pi__jinja {
    pi__zone zone;   /* holds everything except this struct */
    pi__str text;    /* the template, with \n as line ends */
    pi__jnode *root; /* list of statements; NULL = empty */
    pi__list names;  /* names of variables by number */
    pi__dict numbers; /* number of each name */
};

/* --------------------------------------------------------------------------------------------------------- parsing */

typedef struct pi__jparse {
    pi__jinja *t;
    pi__jtok *tok;        /* [n_tok] on the heap; the last one is an END */
    size_t n_tok, cap_tok;
    size_t at;            /* index of the current token */
    int depth;            /* nesting depth */
    int loops;            /* number of loops around the current token */
    uint8_t specials;     /* PI__JM_* that the enclosing macro has used so far */
    uint8_t hidden;       /* PI__JM_* that it assigned before using them, so they are ordinary variables */
    pi_error *err;
    int code;             /* PI_OK, or the first error */
} pi__jparse;

bool pi__jparse_fail(pi__jparse *p, uint32_t line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool pi__jparse_no_room(pi__jparse *p);
bool pi__jlex(pi__jparse *p);
static inline const pi__jtok *pi__jcur(const pi__jparse *p) { return &p->tok[p->at]; }
bool pi__jis_op(const pi__jparse *p, char op);
bool pi__jis_name(const pi__jparse *p, const char *name);
bool pi__jskip_op(pi__jparse *p, char op); /* true if the current token is op; it is consumed */
bool pi__jskip_name(pi__jparse *p, const char *name);
bool pi__jexpect_op(pi__jparse *p, char op);
/* Returns NULL on failure. */
pi__jnode *pi__jnode_new(pi__jparse *p, int kind, uint32_t line);
int32_t pi__jname(pi__jparse *p, pi__str name); /* -1 = failure */
/* Parses an expression. tuple: commas make a tuple. cond false: a following "if" is not part of the expression. */
pi__jnode *pi__jparse_expr(pi__jparse *p, bool tuple, bool cond);
/* Parses "|name(args)", tests and calls that follow node. */
pi__jnode *pi__jparse_filters(pi__jparse *p, pi__jnode *node);
/* Parses assignment targets: "a", "a, b", "(a, b)", and with attr "a.b". */
pi__jnode *pi__jparse_target(pi__jparse *p, bool attr);

/* ------------------------------------------------------------------------------------------------------- rendering */

enum { /* limits of a rendering, in addition to the limits of the zone and the text */
    PI__JINJA_DEPTH = 600,       /* nesting of expressions, statements and macros while rendering */
    PI__JINJA_PARSE_DEPTH = 150, /* nesting of expressions and statements while parsing */
    PI__JINJA_RANGE = 100000,    /* maximum length of a range() */
};

typedef struct pi__jscope pi__jscope;
struct pi__jscope {
    pi__jscope *up; /* enclosing scope; NULL = this is the outermost, then the caller's variables follow */
    int32_t *name;  /* [n] */
    pi__val *value; /* [n] */
    size_t n, cap;
    bool kept;      /* a macro refers to it */
};

typedef struct pi__jloop { /* the variable `loop` */
    const pi__val *v; /* [n] iterated values */
    size_t n, i;      /* number of values; current index */
    pi__list *last;   /* arguments of the last loop.changed(); NULL = not called yet */
} pi__jloop;

typedef struct pi__jmacro {
    const pi__jnode *def;
    pi__jscope *scope; /* scope of the definition */
} pi__jmacro;

typedef struct pi__jmethod { /* a bound method, as in "x".strip */
    pi__val self;
    int id;
} pi__jmethod;

typedef struct pi__jargs {
    pi__val *v; /* [n] */
    size_t n;
    struct {
        pi__str name;
        pi__val v;
        bool used; /* taken by a macro's parameter */
    } *kw;      /* [n_kw] names are unique */
    size_t n_kw;
} pi__jargs;

typedef struct pi__jrun {
    const pi__jinja *t;
    pi__zone *z;
    const pi__dict *vars;
    int64_t now;
    pi__text *out;
    pi__jscope *scope; /* innermost scope */
    pi_error *err;
    int code;          /* PI_OK, or the first error */
    uint32_t line;     /* current line */
    int depth;
    uint64_t steps, max_steps;
    int flow;          /* enum pi__jflow */
    struct {
        pi__val *v;    /* [cap] memory of range() lists that loops have finished with and nothing else refers to */
        size_t cap;
    } spare[4];
} pi__jrun;

enum pi__jflow { PI__JF_NEXT, PI__JF_BREAK, PI__JF_CONTINUE };

bool pi__jfail(pi__jrun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool pi__jno_room(pi__jrun *r); /* sets the error if the zone or the text is full */
bool pi__jcost(pi__jrun *r, size_t bytes); /* counts work on `bytes` bytes of text; false: the limit is exceeded */
enum { PI__J_LOOKUP = 16 }; /* cost in bytes of a character that is looked up in Unicode tables */

/* jinja_exec.c */
bool pi__jexec(pi__jrun *r, const pi__jnode *list);
/* Runs the statements in a new scope and returns their output as a string. */
bool pi__jcapture(pi__jrun *r, const pi__jnode *list, pi__val *out);
bool pi__jcall_macro(pi__jrun *r, const pi__jmacro *m, const pi__jargs *args, pi__val *out);
bool pi__jset_name(pi__jrun *r, int32_t name, pi__val v);

/* jinja_eval.c */
bool pi__jeval(pi__jrun *r, const pi__jnode *n, pi__val *out);
/* True if n is a call of the function range. */
bool pi__jis_range(pi__jrun *r, const pi__jnode *n);
bool pi__jcall(pi__jrun *r, const pi__val *callee, const pi__jargs *args, pi__val *out);
/* Gets a member of a value; undefined if missing. item: "v[name]" prefers keys to methods. */
bool pi__jmember(pi__jrun *r, const pi__val *v, pi__val name, bool item, pi__val *out);
/* Booleans count as integers, because Python's bool is an int. */
static inline bool pi__jis_integer(const pi__val *v) { return v->type == PI__V_INT || v->type == PI__V_BOOL; }
/* requires pi__jis_integer */
static inline int64_t pi__jinteger(const pi__val *v) { return v->type == PI__V_INT ? v->i : v->b; }
/* Fails if v is undefined. */
bool pi__jdefined(pi__jrun *r, const pi__val *v);
/* Resolves index i, negative from the end, in a value of length n; -1 = out of range. */
int64_t pi__jindex(int64_t i, size_t n);
/* Returns argument i, or the one with this name; NULL if not given. */
const pi__val *pi__jarg(const pi__jargs *a, size_t i, const char *name);

/* jinja_op.c; n must be of the named kind */
bool pi__jeval_slice(pi__jrun *r, const pi__jnode *n, pi__val *out);
bool pi__jeval_binary(pi__jrun *r, const pi__jnode *n, pi__val *out);
bool pi__jeval_sign(pi__jrun *r, const pi__jnode *n, pi__val *out);
bool pi__jeval_compare(pi__jrun *r, const pi__jnode *n, pi__val *out);
/* a op b; op as in pi__jtok. */
bool pi__jarithmetic(pi__jrun *r, char op, const pi__val *a, const pi__val *b, pi__val *out);
/* Lists the values that a loop over v visits. */
bool pi__jiterate(pi__jrun *r, const pi__val *v, pi__list *out);
bool pi__jcontains(pi__jrun *r, const pi__val *item, const pi__val *in, bool *out);
bool pi__jequal(pi__jrun *r, const pi__val *a, const pi__val *b, bool *out);
bool pi__jcompare(pi__jrun *r, const pi__val *a, const pi__val *b, int *out); /* fails if they have no order */

/* strings, in jinja_method.c */
bool pi__jconcat(pi__jrun *r, pi__str a, pi__str b, pi__val *out);
bool pi__jto_str(pi__jrun *r, const pi__val *v, pi__str *out); /* str() */
enum { PI__J_LEFT = 1, PI__J_RIGHT = 2 };
pi__str pi__jstrip(pi__str s, int sides, const pi__str *chars); /* chars NULL = white space */
bool pi__jreplace(pi__jrun *r, pi__str s, pi__str from, pi__str to, int64_t count, pi__val *out);
/* format % v: v is a tuple of n values, or (alone) a single value. A single value with members may stay unused. */
bool pi__jformat_percent(pi__jrun *r, pi__str format, const pi__val *v, size_t n, bool alone, pi__val *out);
/* Returns the method of this name that values of this type have; -1 if none. */
int pi__jmethod_find(const pi__val *self, pi__str name);
bool pi__jmethod_call(pi__jrun *r, const pi__jmethod *m, const pi__jargs *args, pi__val *out);
enum { PI__J_KEYS, PI__J_VALUES, PI__J_ITEMS };
/* a list of keys, values or (key, value) tuples */
bool pi__jdict_items(pi__jrun *r, const pi__dict *m, int what, pi__val *out);
/* Returns an empty buffer for a string of the zone. */
static inline pi__text pi__jtext(const pi__jrun *r)
{
    return (pi__text) {.limit = r->z->limit - r->z->used, .keeps_trust = r->z->keeps_trust, .zone = r->z};
}
/* Converts a finished buffer to a string and frees it. False: it was too long, or out of memory. */
bool pi__jtake_text(pi__jrun *r, pi__text *t, pi__val *out);

/* characters, in jinja_case.c */
/* 'U' upper, 'L' lower, 'T' str.title, 'C' str.capitalize, 'W' jinja2's title filter. */
bool pi__jcase(pi__jrun *r, pi__str s, char how, pi__val *out);
bool pi__jis_case(pi__str s, bool upper); /* isupper(), islower() */
/* 's' isspace(), 'd' isdigit(), 'D' isdecimal(), 'a' isalpha(), 'w' isalnum() */
bool pi__jis_all(pi__str s, char class);
int64_t pi__jwords(pi__str s); /* number of matches of \w+ */
/* Returns the end of the line that starts at byte `at`, as splitlines() does; *next: start of the next line. */
size_t pi__jline(pi__str s, size_t at, size_t *next);

/* jinja_number.c */
bool pi__jfilter_int(pi__jrun *r, const pi__val *in, const pi__jargs *args, pi__val *out);
bool pi__jfilter_float(pi__jrun *r, const pi__val *in, const pi__jargs *args, pi__val *out);
bool pi__jfilter_round(pi__jrun *r, const pi__val *in, const pi__jargs *args, pi__val *out);

/* tables: each find returns the index of a name; -1 if unknown */
typedef bool (*pi__jfilter_fn)(pi__jrun *r, const pi__val *in, const pi__jargs *args, pi__val *out);
int pi__jfilter_find(pi__str name);
bool pi__jfilter_call(pi__jrun *r, int id, const pi__val *in, const pi__jargs *args, pi__val *out);
typedef struct pi__jfilter {
    const char *name;
    pi__jfilter_fn fn;
} pi__jfilter;
extern const pi__jfilter pi__jseq_filters[]; /* jinja_seq.c; terminated by a NULL name */
int pi__jtest_find(pi__str name);
bool pi__jtest_call(pi__jrun *r, int id, const pi__val *in, const pi__jargs *args, bool *out);

#endif
