/* Grammars for tool calls, in GBNF: the form of an answer if a call is required, or from the point where one begins.
 *
 *     root   ::= "\n"{0,2} call ("\n"? call)*       the answer begins with a call
 *     behind ::= rest ("\n"? call)*                 after the trigger: the tag that begins a call in free text (outside
 *                                                   reasoning)
 *     call ::= <[151657]> rest
 *     rest ::= "\n"? (t0 | t1) "\n"? <[151658]>
 *     t0   ::= "{\"name\": \"get\", \"arguments\": " %json{...} "}"
 *
 * Tags that are control tokens are written by id, because control tokens have no text. Text up to a closing tag is the
 * expanded regular expression of all texts without that tag. Parameters come in the schema's order (Gemma: sorted, as
 * in its template); optional ones may be left out. Memory: the texts, on the heap. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "template/answer_impl.h"

enum { TAG_MAX = 64 }; /* maximum number of characters of a closing tag */

typedef struct writer {
    const pi__chat *c;
    const pi__chat_form *form;
    pi__text *out;
    pi__zone *zone;
    const pi__val *root; /* parameters schema of the current function */
    bool lists;          /* calls are in one list, as [{...}, ...] */
} writer;

static void put(writer *w, const char *s) { pi__text_str(w->out, s); }

static void put_number(writer *w, const char *before, size_t n, const char *behind)
{
    pi__val v = pi__val_int((int64_t) n);
    put(w, before);
    pi__text_value(w->out, &v);
    put(w, behind);
}

/* ------------------------------------------------------------------------------------------------------------ texts */

static void put_char(writer *w, const char *p, size_t n, bool class)
{
    char c = *p;
    if (c == '\n' || c == '\r' || c == '\t') put(w, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else {
        if (c == '\\' || (class ? c == ']' || c == '^' || c == '-' || c == '[' : c == '"')) put(w, "\\");
        pi__text_add(w->out, p, n);
    }
}

/* Returns the length of the longest control token at p, or 0. */
static size_t control_at(const writer *w, const char *p, size_t n, int32_t *id)
{
    for (size_t len = n < TAG_MAX ? n : TAG_MAX; len > 1; len--) {
        *id = pi__vocab_find(w->c->v, p, len);
        if (*id >= 0 && pi__vocab_attr(w->c->v, *id) == PI__TOK_CONTROL) return len;
    }
    return 0;
}

static bool has_control(const writer *w, const char *s)
{
    int32_t id;
    for (size_t n = strlen(s); n; s++, n--)
        if (control_at(w, s, n, &id)) return true;
    return false;
}

static void put_literal(writer *w, const char *p, size_t n)
{
    bool open = false;
    for (size_t len; n; p += len, n -= len) {
        int32_t id;
        len = control_at(w, p, n, &id);
        if (len || !open) put(w, open ? "\" " : len ? "" : "\"");
        open = !len;
        if (len) {
            put_number(w, "<[", (size_t) id, "]> ");
            continue;
        }
        len = pi__utf8_len((unsigned char) *p) <= n ? pi__utf8_len((unsigned char) *p) : 1;
        put_char(w, p, len, false);
    }
    if (open) put(w, "\" ");
}

static void put_text(writer *w, const char *s) { put_literal(w, s, strlen(s)); }

typedef struct tag {
    const char *p[TAG_MAX]; /* [n] the tag's characters */
    size_t len[TAG_MAX], n;
} tag;

static void put_not(writer *w, const tag *t, size_t k)
{
    put(w, "[^");
    put_char(w, t->p[0], t->len[0], true);
    if (k) put_char(w, t->p[k], t->len[k], true);
    put(w, "] ");
}

static void put_tag_char(writer *w, const tag *t, size_t k)
{
    put(w, "\"");
    put_char(w, t->p[k], t->len[k], false);
    put(w, "\" ");
}

/* Writes the continuations after k characters of the tag that do not complete it. */
static void put_break(writer *w, const tag *t, size_t k)
{
    if (k + 1 == t->n) {
        put_not(w, t, k);
        return;
    }
    put(w, "( ");
    put_not(w, t, k);
    put(w, "| ");
    put_tag_char(w, t, k);
    put_break(w, t, k + 1);
    put(w, ") ");
}

/* Writes any number of incomplete prefixes of the tag; each is cut off by the first character of the next one. */
static void put_begun(writer *w, const tag *t)
{
    put(w, "( ");
    for (size_t k = 0; k + 1 < t->n; k++) {
        if (k) put(w, "( ");
        put_tag_char(w, t, k);
    }
    for (size_t k = 1; k + 1 < t->n; k++) put(w, ")? ");
    put(w, ")* ");
}

/* Writes any text without the tag, then the tag. The tag's first character must occur in it only once. */
static void put_until(writer *w, const char *s)
{
    tag t = {.n = 0};
    if (has_control(w, s)) {
        put(w, ".* ");
        put_text(w, s);
        return;
    }
    for (size_t i = 0, n = strlen(s); i < n && t.n < TAG_MAX; i += t.len[t.n++]) {
        t.p[t.n] = s + i;
        t.len[t.n] = pi__utf8_len((unsigned char) s[i]);
    }
    put(w, "( ");
    put_not(w, &t, 0);
    put(w, "| ");
    put_begun(w, &t);
    put_tag_char(w, &t, 0);
    put_break(w, &t, 1);
    put(w, ")* ");
    put_begun(w, &t);
    put_text(w, s);
}

/* ---------------------------------------------------------------------------------------------------------- schemas */

/* Writes a part of the parameters' schema as a separate schema, with the definitions that it may refer to. */
static void put_schema(writer *w, const pi__val *schema)
{
    static const char *const defs[] = {"$defs", "definitions"};
    const pi__json_style style = {.item_sep = pi__str_of(","), .key_sep = pi__str_of(":")};
    const char *what;
    pi__val v;
    if (!schema || schema->type != PI__V_MAP) { /* no described parameters means no parameters */
        put(w, "\"{}\" ");
        return;
    }
    bool ok = pi__val_new_map(w->zone, &v);
    for (size_t i = 0; ok && i < schema->map->n; i++)
        ok = pi__dict_set(w->zone, v.map, schema->map->e[i].key, schema->map->e[i].value);
    for (int i = 0; ok && i < 2 && w->root && w->root->type == PI__V_MAP; i++) {
        const pi__val *d = pi__dict_get_str(w->root->map, defs[i]);
        if (d && !pi__dict_get_str(v.map, defs[i])) ok = pi__dict_set_str(w->zone, v.map, defs[i], *d);
    }
    if (!ok && !w->out->code) w->out->code = w->zone->code;
    put(w, "%json");
    if (ok) pi__text_json(w->out, &v, &style, &what);
    put(w, " ");
}

static const pi__val *properties(const pi__val *root)
{
    const pi__val *p = root && root->type == PI__V_MAP ? pi__dict_get_str(root->map, "properties") : NULL;
    return p && p->type == PI__V_MAP && p->map->n ? p : NULL;
}

static bool is_required(const pi__val *root, const pi__val *key)
{
    const pi__val *r = pi__dict_get_str(root->map, "required");
    for (size_t i = 0; r && r->type == PI__V_LIST && i < r->list->n; i++)
        if (r->list->v[i].type == PI__V_STR && pi__str_eq(r->list->v[i].s, key->s)) return true;
    return false;
}

/* Returns the texts listed by a schema's enum; NULL if it does not list texts only. */
static const pi__list *texts_of(const pi__val *schema)
{
    const pi__val *e = schema->type == PI__V_MAP ? pi__dict_get_str(schema->map, "enum") : NULL;
    if (!e || e->type != PI__V_LIST || !e->list->n) return NULL;
    for (size_t i = 0; i < e->list->n; i++)
        if (e->list->v[i].type != PI__V_STR) return NULL;
    return e->list;
}

/* Writes text up to the closing tag (rule ptext), or one of the listed texts and the tag. */
static void put_string(writer *w, const pi__val *schema, const char *close)
{
    const pi__list *l = texts_of(schema);
    if (!l) {
        put(w, "ptext ");
        return;
    }
    put(w, "( ");
    for (size_t i = 0; i < l->n; i++) {
        if (i) put(w, "| ");
        if (l->v[i].s.n) put_literal(w, l->v[i].s.p, l->v[i].s.n);
        else put(w, "\"\" ");
    }
    put(w, w->form->newline ? ") \"\\n\"? " : ") ");
    put_text(w, close);
}

/* ------------------------------------------------------------------------------------------------------------- tags */

static void put_json_value(writer *w, const pi__val *schema)
{
    put_schema(w, schema);
    if (w->form->newline) put(w, "\"\\n\"? ");
    put_text(w, w->form->param_close);
}

/* Writes the value after a key of form "attribute": the tag's attribute selects text or JSON. */
static void put_marked_value(writer *w, const pi__val *schema, unsigned types)
{
    bool text = !types || types & PI__T_STR, json = types != PI__T_STR;
    put(w, "( ");
    if (text) put_text(w, " string=\"true\">");
    if (text) put_string(w, schema, w->form->param_close);
    if (text && json) put(w, "| ");
    if (json) put_text(w, " string=\"false\">");
    if (json) put_json_value(w, schema);
    put(w, ") ");
}

/* Writes a name or key: form "xtml" with entities, other forms with the end of the tag. */
static void put_name(writer *w, pi__str s, const char *end)
{
    for (size_t i = 0, n; w->form->xtml && i < s.n; i += n) {
        for (n = 0; i + n < s.n && s.p[i + n] != '"' && s.p[i + n] != '&'; n++) {}
        if (n) put_literal(w, s.p + i, n);
        else put_text(w, s.p[i + n++] == '"' ? "&quot;" : "&amp;");
    }
    if (!w->form->xtml) put_literal(w, s.p, s.n);
    if (!w->form->xtml) put_text(w, end);
}

/* Writes the rest of a key's tag in form "xtml", and the value. */
static void put_typed_value(writer *w, const pi__val *schema, unsigned types)
{
    bool text = !types || types & PI__T_STR, json = types != PI__T_STR;
    put(w, "( ");
    if (text) put_text(w, "\" type=\"string\"<|sep|>");
    if (text) put_string(w, schema, w->form->param_close);
    if (text && json) put(w, "| ");
    if (json) put_text(w, "\" type=\"");
    if (json) put(w, "(\"number\" | \"boolean\" | \"null\" | \"object\" | \"array\") ");
    if (json) put_text(w, "\"<|sep|>");
    if (json) put_json_value(w, schema);
    put(w, ") ");
}

static void put_param(writer *w, const pi__entry *e)
{
    const pi__chat_form *f = w->form;
    unsigned types = pi__schema_types(w->root, &e->value);
    put_text(w, f->param);
    put_name(w, e->key.s, f->key_end);
    if (f->xtml) {
        put_typed_value(w, &e->value, types);
        return;
    }
    if (f->value) put(w, "\"\\n\"? ");
    if (f->value) put_text(w, f->value);
    if (f->newline) put(w, "\"\\n\" ");
    if (f->attribute) put_marked_value(w, &e->value, types);
    else if (!types || types & PI__T_STR) put_string(w, &e->value, f->param_close);
    else put_json_value(w, &e->value);
    put(w, "\"\\n\"? ");
}

/* Writes the parameters of a tool that does not list them. */
static void put_any_params(writer *w)
{
    const pi__chat_form *f = w->form;
    put(w, "( ");
    put_text(w, f->param);
    put(w, "[a-zA-Z0-9_.]+ ");
    put_text(w, f->xtml ? "\" type=\"string\"<|sep|>" : f->key_end);
    if (f->value) put(w, "\"\\n\"? ");
    if (f->value) put_text(w, f->value);
    if (f->attribute) put_text(w, " string=\"true\">");
    put(w, "ptext \"\\n\"? )* ");
}

static void put_params(writer *w)
{
    const pi__val *p = properties(w->root);
    if (!p && w->root && w->root->type == PI__V_MAP) put_any_params(w);
    for (size_t i = 0; p && i < p->map->n; i++) {
        bool required = is_required(w->root, &p->map->e[i].key);
        if (!required) put(w, "( ");
        put_param(w, &p->map->e[i]);
        if (!required) put(w, ")? ");
    }
}

static void put_tags(writer *w, pi__str name)
{
    const pi__chat_form *f = w->form;
    if (f->call && !f->lone) put_text(w, f->call);
    if (f->prefix) put_text(w, f->prefix);
    if (f->xtml) put_name(w, name, "");
    else put_literal(w, name.p, name.n);
    if (f->prefix) put(w, "\":\" [0-9]{1,4} ");
    if (f->xtml) put(w, "\"\\\" index=\\\"\" [0-9]{1,3} ");
    if (f->xtml) put_text(w, "\"<|sep|>");
    else if (f->call_end) put_text(w, f->call_end);
    if (!f->xtml) put(w, "\"\\n\"{0,2} ");
    if (f->body == PI__BODY_PARAMS) put_params(w);
    else put_schema(w, w->root);
    if (f->body == PI__BODY_ARGUMENTS && !f->lone) put(w, "\"\\n\"? ");
    put_text(w, f->call_close);
}

/* ------------------------------------------------------------------------------------------------------------ Gemma */

static const char gemma_rules[] =
    "gnumber ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [+-]? [0-9]+)?\n"
    "glist ::= \"[\" (gvalue (\",\" gvalue)*)? \"]\"\n"
    "gmap ::= \"{\" (gkey \":\" gvalue (\",\" gkey \":\" gvalue)*)? \"}\"\n"
    "gkey ::= [a-zA-Z0-9_.$-]+\n"
    "gword ::= \"true\" | \"false\"\n"
    "gvalue ::= gtext | gnumber | gword | \"null\" | glist | gmap\n";

static void put_gemma_value(writer *w, const pi__val *schema)
{
    static const struct {
        unsigned type;
        const char *rule;
    } rules[] = {{PI__T_NUM | PI__T_INT, "gnumber "}, {PI__T_BOOL, "gword "}, {PI__T_NULL, "\"null\" "},
                 {PI__T_MAP, "gmap "}, {PI__T_LIST, "glist "}};
    unsigned types = pi__schema_types(w->root, schema);
    bool first = true;
    if (!types) put(w, "gvalue ");
    if (!types) return;
    put(w, "( ");
    if (types & PI__T_STR) {
        if (texts_of(schema)) put_text(w, "<|\"|>"), put_string(w, schema, "<|\"|>");
        else put(w, "gtext ");
        first = false;
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!(types & rules[i].type)) continue;
        put(w, first ? "" : "| ");
        put(w, rules[i].rule);
        first = false;
    }
    put(w, ") ");
}

/* Writes rules for members in order with commas between them, for Gemma's and Python's calls. Rule i matches members i
 * and later, after another member (b) or as the first (a). */
static void put_member_rules(writer *w, size_t tool, const pi__entry *const *e, size_t n)
{
    const bool python = w->form->kind == PI__FORM_PYTHON;
    for (size_t i = 0; i <= n; i++) {
        for (int before = 0; before < 2; before++) {
            put_number(w, "t", tool, before ? "b" : "a");
            put_number(w, "", i, " ::= ");
            if (i == n) {
                put(w, "\"\"\n");
                continue;
            }
            if (before) put(w, python ? "\", \" " : "\",\" ");
            put_literal(w, e[i]->key.s.p, e[i]->key.s.n);
            put(w, python ? "\"=\" " : "\":\" ");
            if (python) put_schema(w, &e[i]->value);
            else put_gemma_value(w, &e[i]->value);
            put_number(w, "t", tool, "b");
            put_number(w, "", i + 1, "");
            if (!is_required(w->root, &e[i]->key)) {
                put_number(w, " | t", tool, before ? "b" : "a");
                put_number(w, "", i + 1, "");
            }
            put(w, "\n");
        }
    }
}

static int by_name(const void *a, const void *b)
{
    const pi__entry *const *x = a, *const *y = b;
    int c = 0;
    pi__val_compare(&(*x)->key, &(*y)->key, &c);
    return c;
}

static void put_member_params(writer *w, size_t tool)
{
    const pi__val *p = properties(w->root);
    const pi__entry **e = p ? pi__zone_take(w->zone, p->map->n * sizeof *e) : NULL;
    if (!p || !e) {
        if (p && !w->out->code) w->out->code = w->zone->code;
        return;
    }
    for (size_t i = 0; i < p->map->n; i++) e[i] = &p->map->e[i];
    if (w->form->kind == PI__FORM_GEMMA) qsort(e, p->map->n, sizeof *e, by_name);
    put_member_rules(w, tool, e, p->map->n);
}

static void put_gemma(writer *w, size_t tool, pi__str name)
{
    put_text(w, "call:");
    put_literal(w, name.p, name.n);
    put(w, "\"{\" ");
    if (properties(w->root)) put_number(w, "t", tool, "a0 ");
    else if (w->root && w->root->type == PI__V_MAP) put(w, "(gkey \":\" gvalue (\",\" gkey \":\" gvalue)*)? ");
    put(w, "\"}\" ");
}

/* Writes name(key=value, ...). */
static void put_python(writer *w, size_t tool, pi__str name)
{
    put_literal(w, name.p, name.n);
    put(w, "\"(\" ");
    if (properties(w->root)) put_number(w, "t", tool, "a0 ");
    else if (w->root && w->root->type == PI__V_MAP)
        put(w, "([a-zA-Z_] [a-zA-Z0-9_]* \"=\" %json{} (\", \" [a-zA-Z_] [a-zA-Z0-9_]* \"=\" %json{})*)? ");
    put(w, "\")\" ");
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* Writes {"name": "f", "arguments": {...}}. */
static void put_json_call(writer *w, pi__str name, const char *word)
{
    const pi__json_style style = pi__json_plain();
    const pi__val v = pi__val_str(name);
    const char *what;
    pi__text t = {.limit = SIZE_MAX / 4};
    if (w->form->name_word) put(w, "\"{\\\"tool_call_id\\\": \\\"\" [0-9]{1,3} \"\\\", \" ");
    else pi__text_str(&t, "{");
    pi__text_str(&t, "\"");
    pi__text_str(&t, w->form->name_word ? w->form->name_word : "name");
    pi__text_str(&t, "\": ");
    pi__text_json(&t, &v, &style, &what);
    pi__text_str(&t, ", \"");
    pi__text_str(&t, word);
    pi__text_str(&t, "\": ");
    if (t.code && !w->out->code) w->out->code = t.code;
    else if (!t.code) put_literal(w, t.p, t.n);
    pi__free(t.p);
    put_schema(w, w->root);
    put(w, "\"}\" ");
}

/* Writes {NAME: ARGUMENTS}. */
static void put_keyed_call(writer *w, pi__str name)
{
    const pi__json_style style = pi__json_plain();
    const pi__val v = pi__val_str(name);
    const char *what;
    pi__text t = {.limit = SIZE_MAX / 4};
    pi__text_str(&t, "{");
    pi__text_json(&t, &v, &style, &what);
    pi__text_str(&t, ": ");
    if (t.code && !w->out->code) w->out->code = t.code;
    else if (!t.code) put_literal(w, t.p, t.n);
    pi__free(t.p);
    put_schema(w, w->root);
    put(w, "\"}\" ");
}

static void put_mistral(writer *w, pi__str name)
{
    if (w->form->keyed) {
        put_keyed_call(w, name);
        return;
    }
    if (w->lists) {
        put_json_call(w, name, w->form->args_word ? w->form->args_word : "arguments");
        return;
    }
    put_literal(w, name.p, name.n);
    if (pi__jinja_mentions(w->c->t, "[CALL_ID]")) {
        put_text(w, "[CALL_ID]");
        put(w, "[a-zA-Z0-9]{9} ");
    }
    put_text(w, "[ARGS]");
    put_schema(w, w->root);
}

/* Writes the rest of a header and the arguments. The message's end token ends the answer. */
static void put_harmony(writer *w, pi__str name)
{
    put_literal(w, name.p, name.n);
    put(w, "( ");
    put_text(w, " <|constrain|>json");
    put(w, ")? ");
    put_text(w, "<|message|>");
    put_schema(w, w->root);
}

/* Writes rule t<i>: a call of function i, without the surrounding tags. */
static void put_tool(writer *w, size_t i, const pi__dict *f, pi__str name)
{
    w->root = pi__dict_get_str(f, "parameters");
    if (w->form->kind == PI__FORM_GEMMA || w->form->kind == PI__FORM_PYTHON) put_member_params(w, i);
    put_number(w, "t", i, " ::= ");
    if (w->form->kind == PI__FORM_GEMMA) put_gemma(w, i, name);
    else if (w->form->kind == PI__FORM_PYTHON) put_python(w, i, name);
    else if (w->form->kind == PI__FORM_MISTRAL) put_mistral(w, name);
    else if (w->form->kind == PI__FORM_LLAMA) put_json_call(w, name, "parameters");
    else if (w->form->kind == PI__FORM_HARMONY) put_harmony(w, name);
    else if (w->form->body == PI__BODY_JSON) put_json_call(w, name, "arguments");
    else put_tags(w, name);
    put(w, "\n");
}

/* Writes rule "tool" (one call), the rules t<i>, and their shared rules. */
static void put_tools(writer *w, const pi__val *tools, const pi__chat_choice *choice)
{
    pi__str name;
    bool first = true;
    for (size_t i = 0; i < tools->list->n; i++) {
        const pi__dict *f = pi__chat_function(tools, i, &name);
        if (f && (!choice->name.n || pi__str_eq(name, choice->name))) put_tool(w, i, f, name);
    }
    put(w, "tool ::= ");
    for (size_t i = 0; i < tools->list->n; i++) {
        const pi__dict *f = pi__chat_function(tools, i, &name);
        if (!f || (choice->name.n && !pi__str_eq(name, choice->name))) continue;
        put_number(w, first ? "t" : "| t", i, " ");
        first = false;
    }
    put(w, "\n");
    if (w->form->kind == PI__FORM_TAGS && w->form->body == PI__BODY_PARAMS) {
        put(w, "ptext ::= ");
        put_until(w, w->form->param_close);
        put(w, "\n");
    }
    if (w->form->kind != PI__FORM_GEMMA) return;
    put(w, "gtext ::= ");
    put_text(w, "<|\"|>");
    put_until(w, "<|\"|>");
    put(w, "\n");
    put(w, gemma_rules);
}

static const char *opening(const pi__chat_form *f)
{
    return f->lone ? f->call : f->open;
}

/* Writes rule "rest" (everything after the opening tag) and rule "call". */
static void put_calls(writer *w, bool many)
{
    const pi__chat_form *f = w->form;
    bool tags = f->kind == PI__FORM_TAGS, inside = tags && f->close && f->body != PI__BODY_JSON && !f->newline;
    put(w, "rest ::= ");
    if (w->lists && f->close && f->kind == PI__FORM_MISTRAL)
        put(w, many ? "\"[\" gap tool (\",\" gap tool)* gap \"]\" " : "\"[\" gap tool gap \"]\" ");
    else if (w->lists) put(w, many ? "\"[\" tool (\", \" tool)* \"]\" " : "\"[\" tool \"]\" ");
    else if (inside) put(w, many ? "\"\\n\"? tool (\"\\n\"? tool)* \"\\n\"? " : "\"\\n\"? tool \"\\n\"? ");
    else if (tags && f->close && !f->lone) put(w, "\"\\n\"? tool \"\\n\"? ");
    else put(w, "tool ");
    if (f->close && !f->lone && !f->bare) put_text(w, f->close);
    put(w, "\ncall ::= ");
    if (f->kind != PI__FORM_LLAMA && !f->bare) put_text(w, opening(f));
    put(w, "rest\ngap ::= [ \\n]{0,8}\n");
}

/* Writes rule "root" (calls from the start) and rule "behind" (text after a trigger). after: closes the answer's
 * text. */
static void put_roots(writer *w, bool many, const char *after)
{
    const pi__chat_form *f = w->form;
    bool more = many && !w->lists && f->kind != PI__FORM_LLAMA && f->kind != PI__FORM_HARMONY;
    put(w, "root ::= \"\\n\"{0,2} ");
    if (after) put_text(w, after);
    put(w, more ? "call (\"\\n\"? call)*\n" : "call\n");
    put(w, more ? "behind ::= rest (\"\\n\"? call)*\n" : "behind ::= rest\n");
}

/* -------------------------------------------------------------------------------- text around the answer's content */

/* Returns the index of the reasoning tags that the template mentions; -1 if none. */
static int thoughts_of(const pi__chat *c)
{
    for (int i = 0; i < PI__N_THOUGHT_TAGS; i++)
        if (pi__jinja_mentions(c->t, pi__thought_tags_of[i].open)) return i;
    return -1;
}

static bool is_off(const pi__dict *options, const char *key)
{
    const pi__val *v = options ? pi__dict_get_str(options, key) : NULL;
    return v && v->type == PI__V_BOOL && !v->b;
}

/* True if the prompt ends with this tag, ignoring white space. */
static bool ends_with(pi__str prompt, const char *tag)
{
    const size_t n = strlen(tag);
    while (prompt.n && (prompt.p[prompt.n - 1] == ' ' || prompt.p[prompt.n - 1] == '\n')) prompt.n--;
    return prompt.n >= n && !memcmp(prompt.p + prompt.n - n, tag, n);
}

static void put_harmony_lead(writer *w)
{
    put(w, "root ::= ( ");
    put_text(w, "<|channel|>analysis<|message|>");
    put_until(w, "<|end|>");
    put_text(w, "<|start|>assistant");
    put(w, ")?\n");
}

/* Writes the reasoning before an answer: continues reasoning that the prompt opened, else allows the template's
 * tags. */
static void put_lead(writer *w, const pi__dict *options, pi__str prompt, int open_thought)
{
    const int tags = open_thought >= 0 ? open_thought : thoughts_of(w->c);
    const pi__val *goes_on = pi__dict_get_str(options, "continue_final_message");
    if (goes_on && goes_on->type == PI__V_BOOL && goes_on->b) return;
    if (w->form && w->form->kind == PI__FORM_HARMONY) {
        put_harmony_lead(w);
        return;
    }
    if (tags < 0) return;
    const bool off = is_off(options, "enable_thinking") || is_off(options, "thinking") ||
                     ends_with(prompt, pi__thought_tags_of[tags].close);
    if (open_thought < 0 && off) return;
    put(w, open_thought < 0 ? "root ::= ( " : "root ::= ");
    if (open_thought < 0) put_text(w, pi__thought_tags_of[tags].open);
    put_until(w, pi__thought_tags_of[tags].close);
    put(w, open_thought < 0 ? "\"\\n\"{0,2} )?\n" : "\"\\n\"{0,2}\n");
}

/* Writes the tags around the content of a constrained answer. */
static void put_around(const writer *w, pi__str prompt, pi__call_form *out)
{
    const pi__chat_form *f = w->form;
    writer before = *w, after = *w;
    before.out = &out->before;
    after.out = &out->after;
    if (!f || !f->answer_open) return;
    if (!ends_with(prompt, f->answer_open)) {
        put(&before, "root ::= ");
        put_text(&before, f->answer_open);
        put(&before, "\n");
    }
    if (!f->answer_close) return;
    put(&after, "root ::= ");
    put_text(&after, f->answer_close);
    put(&after, "\n");
}

static void put_trigger(pi__text *t, const char *s)
{
    const pi__json_style style = pi__json_plain();
    const pi__val v = pi__val_str(pi__str_of(s));
    const char *what;
    pi__text_str(t, "[");
    pi__text_json(t, &v, &style, &what);
    pi__text_str(t, "]");
}

/* Returns where the answer may have reasoning; calls inside reasoning do not count. */
static int thoughts_in_front(const pi__val *options, int open_thought)
{
    const pi__val *v = pi__dict_get_str(options->map, "parse_reasoning");
    if (v && v->type == PI__V_BOOL && !v->b) return PI__THOUGHTS_NONE;
    return open_thought >= 0 ? PI__THOUGHTS_OPEN + open_thought : PI__THOUGHTS_MAY;
}

/* Terminates GBNF texts with a NUL; empty texts stay NULL. */
static int finish(pi__call_form *out, pi_error *err)
{
    pi__text *const text[] = {&out->grammar, &out->trigger, &out->lead, &out->before, &out->after};
    int code = PI_OK;
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        if (text[i]->n) pi__text_add(text[i], "", 1);
        if (text[i]->code && !code) code = text[i]->code;
    }
    if (code == PI_ETOOBIG) return pi__fail(err, PI_ETOOBIG, "the tools are too large for a grammar");
    return code ? pi__fail_mem(err, "the grammar of tool calls") : PI_OK;
}

static int write_grammar(const pi__chat *c, pi__zone *z, const pi__val *tools, const pi__dict *options,
                         const pi__chat_choice *choice, pi__str prompt, pi__call_form *out, pi_error *err)
{
    const pi__chat_form *f = c->form;
    const int open_thought = pi__thought_open_at_end(prompt.p, prompt.n);
    writer w = {.c = c, .form = f, .out = &out->grammar, .zone = z}, lead = w;
    lead.out = &out->lead;
    w.lists = f->kind == PI__FORM_PYTHON ||
              (f->kind == PI__FORM_MISTRAL && (f->close || !pi__jinja_mentions(c->t, "[ARGS]")));
    out->grammar.limit = out->trigger.limit = out->lead.limit = out->before.limit = out->after.limit = SIZE_MAX / 4;
    put_lead(&lead, options, prompt, open_thought);
    put_around(&w, prompt, out);
    if (f && choice->kind != PI__CHOICE_NONE && tools->type == PI__V_LIST) {
        const bool many = choice->parallel && !choice->name.n;
        put_roots(&w, many, f->answer_close && ends_with(prompt, f->answer_open) ? f->answer_close : NULL);
        put_calls(&w, many);
        put_tools(&w, tools, choice);
        if (!out->required) put_trigger(&out->trigger, opening(f));
    }
    return finish(out, err);
}

int pi__chat_grammar(const pi__chat *c, const char *tools, const char *options, pi__str prompt, pi__call_form *out,
                     pi_error *err)
{
    pi__zone z;
    pi__val t, o;
    pi__chat_choice choice;
    *out = (pi__call_form) {.required = false};
    int rc = pi__chat_read_tools(&z, tools, options, &t, &o, &choice, err);
    out->required = choice.kind == PI__CHOICE_REQUIRED;
    if (!rc) out->thoughts = thoughts_in_front(&o, pi__thought_open_at_end(prompt.p, prompt.n));
    if (!rc) rc = write_grammar(c, &z, &t, o.map, &choice, prompt, out, err);
    pi__zone_free(&z);
    return rc;
}

void pi__call_form_free(pi__call_form *f)
{
    pi__free(f->grammar.p);
    pi__free(f->trigger.p);
    pi__free(f->lead.p);
    pi__free(f->before.p);
    pi__free(f->after.p);
    *f = (pi__call_form) {.required = false};
}
