/* More than 10,000 corrupt GGUFs, derived deterministically from a small realistic one: truncated at every byte, bits
 * flipped, bytes and counts replaced by interesting values, pieces deleted, duplicated and moved. The reader must
 * read each without harm or refuse it with a text. No allocation may exceed a bound in proportion to the file size. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "gguf_seed.h"

static char dir[200], path[300];

static struct { long total, accepted, refused, by_file; } seen;

/* Bounds for reading n bytes: the largest allocation (a tensor list is about 9 bytes per byte of file), and the peak
 * total. */
static size_t largest_allowed(size_t n) { return 10 * n + 4096; }
static size_t peak_allowed(size_t n) { return 16 * n + 8192; }

static void check_refusal(int rc, const pi_error *err)
{
    assert_true(rc < 0);
    assert_int_equal(err->code, rc);
    assert_true(rc == PI_EFORMAT || rc == PI_EUNSUPPORTED);
    assert_true(strlen(err->msg) > 20);
    assert_true(strstr(err->msg, "offset") || strstr(err->msg, "empty") || strstr(err->msg, "split"));
    for (const char *c = err->msg; *c; c++) assert_true((unsigned char) *c >= 0x20);
}

/* p has exactly n bytes, so that ASan detects reads past the end. */
static void try_image(const uint8_t *p, size_t n)
{
    counting_alloc a;
    pi_error err = {0};
    pi__gguf *g;
    counting_use(&a, -1);
    int rc = pi__gguf_open_memory(&g, p, n, &err);
    if (rc == PI_OK) {
        touch_all(g);
        seen.accepted++;
    } else {
        check_refusal(rc, &err);
        seen.refused++;
    }
    pi__gguf_close(g);
    assert_int_equal(a.live, 0);
    assert_true(a.largest <= largest_allowed(n));
    assert_true(a.peak <= peak_allowed(n));
    seen.total++;
    if (seen.total % 41 == 0) { /* also as a file, in each mode, with the same outcome */
        FILE *f = fopen(path, "wb");
        assert_true(f && fwrite(p, 1, n, f) == n);
        fclose(f);
        for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
            assert_int_equal(pi__gguf_open(&g, path, mode, &err), rc);
            if (g) touch_all(g);
            pi__gguf_close(g);
            seen.by_file++;
        }
        assert_int_equal(a.live, 0);
    }
    pi_set_allocator(NULL);
}

/* Copies the n bytes of p to a block of exactly this size and calls try_image. */
static void try_copy(const uint8_t *p, size_t n)
{
    uint8_t *q = malloc(n ? n : 1);
    if (n > 0) memcpy(q, p, n);
    try_image(q, n);
    free(q);
}

static uint64_t rng_state;

static uint64_t rng(void) /* xorshift64* */
{
    rng_state ^= rng_state >> 12;
    rng_state ^= rng_state << 25;
    rng_state ^= rng_state >> 27;
    return rng_state * 0x2545f4914f6cdd1du;
}

static size_t below(size_t n) { return n ? (size_t) (rng() % n) : 0; }

/* ---- the seeds */

enum { N_SEEDS = 3 };
static struct { uint8_t *p; size_t n, header; } seed[N_SEEDS]; /* header = bytes before the tensor data */

static int make_seeds(void **state)
{
    (void) state;
    static const uint32_t alignment[N_SEEDS] = {32, 64, 8};
    for (int i = 0; i < N_SEEDS; i++) {
        pi__gguf *g;
        assert_int_equal(seed_write(path, alignment[i], i != 2, NULL), PI_OK);
        seed[i].p = slurp(path, &seed[i].n);
        assert_non_null(seed[i].p);
        if (i == 1) seed[i].p[4] = 2; /* the older version */
        assert_int_equal(pi__gguf_open_memory(&g, seed[i].p, seed[i].n, NULL), PI_OK);
        seed[i].header = pi__gguf_n_tensors(g) ? pi__gguf_tensor_at(g, 0)->offset : seed[i].n;
        pi__gguf_close(g);
    }
    return 0;
}

static int free_seeds(void **state)
{
    (void) state;
    for (int i = 0; i < N_SEEDS; i++) free(seed[i].p);
    print_message("%ld damaged files: %ld read, %ld refused; %ld openings as files\n", seen.total, seen.accepted,
                  seen.refused, seen.by_file);
    return 0;
}

/* ---- mutations */

static void test_cut(void **state)
{
    (void) state;
    long accepted = seen.accepted;
    for (int i = 0; i < N_SEEDS; i++) for (size_t n = 0; n < seed[i].n; n++) try_copy(seed[i].p, n);
    /* Only the padding after the last tensor is optional: 12 bytes occupy 20 of 32, and 52 of 64. */
    assert_int_equal(seen.accepted - accepted, 20 + 52);
}

static void test_bit_flips(void **state)
{
    (void) state;
    for (int i = 0; i < N_SEEDS; i++) {
        for (size_t at = 0; at < seed[i].header; at++) {
            uint8_t was = seed[i].p[at];
            seed[i].p[at] = was ^ (uint8_t) (1 << below(8));
            try_copy(seed[i].p, seed[i].n);
            seed[i].p[at] = was;
        }
    }
}

static const uint64_t interesting[] = {
    0, 1, 2, 7, 8, 9, 12, 13, 31, 33, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x10000, 0x10001, 0x7fffffff,
    0x80000000, 0xffffffff, 0x100000000, 0x0fffffffffffffff, 0x1fffffffffffffff, 0x2000000000000000,
    0x2000000000000001, 0x3fffffffffffffff, 0x4000000000000000, 0x7ffffffffffffff0, 0x7fffffffffffffff,
    0x8000000000000000, 0xffffffffffffffe0, 0xffffffffffffffff,
};

/* Every byte of the header becomes the start of an interesting number of 1, 4 or 8 bytes. */
static void test_interesting_numbers(void **state)
{
    (void) state;
    static const size_t widths[] = {1, 4, 8};
    for (int i = 0; i < N_SEEDS; i++) {
        for (size_t at = 0; at < seed[i].header; at++) {
            uint8_t was[8];
            uint64_t v = interesting[below(sizeof interesting / sizeof *interesting)];
            size_t w = widths[below(3)];
            if (w > seed[i].n - at) w = 1;
            memcpy(was, seed[i].p + at, w);
            memcpy(seed[i].p + at, &v, w);
            try_copy(seed[i].p, seed[i].n);
            memcpy(seed[i].p + at, was, w);
        }
    }
}

/* Puts every interesting number into every length or count field of the header. The test recognizes a field as 8 bytes
 * with a small number. */
static void test_lengths(void **state)
{
    (void) state;
    for (size_t at = 8; at + 8 <= seed[0].header; at++) {
        uint64_t was, v;
        memcpy(&was, seed[0].p + at, 8);
        if (was == 0 || was > 300) continue;
        for (size_t k = 0; k < sizeof interesting / sizeof *interesting; k++) {
            v = interesting[k];
            memcpy(seed[0].p + at, &v, 8);
            try_copy(seed[0].p, seed[0].n);
        }
        v = was + 1;
        memcpy(seed[0].p + at, &v, 8);
        try_copy(seed[0].p, seed[0].n);
        v = was - 1;
        memcpy(seed[0].p + at, &v, 8);
        try_copy(seed[0].p, seed[0].n);
        memcpy(seed[0].p + at, &was, 8);
    }
}

/* Deletes, duplicates, moves or replaces a random piece of the file, sometimes repeatedly; replacements come from
 * another seed. */
static uint8_t *damage(uint8_t *p, size_t *n)
{
    int other = (int) below(N_SEEDS);
    size_t from = below(*n), len = 1 + below(rng() % 4 ? 16 : 400), at = below(*n);
    if (len > *n - from) len = *n - from;
    uint8_t *q = malloc(*n + 400 + 1);
    switch (below(4)) {
    case 0: /* deleted */
        memcpy(q, p, from);
        memcpy(q + from, p + from + len, *n - from - len);
        *n -= len;
        break;
    case 1: /* duplicated elsewhere */
        memcpy(q, p, at);
        memcpy(q + at, p + from, len);
        memcpy(q + at + len, p + at, *n - at);
        *n += len;
        break;
    case 2: /* copied over other bytes */
        memcpy(q, p, *n);
        memmove(q + at, p + from, len < *n - at ? len : *n - at);
        break;
    default: /* bytes of another seed */
        memcpy(q, p, *n);
        from = below(seed[other].n);
        if (len > seed[other].n - from) len = seed[other].n - from;
        memcpy(q + at, seed[other].p + from, len < *n - at ? len : *n - at);
    }
    free(p);
    return q;
}

static void test_splices(void **state)
{
    (void) state;
    for (int round = 0; round < 4000; round++) {
        int i = (int) below(N_SEEDS);
        size_t n = seed[i].n;
        uint8_t *p = malloc(n);
        memcpy(p, seed[i].p, n);
        for (size_t times = 1 + below(3); times > 0 && n > 0; times--) p = damage(p, &n);
        try_copy(p, n);
        free(p);
    }
}

/* At least 10,000 mutants were tried, and both outcomes occurred often. */
static void test_enough(void **state)
{
    (void) state;
    assert_true(seen.total >= 10000);
    assert_true(seen.accepted >= 500);
    assert_true(seen.refused >= 5000);
    assert_true(seen.by_file >= 500);
}

/* The densest files, with the maximum number of entries, strings or tensors for n bytes. Memory stays in
 * proportion. */
static void test_dense(void **state)
{
    (void) state;
    enum { N = 20000 };
    for (int kind = 0; kind < 3; kind++) {
        uint8_t *p = calloc(1, 64 + N * 40), *e;
        uint64_t n_kv = kind == 0 ? N : kind == 1, n_tensors = kind == 2 ? N : 0, strings = N, name_len = 3;
        uint32_t type = kind == 0 ? PI__GGUF_U8 : PI__GGUF_ARR, elem = PI__GGUF_STR, i8 = PI__I8;
        memcpy(p, "GGUF\3\0\0\0", 8);
        memcpy(p + 8, &n_tensors, 8);
        memcpy(p + 16, &n_kv, 8);
        e = p + 24;
        if (kind == 1) { /* one array of empty strings */
            memcpy(e, &name_len, 8);
            memcpy(e + 8, "abc", 3);
            memcpy(e + 11, &type, 4);
            memcpy(e + 15, &elem, 4);
            memcpy(e + 19, &strings, 8);
            e += 27 + 8 * N;
        }
        for (uint32_t i = 0; i < N && kind != 1; i++) {
            memcpy(e, &name_len, 8);
            memcpy(e + 8, &i, 3);
            e += 11;
            if (kind == 0) {
                memcpy(e, &type, 4);
                e += 5;
            } else { /* without dimensions; the data of all but one overlap, which is found after reading all */
                memcpy(e + 4, &i8, 4);
                e += 16;
            }
        }
        try_copy(p, (size_t) (e - p) + 64);
        free(p);
    }
}

int main(void)
{
    temp_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/t.gguf", dir);
    rng_state = 88172645463325252u;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut), cmocka_unit_test(test_bit_flips), cmocka_unit_test(test_interesting_numbers),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_splices), cmocka_unit_test(test_enough),
        cmocka_unit_test(test_dense),
    };
    int rc = cmocka_run_group_tests(tests, make_seeds, free_seeds);
    unlink(path);
    rmdir(dir);
    return rc;
}
