/* Writes the seeds of fuzz_gguf: tool_gguf_seeds tests/fuzz/corpus/gguf. Each is a small GGUF that reaches a different
 * part of the reader; the reader refuses some of them. */
#include "gguf_seed.h"

static const char *folder;

static int save(const char *name, const void *p, size_t n)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    size_t written = f ? fwrite(p, 1, n, f) : 0;
    if (f && fclose(f) == 0 && written == n) return 0;
    fprintf(stderr, "%s: cannot write\n", path);
    return 1;
}

static int save_model(const char *name, uint32_t alignment, bool tensors, uint8_t version)
{
    char path[1000];
    pi_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (seed_write(path, alignment, tensors, &err) != PI_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    size_t n;
    uint8_t *p = slurp(path, &n);
    if (!p) return 1;
    p[4] = version;
    int rc = save(name, p, n);
    free(p);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 64;
    }
    folder = argv[1];
    image m;
    int rc = save_model("model", 32, true, 3) | save_model("model_v2_align8", 8, true, 2) |
             save_model("vocab", 32, false, 3);

    img_head(&m, 3, 0, 0);
    rc |= save("nothing", m.b, m.n);
    img_head(&m, 3, 2, 1);
    img_kv_u32(&m, "general.alignment", 16);
    img_tensor(&m, "b", PI__F32, 4, (uint64_t[]) {2, 1, 2, 1}, 16);
    img_tensor(&m, "a", PI__F16, 0, NULL, 0);
    img_pad(&m, 16);
    img_bytes(&m, (uint8_t[32]) {1, 2, 3}, 32);
    rc |= save("unordered", m.b, m.n);
    img_head(&m, 3, 0, 2);
    img_kv_u32(&m, "split.count", 2);
    img_kv_u32(&m, "split.no", 0);
    rc |= save("split", m.b, m.n);
    img_head(&m, 0x03000000, 0, 0);
    rc |= save("big_endian", m.b, m.n);
    return rc;
}
