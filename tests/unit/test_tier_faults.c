/* The disk tier under faults: damaged and foreign files, a full disk, failed allocations, killed and competing
 * processes. A load is correct or a miss. */
#include "tier_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "counting_alloc.h"

/* --------------------------------------------------------------------------------------------------- damaged files */
static void expect_damaged(pi__tier *t, int id, const char *what, long at)
{
    int64_t before = stats(t).damaged;
    char path[512];
    struct stat st;
    path_of(id, path);
    if (loads(t, id)) fail_msg("%s %ld: not noticed", what, at);
    if (stats(t).damaged != before + 1 || has(t, id)) fail_msg("%s %ld: not removed", what, at);
    assert_int_equal(lstat(path, &st), -1);
    put_all(t, id, id + 1);
    assert_true(loads(t, id));
}

static void test_damaged_bytes(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 7, 8);
    unsigned char good[1024], bad[1024];
    char path[512];
    path_of(7, path);
    size_t n = read_file(path, good, sizeof good);
    assert_int_equal(n, 320 + 100);
    for (size_t i = 0; i < n; i++) { /* header, tokens, padding, data */
        memcpy(bad, good, n);
        bad[i] ^= (unsigned char) (1u << i % 8);
        write_file(path, bad, n);
        expect_damaged(t, 7, "byte", (long) i);
    }
    for (size_t i = 0; i < n; i += i < 230 ? 1 : 17) {
        write_file(path, good, i);
        expect_damaged(t, 7, "cut to", (long) i);
    }
    memset(bad, 0, sizeof bad);
    memcpy(bad, good, n);
    write_file(path, bad, n + 1);
    expect_damaged(t, 7, "longer by", 1);
    memset(bad, 0, n);
    write_file(path, bad, n);
    expect_damaged(t, 7, "all zero", 0);
    assert_int_equal(warnings, 1); /* reported once */
    pi__tier_close(t);
}

static void test_strange_files(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 7, 11);
    char path[512], other[512];
    path_of(7, path);
    path_of(10, other); /* in the same group */
    assert_int_equal(group_of(7), group_of(10));

    assert_int_equal(unlink(path), 0); /* removed: a miss, and it can be written again */
    assert_false(loads(t, 7));
    assert_false(has(t, 7));
    assert_int_equal(stats(t).damaged, 0);
    put_all(t, 7, 8);

    assert_int_equal(rename(other, path), 0); /* a valid file of another entry */
    expect_damaged(t, 7, "renamed", 0);
    assert_false(loads(t, 10));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_damaged(t, 7, "a pipe", 0);
    unlink(path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    expect_damaged(t, 7, "a link", 0);

    unlink(path); /* a directory stays, and its entry cannot be written */
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(loads(t, 7));
    assert_true(put(t, 7));
    sync_writes(t);
    assert_false(has(t, 7));
    assert_true(stats(t).writable);
    assert_int_equal(stats(t).dropped, 1);

    remove_tree(dir); /* removes everything under a running tier */
    assert_false(loads(t, 9));
    assert_true(stats(t).writable);
    pi__tier_close(t);
}

/* Temporary files of dead writers are removed; files of living writers and foreign files stay. */
static void test_strays(void **state)
{
    (void) state;
    static const struct stray {
        const char *name;
        bool in_shard, empty, locked;
        int age;     /* seconds */
        bool stays;
    } stray[] = {
        {"tmp-dead", true, false, false, 0, false},
        {"tmp-alive", true, false, true, 0, true},
        {"tmp-alive-for-long", true, false, true, 1800, true},
        {"tmp-forgotten", true, false, true, 7200, false}, /* for file systems that lose locks */
        {"tmp-just-made", true, true, false, 0, true},     /* about to be locked */
        {"tmp-died-at-once", true, true, false, 120, false},
        {"tmp-elsewhere", false, false, false, 7200, true},
        {"README", true, false, false, 7200, true},
        {"0123", true, false, false, 7200, true},
        {"v1-0123", false, false, false, 7200, true},
    };
    enum { N = sizeof stray / sizeof *stray };
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 7, 8);
    pi__tier_close(t);
    char path[N][600], shard[512], upper[512];
    int fd[N];
    path_of(7, shard);
    *strrchr(shard, '/') = 0;
    for (int i = 0; i < N; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", stray[i].in_shard ? shard : dir, stray[i].name);
        write_file(path[i], "x", !stray[i].empty);
        fd[i] = open(path[i], O_RDWR);
        if (stray[i].locked) assert_int_equal(flock(fd[i], LOCK_EX), 0);
        const struct timespec then = {.tv_sec = time(NULL) - stray[i].age}, times[2] = {then, then};
        assert_int_equal(futimens(fd[i], times), 0);
    }
    path_of(7, upper);
    for (char *p = strrchr(upper, '/'); *p; p++) *p = (char) (*p >= 'a' && *p <= 'f' ? *p - 32 : *p);
    write_file(upper, "x", 1);

    t = open_tier(1 << 24);
    assert_int_equal(stats(t).entries, 1);
    assert_true(loads(t, 7));
    pi__tier_close(t);
    for (int i = 0; i < N; i++) {
        if ((access(path[i], F_OK) == 0) != stray[i].stays) fail_msg("%s", stray[i].name);
        close(fd[i]);
    }
    assert_int_equal(access(upper, F_OK), 0);
}

/* -------------------------------------------------------------------------------------------------------- failures */
static void expect_refused(const char *where, uint64_t limit, int code, const char *message)
{
    pi__tier_config c = config_of(limit);
    pi__tier *t;
    pi_error err = {0};
    c.dir = where;
    assert_int_equal(pi__tier_open(&t, &c, &err), code);
    assert_null(t);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, message)) fail_msg("\"%s\" says nothing of \"%s\"", err.msg, message);
}

static void test_refused(void **state)
{
    (void) state;
    char path[256], long_path[5000];
    expect_refused("", 1 << 24, PI_EINVAL, "no directory");
    expect_refused(NULL, 1 << 24, PI_EINVAL, "no directory");
    expect_refused(dir, 0, PI_EINVAL, "limit");
    pi__tier_close(open_tier(1 << 24));
    snprintf(path, sizeof path, "%s/file", dir);
    write_file(path, "x", 1);
    expect_refused(path, 1 << 24, PI_EIO, "Not a directory");
    snprintf(path, sizeof path, "%s/file/a/b", dir);
    expect_refused(path, 1 << 24, PI_EIO, "Not a directory");
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = 0;
    expect_refused(long_path, 1 << 24, PI_EIO, "too long");
    expect_refused("/proc/prefix-cache", 1 << 24, PI_EIO, "/proc/prefix-cache");
    expect_refused("/proc", 1 << 24, PI_EIO, "cannot write");
    pi__tier_close(NULL);
}

/* As an ordinary user, with a read-only directory. */
static void test_read_only(void **state)
{
    (void) state;
    pi__tier_close(open_tier(1 << 24));
    char parent[sizeof dir];
    snprintf(parent, sizeof parent, "%.*s", (int) (strrchr(dir, '/') - dir), dir);
    assert_int_equal(chmod(root, 0755) | chmod(parent, 0755), 0);
    remove_tree(dir);
    assert_int_equal(mkdir(dir, 0555), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534)) _exit(77);
        pi__tier_config c = config_of(1 << 24);
        pi__tier *t;
        pi_error err = {0};
        int rc = pi__tier_open(&t, &c, &err);
        _exit(rc == PI_EIO && strstr(err.msg, "cannot write") && strstr(err.msg, "Permission denied") ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip(); /* root without permission to change user */
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* If files can no longer grow, writing stops and reading continues. */
static void test_disk_full(void **state)
{
    (void) state;
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 10);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    small = was;
    small.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool known = put(t, 10);
    while (stats(t).staged) pause_ms(1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, old);
    assert_true(known);
    assert_false(has(t, 10));
    pi__tier_stats s = stats(t);
    assert_false(s.writable);
    assert_int_equal(s.write_errors, 1);
    assert_int_equal(s.dropped, 1);
    assert_int_equal(warnings, 1);
    assert_false(put(t, 11));
    assert_int_equal(stats(t).dropped, 2);
    for (int id = 0; id < 10; id++) assert_true(loads(t, id));
    count_files();
    assert_int_equal(seen.files, 10);
    pi__tier_close(t);
    assert_int_equal(warnings, 1);
}

/* If the disk is full at open, existing entries are found, nothing is written, and a warning is logged. */
static void test_disk_full_at_open(void **state)
{
    (void) state;
    struct rlimit was, small;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 10);
    pi__tier_close(t);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    small = was;
    small.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pi_error err = {0};
    pi__tier_config c = config_of(1 << 24);
    int rc = pi__tier_open(&t, &c, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, old);
    if (rc) fail_msg("open: %s", err.msg);
    pi__tier_stats s = stats(t);
    assert_int_equal(warnings, 1);
    assert_false(s.writable);
    assert_int_equal(s.entries, 10);
    assert_int_equal(s.write_errors, 1);
    assert_false(put(t, 11));
    for (int id = 0; id < 10; id++) assert_true(loads(t, id));
    pi__tier_close(t);
    t = open_tier(1 << 24); /* the disk has space again */
    assert_true(stats(t).writable && put(t, 11));
    pi__tier_close(t);
    assert_int_equal(warnings, 1);
}

static void test_out_of_memory(void **state)
{
    (void) state;
    pi__tier *t = open_tier(1 << 24);
    put_all(t, 0, 30);
    pi__tier_close(t);
    pi__tier_config c = config_of(1 << 24);
    for (uint64_t i = 0; i < 12; i++) { /* other models, so that the table of fingerprints grows */
        c.fingerprint.byte[0] = (uint8_t) i;
        pi__tier_close(open_with(&c));
        char path[PI__TIER_PATH], file[512];
        pi__tier_shard_path(path, &c.fingerprint, 0);
        snprintf(file, sizeof file, "%s/%s/keep", dir, path);
        write_file(file, "x", 1);
    }
    c = config_of(1 << 24);
    long fails = 0;
    for (;; fails++) {
        counting_alloc a;
        pi_error err = {0};
        counting_use(&a, fails);
        int rc = pi__tier_open(&t, &c, &err);
        if (rc == PI_OK) {
            long count = a.count;
            assert_int_equal(stats(t).entries, 30);
            put_all(t, 100, 110);
            assert_true(loads(t, 3) && loads(t, 103));
            pi__tier_close(t);
            assert_int_equal(a.live, 0);
            assert_int_equal(a.count, count); /* no allocations after open */
            assert_true(a.peak >= pi__tier_memory(&c) && a.largest == pi__tier_memory(&c));
            break;
        }
        assert_int_equal(rc, PI_ENOMEM);
        assert_null(t);
        assert_int_equal(a.live, 0);
        assert_true(strstr(err.msg, "out of memory for the prefix cache") != NULL);
    }
    assert_true(fails >= 6);
    c.max_tokens = -1;
    assert_int_equal(pi__tier_memory(&c), 0);
}

/* ------------------------------------------------------------------------------------------------------- processes */
static void test_killed_writer(void **state)
{
    (void) state;
    enum { ROUNDS = 40, IDS = 300 };
    uint64_t rng = 99;
    int hits = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            pi__tier *t = open_tier(400 * PAGE);
            for (uint64_t s = (uint64_t) round;; ) {
                put(t, (int) rnd(&s, IDS));
                touch(t, (int) rnd(&s, IDS));
                if (rnd(&s, 8) == 0) sched_yield();
            }
        }
        pause_ms(1 + (long) rnd(&rng, 40));
        kill(pid, SIGKILL);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it had not failed before */
        pi__tier *t = open_tier(400 * PAGE);
        for (int id = 0; id < IDS; id++) {
            bool known = has(t, id);
            assert_int_equal(loads(t, id), known);
            hits += known;
        }
        assert_int_equal(stats(t).damaged, 0);
        count_files();
        assert_int_equal(seen.temps, 0);
        assert_int_equal(seen.files, stats(t).entries);
        assert_true(seen.pages <= 400);
        assert_int_equal(stats(t).bytes, seen.pages * PAGE);
        if (round % 10 == 9) remove_tree(dir);
        pi__tier_close(t);
    }
    assert_true(hits > 100);
}

static void test_two_processes(void **state)
{
    (void) state;
    enum { N = 3 };
    pid_t pid[N];
    pi__tier_close(open_tier(1 << 24));
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i]) continue;
        pi__tier_config c = config_of(150 * PAGE);
        c.wake = NULL;
        pi__tier *t;
        if (pi__tier_open(&t, &c, NULL)) _exit(3);
        int hits = 0;
        for (int round = 0; round < 5 && hits >= 0; round++) {
            int h = storm(t, (uint64_t) (round * N + i), 1500, 100);
            hits = h < 0 ? -1 : hits + h;
            pi__tier_close(t);
            if (pi__tier_open(&t, &c, NULL)) _exit(4);
        }
        pi__tier_stats s = stats(t);
        pi__tier_close(t);
        _exit(hits < 0 ? 1 : hits < 20 || s.damaged || s.write_errors ? 2 : 0);
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    pi__tier *t = open_tier(1 << 24);
    int hits = 0;
    for (int id = 0; id < 100; id++) hits += loads(t, id);
    assert_int_equal(hits, stats(t).entries);
    assert_true(hits > 5);
    pi__tier_close(t);
}

/* Entries that the other process wrote meanwhile are adopted instead of written again. */
static void test_adopted(void **state)
{
    (void) state;
    pi__tier *a = open_tier(1 << 24), *b = open_tier(1 << 24);
    put_all(a, 0, 20);
    assert_false(has(b, 5));
    put_all(b, 0, 20);
    for (int id = 0; id < 20; id++) assert_true(loads(b, id));
    assert_int_equal(stats(b).writes, 0);
    assert_int_equal(stats(b).bytes, stats(a).bytes);
    pi__tier_close(b);
    b = open_tier(PAGE); /* evicts files that a knows */
    for (int id = 0; id < 20; id++) assert_int_equal(loads(a, id), pages_of(id) == 1 && has(b, id));
    assert_int_equal(stats(a).damaged, 0);
    pi__tier_close(a);
    pi__tier_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TIER_TEST(test_damaged_bytes), TIER_TEST(test_strange_files), TIER_TEST(test_strays), TIER_TEST(test_refused),
        TIER_TEST(test_read_only), TIER_TEST(test_disk_full), TIER_TEST(test_disk_full_at_open),
        TIER_TEST(test_out_of_memory),
        TIER_TEST(test_killed_writer), TIER_TEST(test_two_processes), TIER_TEST(test_adopted),
    };
    return RUN_TIER_TESTS(tests);
}
