/* The encoder cache without a model: images are encoded in pieces and in order, held while sequences need them, found
 * again afterwards, and evicted when their rows are needed. A sequence that waits for rows always gets them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backend/device.h"
#include "base/log.h"
#include "engine/media.h"

enum { WIDTH = 4, MAX_SEQ_IMAGES = 6 };

/* ---- an encoder that needs two calls per image and records its rows */

typedef struct encoder {
    pi__encoder fns;
    int pieces;
    int begun, cancelled;
    float *at;                 /* rows of the last image */
    int code;                  /* result of the second call */
} encoder;

static void begin(void *ud, pi__picture *p)
{
    (void) p;
    encoder *e = ud;
    e->begun++;
    e->pieces = 0;
}

static int step(void *ud, pi__backend *be, float *rows, pi__image_part *part, pi_error *err)
{
    (void) be, (void) err;
    encoder *e = ud;
    assert_true(!e->pieces || rows == e->at);
    e->at = rows;
    part->done = ++e->pieces == 2 && !e->code;
    return e->pieces == 2 ? e->code : PI_OK;
}

static void cancel(void *ud) { ((encoder *) ud)->cancelled++; }

/* ---- fixture */

typedef struct fixture {
    pi__backend *be;
    encoder e;
    pi__stats stats;
    pi__media m;
} fixture;

static void open_media(fixture *f, int32_t n_rows)
{
    const pi__cpu_params cpu = {.n_threads = 1};
    const pi__log log = {0};
    *f = (fixture) {.be = NULL};
    f->e.fns = (pi__encoder) {&f->e, WIDTH, 10, 0, false, begin, step, cancel};
    assert_int_equal(pi__cpu_create(&f->be, &cpu, &log, NULL), PI_OK);
    assert_int_equal(pi__media_init(&f->m, &f->e.fns, n_rows, f->be, &f->stats, NULL), PI_OK);
}

static void close_media(fixture *f)
{
    pi__media_destroy(&f->m);
    f->be->dev->destroy(f->be);
}

/* A sequence of 100 tokens; image k has n tokens from position 10 k on, and the content id[k]. */
typedef struct sequence {
    pi__seq s;
    pi__block_media at[MAX_SEQ_IMAGES];
    pi__seq_image image[MAX_SEQ_IMAGES];
} sequence;

static void make_seq(sequence *q, int32_t n, const char *ids)
{
    memset(q, 0, sizeof *q);
    q->s.n_tokens = q->s.n_prompt = 100;
    q->s.images = (pi__seq_images) {(int32_t) strlen(ids), q->at, q->image};
    for (int32_t k = 0; k < q->s.images.n; k++) {
        q->at[k] = (pi__block_media) {10 * k, n, {{(uint8_t) ids[k]}}};
        q->image[k] = (pi__seq_image) {.rows = 1, .cols = n, .entry = -1, .first_row = -1};
    }
}

static int32_t ready(fixture *f, sequence *q) { return pi__media_ready(&f->m, &q->s, 100 - q->s.n_computed); }

/* Encodes one part. */
static int encode_part(fixture *f)
{
    pi__image_part part = {0};
    pi_error err;
    return pi__media_step(&f->m, &part, &err);
}

/* Encodes until the encoder is idle. */
static void encode(fixture *f)
{
    while (pi__media_busy(&f->m)) assert_int_equal(encode_part(f), PI_OK);
}

static void compute(fixture *f, sequence *q, int32_t n)
{
    q->s.n_computed += n;
    pi__media_release(&f->m, &q->s, q->s.n_computed);
}

static void in_order_and_once(void **st)
{
    (void) st;
    fixture f;
    sequence a, b;
    open_media(&f, 24);
    make_seq(&a, 8, "ab");
    make_seq(&b, 8, "bc");
    assert_true(ready(&f, &a) == 0 && ready(&f, &b) == 0 && f.e.begun == 1); /* a's first image is encoded */
    assert_int_equal(encode_part(&f), PI_OK);
    assert_int_equal(ready(&f, &a), 0);
    assert_true(a.image[0].entry >= 0 && a.image[0].first_row < 0); /* nothing may read its rows yet */
    encode(&f);
    assert_int_equal(ready(&f, &a), 10); /* up to its second image, whose encoding begins now */
    assert_true(ready(&f, &b) == 0 && f.e.begun == 2);
    encode(&f);
    assert_true(ready(&f, &a) == 100 && ready(&f, &b) == 10 && f.e.begun == 3);
    assert_int_equal(a.image[1].first_row, b.image[0].first_row);
    encode(&f);
    assert_true(ready(&f, &b) == 100 && f.stats.n_images_encoded == 3);
    compute(&f, &a, 7);
    assert_true(a.image[0].entry >= 0); /* one of its tokens is left */
    compute(&f, &a, 1);
    assert_true(a.image[0].entry < 0 && a.image[0].first_row < 0 && a.image[1].entry >= 0);
    assert_int_equal(f.m.rows + f.m.entry[b.image[1].entry].first * WIDTH - f.e.at, 0);
    pi__media_release(&f.m, &a.s, INT32_MAX), pi__media_release(&f.m, &b.s, INT32_MAX);
    make_seq(&a, 8, "cab"); /* all are found again */
    assert_true(ready(&f, &a) == 100 && f.e.begun == 3);
    pi__media_release(&f.m, &a.s, INT32_MAX);
    close_media(&f);
}

/* Held images are not evicted: a sequence waits until rows are free, and then the least recently used ones go. */
static void rows_run_out(void **st)
{
    (void) st;
    fixture f;
    sequence a, b;
    open_media(&f, 20);
    make_seq(&a, 8, "xy");
    make_seq(&b, 8, "z");
    for (int i = 0; i < 2; i++) ready(&f, &a), encode(&f);
    assert_true(ready(&f, &a) == 100 && ready(&f, &b) == 0 && f.e.begun == 2);
    compute(&f, &a, 8);
    assert_true(ready(&f, &b) == 0 && f.e.begun == 3); /* x is released: z takes its rows */
    encode(&f);
    assert_true(ready(&f, &b) == 100 && b.image[0].first_row == 0);
    pi__media_release(&f.m, &a.s, INT32_MAX), pi__media_release(&f.m, &b.s, INT32_MAX);
    make_seq(&a, 8, "y");
    assert_int_equal(ready(&f, &a), 100);
    pi__media_release(&f.m, &a.s, INT32_MAX);
    make_seq(&a, 8, "w"); /* z is older than y */
    ready(&f, &a), encode(&f);
    make_seq(&b, 8, "y");
    assert_true(ready(&f, &b) == 100 && f.e.begun == 4);
    pi__media_release(&f.m, &a.s, INT32_MAX), pi__media_release(&f.m, &b.s, INT32_MAX);
    make_seq(&a, 10, "v"); /* needs the rows of both */
    ready(&f, &a), encode(&f);
    assert_true(ready(&f, &a) == 100 && a.image[0].first_row == 0);
    make_seq(&b, 9, "v"); /* the same content with another number of tokens is another image */
    assert_true(ready(&f, &b) == 0 && f.e.begun == 6);
    pi__media_release(&f.m, &a.s, INT32_MAX), pi__media_release(&f.m, &b.s, INT32_MAX);
    close_media(&f);
}

static void cancelled_and_failed(void **st)
{
    (void) st;
    fixture f;
    sequence a, b;
    open_media(&f, 20);
    make_seq(&a, 8, "x");
    make_seq(&b, 8, "x");
    ready(&f, &a), ready(&f, &b);
    pi__media_release(&f.m, &a.s, INT32_MAX);
    assert_true(pi__media_busy(&f.m) && !f.e.cancelled); /* b still waits */
    pi__media_release(&f.m, &b.s, INT32_MAX);
    assert_true(!pi__media_busy(&f.m) && f.e.cancelled == 1);
    f.e.code = PI_EDEVICE;
    ready(&f, &a), ready(&f, &b);
    assert_int_equal(encode_part(&f), PI_OK);
    assert_int_equal(encode_part(&f), PI_EDEVICE);
    assert_true(pi__media_failed(&f.m, &a.s) && pi__media_failed(&f.m, &b.s) && !pi__media_busy(&f.m));
    pi__media_release(&f.m, &a.s, INT32_MAX);
    assert_true(ready(&f, &a) == 0 && a.image[0].entry < 0 && f.e.begun == 2); /* b holds the failed entry */
    pi__media_release(&f.m, &b.s, INT32_MAX);
    f.e.code = PI_OK;
    ready(&f, &a), encode(&f);
    assert_true(ready(&f, &a) == 100 && !pi__media_failed(&f.m, &a.s));
    pi__media_release(&f.m, &a.s, INT32_MAX);
    close_media(&f);
}

/* Many sequences with several images each and few rows: all end, whatever the order in which they are asked. */
static void nobody_waits_forever(void **st)
{
    (void) st;
    enum { SEQS = 8 };
    static const char *const ids[SEQS] = {"abcdef", "fedcba", "gh", "hgab", "ijklmn", "a", "nmlkji", "cc"};
    fixture f;
    sequence q[SEQS];
    uint32_t rng = 1;
    open_media(&f, 17);
    for (int i = 0; i < SEQS; i++) make_seq(&q[i], 3 + i % 6, ids[i]);
    int left = SEQS;
    for (int round = 0; left && round < 10000; round++) {
        rng = rng * 1664525 + 1013904223;
        sequence *s = &q[rng >> 16 & 7];
        if (s->s.n_computed == 100) continue;
        const int32_t n = ready(&f, s);
        compute(&f, s, n < 7 ? n : 7);
        left -= s->s.n_computed == 100;
        (void) encode_part(&f);
    }
    assert_int_equal(left, 0);
    for (int32_t i = 0; i < PI__MEDIA_ENTRIES; i++) assert_int_equal(f.m.entry[i].held, 0);
    close_media(&f);
}

/* Rotary positions: text continues after the larger side of an image. */
static void rotary_positions(void **st)
{
    (void) st;
    pi__block_media at[2] = {{2, 6, {{1}}}, {10, 4, {{2}}}};
    pi__seq_image image[2] = {{2, 3, 0, -3, -1, 0, NULL}, {4, 1, -3, -3, -1, 0, NULL}};
    const pi__seq_images im = {2, at, image};
    static const int32_t want[16][3] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3}, {2, 2, 4}, {2, 3, 2},
                                        {2, 3, 3}, {2, 3, 4}, {5, 5, 5}, {6, 6, 6}, {7, 7, 7}, {7, 8, 7},
                                        {7, 9, 7}, {7, 10, 7}, {11, 11, 11}, {12, 12, 12}};
    for (int32_t p = 0; p < 16; p++) {
        int32_t got[3];
        pi__images_rope(&im, p, got);
        assert_memory_equal(got, want[p], sizeof got);
        assert_int_equal(pi__images_cover(&im, p), (p >= 2 && p < 8) || (p >= 10 && p < 14));
    }
    assert_int_equal(pi__images_end(&im), 14);
}

static void sizes(void **st)
{
    (void) st;
    const pi__encoder small = {.width = 100, .max_tokens = 50}, large = {.width = 100, .max_tokens = 5000};
    assert_int_equal(pi__media_rows_of(&small, 0), 2048);
    assert_int_equal(pi__media_rows_of(&large, 0), 5000);
    assert_int_equal(pi__media_rows_of(&small, 400 * 77), 77);
    assert_int_equal(pi__media_rows_of(&small, 400), 50);
    assert_int_equal(pi__media_device_bytes(&small, 77), 400 * 77);
    assert_int_equal(pi__media_device_bytes(NULL, 77) + pi__media_host_bytes(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_and_once),    cmocka_unit_test(rows_run_out),
        cmocka_unit_test(cancelled_and_failed), cmocka_unit_test(nobody_waits_forever),
        cmocka_unit_test(rotary_positions),     cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
