/* test_kv_events.c: the publisher of KV events without a server: bytes of a batch, replay, loss, shutdown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "serve/kv_events.h"

enum { BLOCK = 2, QUEUE = 4096 };

static kv_events *open_one(size_t keep)
{
    char err[256];
    kv_events *k = kv_events_open(&(kv_events_config) {.endpoint = "tcp://127.0.0.1:*",
                                                       .replay = "tcp://127.0.0.1:*",
                                                       .topic = "t",
                                                       .keep = keep,
                                                       .queue_bytes = QUEUE},
                                  err);
    if (!k) fail_msg("%s", err);
    assert_true(kv_events_is_bound(k));
    return k;
}

/* Waits until the publisher has sent n batches. */
static void await(const kv_events *k, uint64_t n)
{
    for (int i = 0; i < 5000 && kv_events_sent(k) < n; i++) zmq_poll(NULL, 0, 1);
    assert_int_equal(kv_events_sent(k), n);
}

typedef struct reply {
    uint64_t seq;
    size_t n;
    char payload[4096]; /* msgpack printed as text, without the time: [time, [["AllBlocksCleared"]], 0] */
} reply;

static void print(reply *r, const char *p, size_t n)
{
    msgpack_unpacked u;
    size_t at = 0;
    char text[4096];
    msgpack_unpacked_init(&u);
    assert_int_equal(msgpack_unpack_next(&u, p, n, &at), MSGPACK_UNPACK_SUCCESS);
    assert_int_equal(at, n);
    assert_true(msgpack_object_print_buffer(text, sizeof text, u.data) > 0);
    assert_non_null(strstr(text, ", "));
    snprintf(r->payload, sizeof r->payload, "%s", strstr(text, ", ") + 2);
    msgpack_unpacked_destroy(&u);
}

/* Reads the complete replay from 0. */
static size_t replay(const kv_events *k, reply *out, size_t cap)
{
    void *ctx = zmq_ctx_new(), *d = zmq_socket(ctx, ZMQ_DEALER);
    const int wait = 20000;
    size_t n = 0;
    zmq_setsockopt(d, ZMQ_RCVTIMEO, &wait, sizeof wait);
    assert_int_equal(zmq_connect(d, kv_events_endpoint(k, true)), 0);
    zmq_send(d, "", 0, ZMQ_SNDMORE);
    zmq_send(d, "\0\0\0\0\0\0\0\0", 8, 0);
    for (;; n++) {
        unsigned char number[8];
        char payload[8192], none[1];
        uint64_t seq = 0;
        assert_int_equal(zmq_recv(d, none, 1, 0), 0);
        assert_int_equal(zmq_recv(d, number, 8, 0), 8);
        const int len = zmq_recv(d, payload, sizeof payload, 0);
        assert_in_range(len, 0, sizeof payload);
        for (int i = 0; i < 8; i++) seq = seq << 8 | number[i];
        if (seq == UINT64_MAX) {
            assert_int_equal(len, 0);
            break;
        }
        assert_true(n < cap);
        out[n].seq = seq;
        print(&out[n], payload, (size_t) len);
    }
    zmq_close(d);
    zmq_ctx_term(ctx);
    return n;
}

static void put_stored(kv_events *k, uint64_t hash, const uint64_t *parent)
{
    const int32_t token[BLOCK] = {(int32_t) hash, 7};
    kv_events_put(k, &(pi_cache_event) {.kind = PI_CACHE_STORED,
                                        .hashes = &hash,
                                        .n_hashes = 1,
                                        .tokens = token,
                                        .n_tokens = BLOCK,
                                        .parent = parent ? *parent : 0,
                                        .has_parent = parent != NULL});
}

static void put_removed(kv_events *k, const uint64_t *hash, size_t n)
{
    kv_events_put(k,
                  &(pi_cache_event) {.kind = PI_CACHE_REMOVED, .hashes = hash, .n_hashes = n, .n_tokens = n * BLOCK});
}

static void batches_are_as_vllm_has_them(void **state)
{
    (void) state;
    static reply r[4];
    const uint64_t first = 5, large = 0xFEDCBA9876543210u;
    kv_events *k = open_one(100);
    await(k, 1);
    put_stored(k, first, NULL);
    await(k, 2);
    put_stored(k, large, &first);
    await(k, 3);
    put_removed(k, &large, 1);
    await(k, 4);
    assert_int_equal(replay(k, r, 4), 4);
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(r[i].seq, i);
    assert_string_equal(r[0].payload, "[[\"AllBlocksCleared\"]], 0]");
    assert_string_equal(r[1].payload, "[[\"BlockStored\", [5], nil, [5, 7], 2, nil, \"GPU\", nil]], 0]");
    assert_string_equal(r[2].payload,
                        "[[\"BlockStored\", [18364758544493064720], 5, [1985229328, 7], 2, nil, \"GPU\", nil]], 0]");
    assert_string_equal(r[3].payload, "[[\"BlockRemoved\", [18364758544493064720], \"GPU\"]], 0]");
    kv_events_close(k);
}

/* A change that does not fit the queue leaves a gap in the sequence numbers, followed by an event that clears all
 * blocks. */
static void loss_is_told(void **state)
{
    (void) state;
    static uint64_t many[QUEUE / 8 + 1];
    static reply r[8];
    const uint64_t one = 9;
    kv_events *k = open_one(100);
    await(k, 1);
    put_removed(k, &one, 1);
    await(k, 2);
    put_removed(k, many, sizeof many / sizeof *many);
    await(k, 3);
    assert_int_equal(kv_events_lost(k), 1);
    put_stored(k, 5, NULL);
    await(k, 4);
    assert_int_equal(replay(k, r, 8), 4);
    assert_int_equal(r[1].seq, 1);
    assert_int_equal(r[2].seq, 3); /* 2 is missing */
    assert_string_equal(r[2].payload, "[[\"AllBlocksCleared\"]], 0]");
    assert_int_equal(r[3].seq, 4);
    kv_events_close(k);
}

static void the_last_batches_are_kept(void **state)
{
    (void) state;
    static reply r[3];
    kv_events *k = open_one(3);
    for (uint64_t i = 0; i < 20; i++) {
        await(k, i + 1);
        put_removed(k, &i, 1);
    }
    await(k, 21);
    assert_int_equal(replay(k, r, 3), 3);
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(r[i].seq, 18 + i);
    kv_events_close(k);
}

static size_t entries(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* Opening and closing leaks no thread and no descriptor, also if opening fails or subscribers never read. */
static void nothing_is_left(void **state)
{
    (void) state;
    static const char *const wrong[] = {"udp://127.0.0.1:1", "tcp://127.0.0.1", "ipc:///none/at/all", "tcp://", "x"};
    char err[256];
    kv_events_close(open_one(1)); /* one-time initialization of the libraries */
    const size_t fds = entries("/proc/self/fd");
    size_t tasks = entries("/proc/self/task");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(kv_events_open(
            &(kv_events_config) {.endpoint = wrong[i], .replay = "", .topic = "", .queue_bytes = QUEUE}, err));
        assert_true(strlen(err) > 0);
        assert_null(kv_events_open(
            &(kv_events_config) {
                .endpoint = "tcp://127.0.0.1:*", .replay = wrong[i], .topic = "", .keep = 1, .queue_bytes = QUEUE},
            err));
    }
    for (int round = 0; round < 3; round++) {
        kv_events *k = open_one(10);
        void *ctx = zmq_ctx_new(), *sub = zmq_socket(ctx, ZMQ_SUB);
        zmq_setsockopt(sub, ZMQ_SUBSCRIBE, "", 0);
        assert_int_equal(zmq_connect(sub, kv_events_endpoint(k, false)), 0);
        for (uint64_t i = 0; i < 100; i++) put_removed(k, &i, 1);
        kv_events_close(k);
        zmq_close(sub);
        zmq_ctx_term(ctx);
    }
    /* ended threads disappear soon */
    for (int i = 0; i < 1000 && entries("/proc/self/task") > tasks; i++) zmq_poll(NULL, 0, 1);
    assert_int_equal(entries("/proc/self/task"), tasks);
    assert_int_equal(entries("/proc/self/fd"), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_are_as_vllm_has_them), cmocka_unit_test(loss_is_told),
                                       cmocka_unit_test(the_last_batches_are_kept), cmocka_unit_test(nothing_is_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
