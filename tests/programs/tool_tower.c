/* tool_tower.c: runs a vision model on an image on the CPU, and prints the time per op.
 *
 *     tool_tower FILE TEXT_WIDTH WIDTH HEIGHT [THREADS [DEEPSTACK [ROWS]]]
 *
 * FILE is an mmproj file, for example one of tool_tiny_model with the sizes of a real model. TEXT_WIDTH is the
 * embedding length of the text model. The first number printed is a hash of the rows: runs can be compared by it. The
 * image is random. With ROWS its pixels (RGB, 3 bytes each) are read from stdin, and the file ROWS gets the floats of
 * the image's rows: tools/compare_mtmd.py compares them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/operands.h"
#include "backend/profile.h"
#include "base/error.h"
#include "base/hash.h"
#include "formats/formats.h"
#include "model/tower.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static int32_t any_token(void *ud, const char *text)
{
    (void) ud, (void) text;
    return 1;
}

static void print_profile(const pi__profile *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        const pi__profile_row *r = &p->row[i];
        const double s = 1e-9 * (double) r->ns;
        if (s > 1e-3)
            printf("%-12s %-6s %6lld x %-6lld %8.3f s  %8.1f GFLOP/s\n",
                   r->op < (int32_t) PI__N_OPS ? pi__op_name((pi__op_id) r->op) : "part",
                   r->type >= 0 ? pi__type_info_of(r->type)->name : "", (long long) r->n_in, (long long) r->n_out, s,
                   2e-9 * (double) (r->floats + r->integers) / s);
    }
}

static int write_rows(const char *path, const float *rows, size_t size, pi_error *err)
{
    FILE *f = fopen(path, "wb");
    const bool ok = f && fwrite(rows, 1, size, f) == size;
    if (f && (fclose(f) || !ok)) f = NULL;
    return f ? PI_OK : pi__fail(err, PI_EIO, "cannot write %s", path);
}

static int run(pi__backend *be, pi__tower *t, uint32_t w, uint32_t h, const char *rows_file, pi_error *err)
{
    const size_t n_bytes = (size_t) w * h * 3;
    uint8_t *rgb = malloc(n_bytes);
    pi__picture *p = NULL;
    uint32_t s = 1;
    if (!rgb) return pi__fail(err, PI_ENOMEM, "no memory");
    for (size_t i = 0; i < n_bytes; i++) rgb[i] = (uint8_t) ((s = s * 1103515245u + 12345u) >> 16);
    if (rows_file && fread(rgb, 1, n_bytes, stdin) != n_bytes) {
        free(rgb);
        return pi__fail(err, PI_EIO, "stdin has fewer than %zu bytes of pixels", n_bytes);
    }
    double start = now();
    int rc = pi__picture_create(&p, pi__tower_rules(t), w, h, rgb, 0, 0, err);
    free(rgb);
    if (rc) return rc;
    printf("resize %.3f s; %d x %d patches, %d tokens\n", now() - start, p->grid.patch_cols, p->grid.patch_rows,
           p->grid.n_tokens);
    const size_t size = (size_t) p->grid.n_tokens * (size_t) pi__tower_width(t) * sizeof(float);
    float *rows = be->dev->alloc(be, size);
    pi__image_part part = {0};
    int n = 0;
    be->profile = pi__profile_new(be);
    start = now();
    pi__tower_begin(t, p);
    for (; !part.done && !rc; n++) rc = pi__tower_step(t, rows, &part, err);
    const double took = now() - start;
    if (!rc) printf("hash %016llx; %.3f s in %d steps\n", (unsigned long long) pi__hash64(rows, size, 0), took, n);
    print_profile(be->profile);
    if (!rc && rows_file) rc = write_rows(rows_file, rows, size, err);
    pi__profile_free(be->profile);
    be->profile = NULL;
    be->dev->free(be, rows, size);
    pi__picture_release(p);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: tool_tower FILE TEXT_WIDTH WIDTH HEIGHT [THREADS [DEEPSTACK [ROWS]]]\n");
        return 1;
    }
    const pi__cpu_params params = {.n_threads = argc > 5 ? atoi(argv[5]) : 0};
    const pi__tower_text text = {.arch = "test", .n_embd = atoi(argv[2]), .n_deepstack = argc > 6 ? atoi(argv[6]) : 0,
                                 .token = any_token};
    pi__limits lim = {.max_tokens = 512, .max_seqs = 1, .max_rows = 1, .max_ctx = 64, .n_vocab = 1};
    pi__backend *be = NULL;
    pi__tower *t = NULL;
    pi_error err = {0};
    int rc = pi__cpu_create(&be, &params, &(pi__log) {0}, &err);
    if (!rc) rc = pi__tower_open(&t, argv[1], be, &text, &(pi__tower_use) {.load_mode = PI__LOAD_MMAP}, &err);
    if (!rc) {
        printf("scratch %zu MiB, pool %zu MiB\n", pi__tower_scratch(t, &lim) >> 20, pi__tower_pool_bytes(t) >> 20);
        rc = be->dev->reserve(be, &lim, &err);
    }
    if (!rc) rc = pi__model_load(pi__tower_model(t), &lim, NULL, &err);
    if (!rc) rc = run(be, t, (uint32_t) atoi(argv[3]), (uint32_t) atoi(argv[4]), argc > 7 ? argv[7] : NULL, &err);
    if (rc) fprintf(stderr, "tool_tower: %s\n", err.msg);
    pi__tower_free(t);
    if (be) be->dev->destroy(be);
    return rc != PI_OK;
}
