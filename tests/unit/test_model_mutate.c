/* Corrupt models through the complete opening: each is refused with a text, or opens and generates. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core.h"
#include "formats/formats.h"
#include "random_model.h"
#include "rounds.h"

enum { N_MUTANTS = 10000 };

static atomic_int done;
static bool on_token(void *ud, const pi__token_out *t) { (void) ud, (void) t; return false; }
static void on_done(void *ud, const pi__job_end *end) { (void) ud, (void) end; atomic_store(&done, 1); }

static char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t) ftell(f);
    rewind(f);
    char *p = malloc(*n);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static void write_all(const char *path, const char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_at(int fd, const char *p, size_t n, size_t at)
{
    assert_int_equal(pwrite(fd, p, n, (off_t) at), n);
}

/* Changes a number in the header (metadata and tensor headers), or truncates the file. */
static size_t damage(char *p, size_t n, size_t header, uint64_t *rng)
{
    static const uint64_t odd[] = {0,   1,     2,         3,          31,         32,
                                   255, 65535, INT32_MAX, UINT32_MAX, UINT64_MAX, (uint64_t) 1 << 62};
    int times = 1 + (int) (tiny_random(rng) % 3);
    for (int i = 0; i < times; i++) {
        size_t at = 8 + tiny_random(rng) % (header - 16);
        switch (tiny_random(rng) % 4) {
        case 0: p[at] ^= (char) (1 << tiny_random(rng) % 8); break;
        case 1: p[at] = (char) tiny_random(rng); break;
        case 2: memcpy(p + at, &odd[tiny_random(rng) % 12], 4); break;
        default: memcpy(p + at, &odd[tiny_random(rng) % 12], 8); break;
        }
    }
    return tiny_random(rng) % 10 == 0 ? tiny_random(rng) % n : n;
}

static char target[256]; /* path of the target model if the file is a drafter; "" = the file is not a drafter */
static bool makes_vectors; /* the model computes embedding vectors and generates no text */

/* Returns true if the file opened and completed a request. */
static bool open_and_ask(const char *path)
{
    pi__config c = {.model = path,
                    .max_batch_tokens = 8,
                    .max_seqs = 2,
                    .max_queue = 4,
                    .block_size = 16,
                    .ctx_size = 64,
                    .snapshot_interval = 512,
                    .type_k = PI__F16,
                    .type_v = PI__F16,
                    .params.cpu = {.n_threads = 1}};
    pi__core *e;
    pi__seq *s;
    pi_error err = {0};
    if (*target) c.model = target, c.draft_model = path, c.n_draft = 3;
    if (pi__core_open(&e, &c, &err)) {
        assert_int_not_equal(err.code, PI_OK);
        assert_int_not_equal(err.code, PI_EINTERNAL);
        assert_true(strlen(err.msg) > 10);
        return false;
    }
    int32_t prompt[3] = {2, 5, 7};
    pi__job j = {.prompt = prompt,
                 .n_prompt = 3,
                 .on_token = on_token,
                 .on_done = on_done,
                 .params = {.max_tokens = makes_vectors ? 0
                                          : *target     ? 5
                                                        : 2,
                            .n_logprobs = -1,
                            .hidden = makes_vectors,
                            .sampling = {.top_p = 1, .typical_p = 1, .repeat_penalty = 1, .chain = {PI__SMP_N}}}};
    atomic_store(&done, 0);
    if (!pi__core_submit(e, &j, 1, &s, &err)) {
        for (int i = 0; i < 20000 && !atomic_load(&done); i++) usleep(500);
        assert_true(atomic_load(&done));
        pi__seq_release(s);
    }
    pi__core_close(e);
    return true;
}

/* last: name of the file's last tensor; n_mutants: number of mutants to try. */
static void damaged(const char *path, const char *last, int n_mutants)
{
    char bad[300];
    snprintf(bad, sizeof bad, "%s.bad", path);
    size_t n, header = 0;
    char *good = read_all(path, &n), *p = malloc(n);
    for (size_t i = 0; i + strlen(last) < n; i++) /* the header ends after the last tensor's name and numbers */
        if (!memcmp(good + i, last, strlen(last))) header = i + strlen(last) + 40;
    assert_true(header > 1000 && header < n);
    uint64_t rng = 2024;
    int opened = 0;
    assert_true(open_and_ask(path));
    write_all(bad, good, n);
    int fd = open(bad, O_WRONLY);
    assert_true(fd >= 0);
    /* rewrites only changed parts: ten thousand complete files are 10 GB */
    for (int i = 0; i < rounds(n_mutants); i++) {
        memcpy(p, good, header);
        const size_t left = damage(p, n, header, &rng);
        write_at(fd, p, header, 0);
        if (left < n) assert_int_equal(ftruncate(fd, (off_t) left), 0);
        opened += open_and_ask(bad);
        if (left < n) write_at(fd, good + left, n - left, left);
    }
    close(fd);
    assert_true(opened > 0 && opened < n_mutants);
    free(good);
    free(p);
    unlink(path);
    unlink(bad);
}

static void damaged_gemma3(void **st)
{
    (void) st;
    char path[256];
    pi_error err = {0};
    assert_int_equal(tiny_write(tiny_path(path, "mutate"), NULL, &err), PI_OK);
    damaged(path, "post_ffw_norm.weight", N_MUTANTS);
}

static void damaged_gemma4(void **st)
{
    (void) st;
    char path[256];
    pi_error err = {0};
    assert_int_equal(tiny_write(tiny_path(path, "mutate4"), &(tiny_spec) {.arch = "gemma4"}, &err), PI_OK);
    damaged(path, "blk.5.layer_output_scale.weight", N_MUTANTS / 4);
}

static void damaged_qwen35(void **st)
{
    (void) st;
    char path[256];
    pi_error err = {0};
    for (int moe = 0; moe < 2; moe++) {
        assert_int_equal(
            tiny_write(tiny_path(path, "mutate35"), &(tiny_spec) {.arch = moe ? "qwen35moe" : "qwen35"}, &err), PI_OK);
        damaged(path, "blk.4.nextn.shared_head_norm.weight", N_MUTANTS / 8);
    }
}

static void damaged_deepseek4(void **st)
{
    (void) st;
    char path[256];
    pi_error err = {0};
    assert_int_equal(tiny_write(tiny_path(path, "mutateds4"), &(tiny_spec) {.arch = "deepseek4"}, &err), PI_OK);
    damaged(path, "output_norm.weight", N_MUTANTS / 8);
}

static void damaged_dflash(void **st)
{
    (void) st;
    char path[256];
    pi_error err = {0};
    static const char *const sizes[] = {"v=1 w=1 s=1 p=1 M=32 c=1", "v=1 k=2 i=3 R=32 p=1 l=1"};
    assert_int_equal(tiny_write(tiny_path(target, "mutatetarget"), &(tiny_spec) {.arch = "gemma4"}, &err), PI_OK);
    for (int i = 0; i < 2; i++) {
        const tiny_spec draft = {.arch = "dflash", .sizes = sizes[i]};
        assert_int_equal(tiny_write(tiny_path(path, "mutateflash"), &draft, &err), PI_OK);
        damaged(path, "blk.1.layer_output_scale.weight", N_MUTANTS / 32);
    }
    unlink(target);
    target[0] = 0;
}

/* Models, each with a tensor near the end of its header. */
static void damaged_each(const char *const list[][2], size_t n, const char *file, int n_mutants)
{
    char path[256];
    pi_error err = {0};
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tiny_write(tiny_path(path, file), &(tiny_spec) {.arch = list[i][0]}, &err), PI_OK);
        damaged(path, list[i][1], n_mutants);
    }
}

static void damaged_dense(void **st)
{
    (void) st;
    static const char *const list[][2] = {{"llama3", "ffn_down.weight"}, {"llama-bias", "ffn_down.weight"},
                                          {"mixtral", "ffn_down_exps.weight"}, {"qwen2", "ffn_down.weight"},
                                          {"gemma2", "post_ffw_norm.weight"}};
    damaged_each(list, sizeof list / sizeof *list, "mutated", N_MUTANTS / 16);
}

/* Models with experts, latent attention and sinks. */
static void damaged_experts(void **st)
{
    (void) st;
    static const char *const list[][2] = {{"gpt-oss", "ffn_down_exps.bias"},
                                          {"glm4moe", "nextn.shared_head_norm.weight"},
                                          {"deepseek3", "ffn_down_shexp.weight"},
                                          {"deepseek2-old", "ffn_down_shexp.weight"},
                                          {"minimax-m2", "ffn_down_exps.weight"},
                                          {"granitemoe", "ffn_down_shexp.weight"},
                                          {"laguna", "ffn_down_shexp.weight"},
                                          {"mimo2", "ffn_down_exps.weight"},
                                          {"qwen3next", "nextn.shared_head_norm.weight"},
                                          {"granitehybrid", "ffn_down_shexp.weight"},
                                          {"nemotron_h_moe-latent", "ffn_down_shexp.weight"}};
    damaged_each(list, sizeof list / sizeof *list, "mutatex", N_MUTANTS / 100);
}

static void damaged_encoders(void **st)
{
    (void) st;
    static const char *const list[][2] = {{"bert", "layer_output_norm.bias"}, {"nomic-bert", "layer_output_norm.bias"},
                                          {"gemma-embedding", "post_ffw_norm.weight"},
                                          {"jina-bert-v2-code", "layer_output_norm.bias"},
                                          {"t5encoder", "ffn_down.weight"}};
    makes_vectors = true;
    damaged_each(list, sizeof list / sizeof *list, "mutatee", N_MUTANTS / 100);
    makes_vectors = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_gemma3), cmocka_unit_test(damaged_gemma4),
                                       cmocka_unit_test(damaged_qwen35), cmocka_unit_test(damaged_deepseek4),
                                       cmocka_unit_test(damaged_dense), cmocka_unit_test(damaged_experts),
                                       cmocka_unit_test(damaged_encoders), cmocka_unit_test(damaged_dflash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
