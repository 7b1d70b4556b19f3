/* Declares, plans and loads a model of any architecture (see model.h).
 *
 * The list of declared tensors is the single source. The sum of their sizes is the plan, and each tensor's offset in
 * its region is known before memory is allocated (weights.c). */
#include "model/declare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/extent.h"
#include "formats/formats.h"

static const struct {
    const char *name;
    const pi__arch *arch;
} archs[] = {
#define ROW(suffix, name, ...) {name, &pi__arch_##suffix},
    PI__ARCHS(ROW)
#undef ROW
};
enum { N_ARCHS = sizeof archs / sizeof *archs };

const pi__arch *pi__arch_at(size_t i, const char **name)
{
    if (i >= N_ARCHS) return NULL;
    *name = archs[i].name;
    return archs[i].arch;
}

static void at_least(int64_t *a, int64_t b) { *a = *a > b ? *a : b; }
static void at_least32(int32_t *a, int32_t b) { *a = *a > b ? *a : b; }

static const char *file_type_name(uint32_t ft)
{
    static const char *const names[] = {
        [0] = "all F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0", [9] = "Q5_1",
        [10] = "Q2_K - Medium", [11] = "Q3_K - Small", [12] = "Q3_K - Medium", [13] = "Q3_K - Large",
        [14] = "Q4_K - Small", [15] = "Q4_K - Medium", [16] = "Q5_K - Small", [17] = "Q5_K - Medium", [18] = "Q6_K",
        [19] = "IQ2_XXS - 2.0625 bpw", [20] = "IQ2_XS - 2.3125 bpw", [21] = "Q2_K - Small", [22] = "IQ3_XS - 3.3 bpw",
        [23] = "IQ3_XXS - 3.0625 bpw", [24] = "IQ1_S - 1.5625 bpw", [25] = "IQ4_NL - 4.5 bpw",
        [26] = "IQ3_S - 3.4375 bpw", [27] = "IQ3_S mix - 3.66 bpw", [28] = "IQ2_S - 2.5 bpw", [29] = "IQ2_M - 2.7 bpw",
        [30] = "IQ4_XS - 4.25 bpw", [31] = "IQ1_M - 1.75 bpw", [32] = "BF16", [36] = "TQ1_0 - 1.69 bpw ternary",
        [37] = "TQ2_0 - 2.06 bpw ternary", [38] = "MXFP4 MoE", [39] = "NVFP4", [40] = "Q1_0", [41] = "Q2_0",
    };
    return ft < sizeof names / sizeof *names && names[ft] ? names[ft] : "unknown type";
}

static void describe(pi__model *m)
{
    pi__str name;
    uint32_t ft;
    if (!pi__model_ok(m) || pi__gguf_get_str(m->g, "general.name", &name, &m->error) ||
        pi__gguf_get_u32(m->g, "general.file_type", &ft, UINT32_MAX, &m->error)) return;
    snprintf(m->name, sizeof m->name, "%.*s", (int) (name.n < 63 ? name.n : 63), name.p ? name.p : "");
    for (size_t i = 0; i < pi__gguf_n_tensors(m->g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(m->g, i);
        m->n_params += (uint64_t) t->ne[0] * (uint64_t) t->ne[1] * (uint64_t) t->ne[2] * (uint64_t) t->ne[3];
        m->file_bytes += t->size;
    }
    char size[32];
    const char *known = m->arch->size_name ? m->arch->size_name(m) : NULL;
    if (known) snprintf(size, sizeof size, "%s", known);
    else if (m->n_params < 1000000000) snprintf(size, sizeof size, "%.0fM", (double) m->n_params * 1e-6);
    else snprintf(size, sizeof size, "%.1fB", (double) m->n_params * 1e-9);
    snprintf(m->desc, sizeof m->desc, "%s %s %s", m->arch->name, size, file_type_name(ft));
}

static const pi__arch *arch_of(const pi__gguf *g, pi_error *err)
{
    pi__str s;
    if (pi__gguf_get_str(g, "general.architecture", &s, err)) return NULL;
    if (!s.p) {
        pi__fail(err, PI_EFORMAT, "metadata general.architecture is missing: this file is not a model");
        return NULL;
    }
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i].name) == s.n && memcmp(archs[i].name, s.p, s.n) == 0) return archs[i].arch;
    pi__fail(err, PI_EUNSUPPORTED,
             "architecture \"%.*s\" is not supported: docs/MODELS.md lists the %d supported ones",
             (int) (s.n < 40 ? s.n : 40), s.p, (int) N_ARCHS);
    return NULL;
}

/* True if general.architecture ends like a drafter's. */
static bool is_drafter(const pi__gguf *g)
{
    static const char *const tail[] = {"-assistant", "dflash", "-dflash-draft"};
    const pi__gguf_kv *arch = pi__gguf_find(g, "general.architecture");
    for (size_t i = 0; arch && arch->type == PI__GGUF_STR && i < sizeof tail / sizeof *tail; i++) {
        const size_t n = strlen(tail[i]);
        if (arch->strs[0].n >= n && !memcmp(arch->strs[0].p + arch->strs[0].n - n, tail[i], n)) return true;
    }
    return false;
}

enum pi__kind pi__model_kind(const pi__gguf *g)
{
    const size_t n_tensors = pi__gguf_n_tensors(g);
    bool head = false, trunk = false;
    if (!n_tensors) return PI__KIND_VOCABULARY;
    if (is_drafter(g)) return PI__KIND_DRAFTER;
    for (size_t i = 0; i < n_tensors; i++) {
        const char *name = pi__gguf_tensor_at(g, i)->cname;
        if (!pi__gguf_layer(name, NULL)) trunk = true;
        else if (!strncmp(name, "blk.", 4) ? strstr(name, ".nextn.") != NULL : !strncmp(name, "mtp.0.", 6)) head = true;
    }
    return !head ? PI__KIND_MODEL : trunk ? PI__KIND_WITH_HEAD : PI__KIND_DRAFTER;
}

/* Names of the file's pooling types, by number. UNSAID: index of the name for files without a pooling type. */
enum { UNSAID = 5 };
static const char *const poolings[] = {"none", "mean", "cls", "last", "rank", ""};

int pi__model_declare(pi__model **out, const pi__gguf *g, pi__backend *be, const pi__model_use *use, pi_error *err)
{
    *out = NULL;
    pi_error why = {0};
    const pi__arch *arch = arch_of(g, &why);
    if (!arch) return pi__fail(err, why.code, "%s", why.msg);
    if (!use->target && pi__model_kind(g) == PI__KIND_DRAFTER)
        return pi__fail(err, PI_EUNSUPPORTED, "this file is a drafter of architecture %s: give it as model-draft "
                        "(-md), with the model it drafts for", arch->name);
    pi__model *m = pi__calloc(1, sizeof *m);
    if (!m) return pi__fail_mem(err, "the model");
    m->arch = arch;
    m->g = g;
    m->be = be;
    m->placement = use->placement;
    m->n_draft = use->n_draft;
    m->with_head = use->with_head;
    m->n_exit = use->n_exit;
    m->n_used = use->n_used;
    m->target = use->target;
    m->arch_data = pi__model_calloc(m, 1, arch->size, "the model");
    m->n_ctx_train = pi__hp_u32(m, "context_length", 1, 1 << 28);
    m->n_ctx = use->n_ctx > 0 ? use->n_ctx : m->n_ctx_train;
    m->n_embd = pi__hp_u32(m, "embedding_length", 1, PI__MAX_EMBD);
    m->n_layer = pi__hp_u32(m, "block_count", 1, PI__MAX_LAYERS);
    m->pooling = poolings[pi__hp_u32_or(m, "pooling_type", UNSAID, 0, UNSAID)];
    m->n_trunk = m->n_layer;
    m->bidirectional = arch->bidirectional;
    if (!use->target) pi__classifier_declare(m), pi__dense_heads_declare(m);
    /* the last token of a bidirectional model does not summarize the text */
    if (m->bidirectional && (!*m->pooling || !strcmp(m->pooling, "none"))) m->pooling = "mean";
    if (pi__model_ok(m)) arch->declare(m);
    if (m->n_used && !m->lim.max_expert)
        pi__model_refuse(m, PI_EINVAL, "moe-n-expert: a %s model has no experts: leave it out", arch->name);
    describe(m);
    m->placement = NULL;
    if (!pi__model_ok(m)) {
        why = m->error;
        pi__model_free(m);
        return pi__fail(err, why.code, "%s", why.msg);
    }
    *out = m;
    return PI_OK;
}

size_t pi__model_scratch(pi__model *m, pi__limits *lim)
{
    const pi__limits *own = &m->lim;
    at_least(&lim->max_n_in, own->max_n_in);
    at_least(&lim->max_n_out, own->max_n_out);
    at_least(&lim->max_in_exp, own->max_in_exp);
    at_least(&lim->max_ff_exp, own->max_ff_exp);
    at_least(&lim->max_order, own->max_order);
    at_least32(&lim->max_n_head, own->max_n_head);
    at_least32(&lim->max_head_dim, own->max_head_dim);
    at_least32(&lim->max_expert, own->max_expert);
    at_least32(&lim->max_used, own->max_used);
    at_least32(&lim->max_pick, own->max_pick);
    at_least32(&lim->state.n_k, own->state.n_k);
    at_least32(&lim->state.n_v, own->state.n_v);
    at_least32(&lim->state.dim, own->state.dim);
    at_least32(&lim->state.dim_v, own->state.dim_v);
    at_least32(&lim->state.ssd, own->state.ssd);
    at_least32(&lim->state.kda, own->state.kda);
    at_least32(&lim->state.n_conv, own->state.n_conv);
    at_least32(&lim->state.n_draft, m->n_draft);
    at_least32(&lim->max_row, own->max_row);
    at_least(&lim->max_stream, own->max_stream);
    at_least32(&lim->n_head_mat, own->n_head_mat);
    at_least(&lim->head_in, own->head_in);
    at_least(&lim->head_out, own->head_out);
    at_least32(&lim->indexer_head, own->indexer_head);
    at_least32(&lim->indexer_dim, own->indexer_dim);
    if (own->indexer_ratio) lim->indexer_ratio = own->indexer_ratio;
    pi__arena a = {0};
    m->arch->layout(m, lim, &a);
    return a.used;
}

/* Max bytes of the file that are read at a time, so that the file and its copy are never both in memory; a discrete
 * device gets larger pieces, because its threads pack one piece together. */
enum { LOAD_BYTES = 4 << 20, DISCRETE_LOAD_BYTES = 16 << 20 };

typedef struct stage { /* buffer for a piece of a file that is not memory-mapped */
    char *p;
    size_t cap;
} stage;

/* Refuses values that are not finite in n bytes of the tensor from offset off (complete quantization blocks). */
static int check_values(const pi__tensor *t, uint64_t off, const char *data, size_t n, pi_error *err)
{
    enum { PART = 1024 };
    float v[PART];
    const pi__type_info *info = pi__type_info_of(t->type);
    if (!info->readable) return PI_OK; /* integer types */
    for (size_t at = 0, part = PART / info->blck_size * info->type_size; at < n; at += part) {
        int64_t k = (int64_t) ((n - at < part ? n - at : part) / info->type_size * info->blck_size);
        pi__dequantize_row(t->type, data + at, v, k);
        for (int64_t i = 0; i < k; i++)
            if (!isfinite(v[i]))
                return pi__fail(err, PI_EFORMAT, "tensor %.100s: value %llu is %s: "
                                "the file is damaged or was written wrongly",
                                t->cname, (unsigned long long) ((off + at) / info->type_size * info->blck_size) +
                                (unsigned long long) i, v[i] != v[i] ? "not a number" : "infinite");
    }
    return PI_OK;
}

/* Returns n bytes of the tensor from offset off: in place, or copied to st. Checks the values (check_tensors) and
 * adds the bytes to m->digest (want_digest). Returns NULL on errors, with their code in *rc. */
static const char *piece(pi__model *m, const pi__tensor *t, uint64_t off, size_t n, stage *st, int *rc, pi_error *err)
{
    const char *data = pi__gguf_tensor_data(m->g, t);
    if (data) {
        data += off;
    } else {
        if (!pi__grow(&st->p, &st->cap, n, 1)) *rc = pi__fail_mem(err, "reading a tensor");
        else *rc = pi__gguf_read(m->g, t, off, st->p, n, err);
        data = *rc ? NULL : st->p;
    }
    if (data && m->check_tensors && (*rc = check_values(t, off, data, n, err))) return NULL;
    if (data && m->want_digest && !m->image.complete) m->digest = pi__hash_chain(PI__HASH_WEIGHTS, &m->digest, data, n);
    return data;
}

/* Refuses NaN in a small vector, regardless of the option check-tensors: NaN there may change the output without
 * making it NaN, for example in the choice of experts. */
static int check_numbers(const pi__tensor *t, const float *v, int64_t n, pi_error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (v[i] != v[i])
            return pi__fail(err, PI_EFORMAT,
                            "tensor %.100s: value %lld is not a number: the file is damaged or was written wrongly",
                            t->cname, (long long) i);
    return PI_OK;
}

/* Uploads values that are not in the file to dst on the device. */
static void upload_values(pi__model *m, const pi__declared *w, float *dst)
{
    pi__backend *be = pi__backend_at(m->be, w->placement);
    be->dev->upload(be, dst, w->values, w->size);
}

/* Reads the f32 values of w: uploads a vec or scale to dst on the device, or stores host values at dst. */
static int load_values(pi__model *m, const pi__declared *w, float *dst, stage *st, pi_error *err)
{
    int rc = PI_OK;
    const int64_t n_file = w->tensor->ne[0] * w->tensor->ne[1] * w->tensor->ne[2],
                  n = w->scale ? w->scale->n_mat : n_file, n_row = w->n_row ? w->n_row : n;
    const char *src = piece(m, w->tensor, 0, w->tensor->size, st, &rc, err);
    if (!src) return rc;
    float *tmp = w->host ? w->host : pi__malloc((size_t) n * sizeof *tmp);
    if (!tmp) return pi__fail_mem(err, "reading a tensor");
    pi__dequantize_row(w->tensor->type, src, tmp, n_file);
    if ((rc = check_numbers(w->tensor, tmp, n_file, err))) {
        if (!w->host) pi__free(tmp);
        return rc;
    }
    for (int64_t i = n_file; i < n; i++) tmp[i] = tmp[0]; /* one factor for all matrices */
    for (int64_t i = 0; i < n && w->vec; i++) tmp[i] *= w->factor;
    if (w->host) return PI_OK;
    float *sorted = w->row ? pi__malloc((size_t) n_row * sizeof *sorted) : tmp;
    for (int64_t i = 0; i < n_row && w->row && sorted; i++) sorted[i] = w->row[i] < 0 ? 0 : tmp[w->row[i]];
    pi__backend *be = pi__backend_at(m->be, w->placement);
    if (sorted) be->dev->upload(be, dst, sorted, (size_t) (w->row ? n_row : n) * sizeof *tmp);
    if (sorted != tmp) pi__free(tmp);
    pi__free(sorted);
    return sorted ? PI_OK : pi__fail_mem(err, "reading a tensor");
}

/* Reads the integers of w into `to`, which has space for all elements of the tensor. Refuses integers out of range
 * (in a permutation also duplicates), so that they are safe as indices. */
static int read_numbers(pi__model *m, const pi__declared *w, int32_t *to, stage *st, pi_error *err)
{
    const pi__tensor *t = w->tensor;
    const int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    int rc = PI_OK;
    const char *src = piece(m, t, 0, t->size, st, &rc, err);
    if (!src) return rc;
    const int64_t below = w->below ? w->below : n;
    uint8_t *seen = pi__calloc((size_t) below, 1);
    if (!seen) return pi__fail_mem(err, "reading a tensor");
    for (int64_t i = 0; i < n && !rc; i++) {
        int64_t v = 0;
        int32_t v32 = 0;
        if (t->type == PI__I64) memcpy(&v, src + 8 * i, 8);
        else memcpy(&v32, src + 4 * i, 4), v = v32;
        if (v < 0 || v >= below || (seen[v] && !w->below))
            rc = pi__fail(err, PI_EFORMAT, "tensor %s: number %lld is %lld, expected %s below %lld%s", t->cname,
                          (long long) i, (long long) v, w->below ? "one" : "each", (long long) below,
                          w->below ? "" : " once");
        else to[i] = (int32_t) v, seen[v] = 1;
    }
    pi__free(seen);
    return rc;
}

/* Reads integers like read_numbers, and uploads them to dst on the device. */
static int load_numbers(pi__model *m, const pi__declared *w, int32_t *dst, stage *st, pi_error *err)
{
    int32_t *tmp = pi__calloc(w->size, 1);
    if (!tmp) return pi__fail_mem(err, "reading a tensor");
    const int rc = read_numbers(m, w, tmp, st, err);
    pi__backend *be = pi__backend_at(m->be, w->placement);
    if (!rc) be->dev->upload(be, dst, tmp, w->size);
    pi__free(tmp);
    return rc;
}

/* Returns n rows of a matrix from row `first` on, in the order of want->row. row: bytes per row. st[0]: buffer for file
 * data; st[1]: buffer for gathered rows. Returns NULL on errors, with their code in *rc. */
static const char *rows_of(pi__model *m, const pi__declared *want, int64_t first, int64_t n, size_t row, stage st[2],
                           int *rc, pi_error *err)
{
    if (!want->row) return piece(m, want->tensor, (uint64_t) first * row, (size_t) n * row, &st[0], rc, err);
    if (!pi__grow(&st[1].p, &st[1].cap, (size_t) n * row, 1)) *rc = pi__fail_mem(err, "reading a tensor");
    for (int64_t i = 0; i < n && !*rc; i++) {
        const int32_t at = want->row[first + i];
        if (at < 0) { /* zero bytes are zeros in every format */
            memset(st[1].p + (size_t) i * row, 0, row);
            continue;
        }
        const char *src = piece(m, want->tensor, (uint64_t) at * row, row, &st[0], rc, err);
        if (src) memcpy(st[1].p + (size_t) i * row, src, row);
    }
    return *rc ? NULL : st[1].p;
}

/* Returns the rows of matrix `mat` of a stack that has file rows as columns (want->turned). Builds them in st[1]:
 * first the columns as floats, then the rows, `row` bytes each. Returns NULL on errors, with their code in *rc. */
static const char *turned_matrix(pi__model *m, const pi__declared *want, int64_t mat, size_t row, stage st[2], int *rc,
                                 pi_error *err)
{
    const pi__weight *w = want->weight;
    const pi__tensor *t = want->tensor;
    const int64_t n_in = w->n_in, n_out = w->n_out;
    const size_t floats = (size_t) (n_in * n_out + n_in) * sizeof(float),
                 there = pi__row_size(pi__type_info_of(t->type), n_out);
    if (!pi__grow(&st[1].p, &st[1].cap, floats + (size_t) n_out * row, 1)) *rc = pi__fail_mem(err, "reading a tensor");
    float *column = (float *) (void *) st[1].p, *one = column + n_in * n_out;
    for (int64_t i = 0; i < n_in && !*rc; i++) {
        const char *src = piece(m, t, (uint64_t) want->row[mat * n_in + i] * there, there, &st[0], rc, err);
        if (src) pi__dequantize_row(t->type, src, column + i * n_out, n_out);
    }
    for (int64_t r = 0; r < n_out && !*rc; r++) {
        for (int64_t i = 0; i < n_in; i++) one[i] = column[i * n_out + r];
        pi__quantize_row(w->type, one, st[1].p + floats + (size_t) r * row, n_in, NULL);
    }
    return *rc ? NULL : st[1].p + floats;
}

/* Converts n file rows at src to rows with reordered columns (want->col) in st[1]. Returns them, or NULL with *rc. */
static const char *columns_of(const pi__declared *want, const char *src, int64_t n, stage st[2], int *rc,
                              pi_error *err)
{
    const pi__weight *w = want->weight;
    const int64_t n_in = w->n_in;
    const size_t floats = 2 * (size_t) n_in * sizeof(float), row = pi__row_size(pi__type_info_of(w->type), n_in),
                 there = pi__row_size(pi__type_info_of(want->tensor->type), n_in);
    if (!pi__grow(&st[1].p, &st[1].cap, floats + (size_t) n * row, 1)) {
        *rc = pi__fail_mem(err, "reading a tensor");
        return NULL;
    }
    float *from = (float *) (void *) st[1].p, *to = from + n_in;
    for (int64_t r = 0; r < n; r++) {
        pi__dequantize_row(want->tensor->type, src + (size_t) r * there, from, n_in);
        for (int64_t i = 0; i < n_in; i++) to[i] = from[want->col[i]];
        pi__quantize_row(w->type, to, st[1].p + floats + (size_t) r * row, n_in, NULL);
    }
    return st[1].p + floats;
}

static int load_turned(pi__model *m, const pi__declared *want, stage st[2], pi_error *err)
{
    const pi__weight *w = want->weight;
    pi__backend *be = pi__backend_at(m->be, w->placement);
    const size_t row = pi__row_size(pi__type_info_of(w->type), w->n_in);
    int rc = PI_OK;
    for (int64_t mat = 0; mat < w->n_mat && !rc; mat++) {
        const char *src = turned_matrix(m, want, mat, row, st, &rc, err);
        if (!src) return rc;
        be->dev->weight_load(be, w, mat, 0, w->n_out, src);
        rc = pi__progress_add(m->progress, (uint64_t) w->n_out * row, err);
    }
    pi__gguf_drop(m->g, want->tensor, 0, want->tensor->size);
    return rc;
}

/* Returns n rows of `type` (`row` bytes each) as rows of w's type, in st. Returns NULL on errors, with their code in
 * *rc. */
static const char *widened(const pi__weight *w, int32_t type, const char *src, int64_t n, size_t row, stage *st,
                           int *rc, pi_error *err)
{
    const size_t wide = pi__row_size(pi__type_info_of(w->type), w->n_in);
    if (!pi__grow(&st->p, &st->cap, (size_t) n * wide, 1)) {
        *rc = pi__fail_mem(err, "reading a tensor");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) pi__widen_row(type, src + (size_t) i * row, st->p + (size_t) i * wide, w->n_in);
    return st->p;
}

/* st: buffers for file data, for gathered rows, and for rows of another type. */
static int load_weight(pi__model *m, const pi__declared *want, stage st[3], pi_error *err)
{
    if (want->turned) return load_turned(m, want, st, err);
    const pi__weight *w = want->weight;
    pi__backend *be = pi__backend_at(m->be, w->placement);
    const int32_t type = want->tensor->type;
    const size_t row = pi__row_size(pi__type_info_of(type), w->n_in);
    int64_t step = (int64_t) ((be->discrete ? DISCRETE_LOAD_BYTES : LOAD_BYTES) / row) / PI__LOAD_ROWS * PI__LOAD_ROWS;
    if (step < PI__LOAD_ROWS) step = PI__LOAD_ROWS;
    int rc = PI_OK;
    for (int64_t mat = 0; mat < w->n_mat; mat++)
        for (int64_t r = 0; r < w->n_out; r += step) {
            int64_t n = w->n_out - r < step ? w->n_out - r : step;
            const char *src = rows_of(m, want, mat * w->n_out + r, n, row, st, &rc, err);
            if (src && want->col) src = columns_of(want, src, n, st, &rc, err);
            else if (src && w->type != type) src = widened(w, type, src, n, row, &st[2], &rc, err);
            if (!src) return rc;
            be->dev->weight_load(be, w, mat, r, n, src);
            if (!want->row)
                pi__gguf_drop(m->g, want->tensor, (uint64_t) (mat * w->n_out + r) * row, (uint64_t) n * row);
            rc = pi__progress_add(m->progress, (uint64_t) n * row, err);
            if (rc) return rc;
        }
    if (want->row) pi__gguf_drop(m->g, want->tensor, 0, want->tensor->size);
    return PI_OK;
}

/* Returns the bytes that load reads from the file for a declared tensor. */
static uint64_t file_bytes(const pi__declared *want)
{
    const pi__weight *w = want->weight;
    if (!w) return want->tensor ? want->tensor->size : 0;
    const int32_t type = want->turned ? w->type : want->tensor->type;
    return pi__row_size(pi__type_info_of(type), w->n_in) * (uint64_t) w->n_out * (uint64_t) w->n_mat;
}

uint64_t pi__model_load_bytes(const pi__model *m)
{
    uint64_t all = 0;
    for (size_t i = 0; i < m->n_want; i++) all += file_bytes(&m->want[i]);
    return all;
}

int pi__model_load(pi__model *m, const pi__limits *lim, pi__progress *p, pi_error *err)
{
    pi__limits own = *lim;
    m->scratch_size = pi__model_scratch(m, &own);
    int rc = pi__weights_alloc(m, err);
    if (rc) return rc;
    m->scratch = m->be->dev->alloc(m->be, m->scratch_size);
    if (!m->scratch) return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of activations", m->scratch_size >> 20);
    pi__arena a = {.base = m->scratch, .size = m->scratch_size, .buffers = true};
    m->arch->layout(m, &own, &a);

    m->progress = p;
    m->want_digest |= m->image.map != NULL; /* processes that share the image compare the digest */
    stage st[3] = {0};
    for (size_t i = 0; i < m->n_want && !rc; i++) {
        const pi__declared *w = &m->want[i];
        char *at = pi__weights_at(m, w);
        float *values = (float *) (void *) at;
        if (w->weight) w->weight->data = at;
        else if (w->scale) w->scale->scale = values;
        else if (w->vec) *w->vec = values;
        else if (w->numbers) *w->numbers = (int32_t *) (void *) at;
        const bool there = m->image.complete && m->weights[w->placement].part;
        if (there && !w->host && !w->order) rc = w->weight ? pi__progress_add(p, file_bytes(w), err) : PI_OK;
        else if (w->weight) rc = load_weight(m, w, st, err);
        else if (w->values) upload_values(m, w, values);
        else if (w->order) rc = read_numbers(m, w, w->order, st, err);
        else if (w->numbers) rc = load_numbers(m, w, *w->numbers, st, err);
        else rc = load_values(m, w, values, st, err);
        if (!rc && !w->weight) rc = pi__progress_add(p, file_bytes(w), err);
    }
    m->progress = NULL;
    for (int i = 0; i < 3; i++) pi__free(st[i].p);
    if (!rc) rc = pi__weights_image_finish(m, err);
    if (!rc && m->arch->loaded) m->arch->loaded(m);
    m->g = NULL;
    return rc || pi__model_ok(m) ? rc : pi__fail(err, m->error.code, "%s", m->error.msg);
}

void pi__model_free(pi__model *m)
{
    if (!m) return;
    pi__weights_free(m);
    pi__extent_drop(m->scratch, m->scratch_size);
    if (m->scratch) m->be->dev->free(m->be, m->scratch, m->scratch_size);
    pi__free(m->want);
    pi__free(m->lora_target);
    pi__free(m->kv);
    pi__free(m->state);
    pi__model_free_owned(m);
    pi__free(m);
}
