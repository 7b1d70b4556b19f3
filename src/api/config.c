/* Engine options as the plain values that the core reads (see config.h).
 *
 * Ranges were checked when the options were set. Here words become constants, and options that exclude each other are
 * refused. No memory. Any thread. */
#include "api/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/cpu/cpu.h"
#include "backend/ranks.h"
#include "base/error.h"
#include "engine/ngrams.h"
#include "formats/formats.h"

/* Checks that this build has the named device. */
static int check_device(const char *name, pi_error *err)
{
    char all[64] = "";
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    if (pi__devices_named(name, dev, index)) return PI_OK;
    for (int i = 0; i < pi__n_devices; i++) {
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", pi__devices[i].name);
    }
    return pi__fail(err, PI_EUNSUPPORTED, "device '%.60s' is not in this build: give one of %s", name, all);
}

/* Returns the name of the selected instruction set; "auto" = not selected. */
static const char *isa_of(const pi__opt_set *s)
{
    for (int i = 0; i < PI__N_ISAS; i++)
        if (pi__opt_is(s, PI__OPT_CPU_ISA, pi__isa_names[i].name)) return pi__isa_names[i].name;
    return "auto";
}

pi__cpu_params pi__cpu_params_of(const pi_options *o)
{
    const pi__opt_set *s = &o->set;
    const int64_t threads = pi__opt_int(s, PI__OPT_THREADS), batch = pi__opt_int(s, PI__OPT_THREADS_BATCH);
    uint64_t range = 0;
    if (*pi__opt_str(s, PI__OPT_CPU_RANGE)) pi__parse_range(pi__opt_str(s, PI__OPT_CPU_RANGE), &range);
    return (pi__cpu_params) {
        .n_threads = threads < 0 ? 0 : (int32_t) threads,
        .n_batch = batch < 0 ? 0 : (int32_t) batch,
        /* words in the order of PI__STRICT_* and PI__NUMA_* */
        .strict = (int) pi__opt_int(s, PI__OPT_CPU_STRICT),
        .numa = (int) pi__opt_int(s, PI__OPT_NUMA),
        .prio = (int) pi__opt_int(s, PI__OPT_PRIO),
        .affinity = strtoull(pi__opt_str(s, PI__OPT_CPU_MASK), NULL, 16) | range,
        .poll = (int32_t) pi__opt_int(s, PI__OPT_POLL),
        .isa = isa_of(s),
        .act8 = pi__opt_is(s, PI__OPT_ACTIVATION_BITS, "8"),
    };
}

pi__device_params pi__device_params_of(const pi_options *o)
{
    const pi__opt_set *s = &o->set;
    bool no_fuse;
    uint32_t rules_off;
    (void) pi__parse_fuse(pi__opt_str(s, PI__OPT_CUDA_FUSE), &no_fuse, &rules_off);
    return (pi__device_params) {
        .cpu = pi__cpu_params_of(o),
        .cuda.matmul = (int) pi__opt_int(s, PI__OPT_MATMUL), /* the words' order is the one of PI__MATMUL_* */
        .cuda.fp4 = (int) pi__opt_int(s, PI__OPT_FP4_MODE), /* the words' order is the one of PI__FP4_* */
        .cuda.blas = pi__opt_is(s, PI__OPT_CUBLAS, "on"),
        .cuda.no_graphs = pi__opt_is(s, PI__OPT_CUDA_GRAPHS, "off"),
        .cuda.no_fuse = no_fuse,
        .cuda.rules_off = rules_off,
        .cuda.no_dependent = pi__opt_is(s, PI__OPT_CUDA_DEPENDENT, "off"),
        .cuda.waiting_blocks = (int32_t) pi__opt_int(s, PI__OPT_CUDA_WAITING),
    };
}

/* Returns the rules that place layers and tensors on the CPU or the device. gpu-layers: a negative number means all
 * layers on the device; auto means as many as fit. */
static pi__placement_rules places_of(const pi__opt_set *s)
{
    int64_t layers;
    const bool limited = pi__parse_int(pi__opt_str(s, PI__OPT_GPU_LAYERS), false, &layers) && layers >= 0;
    const bool cpu_moe = pi__opt_bool(s, PI__OPT_CPU_MOE),
               any = !strcasecmp(pi__opt_str(s, PI__OPT_GPU_LAYERS), "auto");
    const pi__opt_list *over = pi__opt_list_of(s, PI__OPT_OVERRIDE_TENSOR);
    return (pi__placement_rules) {
        .limited = limited,
        .fit = any && pi__opt_int(s, PI__OPT_FIT) % 2 == 0,
        .asked = !any && !(limited && layers == 0),
        .gpu_layers = limited ? (int32_t) (layers < INT32_MAX ? layers : INT32_MAX) : 0,
        .n_cpu_moe = cpu_moe ? INT32_MAX : (int32_t) pi__opt_int(s, PI__OPT_N_CPU_MOE),
        .n_slot = (int32_t) pi__opt_int(s, PI__OPT_EXPERT_CACHE),
        .kv_on_cpu = !pi__opt_bool(s, PI__OPT_KV_OFFLOAD),
        .override = (const char *const *) over->item,
        .n_override = over->n,
    };
}

static pi__given given_of(const pi__opt_set *s, int option)
{
    const double v = pi__opt_float(s, option);
    return (pi__given) {v >= 0, v};
}

static pi__rope_config rope_of(const pi__opt_set *s)
{
    const double inverse = pi__opt_float(s, PI__OPT_ROPE_FREQ_SCALE);
    return (pi__rope_config) {
        .base = pi__opt_float(s, PI__OPT_ROPE_FREQ_BASE),
        .scaling = (int) pi__opt_int(s, PI__OPT_ROPE_SCALING),
        .scale = inverse > 0 ? 1 / inverse : pi__opt_float(s, PI__OPT_ROPE_SCALE),
        .orig_ctx = pi__opt_int(s, PI__OPT_YARN_ORIG_CTX),
        .ext_factor = given_of(s, PI__OPT_YARN_EXT_FACTOR),
        .attn_factor = given_of(s, PI__OPT_YARN_ATTN_FACTOR),
        .beta_slow = given_of(s, PI__OPT_YARN_BETA_SLOW),
        .beta_fast = given_of(s, PI__OPT_YARN_BETA_FAST),
    };
}

/* Returns the maximum tokens of a step. */
static int32_t step_tokens_of(const pi__opt_set *s)
{
    const int64_t ubatch = pi__opt_int(s, PI__OPT_UBATCH_SIZE), batch = pi__opt_int(s, PI__OPT_BATCH_SIZE);
    return (int32_t) (batch && batch < ubatch ? batch : ubatch);
}

/* Returns the bytes that gpu-layers auto leaves free; 0 = the default: 1 GiB, but at most an eighth of the free
 * memory. */
static uint64_t fit_margin_of(const pi__opt_set *s)
{
    double mib[128] = {0}, most = 0;
    const size_t n = pi__parse_numbers(pi__opt_str(s, PI__OPT_FIT_TARGET), mib, 128);
    for (size_t i = 0; i < n; i++) most = mib[i] > most ? mib[i] : most;
    return most < 1e9 ? (uint64_t) (most * 1048576) : UINT64_MAX / 2;
}

/* Sets c->device to one device of the kind d, for example "cuda1". */
static void one_device(pi__config *c, const pi__device *d, int32_t index)
{
    snprintf(c->chosen_device, sizeof c->chosen_device, "%s%d", d->name, index);
    c->device = c->chosen_device;
}

/* Sets c->device to the devices with a positive part in tensor-split. With split-mode layer, also stores the parts in
 * c->part. */
static int devices_with_parts(pi__config *c, const double *part, size_t n, pi_error *err)
{
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES], n_used = 0;
    const int n_dev = pi__devices_named(c->device, dev, index);
    const bool automatic = !*c->device || !strcasecmp(c->device, "auto"), is_cpu = !strcmp(dev[0]->name, "cpu");
    size_t at = 0;
    if (is_cpu && (n_dev < 2 || !c->layers)) return PI_OK;
    if (n > PI__MAX_DEVICES) return pi__fail(err, PI_EINVAL, "tensor-split: %zu parts: give at most %d",
                                             n, PI__MAX_DEVICES);
    for (size_t i = 0; i < n; i++) {
        if (part[i] <= 0) continue;
        if (!automatic && i >= (size_t) n_dev)
            return pi__fail(err, PI_EINVAL, "tensor-split: part %zu has no device, option 'device' names %d: "
                            "give a part per device", i + 1, n_dev);
        int k = snprintf(c->chosen_device + at, sizeof c->chosen_device - at, "%s%s", at ? "," : "", dev[0]->name);
        if (k < 0 || (size_t) k >= sizeof c->chosen_device - at - 4)
            return pi__fail(err, PI_EINVAL, "tensor-split: too many parts");
        at += (size_t) k;
        if (!is_cpu) at += (size_t) snprintf(c->chosen_device + at, 4, "%d", automatic ? (int) i : (int) index[i]);
        if (c->layers && n_used < PI__N_PLACEMENTS) c->part[n_used++] = part[i];
    }
    if (at) c->device = c->chosen_device;
    return PI_OK;
}

/* Applies main-gpu and tensor-split. With split-mode layer, parts are shares of layers. With tensor they must be
 * equal, because matrices are split evenly. */
static int choose_devices(const pi__opt_set *s, pi__config *c, pi_error *err)
{
    double part[PI__MAX_DEVICES], equal = 0;
    const size_t n = pi__parse_numbers(pi__opt_str(s, PI__OPT_TENSOR_SPLIT), part, PI__MAX_DEVICES);
    const pi__device *dev[PI__MAX_DEVICES];
    int32_t index[PI__MAX_DEVICES];
    pi__device_info info;
    const bool several = c->tensor || c->layers, automatic = !*c->device || !strcasecmp(c->device, "auto");
    const int64_t main_gpu = several || !automatic ? 0 : pi__opt_int(s, PI__OPT_MAIN_GPU);
    bool uneven = false;
    if (main_gpu <= 0 && (!several || !n)) return PI_OK; /* do not load a driver without need */
    pi__devices_named(c->device, dev, index);
    if (strcmp(dev[0]->name, "cpu") && (!dev[0]->tell(index[0], &info) || !info.usable)) return PI_OK;
    if (main_gpu > 0 && strcmp(dev[0]->name, "cpu")) one_device(c, dev[0], (int32_t) main_gpu);
    int rc = several && n ? devices_with_parts(c, part, n, err) : PI_OK;
    for (size_t i = 0; i < n && i < PI__MAX_DEVICES && c->tensor; i++) {
        uneven = uneven || (part[i] > 0 && equal > 0 && (part[i] > equal * 1.01 || part[i] < equal * 0.99));
        if (part[i] > 0 && equal <= 0) equal = part[i];
    }
    if (uneven && c->device == c->chosen_device)
        pi__logf(&c->log, PI_LOG_WARN,
                 "tensor-split: split-mode tensor splits evenly, so devices get equal parts: 0 leaves a device out");
    return rc;
}

/* Refuses split-mode row, which only llama.cpp has, and split-mode layer with ranks. */
static int check_split(const pi__opt_set *s, const pi__config *c, pi_error *err)
{
    if (pi__opt_is(s, PI__OPT_SPLIT_MODE, "row"))
        return pi__fail(err, PI_EUNSUPPORTED,
                        "split-mode row: use tensor, which divides every layer among the devices, or layer");
    if (c->ranks && c->layers)
        return pi__fail(err, PI_EUNSUPPORTED, "split-mode layer splits among the devices of one process: with ranks "
                        "use split-mode tensor, or none");
    return PI_OK;
}

/* If the launcher started several ranks, connects them (c->ranks). PI_EINVAL if this process is not rank 0. */
static int find_ranks(const pi_options *o, pi__config *c, pi_error *err)
{
    int n;
    const int rank = pi_rank(o, &n, err);
    if (rank < 0 || n < 2) return rank < 0 ? rank : PI_OK;
    if (rank)
        return pi__fail(err, PI_EINVAL, "this process is worker rank %d of %d: call pi_rank_follow()", rank, n);
    return pi__ranks_of_process(&c->ranks, pi__opt_float(&o->set, PI__OPT_RANK_TIMEOUT) * 1e3,
                                pi__opt_str(&o->set, PI__OPT_RANK_SECRET), &c->log, err);
}

static int32_t at_most(int64_t n, int32_t most) { return n < most ? (int32_t) n : most; }

int pi__config_of(const pi_options *o, pi__config *c, pi_error *err)
{
#define ROW(type, ...) PI__##type,
    static const int32_t kv_types[] = {PI__CACHE_TYPES(ROW)}; /* indexed like the options' words */
#undef ROW
    static const int load_modes[] = {PI__LOAD_MMAP, PI__LOAD_MMAP, PI__LOAD_READ, PI__LOAD_READ,
                                     PI__LOAD_DIO,  PI__LOAD_READ, PI__LOAD_MMAP};
    const pi__opt_set *s = &o->set;
    const pi__opt_list *over = pi__opt_list_of(s, PI__OPT_OVERRIDE_KV);
    const int64_t cache_ram = pi__opt_int(s, PI__OPT_CACHE_RAM); /* MiB */
    *c = (pi__config) {
        .model = pi__opt_str(s, PI__OPT_MODEL),
        .mmproj = pi__opt_str(s, PI__OPT_MMPROJ),
        .mmproj_cache = (uint64_t) pi__opt_int(s, PI__OPT_MMPROJ_CACHE),
        .image_max_tokens = (uint32_t) pi__opt_int(s, PI__OPT_IMAGE_MAX_TOKENS),
        .override_kv = (const char *const *) over->item,
        .n_override_kv = over->n,
        .check_tensors = pi__opt_bool(s, PI__OPT_CHECK_TENSORS),
        .trace_ops = pi__opt_bool(s, PI__OPT_TRACE_OPS),
        .imatrix_file = pi__opt_str(s, PI__OPT_IMATRIX_FILE),
        .imatrix_dataset = pi__opt_str(s, PI__OPT_IMATRIX_DATASET),
        .profile_ops = pi__opt_bool(s, PI__OPT_PROFILE_OPS),
        .rope = rope_of(s),
        .mlock = pi__opt_bool(s, PI__OPT_MLOCK) || pi__opt_is(s, PI__OPT_LOAD_MODE, "mlock") ||
                 pi__opt_is(s, PI__OPT_LOAD_MODE, "mmap+mlock"),
        .fit_margin = fit_margin_of(s),
        .load_mode = load_modes[pi__opt_int(s, PI__OPT_LOAD_MODE)],
        .ctx_size = (int32_t) pi__opt_int(s, PI__OPT_CTX_SIZE),
        .max_batch_tokens = step_tokens_of(s),
        .step_target_ms = pi__opt_float(s, PI__OPT_STEP_TARGET_MS),
        .max_seqs = (int32_t) pi__opt_int(s, PI__OPT_PARALLEL),
        .max_queue = (int32_t) pi__opt_int(s, PI__OPT_MAX_QUEUE),
        .block_size = 16 << pi__opt_int(s, PI__OPT_BLOCK_SIZE),
        .type_k = kv_types[pi__opt_int(s, PI__OPT_CACHE_TYPE_K)],
        .type_v = kv_types[pi__opt_int(s, PI__OPT_CACHE_TYPE_V)],
        .kv_bytes = (uint64_t) pi__opt_int(s, PI__OPT_KV_BYTES),
        .kv_tokens = (uint64_t) pi__opt_int(s, PI__OPT_KV_TOKENS),
        .memory_share = pi__opt_float(s, PI__OPT_MEMORY_UTILIZATION),
        .kv_commit = pi__opt_is(s, PI__OPT_KV_COMMIT, "full"),
        .cache_ram = cache_ram < 0 ? -1 : cache_ram << 20,
        .weights_from = pi__opt_str(s, PI__OPT_WEIGHTS_FROM),
        .weights_cache = pi__opt_str(s, PI__OPT_WEIGHTS_CACHE),
        .prefix_dir = pi__opt_str(s, PI__OPT_PREFIX_DIR),
        .prefix_key = pi__opt_str(s, PI__OPT_PREFIX_KEY),
        .prefix_dir_bytes = (uint64_t) pi__opt_int(s, PI__OPT_PREFIX_DIR_BYTES),
        .prefix_dir_read_only = pi__opt_bool(s, PI__OPT_PREFIX_DIR_RO),
        .prefix_cache = pi__opt_bool(s, PI__OPT_PREFIX_CACHE),
        .snapshot_bytes = (uint64_t) pi__opt_int(s, PI__OPT_SNAPSHOT_BYTES),
        .snapshot_interval = (int32_t) pi__opt_int(s, PI__OPT_SNAPSHOT_INTERVAL),
        .draft_model = pi__opt_str(s, PI__OPT_MODEL_DRAFT),
        .n_draft = (int32_t) pi__opt_int(s, PI__OPT_SPEC_N_MAX),
        .n_draft_least = (int32_t) pi__opt_int(s, PI__OPT_SPEC_N_MIN),
        .draft_p_min = (float) pi__opt_float(s, PI__OPT_SPEC_P_MIN),
        .draft_adaptive = pi__opt_bool(s, PI__OPT_SPEC_ADAPTIVE),
        .ngram_n = at_most(pi__opt_int(s, PI__OPT_SPEC_NGRAM_N), PI__MOST_MATCH),
        .ngram_m = at_most(pi__opt_int(s, PI__OPT_SPEC_NGRAM_M), PI__MAX_DRAFT),
        .ngram_shared = (int32_t) pi__opt_int(s, PI__OPT_SPEC_NGRAM_SHARED),
        .draft_layers = (int32_t) pi__opt_int(s, PI__OPT_SPEC_LAYERS),
        .sparsity = (float) pi__opt_float(s, PI__OPT_PREFILL_SPARSITY),
        .sparse_from = (int32_t) pi__opt_int(s, PI__OPT_PREFILL_SPARSITY_FROM),
        .n_layer_exit = (int32_t) pi__opt_int(s, PI__OPT_N_LAYER_EXIT),
        .n_expert = (int32_t) pi__opt_int(s, PI__OPT_MOE_N_EXPERT),
        .ahead = pi__opt_bool(s, PI__OPT_ASYNC_SCHEDULING),
        .policy = pi__opt_is(s, PI__OPT_POLICY, "priority") ? PI__POLICY_PRIORITY : PI__POLICY_FCFS,
        .max_wait_ms = pi__opt_float(s, PI__OPT_PRIORITY_AGING) * 1e3,
        .device = pi__opt_str(s, PI__OPT_DEVICE),
        .placement = places_of(s),
        .tensor = pi__opt_is(s, PI__OPT_SPLIT_MODE, "tensor"),
        .layers = pi__opt_is(s, PI__OPT_SPLIT_MODE, "layer"),
        .params = pi__device_params_of(o),
        .log = {o->log_fn, o->log_ud, (int) pi__opt_int(s, PI__OPT_LOG_LEVEL)},
        .progress = o->progress_fn,
        .progress_ud = o->progress_ud,
    };
    c->params.cuda.exports = *c->weights_from != 0;
    (void) pi__parse_drafters(pi__opt_str(s, PI__OPT_SPEC_TYPE), &c->spec, &c->spec_also);
    if (!*c->model) return pi__fail(err, PI_EINVAL, "no model: option 'model' is the path of a GGUF file");
    if (pi__opt_float(s, PI__OPT_ROPE_SCALE) > 0 && pi__opt_float(s, PI__OPT_ROPE_FREQ_SCALE) > 0)
        return pi__fail(err, PI_EINVAL, "rope-scale and rope-freq-scale exclude each other: give one of them");
    const int64_t window = pi__opt_int(s, PI__OPT_CACHE_TYPE_WINDOW); /* 0 = same as cache-type */
    int rc = pi__cache_rules_parse(&c->cache_types, pi__opt_str(s, PI__OPT_CACHE_TYPE), err);
    if (rc) return rc;
    if (window > 0) pi__cache_rules_add(&c->cache_types, PI__LAYERS_WINDOW, true, true, kv_types[window - 1]);
    rc = check_device(pi__opt_str(s, PI__OPT_DEVICE), err);
    if (!rc) rc = choose_devices(s, c, err);
    if (!rc) rc = find_ranks(o, c, err);
    return rc ? rc : check_split(s, c, err);
}
