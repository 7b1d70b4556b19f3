/* C interface to headers of tests/, for C++: random models, and an engine opened with little memory. */
#include <unistd.h>

#include "api/objects.h"
#include "backend/cuda/impl.h"
#include "backend/devices.h"
#include "backend/split.h"
#include "adapter_file.h"
#include "counting_alloc.h"
#include "draft_logits.h"
#include "engine/core.h"
#include "plan_facts.h"
#include "random_model.h"

bool simt_has_plan_facts(void);
bool simt_has_plan_facts(void)
{
    const pi__facts plan = plan_facts();
    pi__facts f = {0};
    pi__cuda_kernel_facts(&f);
    return f.w16 == plan.w16 && f.w16_bf16 == plan.w16_bf16 && f.gdn_few == plan.gdn_few;
}

int simt_tiny_write(const char *path, int32_t type);
int simt_tiny_write(const char *path, int32_t type)
{
    pi_error err;
    return tiny_write(path, &(tiny_spec) {.type = type, .sizes = "E=256 H=4 G=2 D=64 F=256"}, &err);
}

int simt_tiny_write_small(const char *path, int32_t type);
int simt_tiny_write_small(const char *path, int32_t type)
{
    pi_error err;
    return tiny_write(path, &(tiny_spec) {.type = type, .sizes = "L=2 P=2"}, &err);
}

/* Writes the model of simt_tiny_write_small with an embedding that two devices can split evenly. */
int simt_tiny_write_even(const char *path, int32_t type);
int simt_tiny_write_even(const char *path, int32_t type)
{
    pi_error err;
    return tiny_write(path, &(tiny_spec) {.type = type, .sizes = "L=2 P=2 V=320"}, &err);
}

/* Writes four layers of gemma3, or the default small model of another architecture. */
int simt_small_write(const char *path, const char *arch, int32_t type);
int simt_small_write(const char *path, const char *arch, int32_t type)
{
    pi_error err;
    const bool gemma3 = !strcmp(arch, "gemma3");
    return tiny_write(path, &(tiny_spec) {.arch = arch, .type = gemma3 ? type : 0, .sizes = gemma3 ? "L=4" : NULL},
                      &err);
}

int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes)
{
    pi_error err;
    return tiny_write(path, &(tiny_spec) {.arch = arch, .type = type, .sizes = sizes}, &err);
}

/* Writes an adapter for the model's matrices that have `only` in their names. */
int simt_adapter_write(const char *path, const char *model, uint32_t seed, int32_t rank, int32_t type,
                       const char *only);
int simt_adapter_write(const char *path, const char *model, uint32_t seed, int32_t rank, int32_t type, const char *only)
{
    pi_error err;
    const adapter_spec s = {.seed = seed, .rank = rank, .type = type, .alpha = 16, .size = 4, .only = only};
    return adapter_write(path, model, &s, &err);
}

int simt_open(const char *path, long fail_at, long *count, long *left);
int simt_open_split(const char *path, const pi__placement_rules *placement, long fail_at, long *count, long *left);

int simt_open(const char *path, long fail_at, long *count, long *left)
{
    return simt_open_split(path, NULL, fail_at, count, left);
}

/* Opens and closes an engine on the emulated device; host allocation number fail_at fails. Returns the code of
 * opening. */
int simt_open_split(const char *path, const pi__placement_rules *placement, long fail_at, long *count, long *left)
{
    static counting_alloc a;
    pi__core *e = NULL;
    pi_error err = {0};
    pi__config c = {.model = path,
                    .device = "emu",
                    .ctx_size = 64,
                    .max_batch_tokens = 8,
                    .max_seqs = 2,
                    .max_queue = 4,
                    .block_size = 16,
                    .type_k = PI__F16,
                    .type_v = PI__F16,
                    .prefix_cache = true,
                    .snapshot_interval = 256,
                    .params.cpu = {.n_threads = 1}};
    if (placement) c.placement = *placement;
    counting_use(&a, fail_at);
    int rc = pi__core_open(&e, &c, &err);
    pi__core_close(e);
    pi_set_allocator(NULL);
    *count = a.count;
    *left = a.live;
    return rc;
}

/* Numbers of tokens sampled from top-k results of a device, and from full rows. */
void simt_sampled(const pi_engine *e, unsigned long long *heads, unsigned long long *whole);
void simt_sampled(const pi_engine *e, unsigned long long *heads, unsigned long long *whole)
{
    *heads = pi__core_counters(e->core)->n_from_topk;
    *whole = pi__core_counters(e->core)->n_from_row;
}

/* Writes a drafter for the gemma4 of simt_small_write, with a centroid head that selects n_pick clusters. */
int simt_drafter_write(const char *path, int32_t n_pick);
int simt_drafter_write(const char *path, int32_t n_pick)
{
    pi_error err;
    char sizes[16];
    snprintf(sizes, sizeof sizes, "K=%d", n_pick);
    return tiny_write(path, &(tiny_spec) {.arch = "gemma4-assistant", .sizes = sizes}, &err);
}

/* Writes a block drafter for the same model. */
int simt_flash_write(const char *path, const char *sizes);
int simt_flash_write(const char *path, const char *sizes)
{
    pi_error err;
    return tiny_write(path, &(tiny_spec) {.arch = "dflash", .sizes = sizes}, &err);
}

/* Opens the named devices, several as one; "emu+cpu": as in a split model. */
static int open_devices(pi__backend **out, const char *names, pi_error *err)
{
    const pi__device_params p = {.cpu = {.n_threads = 2, .poll = 1}};
    const pi__log log = {0};
    pi__backend *at[PI__N_PLACEMENTS];
    if (strcmp(names, "emu+cpu")) return pi__device_create(out, names, true, &p, &log, err);
    int rc = pi__device_create(&at[PI__AT_DEVICE], "emu", false, &p, &log, err);
    if (!rc) rc = pi__device_create(&at[PI__AT_CPU], "cpu", false, &p, &log, err);
    return rc ? rc : pi__split_create(out, at[PI__AT_DEVICE], at[PI__AT_CPU], err);
}

/* Computes the logits of the drafter of simt_drafter_write: [*n_rows, *n_vocab]; `room` is the capacity in floats. */
int simt_draft_logits(const char *devices, int32_t n_pick, float *logits, size_t room, size_t *n_rows, size_t *n_vocab);
int simt_draft_logits(const char *devices, int32_t n_pick, float *logits, size_t room, size_t *n_rows, size_t *n_vocab)
{
    char model[256], draft[256];
    pi_error err = {0};
    pi__backend *be;
    *n_rows = DA_ROWS, *n_vocab = TINY_VOCAB;
    if (room < DA_ROWS * TINY_VOCAB) return PI_ENOMEM;
    int rc = tiny_write(tiny_path(model, "target"), &(tiny_spec) {.arch = "gemma4"}, &err);
    if (!rc) rc = simt_drafter_write(tiny_path(draft, "drafter"), n_pick);
    if (!rc) rc = open_devices(&be, devices, &err);
    if (!rc) {
        rc = da_logits(be, model, draft, PI__LOAD_MMAP, logits, &err);
        be->dev->destroy(be);
    }
    unlink(model);
    unlink(draft);
    return rc;
}
