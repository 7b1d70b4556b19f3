/* Variables of a chat template, and its rendering with converted messages and tools (see chat_impl.h).
 *
 * Memory: the caller's zone. Any thread. */
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "template/chat_impl.h"

int pi__chat_no_room(const pi__zone *z, pi_error *err)
{
    if (pi__work_code(z->work)) return pi__work_fail(z->work, err, "the conversation");
    if (z->code == PI_ETOOBIG) return pi__fail(err, PI_ETOOBIG, "the conversation is too large");
    return pi__fail_mem(err, "the conversation");
}

/* Adds the members of a JSON object as variables. */
static int add_vars(pi__zone *z, const char *json, const char *what, pi__dict *vars, pi_error *err)
{
    pi__val v;
    if (!json || !*json) return PI_OK;
    int rc = pi__json_read(z, json, strlen(json), what, &v, err);
    if (rc) return rc;
    if (v.type != PI__V_MAP) return pi__fail(err, PI_EINVAL, "%s: must be a JSON object", what);
    for (size_t i = 0; i < v.map->n; i++)
        if (!pi__dict_set(z, vars, v.map->e[i].key, v.map->e[i].value)) return pi__chat_no_room(z, err);
    return PI_OK;
}

static bool add_token(const pi__chat *c, pi__zone *z, pi__dict *vars, const char *name, int32_t id)
{
    pi__str s = pi__zone_trusted_copy(z, pi__vocab_spelling(c->v, id));
    return !z->code && pi__dict_set_str(z, vars, name, pi__val_str(s));
}

int pi__chat_vars(const pi__chat *c, pi__zone *z, const char *options, pi__val *vars, pi_error *err)
{
    int rc = pi__val_new_map(z, vars) ? PI_OK : pi__chat_no_room(z, err);
    if (!rc) rc = add_vars(z, c->kwargs, "chat-template-kwargs", vars->map, err);
    return rc ? rc : add_vars(z, options, "chat options", vars->map, err);
}

/* Firefunction's templates need the tools as a text and the current time. */
static bool add_function_vars(pi__zone *z, pi__dict *vars, const pi__val *tools, int64_t now)
{
    const pi__json_style style = {.pretty = true, .indent = pi__str_of("    "), .item_sep = pi__str_of(","),
                                  .key_sep = pi__str_of(": ")};
    pi__val list;
    pi__str json, name;
    char date[32] = "";
    time_t t = (time_t) now;
    struct tm tm;
    if (gmtime_r(&t, &tm)) strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &tm);
    bool ok = pi__val_new_list(z, 0, &list);
    for (size_t i = 0; ok && tools->type == PI__V_LIST && i < tools->list->n; i++) {
        const pi__dict *f = pi__chat_function(tools, i, &name);
        ok = !f || pi__list_add(z, list.list, (pi__val) {.type = PI__V_MAP, .map = (pi__dict *) f});
    }
    ok = ok && pi__chat_json(z, &list, &style, &json);
    if (ok && !pi__dict_get_str(vars, "functions")) ok = pi__dict_set_str(z, vars, "functions", pi__val_str(json));
    if (!ok || pi__dict_get_str(vars, "datetime")) return ok;
    pi__str s = pi__zone_concat(z, (pi__str) {"", 0}, pi__str_of(date));
    return !z->code && pi__dict_set_str(z, vars, "datetime", pi__val_str(s));
}

int pi__chat_render_values(const pi__chat *c, pi__zone *z, pi__dict *vars, pi__val messages, pi__val tools,
                           const pi__jinja_env *env, pi__text *out, pi_error *err)
{
    if (tools.type == PI__V_NONE && c->no_none_tools) tools = pi__val_undefined(pi__str_of("tools"));
    bool ok = pi__dict_set_str(z, vars, "messages", messages) && pi__dict_set_str(z, vars, "tools", tools);
    if (ok && !pi__dict_get_str(vars, "documents")) ok = pi__dict_set_str(z, vars, "documents", pi__val_none());
    if (ok && !pi__dict_get_str(vars, "add_generation_prompt"))
        ok = pi__dict_set_str(z, vars, "add_generation_prompt", pi__val_bool(true));
    ok = ok && (!c->function_vars || add_function_vars(z, vars, &tools, env->now));
    ok = ok && add_token(c, z, vars, "bos_token", pi__vocab_bos(c->v)) &&
         add_token(c, z, vars, "eos_token", pi__vocab_eos(c->v));
    return ok ? pi__jinja_render(c->t, z, vars, env, out, err) : pi__chat_no_room(z, err);
}
