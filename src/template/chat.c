/* Loads and renders chat templates (see chat.h); chat_messages.c converts the messages.
 *
 * A model's template is untrusted: it runs within the bounds of jinja.h, with memory and output proportional to its
 * input. Memory: a zone per rendering, freed at its end. */
#include "template/chat.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "template/chat_impl.h"
#include "template/chat_names.h"

enum { MEMORY_MIN = 16 << 20, MEMORY_FACTOR = 64, OUTPUT_MIN = 1 << 20, OUTPUT_FACTOR = 16 };

/* -------------------------------------------------------------------------------------------------------- rendering */

/* Removes a leading BOS, because tokenizing adds one. */
static void drop_bos(const pi__chat *c, pi__text *t, size_t from)
{
    pi__str bos = pi__vocab_spelling(c->v, pi__vocab_bos(c->v));
    if (!pi__vocab_add_bos(c->v) || !bos.n || t->n - from < bos.n || memcmp(t->p + from, bos.p, bos.n)) return;
    char *trust = pi__text_trust(t);
    memmove(t->p + from, t->p + from + bos.n, t->n - from - bos.n);
    if (trust) memmove(trust + from, trust + from + bos.n, t->n - from - bos.n);
    t->n -= bos.n;
}

/* To continue an answer, the prompt is cut at this mark, which follows the answer's text before the template closes
 * it. */
static const char end_mark[] = "[the.answer.goes.on.here]";

/* Handles the variable continue_final_message. *goes_on: it is set. */
static int mark_end(pi__zone *z, pi__dict *vars, pi__val *messages, bool *goes_on, pi_error *err)
{
    const pi__val *v = pi__dict_get_str(vars, "continue_final_message"),
                  *begins = pi__dict_get_str(vars, "add_generation_prompt");
    *goes_on = v && v->type == PI__V_BOOL && v->b;
    if (v && v->type != PI__V_BOOL && v->type != PI__V_NONE)
        return pi__fail(err, PI_EINVAL, "continue_final_message: must be true or false");
    if (!*goes_on) return PI_OK;
    if (begins && begins->type == PI__V_BOOL && begins->b)
        return pi__fail(err, PI_EINVAL, "continue_final_message and add_generation_prompt: an answer cannot both "
                                        "continue and begin; give one");
    if (!pi__dict_set_str(z, vars, "add_generation_prompt", pi__val_bool(false))) return pi__chat_no_room(z, err);
    return pi__chat_mark_end(z, messages, end_mark, err);
}

static int cut_at_mark(pi__text *t, size_t from, pi_error *err)
{
    const size_t n = sizeof end_mark - 1;
    for (size_t at = t->n; at >= from + n; at--) {
        if (memcmp(t->p + at - n, end_mark, n) != 0) continue;
        t->n = at - n;
        return PI_OK;
    }
    return pi__fail(err, PI_EUNSUPPORTED, "continue_final_message: the chat template does not show the last message");
}

typedef struct conversation { /* JSON texts from the caller */
    const char *messages, *tools, *options;
    size_t size;
    int64_t now;
    pi__ids *images; /* gets the numbers of the images, in the order of the converted messages */
} conversation;

/* Parses the conversation's JSON to values in z, and converts messages and tools to the template's conventions. */
static int fit(const pi__chat *c, const pi__chat_roles *roles, pi__zone *z, const conversation *v, const pi__dict *vars,
               pi__val *messages, size_t *n_images, pi__list *origin, pi__val *tools, pi_error *err)
{
    pi__chat_choice choice;
    int rc = pi__json_read(z, v->messages, strlen(v->messages), "messages", messages, err);
    if (!rc && v->tools && *v->tools) rc = pi__json_read(z, v->tools, strlen(v->tools), "tools", tools, err);
    if (!rc) rc = pi__chat_fit_tools(z, tools, err);
    if (!rc) rc = pi__chat_fill_tools(c, z, tools, err);
    if (!rc) rc = pi__chat_choice_read(vars, tools, &choice, err);
    if (!rc && choice.kind == PI__CHOICE_NONE) *tools = pi__val_none();
    /* first, so that errors have the caller's indices */
    if (!rc) rc = pi__chat_fit_messages(c, z, messages, n_images, err);
    if (!rc) rc = pi__chat_generic(c, z, tools, messages, err);
    if (!rc) rc = pi__chat_fit_messages(c, z, messages, n_images, err); /* again, for messages that became text */
    return rc ? rc : pi__chat_place(roles, c, z, messages->list, origin, err);
}

/* Renders the conversation as for a template with these roles, and appends the text to out. *refused: the template
 * failed or left a message out. */
static int render(const pi__chat *c, const pi__chat_roles *roles, const conversation *v, pi__text *out, bool *refused,
                  pi_error *err)
{
    const size_t from = out->n;
    const pi__jinja_env env = {.now = v->now};
    pi__zone z;
    pi__val vars, m, shown, t = pi__val_none();
    pi__list origin = {0};
    bool goes_on = false;
    size_t n_images = 0;
    v->images->n = 0;
    pi__zone_init(&z, MEMORY_MIN + v->size * MEMORY_FACTOR);
    z.keeps_trust = true;
    z.work = out->work;
    out->limit = out->n + OUTPUT_MIN + v->size * OUTPUT_FACTOR;
    int rc = pi__chat_vars(c, &z, v->options, &vars, err);
    if (!rc) rc = fit(c, roles, &z, v, vars.map, &m, &n_images, &origin, &t, err);
    if (!rc) rc = mark_end(&z, vars.map, &m, &goes_on, err);
    shown = m;
    if (!rc && n_images) rc = pi__chat_image_parts(c, &z, &m, &shown, v->images, err);
    if (!rc && v->images->n != n_images)
        rc = pi__fail(err, PI_EUNSUPPORTED, "the chat template has no place for %zu of the %zu images in the messages",
                      n_images - v->images->n, n_images);
    *refused = !rc;
    if (!rc) rc = pi__chat_render_values(c, &z, vars.map, shown, t, &env, out, err);
    if (!rc && goes_on) rc = cut_at_mark(out, from, err);
    if (!rc && roles->user)
        rc = pi__chat_check(c, m.list, &origin, v->options, goes_on, t.type == PI__V_LIST, &env, z.limit, out->work,
                            err);
    *refused = *refused && (rc == PI_EINVAL || rc == PI_EUNSUPPORTED);
    pi__zone_free(&z);
    if (rc) out->n = from;
    else drop_bos(c, out, from);
    return rc;
}

static int render_any(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                      pi__text *out, pi__ids *images, pi_error *err)
{
    /* Alternating users and assistants, a user first, instructions in the users' texts: any template places these. */
    const pi__chat_roles plain = {.user = c->roles.user, .calls = c->roles.calls, .results = c->roles.results};
    const size_t size = strlen(messages) + (tools ? strlen(tools) : 0) + (options ? strlen(options) : 0);
    const conversation v = {messages, tools, options, size, now, images};
    bool refused;
    pi_error again = {0};
    int rc = render(c, &c->roles, &v, out, &refused, err);
    if (!refused) return rc;
    int other = render(c, &plain, &v, out, &refused, &again);
    return other && other != PI_ENOMEM ? rc : other;
}

int pi__chat_render(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__text *out, pi_error *err)
{
    pi__ids images = {.p = NULL};
    int rc = render_any(c, messages, tools, options, now, out, &images, err);
    pi__free(images.p);
    return rc;
}

/* Tokenizes rendered text and gives images their numbers. */
static int tokenize(const pi__chat *c, pi__text *text, const pi__ids *images, pi__ids *out, pi_error *err)
{
    const size_t from = out->n;
    int rc = pi__chat_find_images(c, images, text, err);
    if (rc) return rc;
    const pi__trust trust = {pi__text_trust(text), c->markup};
    rc = pi__tokenize_trusted(c->v, text->p ? text->p : "", text->n, true, &trust, out);
    if (rc) return pi__fail(err, rc, "tokenizing the conversation: %s", pi_strerror(rc));
    for (size_t i = from; images->n && i < out->n; i++)
        if (out->p[i] < 0) out->p[i] = -1 - images->p[-1 - out->p[i]];
    return PI_OK;
}

int pi__chat_tokens(const pi__chat *c, const char *messages, const char *tools, const char *options, int64_t now,
                    pi__ids *out, pi__text *text, size_t *n_images, pi_error *err)
{
    pi__ids images = {.p = NULL};
    *text = (pi__text) {.keeps_trust = true, .work = out->work};
    int rc = render_any(c, messages, tools, options, now, text, &images, err);
    if (!rc) rc = tokenize(c, text, &images, out, err);
    *n_images = images.n;
    pi__free(images.p);
    return rc;
}

/* ---------------------------------------------------------------------------------------------------------- loading */

/* Replaces *text by the built-in template of that name. *text NULL: selects a built-in template that the vocabulary
 * suggests; PI_EUNSUPPORTED if none. */
static int choose(const pi__vocab *v, const char **text, pi_error *err)
{
    bool has_chatml = pi__vocab_find(v, "<|im_start|>", 12) >= 0;
    const char *named = *text ? pi__chat_named(*text) : NULL;
    if (*text && !named) {
        if (strchr(*text, '{')) return PI_OK;
        return pi__fail(err, PI_EINVAL, "chat-template: '%.60s' is neither a template nor a known name (chatml, "
                                        "llama3, gemma, ...); see the option's help", *text);
    }
    if (!*text && !has_chatml)
        return pi__fail(err, PI_EUNSUPPORTED, "the model has no chat template and no <|im_start|> in its vocabulary; "
                        "give a template with the option chat-template-file");
    *text = named ? named : pi__chat_named("chatml");
    return PI_OK;
}

static int check_kwargs(const pi__chat *c, pi_error *err)
{
    pi__zone z;
    pi__val vars;
    pi__zone_init(&z, MEMORY_MIN + (c->kwargs ? strlen(c->kwargs) * MEMORY_FACTOR : 0));
    int rc = pi__chat_vars(c, &z, NULL, &vars, err);
    pi__zone_free(&z);
    return rc;
}

int pi__chat_new(pi__chat **out, const pi__vocab *v, const char *text, const char *kwargs, pi_error *err)
{
    *out = NULL;
    int rc = choose(v, &text, err);
    if (rc) return rc;
    pi__chat *c = pi__calloc(1, sizeof *c);
    if (!c) return pi__fail_mem(err, "the chat template");
    c->v = v;
    if (kwargs && !(c->kwargs = pi__strdup(kwargs))) rc = pi__fail_mem(err, "the chat template");
    if (!rc) rc = check_kwargs(c, err);
    if (!rc) rc = pi__jinja_parse(&c->t, text, strlen(text), err);
    if (!rc) c->markup = pi__trust_markup(v, pi__jinja_text(c->t).p, pi__jinja_text(c->t).n);
    if (!rc && (!c->markup || pi__chat_probe(c))) rc = pi__fail_mem(err, "the chat template");
    if (rc) {
        pi__chat_free(c);
        return rc;
    }
    *out = c;
    return PI_OK;
}

int pi__chat_set_image(pi__chat *c, const char *before, const char *after)
{
    pi__free((char *) c->image_before.p);
    pi__free((char *) c->image_after.p);
    c->image_before = (pi__str) {pi__strdup(before), strlen(before)};
    c->image_after = (pi__str) {pi__strdup(after), strlen(after)};
    if (c->image_before.p && c->image_after.p) return PI_OK;
    if (!c->image_before.p) c->image_before.n = 0;
    if (!c->image_after.p) c->image_after.n = 0;
    return PI_ENOMEM;
}

void pi__chat_free(pi__chat *c)
{
    if (!c) return;
    pi__jinja_free(c->t);
    pi__free(c->markup);
    pi__free((char *) c->placeholder.p);
    pi__free((char *) c->image_before.p);
    pi__free((char *) c->image_after.p);
    pi__free(c->kwargs);
    pi__free(c);
}
