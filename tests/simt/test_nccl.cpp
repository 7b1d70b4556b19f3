/* Joining over NCCL (src/backend/cuda/nccl.c), with nccl_twin.c in its place. Ranks that arrive in time join. A rank
 * that waits for a missing one gives up at the timeout; a communicator that it gets later is freed. */
#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "simt_test.h"

extern "C" {
#include "backend/cuda/nccl.h"
}

static pi__nccl twin;
static int (*counts)(int *made);
static std::atomic<int> n_used; /* number of `use` calls with the right device */

struct joined { int rc; pi__nccl_comm comm; pi_error err; double s; };

static void use(int32_t device) { n_used += device == 5; }

static joined join(const pi__seat &all, int32_t rank)
{
    joined j = {};
    pi__seat seat = all;
    seat.rank = rank;
    const auto start = std::chrono::steady_clock::now();
    j.rc = pi__nccl_join(&j.comm, &seat, 5, use, &j.err);
    j.s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return j;
}

/* Joins the first `come` of n ranks. */
static std::vector<joined> join_all(const pi__seat &all, int32_t come)
{
    std::vector<joined> out(come);
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < come; i++) threads.emplace_back([&, i] { out[i] = join(all, i); });
    for (auto &t : threads) t.join();
    return out;
}

static pi__seat seats(int32_t n, double ms)
{
    pi__seat all = {};
    pi_error err = {};
    all.n = n, all.timeout_ms = ms;
    assert_int_equal(pi__nccl_make_id(all.id, &err), PI_OK);
    return all;
}

static int live()
{
    int made;
    return counts(&made);
}

/* True if within ten seconds exactly `more` communicators were created since `before`, and none is live. */
static bool settles(int before, int more)
{
    int made = 0;
    for (int i = 0; i < 1000 && (counts(&made) || made != before + more); i++) usleep(10000);
    return !live() && made == before + more;
}

static void test_all_come(void **)
{
    for (int32_t n : {1, 2, 4}) {
        for (const joined &j : join_all(seats(n, 20000), n)) {
            if (j.rc) fail_msg("%d ranks: %s", n, j.err.msg);
            assert_int_equal(twin.destroy(j.comm), 0);
        }
        assert_int_equal(live(), 0);
    }
    assert_int_equal(n_used, 1 + 2 + 4);
}

static void test_one_stays_away(void **)
{
    const pi__seat all = seats(4, 300);
    int before;
    counts(&before);
    for (const joined &j : join_all(all, 3)) {
        assert_int_equal(j.rc, PI_EDEVICE);
        assert_null(j.comm);
        assert_non_null(strstr(j.err.msg, "rank-timeout"));
        assert_true(j.s >= 0.29 && j.s < 5);
    }
    /* The last rank arrives after the timeout: the others free their communicators, and it joins none of them. */
    const joined late = join(all, 3);
    assert_int_equal(late.rc, PI_OK);
    assert_int_equal(twin.give_up(late.comm), 0);
    assert_true(settles(before, 4));
}

static void test_fails(void **)
{
    setenv("NCCL_TWIN", "fails", 1);
    for (const joined &j : join_all(seats(2, 20000), 2)) {
        assert_int_equal(j.rc, PI_EDEVICE);
        assert_non_null(strstr(j.err.msg, "unhandled system error"));
        assert_true(j.s < 5);
    }
    unsetenv("NCCL_TWIN");
    assert_int_equal(live(), 0);
}

int main()
{
    alarm(60);
    pi_error err = {};
    if (pi__nccl_load(&twin, &err)) return fprintf(stderr, "%s\n", err.msg), 1;
    void *found = dlsym(twin.lib, "nccl_twin_counts");
    if (!found) return fprintf(stderr, "not the twin\n"), 1;
    memcpy(&counts, &found, sizeof counts);
    const CMUnitTest tests[] = {cmocka_unit_test(test_all_come), cmocka_unit_test(test_one_stays_away),
                                cmocka_unit_test(test_fails)};
    const int rc = cmocka_run_group_tests(tests, nullptr, nullptr);
    pi__nccl_unload(&twin);
    return rc;
}
