/* check-tensors: loading refuses a NaN or infinite weight and names the tensor. Short vectors are always checked,
 * including a vector that only selects experts. */
#include "model_jobs.h"

static char path[256];

static int open_at(bool check, pi_error *err)
{
    pi__core *e;
    pi__config c = {.model = path, .max_batch_tokens = 16, .max_seqs = 1, .max_queue = 1, .block_size = 16,
                    .snapshot_interval = 64, .type_k = PI__F16, .type_v = PI__F16, .kv_tokens = 512,
                    .check_tensors = check, .params.cpu = {.n_threads = 1}};
    int rc = pi__core_open(&e, &c, err);
    pi__core_close(e);
    return rc;
}

/* Overwrites two bytes, `back` bytes before the file's end, by the high bytes of an f16 or f32 NaN or infinity.
 * always: the file is refused without check-tensors, too. */
static void damaged(long back, unsigned bits, bool always, const char *tensor, const char *what)
{
    FILE *f = fopen(path, "r+b");
    unsigned char old[2], now[2] = {(unsigned char) bits, (unsigned char) (bits >> 8)};
    pi_error err = {0};
    assert_non_null(f);
    assert_int_equal(fseek(f, -back, SEEK_END), 0);
    assert_int_equal(fread(old, 1, 2, f), 2);
    assert_int_equal(fseek(f, -back, SEEK_END), 0);
    assert_int_equal(fwrite(now, 1, 2, f), 2);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(open_at(true, &err), PI_EFORMAT);
    if (!strstr(err.msg, tensor) || !strstr(err.msg, what)) fail_msg("%s", err.msg);
    assert_int_equal(open_at(false, &err), always ? PI_EFORMAT : PI_OK);
    if (always && (!strstr(err.msg, tensor) || !strstr(err.msg, what))) fail_msg("%s", err.msg);
    assert_int_equal(fseek(f, -back, SEEK_END), 0);
    assert_int_equal(fwrite(old, 1, 2, f), 2);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(open_at(true, &err), PI_OK);
}

static void test_values(void **st)
{
    (void) st;
    const tiny_spec s = {.type = PI__Q8_0, .sizes = "E=64 F=96"};
    pi_error err = {0};
    assert_int_equal(tiny_write(tiny_path(path, "check"), &s, &err), 0);
    assert_int_equal(open_at(true, &err), PI_OK);
    const long norm = 64 * 4, down = 64 * 96 / 32 * 34; /* the last two tensors */
    damaged(2, 0x7fc0, true, "blk.2.post_ffw_norm.weight: value 63", "not a number");
    damaged(norm - 2, 0x7f80, true, "blk.2.post_ffw_norm.weight: value 0", "not a number");
    damaged(norm + down, 0x7e00, false, "blk.2.ffn_down.weight: value 0", "not a number"); /* a block's scale */
    damaged(norm + 34, 0x7c00, false, "blk.2.ffn_down.weight", "infinite");
    unlink(path);
}

/* A NaN in the selection bias of experts is refused; the bias affects only the selection, not the computed values. */
static void test_choice_of_experts(void **st)
{
    static const unsigned char nan[4] = {0xff, 0xff, 0xff, 0xff}; /* a NaN in every float format */
    (void) st;
    pi_error err = {0};
    pi__gguf *g;
    assert_int_equal(tiny_write(tiny_path(path, "check"), &(tiny_spec) {.arch = "glm4moe"}, &err), 0);
    assert_int_equal(open_at(false, &err), PI_OK);
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_READ, &err), PI_OK);
    const pi__tensor *t = pi__gguf_find_tensor(g, "blk.1.exp_probs_b.bias");
    assert_non_null(t);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long) t->offset + 4, SEEK_SET), 0);
    assert_int_equal(fwrite(nan, 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
    pi__gguf_close(g);
    assert_int_equal(open_at(false, &err), PI_EFORMAT);
    if (!strstr(err.msg, "blk.1.exp_probs_b.bias: value ")) fail_msg("%s", err.msg);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_choice_of_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
