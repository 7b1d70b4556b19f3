/* Probes a chat template by rendering small conversations when it is loaded: accepted formats and placed messages.
 *
 * A conversation is a SPEC, one letter per message:
 *
 *     s system        u user                      c a tool call           t the result of a call
 *     d developer     a assistant                 C a call with text      T the result of the second call
 *     x unknown role  e assistant without text    D two calls
 *
 * Letter i is a user's message of text, image, text, image and text; j one of image, image, text and image. I and J are
 * results of calls with these parts.
 *
 * Each text and each argument is a mark (chat_impl.h), and the probe looks for the marks in the output. All probes of a
 * template share a budget of steps. If a template exhausts it, later probes count as failed. Memory: a zone per
 * rendering and two texts, all freed here. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_form.h"
#include "template/chat_impl.h"

enum { PROBE_STEPS = 2000000, PROBE_MEMORY = 16 << 20, PROBE_OUTPUT = 1 << 20, MAX_MARKS = 8 };

typedef struct probe {
    pi__chat *c;
    pi__text in, out;     /* messages as JSON; the template's output, empty if it failed */
    uint64_t steps;       /* steps so far */
    size_t n_marks;       /* number of marks in the messages */
    bool loose[MAX_MARKS]; /* marks that may be anywhere; the others must be in order */
    bool seen[MAX_MARKS];
    const char *id;       /* id of the first call */
    bool broken_args;     /* arguments are a text that is not JSON */
    bool object_result;   /* a result is an object */
    int rc;               /* PI_ENOMEM: all probes are invalid */
} probe;

/* -------------------------------------------------------------------------------------------------------- rendering */

/* Renders the messages in p->in with tools (JSON or NULL). */
static void run(probe *p, const char *tools)
{
    pi__zone z;
    pi__val vars, m, t = pi__val_none();
    pi_error err;
    p->out.n = 0;
    p->out.limit = PROBE_OUTPUT;
    p->out.code = PI_OK;
    if (p->rc || p->steps >= PROBE_STEPS) return;
    pi__zone_init(&z, PROBE_MEMORY);
    pi__jinja_env env = {.max_steps = PROBE_STEPS - p->steps, .used = &p->steps};
    int rc = p->in.code;
    if (!rc) rc = pi__chat_vars(p->c, &z, NULL, &vars, &err);
    if (!rc) rc = pi__json_read(&z, p->in.p, p->in.n, "messages", &m, &err);
    if (!rc && tools) rc = pi__json_read(&z, tools, strlen(tools), "tools", &t, &err);
    if (!rc) rc = pi__chat_render_values(p->c, &z, vars.map, m, t, &env, &p->out, &err);
    pi__zone_free(&z);
    if (rc) p->out.n = 0;
    if (rc == PI_ENOMEM) p->rc = rc;
}

static bool shows(const probe *p, const char *word)
{
    return p->out.n && memmem(p->out.p, p->out.n, word, strlen(word));
}

/* Appends a text with a mark, in the template's form of content. */
static void put_content(probe *p, bool loose, bool parts)
{
    static const char *const forms[] = {"\"" PI__MARK "\"", "[{\"type\": \"text\", \"text\": \"" PI__MARK "\"}]"};
    char text[96];
    p->loose[p->n_marks] = loose;
    snprintf(text, sizeof text, forms[parts], p->n_marks++);
    pi__text_str(&p->in, text);
}

static void put_object(probe *p)
{
    char text[96];
    p->loose[p->n_marks] = false;
    snprintf(text, sizeof text, "{\"kkKk\": \"" PI__MARK "\"}", p->n_marks++);
    pi__text_str(&p->in, text);
}

static void put_call(probe *p, const char *id)
{
    static const char *const args[] = {"{\"kkKk\": \"" PI__MARK "\"}", "\"{\\\"kkKk\\\": \\\"" PI__MARK "\\\"}\"",
                                       "\"{kkKk: " PI__MARK "\""};
    char text[64];
    p->loose[p->n_marks] = false;
    snprintf(text, sizeof text, args[p->broken_args ? 2 : p->c->args == PI__ARGS_TEXT], p->n_marks++);
    const char *const parts[] = {"{\"id\": \"", id, "\", \"type\": \"function\", ",
                                 "\"function\": {\"name\": \"ffFf\", \"arguments\": ", text, "}}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) pi__text_str(&p->in, parts[i]);
}

/* Appends a list of parts; order: t = a text with a mark, i = an image. */
static void put_parts(probe *p, const char *order)
{
    static const char part[] = "{\"type\": \"text\", \"text\": \"" PI__MARK "\"}";
    for (const char *o = order; *o; o++) {
        char text[96] = "{\"type\": \"image\"}";
        if (*o == 't') {
            p->loose[p->n_marks] = false;
            snprintf(text, sizeof text, part, p->n_marks++);
        }
        pi__text_str(&p->in, o == order ? "[" : ", ");
        pi__text_str(&p->in, text);
    }
    pi__text_str(&p->in, "]");
}

static void put_calls(probe *p, char letter)
{
    const bool typed = p->c->typed_content;
    pi__text_str(&p->in, "{\"role\": \"assistant\", \"content\": ");
    if (letter == 'C') put_content(p, true, typed);
    else pi__text_str(&p->in, p->c->null_calls ? "null" : typed ? "[{\"type\": \"text\", \"text\": \"\"}]" : "\"\"");
    pi__text_str(&p->in, ", \"tool_calls\": [");
    put_call(p, p->id);
    if (letter == 'D') {
        pi__text_str(&p->in, ", ");
        put_call(p, "call00002");
    }
    pi__text_str(&p->in, "]}");
}

static void put_message(probe *p, char letter)
{
    static const struct { char letter; const char *role; } roles[] = {
        {'s', "system"}, {'d', "developer"}, {'u', "user"}, {'a', "assistant"}, {'x', "depolever"}, {'e', "assistant"},
        {'i', "user"}, {'j', "user"},
    };
    if (strchr("cCD", letter)) {
        put_calls(p, letter);
        return;
    }
    const bool result = strchr("tTIJ", letter);
    pi__text_str(&p->in, result ? "{\"role\": \"tool\", \"name\": \"rrRr\", \"tool_call_id\": \"" : "{\"role\": \"");
    if (result) pi__text_str(&p->in, letter == 'T' ? "call00002" : p->id);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i].letter == letter) pi__text_str(&p->in, roles[i].role);
    pi__text_str(&p->in, "\", \"content\": ");
    if (letter == 'e') pi__text_str(&p->in, p->c->typed_content ? "[{\"type\": \"text\", \"text\": \"\"}]" : "\"\"");
    else if (letter == 'i' || letter == 'I') put_parts(p, "titit");
    else if (letter == 'j' || letter == 'J') put_parts(p, "iiti");
    else if (result && p->object_result) put_object(p);
    else put_content(p, strchr("sdx", letter), !result && p->c->typed_content);
    pi__text_str(&p->in, "}");
}

/* Renders the conversation; true if each mark is in the output. */
static bool places_with(probe *p, const char *spec, const char *tools)
{
    size_t lost;
    p->in.n = p->n_marks = 0;
    p->in.limit = PROBE_OUTPUT;
    for (const char *l = spec; *l; l++) {
        pi__text_str(&p->in, l == spec ? "[" : ", ");
        put_message(p, *l);
    }
    pi__text_str(&p->in, "]");
    run(p, tools);
    memset(p->seen, 0, sizeof p->seen);
    return pi__chat_marks_placed(&p->out, p->n_marks, p->loose, p->seen, &lost);
}

static bool places(probe *p, const char *spec) { return places_with(p, spec, NULL); }

/* specs: separated by spaces. */
static bool places_all(probe *p, const char *specs)
{
    char spec[MAX_MARKS];
    int n;
    for (; sscanf(specs, " %7s%n", spec, &n) == 1; specs += n)
        if (!places(p, spec)) return false;
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ forms */

/* Finds the first accepted form of content and of missing tools, including the variables of Firefunction's
 * templates. */
static void probe_content(probe *p)
{
    pi__chat *c = p->c;
    for (int i = 0; i < 5 && !c->roles.user; i++) {
        c->typed_content = i == 1 || i == 3;
        c->no_none_tools = i == 2 || i == 3;
        c->function_vars = i == 4;
        c->roles.user = places(p, "u");
    }
    if (!c->roles.user) c->function_vars = false;
}

/* Finds the accepted form of calls: arguments as an object (unless printed as Python does) or as text; content empty or
 * none. */
static void probe_calls(probe *p)
{
    pi__chat *c = p->c;
    for (int form = 0; form < 4; form++) {
        c->args = form % 2 ? PI__ARGS_TEXT : PI__ARGS_OBJECT;
        c->null_calls = form >= 2;
        places(p, "uct");
        if (p->seen[1] && !shows(p, "'kkKk': ")) return;
    }
    c->args = PI__ARGS_KEEP;
    c->null_calls = false;
}

/* Finds the required form of call ids, and other types of arguments and results that the template accepts. */
static void probe_call_values(probe *p)
{
    pi__chat *c = p->c;
    if (c->args == PI__ARGS_KEEP) return;
    places(p, "uct");
    c->named_ids = !shows(p, "ffFf") && shows(p, p->id);
    const char *id = p->id;
    p->id = "call_0123456789abcdefABCDEFGH";
    c->short_ids = !places(p, "uct");
    p->id = id;
    p->broken_args = c->args == PI__ARGS_OBJECT;
    c->args_any = p->broken_args && places(p, "uct") && !shows(p, "\"{kkKk") && shows(p, "{kkKk: ");
    p->broken_args = false;
    p->object_result = true;
    c->result_objects = places(p, "uct") && !shows(p, "'kkKk': ");
    p->object_result = false;
}

#define PROBE_TOOL(more) "[{\"type\": \"function\", \"function\": {\"name\": \"ffFf\"" more "}}]"
#define PROBE_PARAMETERS                                                                                               \
    ", \"parameters\": {\"type\": \"object\", "                                                                        \
    "\"properties\": {\"kkKk\": {\"type\": \"string\", \"description\": \"ddDd\"}}, \"required\": [\"kkKk\"]}"

/* Finds optional members of tools that the template needs: whether it shows a tool without description or
 * parameters. */
static void probe_tools(probe *p)
{
    static const char *const tools[] = {PROBE_TOOL(", \"description\": \"\"" PROBE_PARAMETERS),
                                        PROBE_TOOL(PROBE_PARAMETERS), PROBE_TOOL(", \"description\": \"\"")};
    const pi__chat_form *form = pi__chat_form_of(pi__jinja_text(p->c->t));
    bool shown[3];
    for (int i = 0; i < 3; i++) {
        places_with(p, "u", tools[i]);
        shown[i] = shows(p, "ffFf");
    }
    if (!shown[0]) places_with(p, "su", tools[0]);
    /* harmony's content has a header too, with or without tools */
    const bool harmony = form && form->kind == PI__FORM_HARMONY;
    p->c->describes = !form || !(harmony || shown[0] || shows(p, "ffFf"));
    p->c->form = p->c->describes ? &pi__chat_form_generic : form;
    p->c->described = shown[0] && !shown[1];
    p->c->with_parameters = shown[0] && !shown[2];
}

/* ------------------------------------------------------------------------------------------------------------ roles */

/* True if the template knows the role developer. A template that writes the name of any role does not: its model has
 * only seen system messages. So the output must differ from that of an unknown role in more than the name. */
static bool knows_developer(probe *p, const char *spec, const char *other_spec)
{
    static const char known[] = "developer", other[] = "depolever"; /* equal length, equal first letters */
    enum { SAME = 2, N = sizeof known - 1 };
    if (!places(p, spec)) return false;
    pi__text first = p->out;
    p->out = (pi__text) {0};
    bool named = places(p, other_spec) && p->out.n == first.n;
    for (size_t i = 0; named && i < first.n; i++) {
        if (first.p[i] == p->out.p[i]) continue;
        named = i >= SAME && first.n - i >= N - SAME && !strncasecmp(first.p + i - SAME, known, N) &&
                !strncasecmp(p->out.p + i - SAME, other, N);
        i += N - SAME - 1;
    }
    pi__free(first.p);
    return !named;
}

static void probe_roles(probe *p)
{
    pi__chat_roles *r = &p->c->roles;
    if (!r->user) { /* nothing can be tested: messages stay unchanged */
        *r = (pi__chat_roles) {.system = true,
                               .leading = true,
                               .later_system = true,
                               .turns = true,
                               .userless = true,
                               .calls = true,
                               .results = true,
                               .lone_results = true,
                               .call_text = true,
                               .many_calls = true};
        return;
    }
    places(p, "ucta");
    r->calls = p->seen[1];
    r->results = p->seen[2];
    const bool tools = r->calls && r->results;
    const pi__chat_form *form = pi__chat_form_of(pi__jinja_text(p->c->t));
    if (p->c->describes && tools && form && form->kind == PI__FORM_TAGS && form->body == PI__BODY_ARGUMENTS)
        p->c->form = form; /* the template writes past calls in this form */
    r->lone_results = r->results && places_all(p, "uta utu");
    r->call_text = tools && places(p, "uCta");
    r->many_calls = tools && places(p, "uDtTa");
    r->system = places(p, "su");
    r->developer = knows_developer(p, "du", "xu");
    r->later_system = r->system && places_all(p, "usu susu us suasu uas") &&
                      (!tools || places_all(p, "ucts uctsu"));
    r->later_developer = r->developer && knows_developer(p, "udu", "uxu") &&
                         places_all(p, "sudu ud duadu uad") && (!tools || places_all(p, "uctd uctdu"));
    r->leading = r->system && places(p, "ssu") && (!r->developer || places(p, "dsu")) &&
                 (!r->later_developer || places_all(p, "sdu ddu"));
    r->turns = places_all(p, "uu uauu uaau au") && (!r->system || places(p, "sau")) && (!tools || places(p, "uctu"));
    p->c->blank_answers = places(p, "ueu") ? false : places(p, "uau");
    r->userless = places(p, "a") && (!r->system || places_all(p, "s sa"));
}

/* True if the output has n placeholders. */
static bool shows_images(const probe *p, int n)
{
    const pi__str s = p->c->placeholder;
    const char *at = p->out.p, *end = at + p->out.n;
    for (; at && p->out.n && (at = memmem(at, (size_t) (end - at), s.p, s.n)); at += s.n) n--;
    return !n;
}

/* Finds the roles for which the template writes images from typed parts, and its placeholder for an image. */
static void probe_images(probe *p)
{
    pi__chat *c = p->c;
    pi__str s;
    if (!places(p, "i") || !pi__chat_placeholder(c, &p->out, 0, &s)) return;
    char *copy = pi__malloc(s.n + 1);
    if (!copy) {
        p->rc = PI_ENOMEM;
        return;
    }
    memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    c->placeholder = (pi__str) {copy, s.n};
    /* the placeholder must not depend on the parts around it */
    c->user_images = shows_images(p, 2) && places(p, "j") && shows_images(p, 3);
    c->tool_images = c->user_images && c->roles.results && places(p, "ucI") && shows_images(p, 2) &&
                     places(p, "ucJ") && shows_images(p, 3);
}

int pi__chat_probe(pi__chat *c)
{
    probe p = {.c = c, .id = "call00001"};
    probe_content(&p);
    probe_calls(&p);
    probe_call_values(&p);
    probe_tools(&p);
    probe_roles(&p);
    probe_images(&p);
    pi__free(p.in.p);
    pi__free(p.out.p);
    return p.rc;
}
