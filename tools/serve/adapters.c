/* The adapters of a request, by model name or field "lora". The engine owns the list, which may change between two
 * calls. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/gen.h"

bool service_adapter_at(const service *sv, size_t i, pi_lora *out)
{
    *out = (pi_lora) {.size = sizeof *out};
    return sv->e && !pi_lora_describe(sv->e, i, out);
}

bool service_adapter(const service *sv, const char *name, size_t n, pi_lora *out)
{
    for (size_t i = 0; service_adapter_at(sv, i, out); i++)
        if (strlen(out->name) == n && !memcmp(out->name, name, n)) return true;
    return false;
}

int service_adapter_entry(const service *sv, params *p, const char *field, const json_t *v, pi_lora *l, double *scale,
                          pi_error *err)
{
    const json_t *id = json_object_get(v, "id"), *name = json_object_get(v, "name"), *by = json_object_get(v, "scale");
    if (json_is_null(name)) name = NULL;
    *scale = by ? json_number_value(by) : 1;
    if ((name ? !json_is_string(name) : !json_is_integer(id)) || (by && !json_is_number(by)) ||
        !isfinite((float) *scale))
        return params_fail(p, field, err, "'%s' must be a list of objects with \"id\" or \"name\", and \"scale\"",
                           field);
    const json_int_t n = json_integer_value(id);
    const bool there = name ? service_adapter(sv, json_string_value(name), json_string_length(name), l)
                            : n >= 0 && service_adapter_at(sv, (size_t) n, l);
    if (there) return PI_OK;
    if (name) return params_fail(p, field, err, "'%s': unknown adapter '%.60s'; GET /lora-adapters lists them", field,
                                 json_string_value(name));
    return params_fail(p, field, err, "'%s': unknown adapter %lld; GET /lora-adapters lists them", field,
                       (long long) n);
}

/* Reads field "lora": the request uses these adapters and no others. */
static int read_list(gen *g, const json_t *list, pi_error *err)
{
    static const char field[] = "lora";
    params *p = &g->p;
    buf b = {0};
    const json_t *v;
    size_t i;
    int rc = PI_OK;
    if (!json_is_array(list))
        return params_fail(p, field, err, "'%s' must be a list of objects with \"id\" or \"name\", and \"scale\"",
                           field);
    json_array_foreach(list, i, v) {
        pi_lora l;
        double scale;
        if ((rc = service_adapter_entry(g->sv, p, field, v, &l, &scale, err))) break;
        buf_fmt(&b, "%s%s:%.9g", i ? "," : "", l.name, scale);
    }
    if (!rc) rc = b.failed ? params_no_memory(err) : params_add(p, "lora", field, b.n ? b.p : "none", err);
    buf_free(&b);
    return rc;
}

int gen_adapters(gen *g, pi_error *err)
{
    const json_t *model = json_object_get(g->p.root, "model"), *list = json_object_get(g->p.root, "lora");
    pi_lora l;
    if (json_is_string(model) && service_adapter(g->sv, json_string_value(model), json_string_length(model), &l))
        g->adapter = json_string_value(model);
    if (list && !json_is_null(list)) return read_list(g, list, err);
    return g->adapter ? params_add(&g->p, "lora", "model", g->adapter, err) : PI_OK;
}
