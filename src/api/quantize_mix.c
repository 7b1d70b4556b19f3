/* The format of each tensor of a quantized model (see quantize_mix.h). */
#include "api/quantize_mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { /* general.file_type */
    FT_F32 = 0, FT_F16 = 1, FT_Q4_0 = 2, FT_Q4_1 = 3, FT_Q8_0 = 7, FT_Q5_0 = 8, FT_Q5_1 = 9, FT_Q2_K = 10,
    FT_Q3_K_S = 11, FT_Q3_K_M = 12, FT_Q3_K_L = 13, FT_Q4_K_S = 14, FT_Q4_K_M = 15, FT_Q5_K_S = 16, FT_Q5_K_M = 17,
    FT_Q6_K = 18, FT_IQ2_XXS = 19, FT_IQ2_XS = 20, FT_Q2_K_S = 21, FT_IQ3_XS = 22, FT_IQ3_XXS = 23, FT_IQ1_S = 24,
    FT_IQ4_NL = 25, FT_IQ3_S = 26, FT_IQ3_M = 27, FT_IQ2_S = 28, FT_IQ2_M = 29, FT_IQ4_XS = 30, FT_IQ1_M = 31,
    FT_BF16 = 32, FT_MXFP4 = 38, FT_NVFP4 = 39,
    FT_Q1_0 = 40, FT_Q2_0 = 41
};

static const pi__ftype ftypes[] = {
    {"Q4_0", FT_Q4_0, PI__Q4_0},       {"Q4_1", FT_Q4_1, PI__Q4_1},       {"Q5_0", FT_Q5_0, PI__Q5_0},
    {"Q5_1", FT_Q5_1, PI__Q5_1},       {"Q8_0", FT_Q8_0, PI__Q8_0},       {"Q2_K", FT_Q2_K, PI__Q2_K},
    {"Q2_K_S", FT_Q2_K_S, PI__Q2_K},   {"IQ4_XS", FT_IQ4_XS, PI__IQ4_XS},
    {"IQ1_S", FT_IQ1_S, PI__IQ1_S},    {"IQ1_M", FT_IQ1_M, PI__IQ1_M},    {"IQ2_XXS", FT_IQ2_XXS, PI__IQ2_XXS},
    {"IQ2_XS", FT_IQ2_XS, PI__IQ2_XS}, {"IQ2_S", FT_IQ2_S, PI__IQ2_XS},   {"IQ2_M", FT_IQ2_M, PI__IQ2_S},
    {"IQ3_XXS", FT_IQ3_XXS, PI__IQ3_XXS}, {"IQ3_XS", FT_IQ3_XS, PI__IQ3_S}, {"IQ3_S", FT_IQ3_S, PI__IQ3_S},
    {"IQ3_M", FT_IQ3_M, PI__IQ3_S},
    {"Q3_K_S", FT_Q3_K_S, PI__Q3_K},   {"Q3_K_M", FT_Q3_K_M, PI__Q3_K},   {"Q3_K_L", FT_Q3_K_L, PI__Q3_K},
    {"Q4_K_S", FT_Q4_K_S, PI__Q4_K},   {"Q4_K_M", FT_Q4_K_M, PI__Q4_K},   {"Q5_K_S", FT_Q5_K_S, PI__Q5_K},
    {"Q5_K_M", FT_Q5_K_M, PI__Q5_K},   {"Q6_K", FT_Q6_K, PI__Q6_K},       {"IQ4_NL", FT_IQ4_NL, PI__IQ4_NL},
    {"MXFP4", FT_MXFP4, PI__MXFP4},    {"MXFP4_MOE", FT_MXFP4, PI__MXFP4}, {"NVFP4", FT_NVFP4, PI__NVFP4},
    {"Q1_0", FT_Q1_0, PI__Q1_0},       {"Q2_0", FT_Q2_0, PI__Q2_0},
    {"F16", FT_F16, PI__F16},          {"BF16", FT_BF16, PI__BF16},       {"F32", FT_F32, PI__F32},
    {"COPY", -1, -1},
};

const pi__ftype *pi__ftype_at(size_t i) { return i < COUNT(ftypes) ? &ftypes[i] : NULL; }

const pi__ftype *pi__ftype_find(const char *name)
{
    static const char *const alias[][2] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
    for (size_t i = 0; i < COUNT(alias); i++)
        if (strcasecmp(name, alias[i][0]) == 0) name = alias[i][1];
    char *end;
    long number = strtol(name, &end, 10);
    bool numeric = end != name && *end == 0;
    for (size_t i = 0; i < COUNT(ftypes); i++) {
        bool moe = strcmp(ftypes[i].name, "MXFP4_MOE") == 0; /* llama-quantize's meaning of number 38 */
        bool same = numeric ? number >= 0 && number == ftypes[i].number && (number != FT_MXFP4 || moe)
                            : strcasecmp(name, ftypes[i].name) == 0;
        if (same) return &ftypes[i];
    }
    return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- rules */

void pi__mix_init(pi__mix *m, const pi__ftype *ftype)
{
    memset(m, 0, sizeof *m);
    m->ftype = ftype;
    m->output_type = m->embd_type = -1;
    m->n_gqa = 1;
}

void pi__mix_free(pi__mix *m)
{
    for (size_t i = 0; i < m->n_rules; i++) pi__regex_free(m->rules[i].pattern);
    pi__regex_scratch_free(m->scratch);
    pi__free(m->rules);
    m->rules = NULL;
    m->scratch = NULL;
    m->n_rules = 0;
}

int pi__mix_add_rule(pi__mix *m, const char *rule, pi_error *err)
{
    const char *eq = strrchr(rule, '=');
    int32_t type = eq ? pi__type_from_name(eq + 1) : -1;
    if (!eq || eq == rule) return pi__fail(err, PI_EINVAL, "tensor-type '%.120s': expected REGEX=TYPE", rule);
    if (type < 0 || !pi__type_info_of(type)->writable) {
        return pi__fail(err, PI_EINVAL, "tensor-type '%.120s': type '%.40s' cannot be written", rule, eq + 1);
    }
    char why[PI__REGEX_ERROR];
    pi__regex *re = NULL;
    const size_t n = (size_t) (eq - rule);
    int rc = pi__regex_compile(&re, rule, n, false, why);
    if (rc == PI_EINVAL) return pi__fail(err, rc, "tensor-type '%.80s': %s", rule, why);
    if (!rc && !m->scratch) m->scratch = pi__regex_scratch_new();
    pi__mix_rule *rules = !rc && m->scratch ? pi__realloc_array(m->rules, m->n_rules + 1, sizeof *rules) : NULL;
    if (!rules) {
        pi__regex_free(re);
        return pi__fail_mem(err, "a pattern");
    }
    m->rules = rules;
    rules[m->n_rules++] = (pi__mix_rule) {re, type};
    return PI_OK;
}

/* Stores the type of the first matching rule; -1 = no match. */
static int by_rule(const pi__mix *m, const pi__tensor *t, int32_t *type, pi_error *err)
{
    *type = -1;
    for (size_t i = 0; i < m->n_rules; i++) {
        int n = pi__regex_test(m->rules[i].pattern, m->scratch, t->name.p, t->name.n);
        if (n == PI_ENOMEM) return pi__fail_mem(err, "matching a pattern");
        if (n < 0)
            return pi__fail(err, PI_EINVAL, "tensor-type: pattern %zu exceeds the match limit on the name '%.80s': "
                            "simplify it", i + 1, t->cname);
        if (n == 0) continue;
        *type = m->rules[i].type;
        return PI_OK;
    }
    return PI_OK;
}

/* ----------------------------------------------------------------------------------------------------------- model */

enum category {
    EMBD, OUTPUT, ATTN_QKV, ATTN_KV_B, ATTN_V, ATTN_K, ATTN_Q, ATTN_OUT, FFN_UP, FFN_GATE, FFN_DOWN, OTHER
};

static bool name_has(const pi__tensor *t, const char *part)
{
    return memmem(t->name.p, t->name.n, part, strlen(part)) != NULL;
}

static bool name_is(const pi__tensor *t, const char *name)
{
    return t->name.n == strlen(name) && memcmp(t->name.p, name, t->name.n) == 0;
}

static enum category category_of(const pi__tensor *t)
{
    static const struct { const char *part; enum category cat; } parts[] = {
        {"attn_qkv.weight", ATTN_QKV}, {"attn_kv_b.weight", ATTN_KV_B}, {"attn_v.weight", ATTN_V},
        {"attn_k.weight", ATTN_K}, {"attn_q.weight", ATTN_Q}, {"attn_output.weight", ATTN_OUT},
        {"ffn_up", FFN_UP}, {"ffn_gate", FFN_GATE}, {"ffn_down", FFN_DOWN},
    };
    if (name_is(t, "output.weight")) return OUTPUT;
    if (name_is(t, "token_embd.weight") || name_is(t, "per_layer_token_embd.weight")) return EMBD;
    for (size_t i = 0; i < COUNT(parts); i++)
        if (name_has(t, parts[i].part)) return parts[i].cat;
    return OTHER;
}

static bool is_attn_v(enum category c) { return c == ATTN_V || c == ATTN_QKV || c == ATTN_KV_B; }

/* Returns metadata ARCH.key as a number, or an array's first element; def if it is absent or not an integer. */
static int arch_int(const pi__gguf *g, pi__str arch, const char *key, int def)
{
    char full[128];
    if (!arch.p || arch.n > 60) return def;
    snprintf(full, sizeof full, "%.*s.%s", (int) arch.n, arch.p, key);
    const pi__gguf_kv *kv = pi__gguf_find(g, full);
    int type = kv ? kv->type == PI__GGUF_ARR ? kv->arr_type : kv->type : PI__GGUF_STR;
    if (!kv || kv->n == 0 || type == PI__GGUF_STR || type == PI__GGUF_F32 || type == PI__GGUF_F64) return def;
    int64_t v = pi__gguf_elem_i64(kv, 0);
    return v >= 0 && v < 1 << 30 ? (int) v : def;
}

int pi__mix_begin(pi__mix *m, const pi__gguf *g, pi_error *err)
{
    pi__str arch;
    int rc = pi__gguf_get_str(g, "general.architecture", &arch, err);
    if (rc != PI_OK) return rc;
    m->n_layer = arch_int(g, arch, "block_count", 0);
    m->n_expert = arch_int(g, arch, "expert_count", 0);
    int n_head = arch_int(g, arch, "attention.head_count", 1);
    int n_kv = arch_int(g, arch, "attention.head_count_kv", n_head);
    m->n_gqa = n_kv > 0 ? n_head / n_kv : 0;
    bool llama = arch.n == 5 && (memcmp(arch.p, "llama", 5) == 0 || memcmp(arch.p, "qwen2", 5) == 0);
    m->llama_70b = llama && m->n_layer == 80 && m->n_gqa > 1;
    m->tied = true;
    for (size_t i = 0; i < pi__gguf_n_tensors(g); i++) {
        enum category c = category_of(pi__gguf_tensor_at(g, i));
        m->n_attn_v += is_attn_v(c);
        if (c == OUTPUT) m->tied = false;
    }
    return PI_OK;
}

int pi__mix_order(const pi__tensor *a, const pi__tensor *b)
{
    const int32_t la = pi__gguf_layer(a->cname, NULL), lb = pi__gguf_layer(b->cname, NULL);
    if (la != lb) return la < lb ? -1 : 1;
    size_t n = a->name.n < b->name.n ? a->name.n : b->name.n;
    int c = memcmp(a->name.p, b->name.p, n);
    return c ? c : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

/* --------------------------------------------------------------------------------------------------------- mixture */

/* True for matrices that may be quantized. Excluded are norms, routers, convolutions, positions and other small ones:
 * the error would cost more than the saved bytes. */
static bool may_quantize(const pi__mix *m, const pi__tensor *t)
{
    static const char *const small[] = {
        "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
        "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight",
        "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight",
        "time_mix_v0.weight", "time_mix_v1.weight",
        "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
        "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
        "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd",
        ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
    };
    static const char suffix[] = "weight";
    const size_t n = sizeof suffix - 1;
    if (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1) return false;
    if (t->name.n < n || memcmp(t->name.p + t->name.n - n, suffix, n) != 0) return false;
    if (name_is(t, "position_embd.weight") || name_is(t, "token_types.weight")) return false;
    if (m->leave_output && name_is(t, "output.weight")) return false;
    for (size_t i = 0; i < COUNT(small); i++)
        if (name_has(t, small[i])) return false;
    return true;
}

/* True for the first and last eighth of the layers, and for every third layer in between. */
static bool more_bits(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

/* True for types that are too coarse for embeddings and the output. */
static bool has_few_levels(int32_t type)
{
    return type == PI__MXFP4 || type == PI__NVFP4 || type == PI__Q1_0 || type == PI__Q2_0;
}

/* Mixtures whose most matrices have 1 or 2 bits; those with IQ3_S for the important ones. */
static bool is_low(int ft)
{
    return ft == FT_IQ1_S || ft == FT_IQ1_M || ft == FT_IQ2_XXS || ft == FT_IQ2_XS || ft == FT_IQ2_S || ft == FT_IQ2_M;
}
static bool is_low_s(int ft) { return ft == FT_IQ2_S || ft == FT_IQ2_M; }

static int32_t output_format(const pi__mix *m, const pi__tensor *t, int32_t type)
{
    if (m->output_type >= 0) return m->output_type;
    if (has_few_levels(type) || t->ne[0] % pi__type_info_of(type)->blck_size != 0) return PI__Q8_0;
    if (is_low(m->ftype->number) || m->ftype->number == FT_IQ3_XXS) return PI__Q5_K;
    return type == PI__Q8_0 ? type : PI__Q6_K;
}

static int32_t attn_v_format(pi__mix *m, int32_t type)
{
    int i = m->i_attn_v++;
    switch (m->ftype->number) {
    case FT_Q2_K: type = m->n_gqa >= 4 ? PI__Q4_K : PI__Q3_K; break;
    case FT_Q3_K_M: type = i < 2 ? PI__Q5_K : PI__Q4_K; break;
    case FT_Q3_K_L: type = PI__Q5_K; break;
    case FT_IQ3_XXS: type = m->n_gqa >= 4 ? PI__Q4_K : m->imatrix ? type : PI__IQ3_S; break;
    case FT_IQ3_M: type = PI__Q4_K; break;
    case FT_IQ3_XS:
    case FT_IQ3_S:
    case FT_Q2_K_S: type = m->n_gqa >= 4 ? PI__Q4_K : type; break;
    case FT_IQ4_NL:
    case FT_IQ4_XS: type = m->n_gqa >= 4 ? PI__Q5_K : type; break;
    case FT_Q4_K_M:
    case FT_Q5_K_M: type = more_bits(i, m->n_attn_v) ? PI__Q6_K : type; break;
    case FT_Q4_K_S: type = i < 4 ? PI__Q5_K : type; break;
    }
    if (m->llama_70b && (type == PI__Q3_K || type == PI__Q4_K)) type = PI__Q5_K;
    return m->n_expert == 8 ? PI__Q8_0 : type;
}

static int32_t ffn_down_format(pi__mix *m, const pi__tensor *t, int32_t type)
{
    int i = m->n_expert > 1 ? pi__gguf_layer(t->cname, NULL) : m->i_ffn_down, n = m->n_layer;
    m->i_ffn_down++;
    switch (m->ftype->number) {
    case FT_Q2_K: return PI__Q3_K;
    case FT_Q3_K_M: return i < n / 16 ? PI__Q5_K : PI__Q4_K;
    case FT_Q3_K_L: return PI__Q5_K;
    case FT_Q4_K_M:
    case FT_Q5_K_M: return more_bits(i, n) ? PI__Q6_K : type;
    case FT_IQ3_XXS: return m->imatrix ? type : i < n / 8 ? PI__Q4_K : PI__Q3_K;
    case FT_IQ3_M: return i < n / 8 || (m->n_expert == 8 && more_bits(i, n)) ? PI__Q4_K : type;
    case FT_Q2_K_S: return i < n / 8 ? PI__Q4_K : type;
    case FT_IQ4_NL:
    case FT_IQ4_XS: return i < n / 8 && !m->imatrix ? PI__Q5_K : type;
    case FT_Q4_K_S: return i < n / 8 ? PI__Q5_K : type;
    case FT_Q4_0: return i < n / 8 && m->imatrix ? PI__Q4_1 : type;
    case FT_Q5_0: return i < n / 8 && m->imatrix ? PI__Q5_1 : type;
    }
    return type;
}

static int32_t attn_out_format(const pi__mix *m, int32_t type)
{
    int ft = m->ftype->number;
    if (m->n_expert == 8) {
        bool low = ft == FT_Q2_K || ft == FT_Q3_K_S || ft == FT_Q3_K_M;
        low |= ft == FT_IQ3_XXS || ft == FT_IQ3_XS || ft == FT_IQ3_S || ft == FT_IQ3_M;
        return low || ft == FT_IQ4_NL || ft == FT_IQ4_XS || ft == FT_Q4_K_S || ft == FT_Q4_K_M ? PI__Q5_K : type;
    }
    switch (ft) {
    case FT_Q2_K: return PI__Q3_K;
    case FT_IQ3_XXS: return PI__IQ3_S;
    case FT_IQ3_M:
    case FT_Q3_K_M: return PI__Q4_K;
    case FT_Q3_K_L: return PI__Q5_K;
    }
    return type;
}

static int32_t embd_format(const pi__mix *m, int32_t type)
{
    const int ft = m->ftype->number;
    if (is_low_s(ft) || ft == FT_IQ3_XXS) return PI__IQ3_S;
    return is_low(ft) ? PI__Q2_K : has_few_levels(type) ? PI__Q8_0 : type;
}

/* The format of a matrix in a mixture of is_low. */
static int32_t low_format(pi__mix *m, enum category c, int32_t type)
{
    const int ft = m->ftype->number;
    const int32_t better = is_low_s(ft) ? PI__IQ3_S : PI__Q2_K;
    if (is_attn_v(c)) return m->n_gqa >= 4 || m->n_expert >= 4 ? PI__Q4_K : better;
    if (c == ATTN_K) return m->n_expert == 8 ? PI__Q4_K : type;
    if (c == FFN_DOWN) return m->i_ffn_down++ < m->n_layer / 8 ? better : type;
    if (c != ATTN_OUT) return type;
    if (m->n_expert == 8) return PI__Q5_K;
    return ft == FT_IQ1_S || ft == FT_IQ1_M ? PI__IQ2_XXS : is_low_s(ft) ? PI__IQ3_S : type;
}

/* The format of queries and keys, or of ffn_gate and ffn_up. */
static int32_t other_format(const pi__mix *m, const pi__tensor *t, enum category c, int32_t type)
{
    const int ft = m->ftype->number;
    const int32_t i = pi__gguf_layer(t->cname, NULL);
    if (c == ATTN_K && m->n_expert == 8) return PI__Q8_0;
    if (c == ATTN_K || c == ATTN_Q) return ft == FT_IQ3_XS ? PI__IQ3_XXS : ft == FT_IQ3_XXS ? PI__IQ2_S : type;
    if (c != FFN_GATE && c != FFN_UP) return type;
    return ft == FT_IQ3_XS && i >= m->n_layer / 8 && i < 7 * m->n_layer / 8 ? PI__IQ3_XXS : type;
}

static int32_t by_mixture(pi__mix *m, const pi__tensor *t, int32_t type)
{
    enum category c = category_of(t);
    if (c == OUTPUT || (m->tied && c == EMBD)) return output_format(m, t, type);
    if (strcmp(m->ftype->name, "MXFP4_MOE") == 0) return t->ne[2] > 1 ? PI__MXFP4 : PI__Q8_0;
    if (c == EMBD) return embd_format(m, type);
    if (is_low(m->ftype->number)) return low_format(m, c, type);
    if (is_attn_v(c)) return attn_v_format(m, type);
    if (c == FFN_DOWN) return ffn_down_format(m, t, type);
    if (c == ATTN_OUT) return attn_out_format(m, type);
    return other_format(m, t, c, type);
}

bool pi__mix_needs_imatrix(const pi__tensor *t, int32_t type)
{
    static const int32_t needs[] = {PI__IQ1_S, PI__IQ1_M, PI__IQ2_XXS, PI__IQ2_XS, PI__IQ2_S, PI__IQ3_XXS};
    const enum category c = category_of(t);
    for (size_t i = 0; i < COUNT(needs); i++)
        if (type == needs[i]) return c != EMBD && c != OUTPUT;
    return false;
}

int32_t pi__mix_fit(int32_t type, int64_t n)
{
    if (n % pi__type_info_of(type)->blck_size == 0) return type;
    const int32_t fit = pi__type_info_of(type)->fit;
    return n % pi__type_info_of(fit)->blck_size == 0 ? fit : PI__F16;
}

int pi__mix_type(pi__mix *m, const pi__tensor *t, int32_t *type, pi_error *err)
{
    *type = t->type;
    if (m->ftype->type < 0 || !may_quantize(m, t)) return PI_OK;
    int32_t want = m->ftype->type, named;
    int rc = by_rule(m, t, &named, err);
    if (rc != PI_OK) return rc;
    enum category c = category_of(t);
    bool per_layer = name_is(t, "per_layer_token_embd.weight"); /* follows token_embd unless a rule names it */
    if (m->embd_type >= 0 && c == EMBD && !(per_layer && named >= 0)) want = m->embd_type;
    else if (m->output_type >= 0 && c == OUTPUT) want = m->output_type;
    else if (pi__type_info_of(want)->blck_size > 1) want = named >= 0 ? named : m->pure ? want : by_mixture(m, t, want);
    *type = pi__mix_fit(want, t->ne[0]);
    return PI_OK;
}
