/* /infill, llama-server's fill-in-the-middle API, and "suffix" of /v1/completions. Reading runs on the pool
 * (gen.h). */
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/gen.h"

/* Returns the maximum tokens of the prompt: the context minus max_tokens. If max_tokens is unlimited or too large, a
 * quarter of the context is reserved. */
static size_t room_for(const gen *g)
{
    const int64_t ctx = (int64_t) g->sv->info.ctx_size, own = g->p.max_tokens;
    const int64_t answer = own >= 0 && own < ctx - 16 ? own : ctx / 4;
    return (size_t) (ctx - answer);
}

int infill_prompt(gen *g, const pi_infill_parts *given, pi_error *err)
{
    params *p = &g->p;
    pi_infill_parts in = *given;
    in.max_tokens = room_for(g);
    in.suffix_first = g->sv->suffix_first;
    p->prompts = calloc(1, sizeof *p->prompts);
    if (!p->prompts) return params_no_memory(err);
    p->n_prompts = 1;
    prompt *out = p->prompts;
    out->ids = malloc(in.max_tokens * sizeof *out->ids);
    if (!out->ids) return params_no_memory(err);
    int64_t n = pi_work_infill(g->work, g->sv->e, &in, out->ids, in.max_tokens, err);
    if (n >= 0) out->n_ids = (size_t) n;
    return n < 0 ? (int) n : PI_OK;
}

static int text_field(params *p, const char *field, bool needed, const char **text, size_t *n, pi_error *err)
{
    const json_t *v = json_object_get(p->root, field);
    if (!needed && (!v || json_is_null(v))) return PI_OK;
    if (!json_is_string(v)) return params_fail(p, field, err, "'%s' must be a string", field);
    *text = json_string_value(v);
    *n = json_string_length(v);
    return PI_OK;
}

/* Reads "input_extra": files of the same repository. */
static int read_files(params *p, pi_infill_file **files, size_t *n, pi_error *err)
{
    static const char field[] = "input_extra";
    const json_t *list = json_object_get(p->root, field), *one;
    size_t i;
    *n = 0;
    if (!list || json_is_null(list)) return PI_OK;
    if (!json_is_array(list))
        return params_fail(p, field, err, "'%s' must be a list of {\"filename\", \"text\"}", field);
    if (!(*files = calloc(json_array_size(list) + 1, sizeof **files))) return params_no_memory(err);
    json_array_foreach(list, i, one) {
        const json_t *text = json_object_get(one, "text"), *name = json_object_get(one, "filename");
        if (!json_is_string(text) || (name && !json_is_null(name) && !json_is_c_string(name)))
            return params_fail(p, field, err,
                               "'%s' must be a list of {\"filename\", \"text\"}, both strings; a filename "
                               "must not hold a zero byte",
                               field);
        (*files)[(*n)++] = (pi_infill_file) {json_string_value(name), json_string_value(text),
                                             json_string_length(text)};
    }
    return PI_OK;
}

int infill_read(gen *g, pi_error *err)
{
    params *p = &g->p;
    pi_infill_parts in = {0};
    pi_infill_file *files = NULL;
    int rc = text_field(p, "input_prefix", true, &in.prefix, &in.prefix_len, err);
    if (!rc) rc = text_field(p, "input_suffix", true, &in.suffix, &in.suffix_len, err);
    if (!rc) rc = text_field(p, "prompt", false, &in.typed, &in.typed_len, err);
    if (!rc) rc = read_files(p, &files, &in.n_files, err);
    in.files = files;
    if (!rc) rc = infill_prompt(g, &in, err);
    free(files);
    return rc;
}
