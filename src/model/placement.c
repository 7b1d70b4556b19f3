/* Placement of a model's matrices and caches: on the device or the CPU, or on one of several pipeline stages.
 *
 * Options follow llama.cpp in name and meaning. For a model of n layers, gpu-layers = 3 is
 *
 *     token embedding   layer 0   ...   layer n-3   layer n-2   layer n-1   output
 *     CPU               CPU             CPU         device      device      device
 *
 * The token embedding is on the CPU, which reads only a few rows of it, unless it is also the output matrix. Then
 * override-tensor decides by name; for other tensors, cpu-moe and n-cpu-moe decide. One op reads all expert matrices
 * of a layer, so they share a backend: if one is on the CPU, all are. A layer's cache is on the layer's backend.
 * With expert-cache, the experts that cpu-moe and n-cpu-moe name belong to the device, but stay in host memory.
 *
 * With stages, the first has the token embedding and all tensors that belong to no layer, the last has the output:
 *
 *     token embedding   layer 0 .. a-1  |  layer a .. b-1  |  layer b .. n-1   output norm, output
 *     stage 0                           |  1               |  2
 *
 * A tied embedding is on the last stage, which then also starts each step. Draft head layers, which follow the
 * model's, are on the last stage.
 *
 * Every tensor of the file is visited once, when the rules are read. Memory: one byte per tensor, and the regular
 * expressions while the rules are read. Threads: one. */
#include "model/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/regex.h"
#include "model/model.h"

struct pi__placement {
    const pi__gguf *g;     /* the file */
    size_t n;              /* number of its tensors */
    uint8_t *placement;    /* [n] PI__AT_*, indexed like pi__gguf_tensor_at */
    int32_t first;         /* number of the first layer on the device */
    int32_t n_slot, n_slot_layers; /* copies of experts per layer; layers 0 .. n_slot_layers - 1 have some */
    bool kv_on_cpu;        /* caches are on the CPU even if their layer is on the device */
    bool has[PI__N_PLACEMENTS]; /* by placement: it has matrices or caches */
    int32_t n_stages;      /* number of pipeline stages; 0 = none. With stages, `placement` holds stage indices */
    int32_t from[PI__N_PLACEMENTS + 1]; /* [n_stages + 1] stage i has layers from[i] .. from[i + 1] - 1 */
    int32_t n_layer;       /* layers of the file, including draft heads */
};

/* One REGEX=DEVICE entry of override-tensor. */
typedef struct rule {
    pi__regex *pattern; /* searched for in tensor names */
    uint8_t placement;  /* PI__AT_* */
} rule;

typedef struct rules {
    const char *device;         /* name of the device other than the CPU */
    pi__regex_scratch *scratch; /* shared by all patterns */
    rule *list;                 /* [n] in the order given */
    size_t n, cap;              /* entries used, allocated */
} rules;

/* ---------------------------------------------------------------------------------------------------------- rules */

static void rules_free(rules *r)
{
    for (size_t i = 0; i < r->n; i++) pi__regex_free(r->list[i].pattern);
    pi__regex_scratch_free(r->scratch);
    pi__free(r->list);
}

/* Parses a device name: "cuda", "CUDA0" or "cpu". Host memory with fast device access ("CUDA_Host") counts as the
 * CPU. Sets *placement; returns false for any other name. */
static bool parse_device(const rules *r, const char *name, size_t n, uint8_t *placement)
{
    const size_t dev = strlen(r->device);
    const bool host = n == dev + 5 && !strncasecmp(name, r->device, dev) && !strncasecmp(name + dev, "_host", 5);
    *placement = PI__AT_CPU;
    if (host || (n == 3 && !strncasecmp(name, "cpu", 3))) return true;
    *placement = PI__AT_DEVICE;
    return !strncasecmp(name, r->device, dev) && (n == dev || (n == dev + 1 && name[dev] == '0'));
}

/* Adds a rule. regex: n bytes, not terminated. */
static int add_rule(rules *r, const char *regex, size_t n, uint8_t placement, pi_error *err)
{
    char why[PI__REGEX_ERROR];
    pi__regex *re = NULL;
    int rc = pi__regex_compile(&re, regex, n, false, why);
    if (rc == PI_EINVAL)
        return pi__fail(err, rc, "override-tensor '%.*s': %s", (int) (n < 80 ? n : 80), regex, why);
    if (rc || !pi__grow(&r->list, &r->cap, r->n + 1, sizeof *r->list)) {
        pi__regex_free(re);
        return pi__fail_mem(err, "override-tensor");
    }
    r->list[r->n++] = (rule) {re, placement};
    return PI_OK;
}

/* Parses "REGEX=DEVICE,REGEX=DEVICE" and adds the rules. An expression may contain commas, but no "=". */
static int add_rules(rules *r, const char *text, pi_error *err)
{
    for (const char *p = text; *p;) {
        const char *eq = strchr(p, '='), *device = eq ? eq + 1 : "";
        const size_t n = strcspn(device, ",");
        uint8_t placement;
        if (!eq || eq == p || !n)
            return pi__fail(err, PI_EINVAL, "override-tensor '%.80s': expected REGEX=DEVICE,...", p);
        if (!parse_device(r, device, n, &placement))
            return pi__fail(err, PI_EINVAL, "override-tensor: device '%.*s' is not in use: give one of %s%scpu",
                            (int) (n < 40 ? n : 40), device, strcasecmp(r->device, "cpu") ? r->device : "",
                            strcasecmp(r->device, "cpu") ? ", " : "");
        int rc = add_rule(r, p, (size_t) (eq - p), placement, err);
        if (rc) return rc;
        p = device + n + (device[n] == ',');
    }
    return PI_OK;
}

static int rules_open(rules *r, const pi__placement_rules *from, const char *device, pi_error *err)
{
    *r = (rules) {.device = device};
    if (!from->n_override) return PI_OK;
    r->scratch = pi__regex_scratch_new();
    if (!r->scratch) return pi__fail_mem(err, "override-tensor");
    int rc = PI_OK;
    for (size_t i = 0; i < from->n_override && !rc; i++) rc = add_rules(r, from->override[i], err);
    return rc;
}

/* Applies the first rule with a pattern that matches t's name: sets *found and *placement. Both are unchanged if
 * none matches. */
static int apply(const rules *r, const pi__tensor *t, bool *found, uint8_t *placement, pi_error *err)
{
    *found = false;
    for (size_t i = 0; i < r->n; i++) {
        int n = pi__regex_test(r->list[i].pattern, r->scratch, t->name.p, t->name.n);
        if (n == PI_ENOMEM) return pi__fail_mem(err, "override-tensor");
        if (n < 0)
            return pi__fail(err, PI_EINVAL, "override-tensor: expression %zu exceeds the match limit on the name "
                            "'%.80s': simplify it", i + 1, t->cname);
        if (n == 0) continue;
        *found = true;
        *placement = r->list[i].placement;
        return PI_OK;
    }
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------------------- names */

/* Returns the tensor's layer, or -1 if it belongs to no layer. */
static int32_t layer_of(const pi__tensor *t)
{
    const int32_t n = pi__gguf_layer(t->cname, NULL);
    return n < PI__MAX_LAYERS ? n : -1;
}

/* True for names like "blk.7.ffn_gate_up_exps.weight". */
static bool is_experts(const pi__tensor *t)
{
    static const char *const kinds[] = {"up_", "down_", "gate_up_", "gate_"};
    const char *p = strstr(t->cname, ".ffn_");
    for (size_t i = 0; p && i < sizeof kinds / sizeof *kinds; i++) {
        const char *rest = p + 5;
        const size_t n = strlen(kinds[i]);
        if (strncmp(rest, kinds[i], n)) continue;
        rest += n;
        if (!strncmp(rest, "ch", 2)) rest += 2;
        if (!strncmp(rest, "exps", 4)) return true;
    }
    return false;
}

/* True for an embedding that is not the LM head: a step reads only its tokens' rows. */
static bool is_embedding(const pi__placement *p, const pi__tensor *t)
{
    if (!strcmp(t->cname, "per_layer_token_embd.weight")) return true;
    return !strcmp(t->cname, "token_embd.weight") && pi__gguf_find_tensor(p->g, "output.weight");
}

/* -------------------------------------------------------------------------------------------------------- placing */

/* Returns the placement of t by gpu-layers, cpu-moe and n-cpu-moe, or LATER. */
static uint8_t by_layer(const pi__placement *p, const pi__placement_rules *r, int32_t n_layer, const pi__tensor *t)
{
    const int32_t layer = layer_of(t);
    if (!r->n_slot && layer >= 0 && layer < r->n_cpu_moe && is_experts(t)) return PI__AT_CPU;
    return (layer < 0 ? n_layer : layer) >= p->first ? PI__AT_DEVICE : PI__AT_CPU;
}

/* LATER: embeddings without a matching rule; settle() places them, depending on all other tensors */
enum { LATER = PI__N_PLACEMENTS };

static int placement_of_tensors(pi__placement *p, const pi__placement_rules *r, const rules *over, int32_t n_layer,
                                pi_error *err)
{
    for (size_t i = 0; i < p->n; i++) {
        const pi__tensor *t = pi__gguf_tensor_at(p->g, i);
        bool named;
        p->placement[i] = by_layer(p, r, n_layer, t);
        int rc = apply(over, t, &named, &p->placement[i], err);
        if (rc) return rc;
        if (is_embedding(p, t) && !named) p->placement[i] = LATER;
    }
    return PI_OK;
}

/* If one expert matrix of a layer is on the CPU, moves the layer's other expert matrices to the CPU. */
static void join_experts(pi__placement *p)
{
    bool cpu[PI__MAX_LAYERS] = {false};
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < p->n; i++) {
            const pi__tensor *t = pi__gguf_tensor_at(p->g, i);
            const int32_t layer = layer_of(t);
            if (layer < 0 || t->n_dims < 2 || !is_experts(t)) continue;
            if (p->placement[i] == PI__AT_CPU) cpu[layer] = true;
            else if (cpu[layer]) p->placement[i] = PI__AT_CPU;
        }
}

/* Sets has[] for the placements with matrices or caches; then places the embeddings that are LATER. */
static void settle(pi__placement *p, int32_t n_layer)
{
    for (int32_t i = 0; i < n_layer; i++) p->has[p->kv_on_cpu || i < p->first ? PI__AT_CPU : PI__AT_DEVICE] = true;
    for (size_t i = 0; i < p->n; i++)
        if (p->placement[i] != LATER && pi__gguf_tensor_at(p->g, i)->n_dims > 1) p->has[p->placement[i]] = true;
    for (size_t i = 0; i < p->n; i++)
        if (p->placement[i] == LATER) p->placement[i] = p->has[PI__AT_CPU] ? PI__AT_CPU : PI__AT_DEVICE;
}

/* Reads the file's number of layers, before the model's declaration checks it. */
static int count_layers(const pi__gguf *g, int32_t *n, pi_error *err)
{
    pi__str arch;
    char key[128];
    uint32_t v = 0;
    int rc = pi__gguf_get_str(g, "general.architecture", &arch, err);
    if (rc) return rc;
    snprintf(key, sizeof key, "%.*s.block_count", (int) (arch.n < 64 ? arch.n : 64), arch.p ? arch.p : "");
    rc = pi__gguf_get_u32(g, key, &v, 0, err);
    *n = v < PI__MAX_LAYERS ? (int32_t) v : PI__MAX_LAYERS;
    return rc;
}

int pi__placement_create(pi__placement **out, const pi__placement_rules *r, const char *device, const pi__gguf *g,
                         pi_error *err)
{
    rules over = {0};
    int32_t n_layer = 0;
    *out = NULL;
    pi__placement *p = pi__calloc(1, sizeof *p);
    if (!p) return pi__fail_mem(err, "the devices of tensors");
    p->g = g;
    p->n = pi__gguf_n_tensors(g);
    p->kv_on_cpu = r->kv_on_cpu;
    p->n_slot = r->n_slot;
    p->n_slot_layers = r->n_cpu_moe;
    p->placement = pi__calloc(p->n, 1);
    int rc = p->placement ? rules_open(&over, r, device, err) : pi__fail_mem(err, "the devices of tensors");
    if (!rc) rc = count_layers(g, &n_layer, err);
    p->n_layer = n_layer;
    if (!rc) {
        p->first = r->limited && r->gpu_layers <= n_layer ? n_layer + 1 - r->gpu_layers : 0;
        rc = placement_of_tensors(p, r, &over, n_layer, err);
    }
    rules_free(&over);
    if (rc) {
        pi__placement_free(p);
        return rc;
    }
    join_experts(p);
    settle(p, n_layer);
    *out = p;
    return PI_OK;
}

void pi__placement_free(pi__placement *p)
{
    if (!p) return;
    pi__free(p->placement);
    pi__free(p);
}

/* --------------------------------------------------------------------------------------------------------- stages */

static int32_t stage_of_layer(const pi__placement *p, int32_t layer)
{
    int32_t i = p->n_stages - 1;
    while (i > 0 && layer < p->from[i]) i--;
    return i;
}

/* True for "output.weight", "output_norm.weight", "cls.output.weight" and similar names. */
static bool is_output(const pi__placement *p, const pi__tensor *t)
{
    if (!strncmp(t->cname, "output", 6) || !strncmp(t->cname, "cls", 3)) return true;
    return !strcmp(t->cname, "token_embd.weight") && !pi__gguf_find_tensor(p->g, "output.weight");
}

int pi__placement_stages(pi__placement *p, const double *part, int32_t n, pi_error *err)
{
    double all = 0, sum = 0;
    const int32_t n_layer = p->n_layer;
    if (n > n_layer)
        return pi__fail(err, PI_EINVAL,
                        "split-mode layer with %d devices: the model has %d layers: name %d devices at most", n,
                        n_layer, n_layer);
    p->n_stages = n;
    for (int32_t i = 0; i < n; i++) all += part[i];
    for (int32_t i = 0; i < n; i++) {
        const int32_t least = i ? p->from[i - 1] + 1 : 0, most = n_layer - (n - i);
        int32_t at = all > 0 ? (int32_t) (sum / all * (n_layer + 1) + 0.5) : 0;
        at = at < least ? least : at > most ? most : at;
        p->from[i] = i ? at : 0;
        sum += part[i];
    }
    p->from[n] = n_layer;
    for (size_t i = 0; i < p->n; i++) {
        const pi__tensor *t = pi__gguf_tensor_at(p->g, i);
        const int32_t layer = layer_of(t);
        p->placement[i] = (uint8_t) (layer >= 0 ? stage_of_layer(p, layer) : is_output(p, t) ? n - 1 : 0);
    }
    return PI_OK;
}

int32_t pi__placement_layers(const pi__placement *p, int32_t i, int32_t *first)
{
    *first = p->from[i];
    return p->from[i + 1] - p->from[i];
}

int32_t pi__placement_slots(const pi__placement *p, const pi__tensor *t)
{
    const int32_t layer = layer_of(t);
    if (layer < 0 || layer >= p->n_slot_layers || !is_experts(t)) return 0;
    return p->placement[t - pi__gguf_tensor_at(p->g, 0)] == PI__AT_DEVICE ? p->n_slot : 0;
}

bool pi__placement_both(const pi__placement *p) { return p->has[PI__AT_DEVICE] && p->has[PI__AT_CPU]; }
bool pi__placement_cpu(const pi__placement *p) { return !p->has[PI__AT_DEVICE]; }

int32_t pi__placement_of_matrix(const pi__placement *p, const pi__tensor *t)
{
    if (!p->n_stages && !pi__placement_both(p)) return PI__AT_DEVICE;
    return p->placement[t - pi__gguf_tensor_at(p->g, 0)];
}

int32_t pi__placement_of_cache(const pi__placement *p, int32_t layer)
{
    if (p->n_stages) return stage_of_layer(p, layer);
    return pi__placement_both(p) && (p->kv_on_cpu || layer < p->first) ? PI__AT_CPU : PI__AT_DEVICE;
}
