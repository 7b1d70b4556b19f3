/* LoRA adapters: their selection for a request, by model name or field "lora"; /lora-adapters in llama-server's
 * format; /v1/load_lora_adapter and /v1/unload_lora_adapter in vLLM's. The engine owns the list, which may change
 * between two calls. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/gen.h"
#include "serve/job.h"

static bool adapter_at(const server *s, size_t i, pi_lora *out)
{
    *out = (pi_lora) {.size = sizeof *out};
    return s->e && !pi_lora_describe(s->e, i, out);
}

bool server_adapter(const server *s, const char *name, size_t n, pi_lora *out)
{
    for (size_t i = 0; adapter_at(s, i, out); i++)
        if (strlen(out->name) == n && !memcmp(out->name, name, n)) return true;
    return false;
}

/* -------------------------------------------------------------------------------------------------------- requests */

/* Reads an entry of a list [{"id" or "name", "scale"}]; sets *l and *scale. */
static int read_entry(const server *s, params *p, const char *field, const json_t *v, pi_lora *l, double *scale,
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
    const bool there = name ? server_adapter(s, json_string_value(name), json_string_length(name), l)
                            : n >= 0 && adapter_at(s, (size_t) n, l);
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
        if ((rc = read_entry(g->s, p, field, v, &l, &scale, err))) break;
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
    if (json_is_string(model) && server_adapter(g->s, json_string_value(model), json_string_length(model), &l))
        g->adapter = json_string_value(model);
    if (list && !json_is_null(list)) return read_list(g, list, err);
    return g->adapter ? params_add(&g->p, "lora", "model", g->adapter, err) : PI_OK;
}

/* ------------------------------------------------------------------------------------------------------- the lists */

json_t *adapter_models(const server *s, const char *parent)
{
    json_t *list = json_array();
    pi_lora l;
    for (size_t i = 0; adapter_at(s, i, &l); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I}", "id", l.name, "object", "model",
                                        "created", (json_int_t) s->created, "owned_by", "pagedinfer", "root", l.path,
                                        "parent", parent, "max_model_len", (json_int_t) s->info.ctx_size));
    return list;
}

void handle_adapters(server *s, exchange *ex)
{
    json_t *list = json_array();
    pi_lora l;
    for (size_t i = 0; adapter_at(s, i, &l); i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:f, s:i, s:i, s:I, s:i}", "id", (json_int_t) i, "name",
                                              l.name, "path", l.path, "scale", (double) l.scale, "rank", (int) l.rank,
                                              "n_matrices", (int) l.n_matrices, "bytes", (json_int_t) l.bytes,
                                              "n_running", (int) l.n_running));
    answer_json(ex, 200, list);
}

/* --------------------------------------------------------------------------------------------------------- changes */

/* Sets the default scales, for requests that do not name adapters. Adapters missing in the list get scale 0. */
static int run_scales(job *j, json_t **out)
{
    static const char field[] = "list";
    const json_t *list = json_object_get(j->p.root, field), *v;
    double scale;
    size_t i;
    int rc = PI_OK;
    pi_lora l;
    if (!json_is_array(list))
        return params_fail(&j->p, NULL, &j->err,
                           "the body must be a list of objects with \"id\" or \"name\", and \"scale\"");
    json_array_foreach(list, i, v) { /* checks all entries before any change */
        if ((rc = read_entry(j->s, &j->p, field, v, &l, &scale, &j->err))) return rc;
    }
    for (int pass = 0; pass < 2 && !rc; pass++) { /* pass 0 sets scales of 0, which may free capacity */
        for (i = 0; adapter_at(j->s, i, &l) && !rc; i++) {
            double to = 0;
            size_t k;
            pi_lora of;
            json_array_foreach(list, k, v)
                if (!read_entry(j->s, &j->p, field, v, &of, &scale, &j->err) && !strcmp(of.name, l.name)) to = scale;
            if (!pass == !to) rc = pi_lora_scale(j->s->e, l.name, (float) to, &j->err);
            if (rc == PI_ENOENT) rc = PI_OK; /* it was unloaded meanwhile */
        }
    }
    if (rc) return rc;
    *out = json_pack("{s:b}", "success", 1);
    return PI_OK;
}

/* Clients name files of the server's machine, so --lora-updates must allow it. */
static int allowed(job *j)
{
    if (cli_bool(j->s->c, "lora-updates")) return PI_OK;
    j->status = 403;
    return params_fail(&j->p, NULL, &j->err,
                       "loading and unloading adapters is disabled: start the server with --lora-updates");
}

static int run_load(job *j, json_t **out)
{
    const char *name = NULL, *path = NULL;
    bool again = false;
    int rc = allowed(j);
    if (!rc) rc = params_string(&j->p, j->p.root, "lora_name", &name, &j->err);
    if (!rc) rc = params_string(&j->p, j->p.root, "lora_path", &path, &j->err);
    if (!rc) rc = params_bool(&j->p, j->p.root, "load_inplace", &again, &j->err);
    if (!rc && (!name || !path)) rc = params_fail(&j->p, name ? "lora_path" : "lora_name", &j->err,
                                                  "'lora_name' and 'lora_path' are required");
    if (!rc && !strcmp(name, j->s->alias))
        rc = params_fail(&j->p, "lora_name", &j->err, "this is the model's own name: choose another");
    if (rc) return rc;
    pi_lora old;
    again = again && server_adapter(j->s, name, strlen(name), &old);
    rc = again ? pi_lora_replace(j->s->e, name, path, &j->err) : pi_lora_load(j->s->e, name, path, 0, &j->err);
    if (rc == PI_ENOENT) j->status = 404, j->p.bad_field = "lora_path";
    else if (rc == PI_EBUSY || rc == PI_EFORMAT) j->status = 400;
    if (!rc) *out = json_pack("{s:b, s:s}", "success", 1, "lora_name", name);
    return rc;
}

static int run_unload(job *j, json_t **out)
{
    const char *name = NULL;
    int rc = allowed(j);
    if (!rc) rc = params_string(&j->p, j->p.root, "lora_name", &name, &j->err);
    if (!rc && !name) rc = params_fail(&j->p, "lora_name", &j->err, "'lora_name' is required");
    if (rc) return rc;
    rc = pi_lora_unload(j->s->e, name, &j->err);
    if (rc == PI_ENOENT) j->status = 404;
    if (!rc) *out = json_pack("{s:b, s:s}", "success", 1, "lora_name", name);
    return rc;
}

void handle_adapter_scales(server *s, exchange *ex) { job_start_heavy(s, ex, run_scales); }
void handle_adapter_load(server *s, exchange *ex) { job_start_heavy(s, ex, run_load); }
void handle_adapter_unload(server *s, exchange *ex) { job_start_heavy(s, ex, run_unload); }
