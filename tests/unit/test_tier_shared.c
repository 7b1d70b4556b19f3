/* Several processes on one directory of the disk tier. Each finds entries that others write. Entries that others
 * remove are a miss. The limit holds for all together, and a killed process leaves no wrong data. */
#include "rounds.h"
#include "tier_fixture.h"

#include <signal.h>
#include <sys/wait.h>

/* Starts a rescan and waits for its single wake. */
static void rescan(pi__tier *t)
{
    const uint64_t n = pi__tier_rescan(t);
    wait_for(&finished);
    assert_true(pi__tier_rescanned(t, n));
}

static void test_found_elsewhere(void **state)
{
    (void) state;
    pi__tier *a = open_tier(1 << 24), *b = open_tier(1 << 24);
    for (int round = 0; round < 4; round++) { /* the later rounds are within the resolution of a folder's timestamp */
        put_all(a, round * 10, round * 10 + 10);
        assert_false(has(b, round * 10));
        rescan(b);
        for (int id = round * 10; id < round * 10 + 10; id++) assert_true(has(b, id) && loads(b, id));
    }
    assert_int_equal(stats(b).entries, 40);
    assert_int_equal(stats(b).bytes, stats(a).bytes);
    assert_true(put(b, 3)); /* known: not written again */
    assert_int_equal(stats(b).writes, 0);
    pi__tier_clear(a, NULL);
    for (count_files(); seen.files; count_files()) pause_ms(1);
    rescan(b);
    assert_int_equal(stats(b).entries, 0);
    for (int id = 0; id < 40; id++) assert_false(has(b, id) || loads(b, id));
    put_all(b, 0, 5);
    rescan(a);
    for (int id = 0; id < 5; id++) assert_true(loads(a, id));
    pi__tier_close(a);
    pi__tier_close(b);
    assert_int_equal(warnings, 0);
}

/* A rescan does not change known entries: staged ones, other models' ones, unchanged ones. */
static void test_nothing_new(void **state)
{
    (void) state;
    pi__tier_config other = config_of(1 << 24);
    other.fingerprint.byte[0] ^= 1;
    pi__tier *o = open_with(&other), *a = open_tier(1 << 24);
    put_all(o, 0, 5);
    put_all(a, 0, 20);
    for (int i = 0; i < 3; i++) {
        for (int id = 20 + 40 * i; id < 60 + 40 * i; id++) (void) put(a, id); /* some staged, some being written */
        rescan(a);
        for (int id = 0; id < 20; id++) assert_true(has(a, id));
    }
    sync_writes(a);
    rescan(a);
    const pi__tier_stats s = stats(a);
    count_files();
    assert_int_equal(s.entries + 5, seen.files);
    for (int id = 0; id < 140; id++) assert_true(!has(a, id) || loads(a, id));
    pi__tier_close(o);
    pi__tier_close(a);
    a = open_tier(1 << 24);
    assert_int_equal(stats(a).entries, s.entries);
    pi__tier_close(a);
}

/* Two processes that write alternately keep one common limit, and neither evicts entries that the other uses. */
static void test_one_limit(void **state)
{
    (void) state;
    enum { LIMIT = 128 * PAGE };
    pi__tier *t[2] = {open_tier(LIMIT), open_tier(LIMIT)};
    put_all(t[0], 0, 4);
    for (int id = 4; id < 300; id++) {
        rescan(t[id % 2]);
        for (int k = 0; k < 4; k++) assert_true(loads(t[0], k)); /* t[0] keeps using the first four */
        pause_ms(1);
        put_all(t[id % 2], id, id + 1);
        if (id % 50 == 0) pause_ms(1100); /* times of use are written back once a second */
        count_files();
        assert_true(seen.pages <= LIMIT / PAGE);
    }
    assert_true(stats(t[0]).evicted > 20 && stats(t[1]).evicted > 20);
    pi__tier_close(t[0]);
    pi__tier_close(t[1]);
}

/* Writes, rescans and reads until it is killed. */
static _Noreturn void work(int from)
{
    uint64_t seed = (uint64_t) from;
    pi__tier *t = open_tier(1 << 22);
    for (;;) {
        const int id = from + (int) rnd(&seed, 200);
        (void) put(t, id);
        if (rnd(&seed, 8) == 0) rescan(t);
        if (has(t, id)) (void) loads(t, id);
    }
}

static void test_killed(void **state)
{
    (void) state;
    const int n = rounds(20);
    int found = 0;
    pi__tier *t = open_tier(1 << 22);
    for (int i = 0; i < n; i++) {
        pid_t child[3];
        for (int k = 0; k < 3; k++)
            if (!(child[k] = fork())) work(100 * k);
        for (int k = 0; k < 3; k++) {
            pause_ms(20 + 7 * k);
            assert_int_equal(kill(child[k], SIGKILL), 0);
            assert_int_equal(waitpid(child[k], NULL, 0), child[k]);
        }
        rescan(t);
        for (int id = 0; id < 400; id++) found += has(t, id) && loads(t, id); /* loads checks the data */
    }
    assert_true(found > 100);
    assert_int_equal(stats(t).damaged, 0); /* files get their final name only when they are complete */
    pi__tier_close(t);
    t = open_tier(1 << 22);
    count_files();
    assert_int_equal(seen.temps, 0);
    assert_true(seen.pages * PAGE <= 1 << 22);
    pi__tier_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIER_TEST(test_found_elsewhere), TIER_TEST(test_nothing_new), TIER_TEST(test_one_limit), TIER_TEST(test_killed),
    };
    return RUN_TIER_TESTS(tests);
}
