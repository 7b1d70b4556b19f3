/* Writes random LoRA adapters for a model file, in the layout of llama.cpp's converter. Also writes the same model
 * with an adapter merged into its matrices; these become F32. */
#ifndef ADAPTER_FILE_H
#define ADAPTER_FILE_H

#include "random_model.h"

typedef struct adapter_spec {
    uint32_t seed;    /* seed of the random values */
    int32_t rank;     /* rank of all matrices */
    int32_t type;     /* enum pi__type of A and B */
    float alpha;      /* scale is alpha / rank; 0 = scale of 1 */
    float size;       /* magnitude of the values, relative to values that keep the norm of a row; 0 = 1 */
    const char *only; /* adapt only matrices with this text in their name; NULL = all adaptable ones */
    const char *arch; /* architecture that the file states; NULL = the model's */
    const char *more; /* name of an additional tensor of any shape; NULL = no additional tensor */
} adapter_spec;

/* Number of layers without draft layers. */
static inline int adapter_layers(const pi__gguf *g)
{
    char key[80];
    pi__str arch = {0};
    uint32_t all = 0, drafts = 0;
    pi__gguf_get_str(g, "general.architecture", &arch, NULL);
    snprintf(key, sizeof key, "%.*s.block_count", (int) arch.n, arch.p);
    pi__gguf_get_u32(g, key, &all, 0, NULL);
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int) arch.n, arch.p);
    pi__gguf_get_u32(g, key, &drafts, 0, NULL);
    return (int) (all - drafts);
}

static inline bool adapter_embeds(const pi__tensor *t) { return !strcmp(t->cname, "token_embd.weight"); }

/* True if an adapter can change the tensor: a matrix of a layer, expert or head, the embedding, or the output. */
static inline bool adapter_fits(const pi__gguf *g, const pi__tensor *t, const adapter_spec *s)
{
    int layer = 0;
    const char *const never[] = {"conv1d", "shortconv.conv", "_norm", "blk.N"};
    if (adapter_embeds(t) || !strcmp(t->cname, "output.weight")) return !s->only || strstr(t->cname, s->only);
    if (strncmp(t->cname, "blk.", 4) || t->ne[1] < 2 || !strstr(t->cname, ".weight")) return false;
    if (t->ne[2] != 1 && !strstr(t->cname, "_exps.") && !strstr(t->cname, "attn_k_b.") &&
        !strstr(t->cname, "attn_v_b."))
        return false;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(t->cname, never[i])) return false;
    if (sscanf(t->cname, "blk.%d.", &layer) != 1 || layer >= adapter_layers(g)) return false;
    return !s->only || strstr(t->cname, s->only);
}

/* Stored value of element i of A (which 0) or B (which 1) of tensor k, which has n columns. */
static inline float adapter_value(const adapter_spec *s, size_t k, int which, int64_t i, int64_t n)
{
    uint64_t rng = (uint64_t) s->seed * UINT64_C(0x9E3779B97F4A7C15) + k * 2 + (uint64_t) which + ((uint64_t) i << 20);
    for (int r = 0; r < 3; r++) tiny_random(&rng);
    const float v = (tiny_random(&rng) / 2147483648.0f - 0.5f) * (s->size ? s->size : 1) *
                    (which ? 0.1f : 2.0f / (float) n);
    return s->type == PI__F16    ? pi__f16_to_f32(pi__f32_to_f16(v))
           : s->type == PI__BF16 ? pi__bf16_to_f32(pi__f32_to_bf16(v))
                                 : v;
}

static inline void adapter_text(pi__gguf_writer *w, const char *key, const char *s)
{
    const pi__str text = {s, strlen(s)};
    pi__gguf_put(w, key, PI__GGUF_STR, &text);
}

/* Writes all n_values values of A or B. */
static inline int adapter_values(pi__gguf_writer *w, const adapter_spec *s, size_t k, int which, int64_t n,
                                 int64_t n_values, pi_error *err)
{
    int rc = PI_OK;
    for (int64_t i = 0; i < n_values && !rc; i++) {
        const float v = adapter_value(s, k, which, i, n);
        const uint16_t h = s->type == PI__F16 ? pi__f32_to_f16(v) : pi__f32_to_bf16(v);
        rc = s->type == PI__F32 ? pi__gguf_writer_data(w, &v, sizeof v, err)
                                : pi__gguf_writer_data(w, &h, sizeof h, err);
    }
    return rc;
}

static inline int adapter_write(const char *path, const char *model, const adapter_spec *s, pi_error *err)
{
    pi__gguf *g;
    pi__gguf_writer *w;
    pi__str arch;
    char name[160];
    int rc = pi__gguf_open(&g, model, PI__LOAD_READ, err);
    if (!rc) rc = pi__gguf_get_str(g, "general.architecture", &arch, err);
    if (!rc) rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    adapter_text(w, "general.type", "adapter");
    if (s->arch) adapter_text(w, "general.architecture", s->arch);
    else pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    adapter_text(w, "adapter.type", "lora");
    pi__gguf_put(w, "adapter.lora.alpha", PI__GGUF_F32, &s->alpha);
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        if (!adapter_fits(g, t, s)) continue;
        const bool embeds = adapter_embeds(t);
        const int n_dims = t->ne[2] > 1 ? 3 : 2;
        snprintf(name, sizeof name, "%s.lora_a", t->cname);
        pi__gguf_put_tensor(w, name, s->type, n_dims,
                            (int64_t[3]) {embeds ? s->rank : t->ne[0], embeds ? t->ne[1] : s->rank, t->ne[2]});
        snprintf(name, sizeof name, "%s.lora_b", t->cname);
        pi__gguf_put_tensor(w, name, s->type, n_dims, (int64_t[3]) {s->rank, embeds ? t->ne[0] : t->ne[1], t->ne[2]});
    }
    if (s->more) pi__gguf_put_tensor(w, s->more, s->type, 2, (int64_t[2]) {8, 8});
    rc = pi__gguf_writer_begin(w, err);
    for (size_t i = 0; i < pi__gguf_n_tensors(g) && !rc; i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        if (!adapter_fits(g, t, s)) continue;
        const int64_t a = adapter_embeds(t) ? t->ne[1] : t->ne[0] * t->ne[2],
                      b = adapter_embeds(t) ? t->ne[0] : t->ne[1] * t->ne[2];
        rc = adapter_values(w, s, i, 0, t->ne[0], a * s->rank, err);
        if (!rc) rc = adapter_values(w, s, i, 1, t->ne[0], b * s->rank, err);
    }
    if (s->more && !rc) rc = adapter_values(w, s, 0, 0, 8, 64, err);
    const int end = pi__gguf_writer_close(w, !rc, err);
    pi__gguf_close(g);
    return rc ? rc : end;
}

/* Adds scale * (B A) of the adapter to row o of tensor k; rows are counted over all matrices of the tensor. */
static inline void adapter_merge_row(const adapter_spec *s, float scale, const pi__tensor *t, size_t k, int64_t o,
                                     float *row)
{
    const float all = scale * (s->alpha != 0 ? s->alpha / (float) s->rank : 1);
    const int64_t n = t->ne[0], rank = s->rank, mat = o / t->ne[1];
    const bool embeds = adapter_embeds(t);
    for (int64_t c = 0; c < n; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rank; r++) {
            const float a = adapter_value(s, k, 0, embeds ? o * rank + r : (mat * rank + r) * n + c, n);
            sum += (double) a * (double) adapter_value(s, k, 1, (embeds ? c : o) * rank + r, n);
        }
        row[c] += (float) (all * sum);
    }
}

/* True if the merged model stores the tensor in F32. */
static inline bool adapter_widens(const pi__tensor *t) { return t->ne[1] > 1 && pi__type_info_of(t->type)->readable; }

/* Writes the model with F32 matrices and the adapter merged into them; s NULL = no adapter. */
static inline int adapter_merge(const char *path, const char *model, const adapter_spec *s, float scale, pi_error *err)
{
    pi__gguf *g;
    pi__gguf_writer *w;
    int rc = pi__gguf_open(&g, model, PI__LOAD_READ, err);
    if (!rc) rc = pi__gguf_writer_open(&w, path, 0, err);
    if (rc) return rc;
    for (size_t i = 0; i < pi__gguf_n_kv(g); i++) pi__gguf_put_kv(w, pi__gguf_kv_at(g, i));
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        pi__gguf_put_tensor(w, t->cname, adapter_widens(t) ? PI__F32 : t->type, t->n_dims, t->ne);
    }
    rc = pi__gguf_writer_begin(w, err);
    for (size_t i = 0; i < pi__gguf_n_tensors(g) && !rc; i++) {
        const pi__tensor *t = pi__gguf_tensor_at(g, i);
        const size_t size = pi__row_size(pi__type_info_of(t->type), t->ne[0]);
        const char *data = pi__gguf_tensor_data(g, t);
        const int64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
        if (!adapter_widens(t)) {
            rc = pi__gguf_writer_data(w, data, size * (size_t) rows, err);
            continue;
        }
        float *row = malloc((size_t) t->ne[0] * sizeof *row);
        if (!row) rc = PI_ENOMEM;
        for (int64_t o = 0; o < rows && !rc; o++) {
            pi__dequantize_row(t->type, data + (size_t) o * size, row, t->ne[0]);
            if (s && adapter_fits(g, t, s)) adapter_merge_row(s, scale, t, i, o, row);
            rc = pi__gguf_writer_data(w, row, (size_t) t->ne[0] * sizeof *row, err);
        }
        free(row);
    }
    const int end = pi__gguf_writer_close(w, !rc, err);
    pi__gguf_close(g);
    return rc ? rc : end;
}

#endif
