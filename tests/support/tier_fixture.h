/* A fixture for the disk tier's tests. Entries are numbered: hash, group, tokens and data follow from the number, so
 * every load can be checked. Each test has its own directory, and helpers wait for the tier's thread.
 * Single-threaded. */
#ifndef TIER_FIXTURE_H
#define TIER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/tier.h"
#include "cache/tier_impl.h"

enum { TOKENS = 16, MAX_BYTES = 16384, PAGE = 4096, MISSED = 0, WAIT_S = 20 };

static char root[64];          /* parent of all tests' directories */
static char dir[128];          /* directory of this test; made by open */
static const pi__digest fingerprint = {{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef}};
static sem_t finished;         /* counts wakes */
static sem_t gate;             /* if `gated`, each wake waits for it */
static bool gated;             /* set while no load is pending */
static int warnings;           /* log lines at PI_LOG_WARN or worse */

/* --------------------------------------------------------------------------------------------------------- entries */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x7fb5d329728ea185u;
    x = (x ^ x >> 27) * 0x81dadef4bc2dd44du;
    return x ^ x >> 33;
}

static inline uint32_t rnd(uint64_t *s, uint32_t n) { return (uint32_t) (mix(*s += 0x9E3779B97F4A7C15u) >> 32) % n; }
static inline pi__digest digest_of(uint64_t seed) { return pi__hash(PI__HASH_BLOCK, &seed, sizeof seed); }
static inline pi__block_key key_of(int id)
{
    return (pi__block_key) {digest_of((uint64_t) id), digest_of((uint64_t) id + 1000000), (uint64_t) id % 4};
}
#define KEY(id) ((pi__block_key[]) {key_of(id)})
static inline int32_t group_of(int id) { return id % 3 == 2 ? -1 : id % 3; }
static inline size_t bytes_of(int id) { return id == 7 ? 100 : 1 + mix((uint64_t) id + 77) % (MAX_BYTES - 1024); }
static inline size_t file_of(int id) { return pi__tier_file_size(TOKENS, bytes_of(id)); }
static inline int pages_of(int id) { return (int) ((file_of(id) + PAGE - 1) / PAGE); }

static inline void tokens_of(int id, int32_t *out)
{
    for (int i = 0; i < TOKENS; i++) out[i] = (int32_t) (mix((uint64_t) id * TOKENS + (uint64_t) i) % 100000);
}

static inline void data_of(int id, unsigned char *out)
{
    for (size_t i = 0; i < bytes_of(id); i++) out[i] = (unsigned char) (mix((uint64_t) id << 20 | i / 8) >> i % 8 * 8);
}

static inline bool put(pi__tier *t, int id)
{
    int32_t tokens[TOKENS];
    unsigned char data[MAX_BYTES];
    tokens_of(id, tokens);
    data_of(id, data);
    return pi__tier_put(t, KEY(id), group_of(id), tokens, TOKENS, data, bytes_of(id));
}

static inline bool has_in(pi__tier *t, int id, int32_t group)
{
    return pi__tier_has(t, &KEY(id)->hash, group);
}

static inline bool has(pi__tier *t, int id) { return has_in(t, id, group_of(id)); }

static inline void touch(pi__tier *t, int id) { pi__tier_touch(t, &KEY(id)->hash, group_of(id)); }

static inline uint64_t load(pi__tier *t, int id, void *dst)
{
    int32_t tokens[TOKENS];
    tokens_of(id, tokens);
    return pi__tier_load(t, KEY(id), group_of(id), tokens, TOKENS, dst, bytes_of(id), (uint64_t) id);
}

static inline bool is_right(int id, const unsigned char *data)
{
    unsigned char want[MAX_BYTES];
    data_of(id, want);
    return memcmp(want, data, bytes_of(id)) == 0;
}

/* --------------------------------------------------------------------------------------------------------- helpers */
static inline void wait_for(sem_t *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    while (sem_timedwait(s, &until)) assert_int_equal(errno, EINTR);
}

static inline void pause_ms(long ms)
{
    const struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

static inline void on_wake(void *ud)
{
    (void) ud;
    bool wait = gated;
    sem_post(&finished);
    if (wait) sem_wait(&gate);
}

static inline void on_log(void *ud, int level, const char *line)
{
    (void) ud;
    if (level <= PI_LOG_WARN && strstr(line, "prefix cache")) warnings++;
}

static inline pi__tier_config config_of(uint64_t limit)
{
    return (pi__tier_config) {.dir = dir, .limit_bytes = limit, .fingerprint = fingerprint, .staging_bytes = 1 << 20,
                              .max_tokens = TOKENS, .max_loads = 32, .close_ms = 10000, .wake = on_wake,
                              .log = {on_log, NULL, PI_LOG_WARN}};
}

static inline pi__tier *open_with(const pi__tier_config *c)
{
    pi__tier *t;
    pi_error err = {0};
    if (pi__tier_open(&t, c, &err)) fail_msg("%s", err.msg);
    return t;
}

static inline pi__tier *open_tier(uint64_t limit)
{
    pi__tier_config c = config_of(limit);
    return open_with(&c);
}

static inline pi__tier_stats stats(pi__tier *t)
{
    pi__tier_stats s;
    pi__tier_get_stats(t, &s);
    return s;
}

static inline void sync_writes(pi__tier *t)
{
    for (int i = 0; stats(t).staged; i++) {
        assert_true(i < WAIT_S * 20000);
        const struct timespec ts = {0, 50000};
        nanosleep(&ts, NULL);
    }
}

static inline void put_all(pi__tier *t, int from, int to)
{
    for (int id = from; id < to; id++) {
        assert_true(put(t, id));
        sync_writes(t);
    }
}

/* True if the load hit; checks the loaded data. */
static inline bool loads(pi__tier *t, int id)
{
    unsigned char data[MAX_BYTES];
    uint64_t l = load(t, id, data);
    if (l == MISSED) return false;
    pi__tier_done done;
    wait_for(&finished);
    assert_int_equal(pi__tier_poll(t, &done, 1), 1);
    assert_int_equal(done.id, l);
    assert_int_equal(done.tag, id);
    if (done.ok) assert_true(is_right(id, data));
    return done.ok;
}

static inline void path_of(int id, char out[512])
{
    char path[PI__TIER_PATH];
    const pi__block_key key = key_of(id);
    pi__tier_path(path, &fingerprint, &(pi__tier_name) {key.hash, key.tenant, group_of(id)});
    snprintf(out, 512, "%s/%s", dir, path);
}

static inline size_t read_file(const char *path, unsigned char *out, size_t n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(out, 1, n, f);
    fclose(f);
    return n;
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Filled by count_files. A killed writer can leave an empty file; empty files are not counted. */
static struct { int files, temps, dirs; uint64_t pages; } seen;

static inline int count_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    seen.dirs += type == FTW_D;
    bool temp = strncmp(path + f->base, "tmp-", 4) == 0;
    if (type != FTW_F || (temp && st->st_size == 0)) return 0;
    seen.files++;
    seen.temps += temp;
    seen.pages += ((uint64_t) st->st_size + PAGE - 1) / PAGE;
    return 0;
}

static inline void count_files(void)
{
    memset(&seen, 0, sizeof seen);
    nftw(dir, count_one, 16, FTW_PHYS);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void) st;
    (void) type;
    (void) f;
    return remove(path);
}

static inline void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static inline int setup(void **state)
{
    (void) state;
    static int n;
    snprintf(dir, sizeof dir, "%s/%d/cache", root, n++);
    sem_init(&finished, 0, 0);
    sem_init(&gate, 0, 0);
    gated = false;
    warnings = 0;
    return 0;
}

static inline int teardown(void **state)
{
    (void) state;
    remove_tree(dir);
    pi_set_allocator(NULL);
    return 0;
}

/* Runs random operations without waiting. Returns the number of hits, or -1 if a load returned wrong or unrequested
 * data. */
static inline int storm(pi__tier *t, uint64_t rng, int ops, int ids)
{
    enum { SLOTS = 16 };
    static unsigned char data[SLOTS][MAX_BYTES];
    uint64_t pending[SLOTS] = {0};
    int hits = 0;
    for (int op = 0, left = 0; op < ops || left; op++) {
        int id = (int) rnd(&rng, (uint32_t) ids), what = (int) rnd(&rng, 100), slot = (int) rnd(&rng, SLOTS);
        if (op >= ops) what = 99;
        if (what < 50) put(t, id);
        else if (what < 60) touch(t, id);
        else if (what < 85 && !pending[slot]) {
            pending[slot] = load(t, id, data[slot]);
            left += pending[slot] != MISSED;
        } else if (what < 88 && pending[slot]) {
            pi__tier_cancel(t, pending[slot]);
            pending[slot] = 0;
            left--;
        }
        pi__tier_done done[4];
        int n = pi__tier_poll(t, done, 4);
        for (int k = 0; k < n; k++) {
            int s = 0;
            while (s < SLOTS && pending[s] != done[k].id) s++;
            if (s == SLOTS || (done[k].ok && !is_right((int) done[k].tag, data[s]))) return -1;
            pending[s] = 0;
            left--;
            hits += done[k].ok;
        }
        if (op >= ops && !n) pause_ms(1);
        else if (op % 16 == 0) sched_yield();
        if (op % 256 == 0)
            while (stats(t).staged) pause_ms(1); /* ensures that entries exist to hit, even on a slow disk */
    }
    return hits;
}

/* Runs the tests, each in its own directory; removes all directories at the end. */
#define TIER_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define RUN_TIER_TESTS(tests) (make_root() ? 77 : remove_root(cmocka_run_group_tests(tests, NULL, NULL)))

static inline int make_root(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.30s/test-tier-XXXXXX", tmp && tmp[0] && strlen(tmp) <= 30 ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : 1;
}

static inline int remove_root(int failed)
{
    remove_tree(root);
    return failed;
}

#endif
