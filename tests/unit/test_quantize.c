/* pi_quantize on small files that the test writes: types and metadata of the result, options, errors, full disks, and
 * each allocation failed in turn. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "formats/formats.h"
#include "api/quantize_prune.h"
#include "gguf/gguf.h"
#include "pagedinfer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char folder[64], source[128], target[128], other[128];

static const struct source_tensor {
    const char *name;
    int32_t type, n_dims;
    int64_t ne[4];
} tensors[] = {
    {"output_norm.weight", PI__F32, 1, {256, 1, 1, 1}},
    {"output.weight", PI__F16, 2, {256, 40, 1, 1}},
    {"blk.0.attn_v.weight", PI__BF16, 2, {256, 70, 1, 1}}, /* larger than one work piece */
    {"blk.0.ffn_down.weight", PI__F32, 2, {96, 5, 1, 1}},  /* not a multiple of 256 */
    {"blk.0.ffn_up.weight", PI__F32, 2, {40, 5, 1, 1}},    /* not a multiple of 32 */
    {"blk.0.ffn_gate_inp.weight", PI__F32, 2, {256, 3, 1, 1}},
    {"blk.0.ssm_conv1d.weight", PI__F32, 2, {4, 256, 1, 1}},
    {"blk.1.ffn_gate_exps.weight", PI__F16, 3, {256, 6, 3, 1}},
    {"blk.1.attn_v.weight", PI__F32, 2, {512, 2, 1, 1}},
    {"blk.1.attn_q.bias", PI__F32, 1, {256, 1, 1, 1}},
    {"token_embd.weight", PI__F32, 2, {256, 40, 1, 1}},
    {"rope_freqs.weight", PI__F32, 1, {32, 1, 1, 1}},
};

static float *values_of(size_t i, int64_t *n)
{
    const struct source_tensor *t = &tensors[i];
    *n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    float *x = malloc((size_t) *n * sizeof *x);
    uint64_t seed = i + 1;
    for (int64_t k = 0; x && k < *n; k++) {
        double sum = 0; /* nearly gaussian */
        for (int j = 0; j < 4; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            sum += (double) (seed >> 40) * 0x1p-24 - 0.5;
        }
        x[k] = (float) (sum * 0.05);
    }
    return x;
}

static void put_u32(pi__gguf_writer *w, const char *key, uint32_t v) { pi__gguf_put(w, key, PI__GGUF_U32, &v); }

static void write_source(const char *path, float odd)
{
    pi__gguf_writer *w;
    assert_int_equal(pi__gguf_writer_open(&w, path, 64, NULL), PI_OK);
    pi__str arch = {"llama", 5}, words[] = {{"<s>", 3}, {"", 0}, {"hello", 5}};
    float scores[3] = {0, -1.5f, 2};
    pi__gguf_put(w, "general.architecture", PI__GGUF_STR, &arch);
    put_u32(w, "general.file_type", 1);
    put_u32(w, "llama.block_count", 2);
    put_u32(w, "llama.attention.head_count", 8);
    put_u32(w, "llama.attention.head_count_kv", 4);
    pi__gguf_put_arr(w, "tokenizer.ggml.tokens", PI__GGUF_STR, 3, words);
    pi__gguf_put_arr(w, "tokenizer.ggml.scores", PI__GGUF_F32, 3, scores);
    for (size_t i = 0; i < COUNT(tensors); i++) {
        pi__gguf_put_tensor(w, tensors[i].name, tensors[i].type, tensors[i].n_dims, tensors[i].ne);
    }
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    for (size_t i = 0; i < COUNT(tensors); i++) {
        int64_t n;
        float *x = values_of(i, &n);
        assert_non_null(x);
        if (odd != 0) x[n / 2] = odd;
        size_t size = pi__row_size(pi__type_info_of(tensors[i].type), n);
        void *data = malloc(size);
        assert_true(data && pi__quantize_row(tensors[i].type, x, data, n, NULL));
        assert_int_equal(pi__gguf_writer_data(w, data, size, NULL), PI_OK);
        free(data);
        free(x);
    }
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
}

static int setup(void **state)
{
    (void) state;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/quantizeXXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(source, sizeof source, "%s/source.gguf", folder);
    snprintf(target, sizeof target, "%s/target.gguf", folder);
    snprintf(other, sizeof other, "%s/other.gguf", folder);
    write_source(source, 0);
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    unlink(source);
    unlink(target);
    unlink(other);
    return rmdir(folder); /* fails if any file was left */
}

static int quantize(const char *type, const char *a, const char *b, pi_error *err)
{
    const char *options[] = {a, a ? b : NULL, NULL};
    return pi_quantize(source, target, type, options, NULL, NULL, err);
}

static void refused(int want, const char *word, const char *type, const char *a, const char *b)
{
    pi_error err = {0};
    int rc = quantize(type, a, b, &err);
    if (rc != want || !strstr(err.msg, word)) fail_msg("%s %s: %s: %s", type, a ? a : "", pi_err_name(rc), err.msg);
    assert_int_not_equal(access(target, F_OK), 0);
}

static pi__gguf *open_target(void)
{
    pi__gguf *g;
    pi_error err = {0};
    if (pi__gguf_open(&g, target, PI__LOAD_READ, &err) != PI_OK) fail_msg("%s", err.msg);
    return g;
}

static int32_t type_in(const pi__gguf *g, const char *name)
{
    const pi__tensor *t = pi__gguf_find_tensor(g, name);
    assert_non_null(t);
    return t->type;
}

/* Returns the relative error of tensor i in the file; 0 if the type is the source's. */
static double error_of(const pi__gguf *g, size_t i)
{
    const pi__tensor *t = pi__gguf_find_tensor(g, tensors[i].name);
    int64_t n;
    float *x = values_of(i, &n), *y = malloc((size_t) n * sizeof *y);
    assert_true(t && x && y);
    assert_true(pi__dequantize_row(t->type, pi__gguf_tensor_data(g, t), y, n));
    double e = 0, p = 0;
    for (int64_t k = 0; k < n; k++) {
        e += ((double) y[k] - x[k]) * ((double) y[k] - x[k]);
        p += (double) x[k] * x[k];
    }
    free(x);
    free(y);
    return sqrt(e / p);
}

static void mixture_and_metadata(void **state)
{
    (void) state;
    pi_error err = {0};
    if (quantize("q4_k_m", NULL, NULL, &err) != PI_OK) fail_msg("%s", err.msg);
    pi__gguf *g = open_target();
    assert_int_equal(pi__gguf_n_tensors(g), COUNT(tensors));
    assert_int_equal(pi__gguf_alignment(g), 64);
    assert_int_equal(type_in(g, "output.weight"), PI__Q6_K);
    assert_int_equal(type_in(g, "token_embd.weight"), PI__Q4_K);
    assert_int_equal(type_in(g, "blk.0.attn_v.weight"), PI__Q4_K);
    assert_int_equal(type_in(g, "blk.1.attn_v.weight"), PI__Q6_K); /* in the last eighth of two layers */
    assert_int_equal(type_in(g, "blk.0.ffn_down.weight"), PI__Q5_0);
    assert_int_equal(type_in(g, "blk.0.ffn_up.weight"), PI__F16);
    assert_int_equal(type_in(g, "blk.1.ffn_gate_exps.weight"), PI__Q4_K);
    static const char *const kept[] = {"output_norm.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_conv1d.weight",
                                       "blk.1.attn_q.bias", "rope_freqs.weight"};
    for (size_t i = 0; i < COUNT(kept); i++) assert_int_equal(type_in(g, kept[i]), PI__F32);
    for (size_t i = 0; i < COUNT(tensors); i++) {
        int32_t type = type_in(g, tensors[i].name);
        double e = error_of(g, i), limit = type == tensors[i].type || type == PI__F16 ? 0.003 : 0.08;
        if (e > limit) fail_msg("%s: %g", tensors[i].name, e);
        if (type == PI__F32) assert_true(e == 0);
    }
    uint32_t v = 0;
    assert_int_equal(pi__gguf_get_u32(g, "general.file_type", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 15);
    assert_int_equal(pi__gguf_get_u32(g, "general.quantization_version", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 2);
    assert_int_equal(pi__gguf_get_u32(g, "llama.block_count", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 2);
    const pi__gguf_kv *kv = pi__gguf_find(g, "tokenizer.ggml.tokens");
    assert_true(kv && kv->n == 3 && pi__gguf_elem_str(kv, 2).n == 5 && pi__gguf_elem_str(kv, 1).n == 0);
    pi__gguf_close(g);
}

static void write_imatrix(const char *path, float odd);

static void every_type_is_readable(void **state)
{
    (void) state;
    size_t n = 0;
    char imatrix[160];
    snprintf(imatrix, sizeof imatrix, "imatrix=%s", other);
    write_imatrix(other, 0.5f);
    for (const char *name; (name = pi_quantize_type(n)); n++) {
        pi_error err = {0};
        const bool coarse = !strncmp(name, "IQ1", 3) || !strncmp(name, "IQ2", 3) || !strcmp(name, "IQ3_XXS");
        const int rc = quantize(name, coarse ? imatrix : NULL, coarse ? "tensor-type=attn_v=IQ3_S" : NULL, &err);
        if (rc != PI_OK) fail_msg("%s: %s", name, err.msg);
        pi__gguf *g = open_target();
        double worst = 0;
        for (size_t i = 0; i < COUNT(tensors); i++) {
            double e = error_of(g, i);
            if (e > worst) worst = e;
        }
        pi__gguf_close(g);
        const double most = !strcmp(name, "Q1_0") ? 0.65 : coarse ? 0.6 : !strcmp(name, "Q2_0") ? 0.4 : 0.3;
        if (!(worst < most)) fail_msg("%s: error %g", name, worst);
        if (strcmp(name, "F32") == 0) assert_true(worst < 0.003); /* the source's halves and bfloats */
    }
    assert_true(n >= 15);
    assert_null(pi_quantize_type(n));
    unlink(other);
}

static void options_choose_types(void **state)
{
    (void) state;
    assert_int_equal(quantize("Q4_K", "pure=1", NULL, NULL), PI_OK);
    pi__gguf *g = open_target();
    assert_int_equal(type_in(g, "output.weight"), PI__Q4_K);
    assert_int_equal(type_in(g, "blk.1.attn_v.weight"), PI__Q4_K);
    pi__gguf_close(g);
    assert_int_equal(quantize("7", "output-tensor-type=f16", "token_embedding_type=Q6_K", NULL), PI_OK);
    g = open_target();
    assert_int_equal(type_in(g, "output.weight"), PI__F16);
    assert_int_equal(type_in(g, "token_embd.weight"), PI__Q6_K);
    assert_int_equal(type_in(g, "blk.0.attn_v.weight"), PI__Q8_0);
    pi__gguf_close(g);
    assert_int_equal(quantize("Q8_0", "tensor-type=^blk\\.[0-9]+\\.attn_.*=q5_k", "leave-output-tensor", NULL), PI_OK);
    g = open_target();
    assert_int_equal(type_in(g, "blk.0.attn_v.weight"), PI__Q5_K);
    assert_int_equal(type_in(g, "blk.0.ffn_down.weight"), PI__Q8_0);
    assert_int_equal(type_in(g, "blk.1.attn_q.bias"), PI__F32);
    assert_int_equal(type_in(g, "output.weight"), PI__F16);
    pi__gguf_close(g);
}

static void the_list_says_numbers(void **state)
{
    (void) state;
    pi_quantize_info info = {.size = sizeof info};
    size_t n = 0;
    bool xs = false, copy = false;
    for (; !pi_quantize_describe(n, &info); n++) {
        assert_string_equal(info.name, pi_quantize_type(n));
        if (!strcmp(info.name, "IQ4_XS"))
            xs = info.number == 30 && info.bits == 4.25 && !strcmp(info.matrices, "IQ4_XS");
        if (!strcmp(info.name, "COPY")) copy = info.number == -1 && info.bits == 0 && !*info.matrices;
    }
    assert_true(xs && copy);
    assert_null(pi_quantize_type(n));
    assert_int_equal(pi_quantize_describe(n, &info), PI_ENOENT);
    assert_int_equal(pi_quantize_describe(0, NULL), PI_EINVAL);
}

static void metadata_is_set(void **state)
{
    (void) state;
    const char *const options[] = {"override-kv=llama.block_count=int:7", "override_kv=general.name=str:a=b:c",
                                   "override-kv=llama.x=float:0.5", "override-kv=llama.big=int:-3",
                                   "override-kv=llama.yes=bool:true", NULL};
    pi_error err = {0};
    if (pi_quantize(source, target, "COPY", options, NULL, NULL, &err)) fail_msg("%s", err.msg);
    pi__gguf *g = open_target();
    for (size_t i = 0; i < COUNT(tensors); i++) assert_int_equal(type_in(g, tensors[i].name), tensors[i].type);
    const pi__gguf_kv *kv = pi__gguf_find(g, "llama.block_count");
    assert_true(kv && kv->type == PI__GGUF_U32 && pi__gguf_elem_u64(kv, 0) == 7);
    kv = pi__gguf_find(g, "llama.x");
    assert_true(kv && kv->type == PI__GGUF_F32 && pi__gguf_elem_f64(kv, 0) == 0.5);
    kv = pi__gguf_find(g, "llama.big");
    assert_true(kv && kv->type == PI__GGUF_I64 && pi__gguf_elem_i64(kv, 0) == -3);
    kv = pi__gguf_find(g, "llama.yes");
    assert_true(kv && kv->type == PI__GGUF_BOOL && pi__gguf_elem_u64(kv, 0) == 1);
    kv = pi__gguf_find(g, "general.file_type");
    assert_true(kv && pi__gguf_elem_u64(kv, 0) == 1); /* unchanged */
    pi__str name;
    assert_int_equal(pi__gguf_get_str(g, "general.name", &name, NULL), PI_OK);
    assert_true(name.n == 5 && !memcmp(name.p, "a=b:c", 5));
    pi__gguf_close(g);
    unlink(target);
}

static void layers_are_left_out(void **state)
{
    (void) state;
    unlink(target);
    refused(PI_EINVAL, "from 0 to 1", "Q8_0", "prune-layers=2", NULL);
    refused(PI_EINVAL, "from 0 to 1", "Q8_0", "prune-layers=0;1", NULL);
    refused(PI_EINVAL, "from 0 to 1", "Q8_0", "prune-layers=0,", NULL);
    refused(PI_EINVAL, "no layer is left", "Q8_0", "prune-layers=1,0", NULL);
    assert_int_equal(quantize("COPY", "prune-layers=0,0", NULL, NULL), PI_OK);
    pi__gguf *g = open_target();
    size_t left = 0;
    for (size_t i = 0; i < COUNT(tensors); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", tensors[i].name);
        if (!strncmp(name, "blk.0.", 6)) continue;
        if (!strncmp(name, "blk.1.", 6)) name[4] = '0';
        assert_int_equal(type_in(g, name), tensors[i].type);
        left++;
    }
    assert_true(left < COUNT(tensors));
    assert_int_equal(pi__gguf_n_tensors(g), left);
    uint32_t v = 0;
    assert_int_equal(pi__gguf_get_u32(g, "llama.block_count", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 1);
    pi__gguf_close(g);
    unlink(target);
}

/* Renumbering can shorten a name: layer 10 of 11 becomes 9. */
static void names_get_shorter(void **state)
{
    (void) state;
    bool gone[11] = {[3] = true};
    const pi__prune p = {gone, 11, 1};
    static const char *const names[][2] = {{"blk.10.attn_q.weight", "blk.9.attn_q.weight"}, {"blk.2.x", "blk.2.x"},
                                           {"blk.4.x", "blk.3.x"}, {"output.weight", "output.weight"}};
    for (size_t i = 0; i < COUNT(names); i++) {
        pi__tensor t = {.name = {names[i][0], strlen(names[i][0])}};
        char out[32];
        snprintf(t.cname, sizeof t.cname, "%s", names[i][0]);
        pi__prune_name(&p, &t, out);
        assert_string_equal(out, names[i][1]);
        assert_false(pi__prune_drops(&p, &t));
    }
    pi__tensor t = {.name = {"blk.3.x", 7}, .cname = "blk.3.x"};
    assert_true(pi__prune_drops(&p, &t));
}

static void count_lines(void *ud, const char *line)
{
    *(size_t *) ud += strstr(line, " -> ") || strstr(line, "quantized size");
}

static void a_dry_run_writes_nothing(void **state)
{
    (void) state;
    const char *const dry[] = {"dry-run=1", "threads=1", NULL};
    size_t n = 0;
    unlink(target);
    assert_int_equal(pi_quantize(source, target, "Q4_K_M", dry, count_lines, &n, NULL), PI_OK);
    assert_int_equal(pi_quantize(source, NULL, "Q4_K_M", dry, count_lines, &n, NULL), PI_OK);
    assert_int_equal(n, 2 * (COUNT(tensors) + 1));
    assert_int_not_equal(access(target, F_OK), 0);
    assert_int_equal(pi_quantize(NULL, NULL, "Q4_K_M", dry, NULL, NULL, NULL), PI_EINVAL);
    assert_int_equal(pi_quantize(other, NULL, "Q4_K_M", dry, NULL, NULL, NULL), PI_ENOENT);
}

static uint64_t hash_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t h = 0xcbf29ce484222325u;
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;) h = (h ^ (uint64_t) c) * 0x100000001b3u;
    fclose(f);
    return h;
}

static void threads_do_not_matter(void **state)
{
    (void) state;
    assert_int_equal(quantize("Q5_K_M", "threads=1", NULL, NULL), PI_OK);
    uint64_t one = hash_file(target);
    assert_int_equal(quantize("Q5_K_M", "threads=5", NULL, NULL), PI_OK);
    assert_true(hash_file(target) == one);
    assert_int_equal(quantize("Q5_K_S", "threads=5", NULL, NULL), PI_OK);
    assert_true(hash_file(target) != one);
}

static void refusals_name_the_cause(void **state)
{
    (void) state;
    unlink(target);
    refused(PI_EINVAL, "Q9_K", "Q9_K", NULL, NULL);
    refused(PI_EINVAL, "colour", "Q8_0", "colour=red", NULL);
    refused(PI_EINVAL, "pure", "Q8_0", "pure=maybe", NULL);
    refused(PI_EINVAL, "threads", "Q8_0", "threads=x", NULL);
    refused(PI_EINVAL, "threads", "Q8_0", "threads=9999", NULL);
    refused(PI_EINVAL, "TQ1_0", "Q8_0", "output-tensor-type=TQ1_0", NULL);
    refused(PI_EINVAL, "imatrix", "IQ2_XXS", NULL, NULL);
    refused(PI_EINVAL, "REGEX=TYPE", "Q8_0", "tensor-type=q4_0", NULL);
    refused(PI_EINVAL, "at byte", "Q8_0", "tensor-type=attn(=q4_0", NULL);
    refused(PI_EINVAL, "q4_z", "Q8_0", "tensor-type=attn=q4_z", NULL);
    refused(PI_EUNSUPPORTED, "keep-split", "Q8_0", "keep-split=1", NULL);
    pi_error err = {0};
    assert_int_equal(pi_quantize(source, source, "Q8_0", NULL, NULL, NULL, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "both input and output"));
    assert_int_equal(pi_quantize(other, target, "Q8_0", NULL, NULL, NULL, &err), PI_ENOENT);
    assert_int_equal(pi_quantize(source, NULL, "Q8_0", NULL, NULL, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_quantize(source, target, NULL, NULL, NULL, NULL, NULL), PI_EINVAL);
    assert_int_equal(pi_quantize(source, "/no/such/folder/x.gguf", "Q8_0", NULL, NULL, NULL, &err), PI_ENOENT);
}

/* Writes an imatrix for one matrix of three experts, the last without samples; every fourth column has the most
 * weight. */
static void write_imatrix(const char *path, float odd)
{
    pi__gguf_writer *w;
    int64_t sums_ne[2] = {256, 3}, counts_ne[2] = {1, 3};
    float sums[3][256], counts[3] = {10, 2, 0};
    for (int i = 0; i < 256; i++) sums[0][i] = sums[1][i] = sums[2][i] = i % 4 == 3 ? 50.0f : odd;
    assert_int_equal(pi__gguf_writer_open(&w, path, 0, NULL), PI_OK);
    put_u32(w, "imatrix.chunk_count", 12);
    pi__gguf_put_tensor(w, "blk.1.ffn_gate_exps.weight.in_sum2", PI__F32, 2, sums_ne);
    pi__gguf_put_tensor(w, "blk.1.ffn_gate_exps.weight.counts", PI__F32, 2, counts_ne);
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, sums, sizeof sums, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, counts, sizeof counts, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
}

/* Returns the squared error of every fourth column (the important ones) of one expert of that matrix. */
static double error_of_columns(int expert)
{
    const size_t i = 7;
    pi__gguf *g = open_target();
    const pi__tensor *t = pi__gguf_find_tensor(g, tensors[i].name);
    int64_t n;
    float *x = values_of(i, &n), *y = malloc((size_t) n * sizeof *y);
    assert_true(t && x && y && pi__dequantize_row(t->type, pi__gguf_tensor_data(g, t), y, n));
    double e = 0;
    for (int64_t k = expert * n / 3 + 3; k < (expert + 1) * n / 3; k += 4) e += (double) (y[k] - x[k]) * (y[k] - x[k]);
    free(x);
    free(y);
    pi__gguf_close(g);
    return e;
}

/* The mixtures of codebook formats; experts have importance values, attn_v has none. */
static void codebook_mixtures(void **state)
{
    (void) state;
    static const struct { const char *name; int32_t output, embd, attn_v, experts; } cases[] = {
        {"IQ1_S", PI__Q5_K, PI__Q2_K, PI__Q2_K, PI__IQ1_S},      {"IQ1_M", PI__Q5_K, PI__Q2_K, PI__Q2_K, PI__IQ1_M},
        {"IQ2_XXS", PI__Q5_K, PI__Q2_K, PI__Q2_K, PI__IQ2_XXS},  {"IQ2_XS", PI__Q5_K, PI__Q2_K, PI__Q2_K, PI__IQ2_XS},
        {"IQ2_S", PI__Q5_K, PI__IQ3_S, PI__IQ3_S, PI__IQ2_XS},   {"IQ2_M", PI__Q5_K, PI__IQ3_S, PI__IQ3_S, PI__IQ2_S},
        {"IQ3_XS", PI__Q6_K, PI__IQ3_S, PI__IQ3_S, PI__IQ3_S},   {"IQ3_S", PI__Q6_K, PI__IQ3_S, PI__IQ3_S, PI__IQ3_S},
        {"IQ3_M", PI__Q6_K, PI__IQ3_S, PI__Q4_K, PI__IQ3_S},
    };
    char option[160];
    snprintf(option, sizeof option, "imatrix=%s", other);
    write_imatrix(other, 0.5f);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(quantize(cases[i].name, option, NULL, NULL), PI_OK);
        pi__gguf *g = open_target();
        assert_int_equal(type_in(g, "output.weight"), cases[i].output);
        assert_int_equal(type_in(g, "token_embd.weight"), cases[i].embd);
        assert_int_equal(type_in(g, "blk.0.attn_v.weight"), cases[i].attn_v);
        assert_int_equal(type_in(g, "blk.1.ffn_gate_exps.weight"), cases[i].experts);
        assert_int_equal(type_in(g, "blk.0.ffn_down.weight"), PI__IQ4_NL);
        pi__gguf_close(g);
    }
    unlink(target);
    refused(PI_EINVAL, "blk.0.attn_v.weight: IQ3_XXS needs", "IQ3_XXS", option, NULL);
    unlink(other);
}

static void imatrix_guides(void **state)
{
    (void) state;
    char option[160];
    snprintf(option, sizeof option, "imatrix=%s", other);
    double without[3], with[3];
    write_imatrix(other, 0.5f);
    assert_int_equal(quantize("Q4_K_S", NULL, NULL, NULL), PI_OK);
    for (int e = 0; e < 3; e++) without[e] = error_of_columns(e);
    assert_int_equal(quantize("Q4_K_S", option, NULL, NULL), PI_OK);
    for (int e = 0; e < 3; e++) with[e] = error_of_columns(e);
    assert_true(with[0] < without[0] * 0.9);
    assert_true(with[1] < without[1] * 0.9);
    if (fabs(with[2] / without[2] - 1) > 0.2) fail_msg("no opinion, but %g became %g", without[2], with[2]);
    pi__gguf *g = open_target();
    uint32_t v = 0;
    assert_int_equal(pi__gguf_get_u32(g, "quantize.imatrix.entries_count", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 1);
    assert_int_equal(pi__gguf_get_u32(g, "quantize.imatrix.chunks_count", &v, 0, NULL), PI_OK);
    assert_int_equal(v, 12);
    pi__gguf_close(g);
    unlink(target);
    write_imatrix(other, NAN);
    refused(PI_EFORMAT, "negative or not finite", "Q4_K_S", option, NULL);
    write_source(other, 0);
    refused(PI_EFORMAT, "has no tensor NAME", "Q4_K_S", option, NULL);
    FILE *f = fopen(other, "wb");
    assert_true(f && fputs("an older format", f) >= 0 && fclose(f) == 0);
    refused(PI_EFORMAT, "not a GGUF", "Q4_K_S", option, NULL);
    unlink(other);
    refused(PI_ENOENT, "", "Q4_K_S", option, NULL);
}

static void weights_of_some_tensors(void **state)
{
    (void) state;
    char imatrix[160];
    snprintf(imatrix, sizeof imatrix, "imatrix=%s", other);
    write_imatrix(other, 0.5f);
    assert_int_equal(quantize("Q4_K_S", NULL, NULL, NULL), PI_OK);
    const double without = error_of_columns(0);
    static const struct { const char *option; bool used; } cases[] = {
        {"include-weights=gate_exps", true}, {"include-weights=attn_v", false}, {"exclude-weights=gate_exps", false},
        {"exclude-weights=attn_v", true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(quantize("Q4_K_S", imatrix, cases[i].option, NULL), PI_OK);
        if ((error_of_columns(0) < without * 0.9) != cases[i].used) fail_msg("%s", cases[i].option);
    }
    unlink(target);
    refused(PI_EINVAL, "exclude each other", "Q4_K_S", "include-weights=a", "exclude-weights=b");
    refused(PI_EINVAL, "expected KEY", "Q4_K_S", "override-kv=nonsense", NULL);
    unlink(other);
}

static void quantised_input_needs_consent(void **state)
{
    (void) state;
    pi_error err = {0};
    assert_int_equal(quantize("Q8_0", NULL, NULL, NULL), PI_OK);
    assert_int_equal(pi_quantize(target, other, "Q4_K_M", NULL, NULL, NULL, &err), PI_EINVAL);
    assert_non_null(strstr(err.msg, "allow-requantize"));
    assert_int_not_equal(access(other, F_OK), 0);
    const char *const yes[] = {"allow-requantize=1", NULL}, *const no[] = {"allow-requantize=0", "keep-split=0", NULL};
    assert_int_equal(pi_quantize(target, other, "Q4_K_M", yes, NULL, NULL, NULL), PI_OK);
    assert_int_equal(pi_quantize(target, other, "Q8_0", no, NULL, NULL, NULL), PI_OK); /* all tensors are copied */
    assert_true(hash_file(target) == hash_file(other));
    unlink(other);
}

static void collect(void *ud, const char *line)
{
    int *n = ud;
    n[0]++;
    if (strstr(line, "warning") && strstr(line, "not finite")) n[1]++;
    if (strstr(line, "bits per weight")) n[2]++;
}

static void odd_values_are_reported(void **state)
{
    (void) state;
    write_source(other, INFINITY);
    int n[3] = {0};
    assert_int_equal(pi_quantize(other, target, "Q4_0", NULL, collect, n, NULL), PI_OK);
    assert_int_equal(n[1], 6); /* matrices with a block format; the F16 one keeps its infinity */
    assert_int_equal(n[2], 2);
    assert_int_equal(n[0], COUNT(tensors) + 6 + 2);
    unlink(other);
}

static void full_disk_leaves_nothing(void **state)
{
    (void) state;
    pi_error err = {0};
    assert_int_equal(pi_quantize(source, "/dev/full", "Q8_0", NULL, NULL, NULL, &err), PI_EIO);
    unlink(target);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 20000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = quantize("Q8_0", NULL, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, PI_EIO);
    assert_int_not_equal(access(target, F_OK), 0); /* teardown also checks that the folder is empty */
}

/* ------------------------------------------------------------------------------------------------- no memory */

static long n_left, n_live; /* allocations until one fails (-1 = none fails); blocks not freed */

static bool denied(void)
{
    if (n_left < 0) return false;
    return n_left-- == 0;
}

static void *hook_malloc(void *ud, size_t n)
{
    (void) ud;
    void *p = denied() ? NULL : malloc(n);
    n_live += p != NULL;
    return p;
}

static void *hook_realloc(void *ud, void *p, size_t n)
{
    (void) ud;
    if (denied()) return NULL;
    void *q = realloc(p, n);
    n_live += q && !p;
    return q;
}

static void hook_free(void *ud, void *p)
{
    (void) ud;
    n_live -= p != NULL;
    free(p);
}

static void no_memory_is_an_error(void **state)
{
    (void) state;
    const pi_allocator hooks = {sizeof hooks, NULL, hook_malloc, hook_realloc, hook_free, NULL, NULL};
    char option[160];
    snprintf(option, sizeof option, "imatrix=%s", other);
    write_imatrix(other, 0.5f);
    assert_int_equal(pi_set_allocator(&hooks), PI_OK);
    unlink(target);
    long k = 0;
    for (;; k++) {
        pi_error err = {0};
        n_left = k;
        n_live = 0;
        const char *const options[] = {"tensor-type=attn_(v|q)=q6_k", "tensor-type=ffn=q5_k", option,
                                       "override-kv=general.name=str:other", "prune-layers=0", NULL};
        int rc = pi_quantize(source, target, "Q4_K_M", options, NULL, NULL, &err);
        bool failed = n_left < 0;
        n_left = -1;
        assert_int_equal(n_live, 0);
        if (!failed) {
            assert_int_equal(rc, PI_OK);
            break;
        }
        if (rc != PI_ENOMEM || err.code != PI_ENOMEM) fail_msg("allocation %ld: %s: %s", k, pi_err_name(rc), err.msg);
        assert_int_not_equal(access(target, F_OK), 0);
        assert_true(k < 10000);
    }
    assert_true(k > 20);
    unlink(other);
    pi_set_allocator(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixture_and_metadata),        cmocka_unit_test(every_type_is_readable),
        cmocka_unit_test(options_choose_types),        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(refusals_name_the_cause),     cmocka_unit_test(imatrix_guides),
        cmocka_unit_test(codebook_mixtures),
        cmocka_unit_test(quantised_input_needs_consent), cmocka_unit_test(the_list_says_numbers),
        cmocka_unit_test(metadata_is_set),             cmocka_unit_test(a_dry_run_writes_nothing),
        cmocka_unit_test(weights_of_some_tensors),     cmocka_unit_test(layers_are_left_out),
        cmocka_unit_test(names_get_shorter),
        cmocka_unit_test(odd_values_are_reported),     cmocka_unit_test(full_disk_leaves_nothing),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
