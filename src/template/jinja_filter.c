/* Filters of single values, and the table of all filters ("x|name(arguments)"). Filters of lists are in jinja_seq.c.
 *
 * A filter gets its input unchanged, including undefined, and handles it itself. */
#include <math.h>
#include <string.h>

#include "template/jinja_impl.h"
#include "base/utf8.h"

typedef pi__jrun run;

/* Gets the input as a string; undefined becomes "". */
static bool input_str(run *r, const pi__val *in, pi__str *out) { return pi__jto_str(r, in, out); }

/* Gets argument i as a string; def if not given. */
static bool arg_str(run *r, const pi__jargs *a, size_t i, const char *name, const char *def, pi__str *out)
{
    const pi__val *v = pi__jarg(a, i, name);
    *out = pi__str_of(def);
    return !v || pi__jto_str(r, v, out);
}

static bool arg_truth(const pi__jargs *a, size_t i, const char *name, bool def)
{
    const pi__val *v = pi__jarg(a, i, name);
    return v ? pi__val_truth(v) : def;
}

/* ---------------------------------------------------------------------------------------------------------- strings */

static bool f_trim(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *chars = pi__jarg(a, 0, "chars");
    pi__str s;
    if (!input_str(r, in, &s)) return false;
    *out = pi__val_str(pi__jstrip(s, PI__J_LEFT | PI__J_RIGHT, chars && chars->type == PI__V_STR ? &chars->s : NULL));
    return pi__jcost(r, s.n - out->s.n);
}

static bool change_case(run *r, const pi__val *in, char how, pi__val *out)
{
    pi__str s;
    return input_str(r, in, &s) && pi__jcase(r, s, how, out);
}

static bool f_upper(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    return change_case(r, in, 'U', out);
}

static bool f_lower(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    return change_case(r, in, 'L', out);
}

static bool f_title(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    return change_case(r, in, 'W', out);
}

static bool f_capitalize(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    return change_case(r, in, 'C', out);
}

static bool f_string(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    *out = pi__val_str((pi__str) {"", 0});
    return input_str(r, in, &out->s);
}

static bool f_replace(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *count = pi__jarg(a, 2, "count");
    pi__str s, from, to;
    if (!pi__jarg(a, 0, "old") || !pi__jarg(a, 1, "new")) return pi__jfail(r, "replace takes two strings");
    if (!input_str(r, in, &s) || !arg_str(r, a, 0, "old", "", &from) || !arg_str(r, a, 1, "new", "", &to)) return false;
    return pi__jreplace(r, s, from, to, count && pi__jis_integer(count) ? pi__jinteger(count) : -1, out);
}

static bool f_format(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__str s;
    return input_str(r, in, &s) && pi__jformat_percent(r, s, a->v, a->n, false, out);
}

static bool f_escape(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    static const char *const pairs[][2] = {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"},
                                           {"\"", "&#34;"}};
    (void) a;
    if (!f_string(r, in, a, out)) return false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!pi__jreplace(r, out->s, pi__str_of(pairs[i][0]), pi__str_of(pairs[i][1]), -1, out)) return false;
    return true;
}

/* Indents the lines of s: the first only with `first`, empty ones only with `blank`. Lines are split as by
 * splitlines(); all line ends become \n. */
static void indent_lines(pi__text *t, pi__str s, pi__str indent, bool first, bool blank)
{
    for (size_t at = 0, next, line = 0; at < s.n; at = next, line++) {
        size_t end = pi__jline(s, at, &next);
        if (line) pi__text_str(t, "\n");
        if (line ? end > at || blank : first) pi__text_add(t, indent.p, indent.n);
        pi__text_add(t, s.p + at, end - at);
    }
}

/* Gets the indentation: the given string, or a number of spaces. */
static bool indentation(run *r, const pi__val *width, pi__val *out)
{
    const pi__val space = pi__val_str(pi__str_of(" "));
    *out = width ? *width : pi__val_str(pi__str_of("    "));
    if (out->type == PI__V_STR) return true;
    if (!pi__jis_integer(width) || pi__jinteger(width) > 4096)
        return pi__jdefined(r, width) && pi__jfail(r, "indent takes a small number or a string");
    *out = pi__val_str((pi__str) {"", 0});
    for (int64_t i = 0; i < pi__jinteger(width); i++)
        if (!pi__jconcat(r, out->s, space.s, out)) return false;
    return true;
}

static bool f_indent(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__val indent, s;
    if (!pi__jdefined(r, in) || !indentation(r, pi__jarg(a, 0, "width"), &indent)) return false;
    if (in->type != PI__V_STR) return pi__jfail(r, "indent: %s is not a string", pi__val_type_name(in));
    if (!pi__jconcat(r, in->s, pi__str_of("\n"), &s)) return false; /* makes the last line a line even if it is empty */
    pi__text t = pi__jtext(r);
    indent_lines(&t, s.s, indent.s, arg_truth(a, 1, "first", false), arg_truth(a, 2, "blank", false));
    return pi__jtake_text(r, &t, out);
}

static bool f_wordcount(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__str s;
    (void) a;
    if (!input_str(r, in, &s) || !pi__jcost(r, s.n * PI__J_LOOKUP)) return false;
    *out = pi__val_int(pi__jwords(s));
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

static bool json_style(run *r, const pi__jargs *a, pi__json_style *s, pi__val *spaces)
{
    const pi__val *indent = pi__jarg(a, 1, "indent"), *sep = pi__jarg(a, 2, "separators");
    *s = pi__json_plain();
    s->ascii = arg_truth(a, 0, "ensure_ascii", false);
    s->sort_keys = arg_truth(a, 3, "sort_keys", false);
    if (indent && indent->type != PI__V_NONE) {
        s->pretty = true;
        s->item_sep = pi__str_of(",");
        if (indent->type == PI__V_STR) s->indent = indent->s;
        else if (!pi__jis_integer(indent) || pi__jinteger(indent) > 64)
            return pi__jfail(r, "tojson: indent must be a number up to 64");
        *spaces = pi__val_str(pi__str_of("                                                                "));
        int64_t n = pi__jis_integer(indent) && pi__jinteger(indent) > 0 ? pi__jinteger(indent) : 0;
        if (pi__jis_integer(indent)) s->indent = (pi__str) {spaces->s.p, (size_t) n};
    }
    if (!sep || sep->type != PI__V_LIST || sep->list->n != 2) return true;
    return pi__jto_str(r, &sep->list->v[0], &s->item_sep) && pi__jto_str(r, &sep->list->v[1], &s->key_sep);
}

/* Arguments as in transformers: ensure_ascii, indent, separators, sort_keys. */
static bool f_tojson(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi__json_style style;
    pi__val spaces;
    const char *what = NULL;
    pi__text t = pi__jtext(r);
    if (!pi__jdefined(r, in) || !json_style(r, a, &style, &spaces)) return false;
    bool ok = pi__text_json(&t, in, &style, &what) || pi__jfail(r, "tojson: %s cannot be written as JSON", what);
    if (ok) return pi__jtake_text(r, &t, out);
    pi__free(t.p);
    return false;
}

static bool f_from_json(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    pi_error err = {0};
    (void) a;
    if (in->type != PI__V_STR) return pi__jfail(r, "from_json: %s is not a string", pi__val_type_name(in));
    if (!pi__jcost(r, in->s.n * 16)) return false;
    int rc = pi__json_read(r->z, in->s.p, in->s.n, "from_json", out, &err);
    if (rc == PI_EINVAL) return pi__jfail(r, "%s", err.msg);
    return !rc || pi__jno_room(r);
}

/* --------------------------------------------------------------------------------------------------------- numbers */

static bool f_abs(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    (void) a;
    if (!pi__val_is_number(in)) return pi__jfail(r, "abs: %s is not a number", pi__val_type_name(in));
    if (in->type == PI__V_FLOAT) *out = pi__val_float(fabs(in->f));
    else *out = pi__val_int(in->type == PI__V_BOOL ? in->b : in->i < 0 ? -(in->i + (in->i == INT64_MIN)) : in->i);
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ other */

static bool f_default(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *def = pi__jarg(a, 0, "default_value");
    (void) r;
    *out = *in;
    if (in->type == PI__V_UNDEFINED || (arg_truth(a, 1, "boolean", false) && !pi__val_truth(in)))
        *out = def ? *def : pi__val_str((pi__str) {"", 0});
    return true;
}

static bool f_safe(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    return f_string(r, in, a, out); /* nothing is escaped, so nothing needs to be marked as safe */
}

static bool f_attr(run *r, const pi__val *in, const pi__jargs *a, pi__val *out)
{
    const pi__val *name = pi__jarg(a, 0, "name");
    if (!name || name->type != PI__V_STR) return pi__jfail(r, "attr takes a name");
    *out = pi__val_undefined(name->s);
    bool key = in->type == PI__V_MAP && pi__jmethod_find(in, name->s) < 0; /* keys are not attributes */
    return key || pi__jmember(r, in, *name, false, out);
}

static const pi__jfilter filters[] = {
    {"trim", f_trim}, {"upper", f_upper}, {"lower", f_lower}, {"title", f_title}, {"capitalize", f_capitalize},
    {"string", f_string}, {"replace", f_replace}, {"format", f_format}, {"escape", f_escape}, {"e", f_escape},
    {"indent", f_indent}, {"wordcount", f_wordcount}, {"tojson", f_tojson}, {"from_json", f_from_json},
    {"fromjson", f_from_json}, {"int", pi__jfilter_int}, {"float", pi__jfilter_float}, {"abs", f_abs},
    {"round", pi__jfilter_round},
    {"default", f_default}, {"d", f_default}, {"safe", f_safe}, {"attr", f_attr},
};
enum { N_FILTER = sizeof filters / sizeof *filters };

int pi__jfilter_find(pi__str name)
{
    for (int i = 0; i < N_FILTER; i++)
        if (pi__str_is(name, filters[i].name)) return i;
    for (int i = 0; pi__jseq_filters[i].name; i++)
        if (pi__str_is(name, pi__jseq_filters[i].name)) return N_FILTER + i;
    return -1;
}

bool pi__jfilter_call(run *r, int id, const pi__val *in, const pi__jargs *args, pi__val *out)
{
    const pi__val copy = *in; /* out may alias in */
    return (id < N_FILTER ? filters[id].fn : pi__jseq_filters[id - N_FILTER].fn)(r, &copy, args, out);
}
