/* LoRA adapters: /lora-adapters in llama-server's format; /v1/load_lora_adapter and /v1/unload_lora_adapter in vLLM's.
 * The engine owns the list, which may change between two calls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/job.h"
#include "serve/supervised.h"

/* ------------------------------------------------------------------------------------------------------- the lists */

json_t *adapter_models(const server *s, const char *parent)
{
    json_t *list = json_array();
    pi_lora l;
    for (size_t i = 0; service_adapter_at(&s->sv, i, &l); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I}", "id", l.name, "object", "model",
                                        "created", (json_int_t) s->created, "owned_by", "pagedinfer", "root", l.path,
                                        "parent", parent, "max_model_len", (json_int_t) s->sv.info.ctx_size));
    return list;
}

void handle_adapters(server *s, exchange *ex)
{
    json_t *list = json_array();
    pi_lora l;
    for (size_t i = 0; service_adapter_at(&s->sv, i, &l); i++)
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
        if ((rc = service_adapter_entry(&j->s->sv, &j->p, field, v, &l, &scale, &j->err))) return rc;
    }
    for (int pass = 0; pass < 2 && !rc; pass++) { /* pass 0 sets scales of 0, which may free capacity */
        for (i = 0; service_adapter_at(&j->s->sv, i, &l) && !rc; i++) {
            double to = 0;
            size_t k;
            pi_lora of;
            json_array_foreach(list, k, v)
                if (!service_adapter_entry(&j->s->sv, &j->p, field, v, &of, &scale, &j->err) &&
                    !strcmp(of.name, l.name)) to = scale;
            if (!pass == !to) rc = pi_lora_scale(j->s->sv.e, l.name, (float) to, &j->err);
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
    if (!rc && !strcmp(name, j->s->sv.alias))
        rc = params_fail(&j->p, "lora_name", &j->err, "this is the model's own name: choose another");
    if (rc) return rc;
    pi_lora old;
    again = again && service_adapter(&j->s->sv, name, strlen(name), &old);
    rc = again ? pi_lora_replace(j->s->sv.e, name, path, &j->err) : pi_lora_load(j->s->sv.e, name, path, 0, &j->err);
    if (rc == PI_ENOENT) j->status = 404, j->p.bad_field = "lora_path";
    else if (rc == PI_EBUSY || rc == PI_EFORMAT) j->status = 400;
    if (rc) return rc;
    supervised_adapters(j->s->supervised, &j->s->sv);
    *out = json_pack("{s:b, s:s}", "success", 1, "lora_name", name);
    return PI_OK;
}

static int run_unload(job *j, json_t **out)
{
    const char *name = NULL;
    int rc = allowed(j);
    if (!rc) rc = params_string(&j->p, j->p.root, "lora_name", &name, &j->err);
    if (!rc && !name) rc = params_fail(&j->p, "lora_name", &j->err, "'lora_name' is required");
    if (rc) return rc;
    rc = pi_lora_unload(j->s->sv.e, name, &j->err);
    if (rc == PI_ENOENT) j->status = 404;
    if (rc) return rc;
    supervised_adapters(j->s->supervised, &j->s->sv);
    *out = json_pack("{s:b, s:s}", "success", 1, "lora_name", name);
    return PI_OK;
}

void handle_adapter_scales(server *s, exchange *ex) { job_start_heavy(s, ex, run_scales); }
void handle_adapter_load(server *s, exchange *ex) { job_start_heavy(s, ex, run_load); }
void handle_adapter_unload(server *s, exchange *ex) { job_start_heavy(s, ex, run_unload); }
