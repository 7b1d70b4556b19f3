/* The disk tier. Entries come back unchanged, the size limit is kept, and eviction follows the order of use.
 * test_tier_faults.c covers external faults. */
#include "rounds.h"
#include "tier_fixture.h"

#include <fcntl.h>

/* ---------------------------------------------------------------------------------------------------------- basics */
static void test_put_and_load(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    assert_false(has(t, 1));
    assert_false(loads(t, 1));
    put_all(t, 0, 50);
    for (int id = 0; id < 50; id++) assert_true(has(t, id) && loads(t, id));
    assert_true(put(t, 3)); /* known: not written again */
    sync_writes(t);
    assert_false(has_in(t, 3, group_of(3) + 1));
    pi__tier_stats s = stats(t);
    assert_int_equal(s.entries, 50);
    assert_int_equal(s.writes, 50);
    assert_int_equal(s.hits, 50);
    assert_int_equal(s.misses, 1);
    assert_int_equal(s.dropped + s.damaged + s.evicted + s.write_errors, 0);
    assert_true(s.writable);
    count_files();
    assert_int_equal(seen.files, 50);
    assert_int_equal(s.bytes, seen.pages * PAGE);
    pi__tier_close(t);

    t = open_tier(1 << 24);
    assert_int_equal(stats(t).entries, 50);
    assert_int_equal(stats(t).bytes, s.bytes);
    for (int id = 49; id >= 0; id--) assert_true(loads(t, id));
    pi__tier_close(t);
    assert_int_equal(warnings, 0);
}

/* In a read-only directory, existing entries are found, and new ones are not kept. */
static void test_read_only(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 8);
    sync_writes(t);
    pi__tier_close(t);
    pi__tier_config c = config_of(1 << 24);
    c.read_only = true;
    t = open_with(&c);
    assert_false(stats(t).writable);
    assert_int_equal(stats(t).entries, 8);
    for (int id = 0; id < 8; id++) assert_true(loads(t, id));
    assert_false(put(t, 20));
    assert_false(has(t, 20));
    pi__tier_close(t);
    count_files();
    assert_int_equal(seen.files, 8);
    assert_int_equal(warnings, 0);
}

/* An equal hash with other tokens, another parent or another length is a miss without side effects. */
static void test_collision(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 5, 6);
    int32_t tokens[TOKENS];
    unsigned char data[MAX_BYTES];
    pi__tier_done done;
    for (int way = 0; way < 4; way++) {
        pi__block_key key = key_of(5);
        tokens_of(5, tokens);
        if (way == 0) tokens[TOKENS - 1]++;
        if (way == 3) key.parent.byte[31] ^= 1;
        assert_true(pi__tier_load(t, &key, group_of(5), tokens, TOKENS - (way == 1), data,
                                   bytes_of(5) - (way == 2), 1));
        wait_for(&finished);
        assert_int_equal(pi__tier_poll(t, &done, 1), 1);
        assert_false(done.ok);
    }
    assert_true(loads(t, 5));
    assert_int_equal(stats(t).damaged, 0);
    assert_int_equal(stats(t).misses, 4);
    pi__tier_close(t);
}

static void test_empty_entries(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    assert_true(pi__tier_put(t, KEY(1), 0, NULL, 0, NULL, 0));
    sync_writes(t);
    assert_true(pi__tier_load(t, KEY(1), 0, NULL, 0, NULL, 0, 9));
    wait_for(&finished);
    pi__tier_done done;
    assert_int_equal(pi__tier_poll(t, &done, 1), 1);
    assert_true(done.ok && done.tag == 9);
    pi__tier_close(t);
}

static void test_fingerprints(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 10);
    int64_t bytes = stats(t).bytes;
    pi__tier_close(t);

    pi__tier_config c = config_of(1 << 24);
    c.fingerprint.byte[0]++;
    t = open_with(&c);
    assert_int_equal(stats(t).entries, 0);
    assert_int_equal(stats(t).bytes, bytes); /* the limit applies to all models */
    for (int id = 0; id < 10; id++) assert_false(has(t, id) || loads(t, id));
    put_all(t, 3, 4);
    pi__tier_close(t);

    /* Another model's file under our name. */
    char ours[512], path[PI__TIER_PATH], theirs[512];
    unsigned char file[2 * MAX_BYTES];
    path_of(3, ours);
    pi__tier_path(path, &c.fingerprint, &(pi__tier_name) {key_of(3).hash, key_of(3).tenant, group_of(3)});
    snprintf(theirs, sizeof theirs, "%s/%s", dir, path);
    write_file(ours, file, read_file(theirs, file, sizeof file));
    t = open_tier(1 << 24);
    assert_int_equal(stats(t).entries, 10);
    for (int id = 0; id < 10; id++) assert_int_equal(loads(t, id), id != 3);
    assert_int_equal(stats(t).damaged, 1);
    pi__tier_close(t);

    /* A small limit also evicts the other model's file; the next open removes its empty directories. */
    t = open_tier(PAGE);
    assert_int_equal(stats(t).entries, 0); /* no entry fits: the most recently used one needs more than a page */
    pi__tier_close(t);
    count_files();
    assert_int_equal(seen.files, 0);
    int dirs = seen.dirs;
    pi__tier_close(open_tier(PAGE));
    count_files();
    assert_int_equal(seen.dirs, dirs - 2);
}

/* ---------------------------------------------------------------------------------------------- limits and staging */
static void test_limit(void **state)
{
    (void) state;
    enum { LIMIT = 40 };
    pi__tier *t = open_tier(LIMIT * PAGE + 100);
    for (int id = 0; id < 200; id++) {
        put_all(t, id, id + 1);
        assert_true(has(t, id));
        count_files();
        assert_true(seen.pages <= LIMIT);
        assert_int_equal(stats(t).bytes, seen.pages * PAGE);
    }
    assert_int_equal(stats(t).evicted + stats(t).entries, 200);
    put_all(t, 180, 200); /* evicted entries are written again, one by one, because the staging ring is small */
    pi__tier_close(t);
    count_files();
    assert_true(seen.pages <= LIMIT);

    /* A lower limit keeps the most recently used entries. */
    t = open_tier(20 * PAGE);
    pi__tier_stats s = stats(t);
    assert_true(s.bytes <= 20 * PAGE && s.evicted > 0 && s.entries > 0);
    int first = 200;
    for (int pages = 0; (pages += pages_of(first - 1)) <= 20; first--) {}
    for (int id = 0; id < 200; id++) assert_int_equal(has(t, id), id >= first);
    pi__tier_close(t);
}

/* The order of use survives closing, even if it was only in memory. */
static void test_touch(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 20);
    for (int id = 19; id >= 0; id--) touch(t, id);
    touch(t, 1000);
    pi__tier_close(t);
    int pages = 0;
    for (int id = 0; id < 10; id++) pages += pages_of(id);
    t = open_tier((uint64_t) pages * PAGE);
    for (int id = 0; id < 20; id++) assert_int_equal(has(t, id), id < 10);
    touch(t, 9);
    pause_ms(1500); /* written back while the tier is idle */
    char path[512];
    struct stat a, b;
    path_of(9, path);
    assert_int_equal(stat(path, &a), 0);
    path_of(0, path);
    assert_int_equal(stat(path, &b), 0);
    assert_true(a.st_mtim.tv_sec > b.st_mtim.tv_sec ||
                (a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec > b.st_mtim.tv_nsec));
    pi__tier_close(t);
}

/* A file with a timestamp in the future does not stay the most recently used one forever. */
static void test_future(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 10);
    pi__tier_close(t);
    char path[512];
    path_of(3, path);
    const struct timespec times[2] = {{.tv_sec = time(NULL) + 1000000}, {.tv_sec = time(NULL) + 1000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    t = open_tier(1 << 24);
    int pages = 0;
    for (int id = 0; id < 10; id++)
        if (id != 3) {
            touch(t, id);
            pages += pages_of(id);
        }
    pi__tier_close(t);
    t = open_tier((uint64_t) pages * PAGE);
    for (int id = 0; id < 10; id++) assert_int_equal(has(t, id), id != 3);
    pi__tier_close(t);
}

static int64_t time_of(int id)
{
    char path[512];
    struct stat st;
    path_of(id, path);
    assert_int_equal(stat(path, &st), 0);
    return (int64_t) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

enum { LARGE = 4 << 20 }; /* takes long enough to write and read for other events to occur meanwhile */
static unsigned char large[LARGE], large_copy[LARGE];

static bool put_large(pi__tier *t, int id)
{
    int32_t tokens[TOKENS];
    tokens_of(id, tokens);
    return pi__tier_put(t, KEY(id), group_of(id), tokens, TOKENS, large, LARGE);
}

/* An entry is used while it is being written. */
static void test_touch_while_writing(void **state)
{
    (void) state;
    uint64_t rng = 3;
    pi__tier_config c = config_of(1 << 28);
    c.staging_bytes = 2 * LARGE;
    for (int round = 0; round < 12; round++) {
        pi__tier *t = open_with(&c);
        assert_true(put_large(t, 2 * round) && put(t, 2 * round + 1));
        const struct timespec ts = {0, 100000 * rnd(&rng, 30)};
        nanosleep(&ts, NULL);
        touch(t, 2 * round);
        pi__tier_close(t);
        assert_true(time_of(2 * round) > time_of(2 * round + 1));
    }
}

/* Other processes that open the directory do not touch the file that is being written. */
static void test_open_while_writing(void **state)
{
    (void) state;
    enum { N = 15 };
    pi__tier_config c = config_of(1 << 28);
    c.staging_bytes = 3 * LARGE;
    pi__tier *t = open_with(&c);
    for (int id = 0, opened = 0; id < N || stats(t).staged; opened++) {
        while (id < N && stats(t).staged < 2) assert_true(put_large(t, id++));
        pi__tier_close(open_tier(1 << 28));
    }
    assert_int_equal(stats(t).writes, N);
    assert_int_equal(stats(t).dropped + stats(t).write_errors, 0);
    pi__tier_close(t);
}

/* Blocks the tier's thread inside the wake of one load. */
static void hold(pi__tier *t, int id, unsigned char *data)
{
    gated = true;
    assert_true(load(t, id, data) != MISSED);
    wait_for(&finished);
}

static void release(void)
{
    gated = false;
    sem_post(&gate);
}

static void test_full_staging(void **state)
{
    (void) state;
    pi__tier_config c = config_of(1 << 24);
    c.staging_bytes = 1 << 16;
    pi__tier *t = open_with(&c);
    put_all(t, 0, 1);
    unsigned char data[MAX_BYTES], staged[MAX_BYTES];
    for (int round = 0, id = 1; round < 20; round++) {
        pi__tier_done done;
        hold(t, 0, data);
        int first = id, kept = 0;
        size_t bytes = 0;
        int64_t dropped = stats(t).dropped;
        for (; id < first + 40; id++)
            if (put(t, id)) {
                assert_true(has(t, id));
                bytes += file_of(id);
                kept++;
            } else {
                assert_false(has(t, id));
            }
        assert_true(bytes <= c.staging_bytes && bytes > c.staging_bytes / 2 && kept < 40);
        assert_int_equal(stats(t).dropped, dropped + 40 - kept);
        assert_int_equal(stats(t).staged, kept);
        assert_true(load(t, first, staged) != MISSED); /* served from the ring, before it is written */
        release();
        wait_for(&finished);
        assert_int_equal(pi__tier_poll(t, &done, 1), 1);
        assert_int_equal(pi__tier_poll(t, &done, 1), 1);
        assert_true(done.ok && done.tag == (uint64_t) first && is_right(first, staged));
        sync_writes(t);
        for (int i = first; i < id; i++) kept -= loads(t, i);
        assert_int_equal(kept, 0);
    }
    pi__tier_close(t);
}

static void test_too_large(void **state)
{
    (void) state;
    pi__tier_config c = config_of(3 * PAGE);
    c.staging_bytes = 2 * PAGE;
    pi__tier *t = open_with(&c);
    unsigned char data[5 * PAGE] = {0};
    int32_t tokens[TOKENS + 1] = {0};
    assert_false(pi__tier_put(t, KEY(1), 0, tokens, 1, data, 3 * PAGE)); /* larger than the ring */
    assert_false(pi__tier_put(t, KEY(1), 0, tokens, TOKENS + 1, data, 10));
    assert_false(pi__tier_put(t, KEY(1), 0, tokens, -1, data, 10));
    assert_false(pi__tier_put(t, KEY(1), 0, tokens, 1, data, SIZE_MAX - 100));
    assert_int_equal(stats(t).dropped, 4);
    /* exactly the size of the ring */
    assert_true(pi__tier_put(t, KEY(1), 0, tokens, 1, data, 2 * PAGE - pi__tier_head_size(1)));
    sync_writes(t);
    assert_int_equal(pi__tier_load(t, KEY(1), 0, tokens, TOKENS + 1, data, 10, 0), MISSED);
    pi__tier_close(t);
    c.staging_bytes = 1 << 20;
    t = open_with(&c);
    assert_false(pi__tier_put(t, KEY(2), 0, tokens, 1, data, 3 * PAGE)); /* larger than the limit */
    assert_true(has_in(t, 1, 0));
    pi__tier_close(t);
}

/* ----------------------------------------------------------------------------------------------------------- loads */
static void test_many_loads(void **state)
{
    (void) state;
    static unsigned char data[41][MAX_BYTES];
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 41);
    hold(t, 40, data[40]);
    for (int id = 0; id < 40; id++) /* 32 including the blocked one */
        assert_int_equal(load(t, id, data[id]) != MISSED, id < 31);
    release();
    for (int i = 0; i < 31; i++) wait_for(&finished);
    pi__tier_done done[40];
    assert_int_equal(pi__tier_poll(t, done, 5), 5);
    assert_int_equal(pi__tier_poll(t, done + 5, 35), 27);
    assert_int_equal(pi__tier_poll(t, done, 1), 0);
    for (int i = 0; i < 32; i++) {
        int id = i ? i - 1 : 40;
        assert_true(done[i].ok && done[i].tag == (uint64_t) id && is_right(id, data[id]));
    }
    pi__tier_close(t);
}

static void test_cancel(void **state)
{
    (void) state;
    enum { N = 30 };
    static unsigned char data[N][MAX_BYTES];
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, N);
    uint64_t rng = 1, id[N];
    int reported = 0;
    for (int round = 0; round < rounds(200); round++) {
        pi__tier_done done[N];
        bool cancelled[N] = {false};
        for (int i = 0; i < N; i++) {
            do id[i] = load(t, i, data[i]);
            while (id[i] == MISSED && pi__tier_poll(t, done, 0) == 0 && (sched_yield(), true));
        }
        for (int k = 0; k < N / 2; k++) {
            int i = (int) rnd(&rng, N);
            pi__tier_cancel(t, id[i]);
            cancelled[i] = true;
            memset(data[i], 0xEE, sizeof data[i]);
        }
        pi__tier_cancel(t, 0);
        pi__tier_cancel(t, id[0] + ((uint64_t) 1 << 32)); /* an id that is not in use yet */
        pi__tier_cancel(t, 1u << 31);
        int left = 0;
        for (int i = 0; i < N; i++) left += !cancelled[i];
        while (left) {
            int n = pi__tier_poll(t, done, N);
            for (int k = 0; k < n; k++) {
                int i = (int) done[k].tag;
                assert_true(done[k].ok && !cancelled[i] && done[k].id == id[i] && is_right(i, data[i]));
                reported++;
            }
            left -= n;
            if (!n) wait_for(&finished);
        }
        for (int i = 0; i < N; i++)
            for (size_t b = 0; cancelled[i] && b < sizeof data[i]; b++) assert_int_equal(data[i][b], 0xEE);
        for (int i = 0; i < N; i++) pi__tier_cancel(t, id[i]); /* all loads have ended: no effect */
    }
    assert_true(reported > rounds(1000));
    for (int i = 0; i < N; i++) (void) load(t, i, data[i]); /* pending at close */
    pi__tier_close(t);
}

/* Cancels a load that is being read: dst is not written after cancel has returned. */
static void test_cancel_while_reading(void **state)
{
    (void) state;
    uint64_t rng = 8;
    pi__tier_config c = config_of(1 << 28);
    c.staging_bytes = 2 * LARGE;
    pi__tier *t = open_with(&c);
    int32_t tokens[TOKENS];
    tokens_of(1, tokens);
    memset(large, 0x11, sizeof large);
    assert_true(put_large(t, 1));
    sync_writes(t);
    for (int round = 0; round < 60; round++) {
        memset(large_copy, 0, sizeof large_copy);
        uint64_t id = pi__tier_load(t, KEY(1), group_of(1), tokens, TOKENS, large_copy, LARGE, 0);
        assert_true(id != MISSED);
        const struct timespec ts = {0, 20000 * rnd(&rng, 100)};
        nanosleep(&ts, NULL);
        pi__tier_cancel(t, id);
        memset(large_copy, 0xEE, sizeof large_copy);
        pause_ms(3);
        for (size_t i = 0; i < LARGE; i += 512) assert_int_equal(large_copy[i], 0xEE);
        pi__tier_done done;
        assert_int_equal(pi__tier_poll(t, &done, 1), 0);
    }
    pi__tier_close(t);
}

/* After a clear, no entry is found, new entries are, and the files are removed. */
static void test_clear(void **state)
{
    (void) state;
    unsigned char data[MAX_BYTES];
    pi__tier_config c = config_of(1 << 24);
    c.fingerprint.byte[0]++;
    pi__tier *t = open_with(&c);
    put_all(t, 0, 5);
    pi__tier_close(t);
    t = open_tier(1 << 24);
    put_all(t, 0, 60);
    hold(t, 0, data);
    for (int id = 60; id < 70; id++) assert_true(put(t, id));
    pi__tier_clear(t, NULL);
    for (int id = 0; id < 70; id++) assert_false(has(t, id) || loads(t, id));
    for (int id = 50; id < 65; id++) assert_true(put(t, id)); /* for some, the file still exists or is still staged */
    pi__tier_done done;
    release();
    sync_writes(t);
    assert_int_equal(pi__tier_poll(t, &done, 1), 1);
    for (int id = 0; id < 70; id++) assert_int_equal(loads(t, id), id >= 50 && id < 65);
    assert_int_equal(stats(t).entries, 15);
    assert_int_equal(stats(t).dropped + stats(t).damaged, 0);
    count_files();
    assert_int_equal(seen.files, 15 + 5); /* the other model's files stay */
    for (int round = 0; round < rounds(200); round++) { /* clears at any moment of a write */
        for (int id = 100; id < 105; id++) put(t, id);
        if (round % 2) pause_ms(round % 5 == 0);
        pi__tier_clear(t, NULL);
        for (int id = 100; id < 105; id++) assert_false(has(t, id));
        if (round % 3 == 0) sync_writes(t);
    }
    assert_true(put(t, 100) && put(t, 200));
    sync_writes(t);
    assert_true(loads(t, 100) && loads(t, 200));
    pi__tier_close(t);
    count_files();
    assert_int_equal(seen.files, 2 + 5);
}

static void test_clear_while_writing(void **state)
{
    (void) state;
    uint64_t rng = 4;
    pi__tier_config c = config_of(1 << 28);
    c.staging_bytes = 2 * LARGE;
    pi__tier *t = open_with(&c);
    for (int round = 0; round < 25; round++) {
        int64_t writes = stats(t).writes;
        bool again = round % 2;
        assert_true(put_large(t, 1));
        const struct timespec ts = {0, 100000 * rnd(&rng, 30)};
        nanosleep(&ts, NULL);
        pi__tier_clear(t, NULL);
        assert_int_equal(stats(t).entries, 0);
        if (again) assert_true(put(t, 1)); /* a smaller entry, which stays */
        sync_writes(t);
        while (stats(t).bytes > (again ? pages_of(1) * PAGE : 0)) pause_ms(1);
        assert_in_range(stats(t).writes - writes, again, 1 + again);
        count_files();
        assert_int_equal(seen.files, again);
        assert_int_equal(loads(t, 1), again);
        pi__tier_clear(t, NULL);
    }
    pi__tier_close(t);
}

/* ---------------------------------------------------------------------------------------------------------- random */
/* Waits for each operation, so that the model knows the exact contents. */
static void test_random_model(void **state)
{
    (void) state;
    enum { IDS = 120, OPS = 10000, LIMIT = 100 };
    int order[IDS], n = 0, pages = 0; /* most recently used first */
    uint64_t rng = 42;
    int hits = 0, evicted = 0;
    pi__tier *t = open_tier(LIMIT * PAGE);
    for (int op = 0; op < OPS; op++) {
        int id = (int) rnd(&rng, IDS), what = (int) rnd(&rng, 1000), at = 0;
        while (at < n && order[at] != id) at++;
        bool known = at < n;
        if (what < 5) {
            pi__tier_close(t);
            t = open_tier(LIMIT * PAGE);
            at = 0; /* close and open keep the order */
            known = false;
        } else if (what < 25 && known) { /* damaged or removed */
            char path[512];
            path_of(id, path);
            assert_int_equal(what < 15 ? unlink(path) : truncate(path, (off_t) rnd(&rng, (uint32_t) file_of(id))), 0);
            assert_false(loads(t, id));
            memmove(order + at, order + at + 1, (size_t) (--n - at) * sizeof *order);
            pages -= pages_of(id);
            known = false;
        } else if (what < 500) {
            assert_true(put(t, id));
            sync_writes(t);
            if (!known) {
                for (pages += pages_of(id); pages > LIMIT; evicted++) pages -= pages_of(order[--n]);
                order[n++] = id;
                at = n - 1;
            }
            known = true;
        } else if (what < 900) {
            assert_int_equal(loads(t, id), known);
            hits += known;
        } else {
            touch(t, id);
        }
        if (known) {
            memmove(order + 1, order, (size_t) at * sizeof *order);
            order[0] = id;
        }
        bool there[IDS] = {false};
        for (int i = 0; i < n; i++) there[order[i]] = true;
        for (int i = 0; i < IDS; i++)
            if (has(t, i) != there[i]) fail_msg("operation %d (%d of %d): entry %d", op, what, id, i);
        assert_int_equal(stats(t).bytes, (int64_t) pages * PAGE);
    }
    pi__tier_close(t);
    count_files();
    assert_int_equal(seen.files, n);
    assert_int_equal(seen.pages, pages);
    assert_true(hits > 1000 && evicted > 500);
}

/* Does not wait for operations. */
static void test_storm(void **state)
{
    (void) state;
    pi__tier_config c = config_of(200 * PAGE);
    c.staging_bytes = 100000;
    pi__tier *t = open_with(&c);
    int hits = storm(t, 5, 20000, 150);
    assert_true(hits > 100);
    sync_writes(t);
    assert_int_equal(stats(t).damaged + stats(t).write_errors, 0);
    assert_true(stats(t).bytes <= 200 * PAGE);
    pi__tier_close(t);
    count_files();
    assert_true(seen.pages <= 200);
    assert_int_equal(seen.temps, 0);
}

static void test_scan_time(void **state)
{
    (void) state;
    enum { FILES = 5000 };
    pi__tier *t = open_tier(1 << 28);
    int32_t tokens[TOKENS] = {0};
    for (int i = 0; i < FILES; i++)
        while (!pi__tier_put(t, KEY(i), 0, tokens, TOKENS, tokens, sizeof tokens)) pause_ms(1);
    pi__tier_close(t);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    t = open_tier(1 << 28);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_int_equal(stats(t).entries, FILES);
    pi__tier_close(t);
    print_message("scan of %d files: %.1f ms\n", FILES,
                  (double) (b.tv_sec - a.tv_sec) * 1e3 + (double) (b.tv_nsec - a.tv_nsec) * 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIER_TEST(test_put_and_load), TIER_TEST(test_read_only), TIER_TEST(test_collision),
        TIER_TEST(test_empty_entries),
        TIER_TEST(test_fingerprints), TIER_TEST(test_limit), TIER_TEST(test_touch), TIER_TEST(test_future),
        TIER_TEST(test_touch_while_writing), TIER_TEST(test_open_while_writing), TIER_TEST(test_full_staging),
        TIER_TEST(test_too_large), TIER_TEST(test_many_loads), TIER_TEST(test_cancel),
        TIER_TEST(test_cancel_while_reading), TIER_TEST(test_clear), TIER_TEST(test_clear_while_writing),
        TIER_TEST(test_random_model),
        TIER_TEST(test_storm), TIER_TEST(test_scan_time),
    };
    return RUN_TIER_TESTS(tests);
}
