/* Several emulated devices: a queue that waits for another device's queue. Kernels or copies that access another
 * device's memory are detected; on real devices they would only fail there. */
#include "simt_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime.h"
#include "runtime_emu.h"

enum { N = 256 /* floats per device */ };

struct devices {
    pi__rt *rt[2];
    float *p[2];     /* [N] zeros */
    float *host;     /* [N] zeros, source and target of both devices' copies */
};

static devices open_both()
{
    devices d = {};
    pi__rt_info info;
    const char *lazy;
    void *p;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pi__rt_open(&d.rt[i], i, &info), 0);
        assert_int_equal(pi__rt_load_kernels(d.rt[i], &lazy), 0);
        assert_int_equal(pi__rt_alloc(d.rt[i], &p, N * sizeof(float)), 0);
        d.p[i] = static_cast<float *>(p);
    }
    assert_int_equal(pi__rt_host_alloc(d.rt[0], &p, N * sizeof(float)), 0);
    d.host = static_cast<float *>(p);
    return d;
}

static void close_both(devices *d)
{
    pi__rt_host_free(d->rt[0], d->host);
    for (int i = 0; i < 2; i++) {
        pi__rt_free(d->rt[i], d->p[i]);
        pi__rt_close(d->rt[i]);
    }
    assert_int_equal(simt::watch.live, 0);
}

/* Copies host[at] through that device to host[at + 1]. */
static void hand_on(const devices *d, int device, int at)
{
    assert_int_equal(pi__rt_upload(d->rt[device], d->p[device], d->host + at, sizeof(float)), 0);
    assert_int_equal(pi__rt_download(d->rt[device], d->host + at + 1, d->p[device], sizeof(float)), 0);
}

/* A queue that follows another one runs after the work queued there; without that, the order is not guaranteed. */
static void test_follow(void **)
{
    for (const bool follows : {true, false}) {
        devices d = open_both();
        d.host[0] = 7;
        for (int i = 0; i < 6; i++) {
            if (i && follows) assert_int_equal(pi__rt_follow(d.rt[i % 2], d.rt[(i + 1) % 2]), 0);
            hand_on(&d, i % 2, i);
        }
        assert_int_equal(pi__rt_wait(d.rt[1]), 0); /* the last copy's queue */
        assert_true(d.host[6] == (follows ? 7 : 0));
        assert_int_equal(pi__rt_wait(d.rt[0]), 0);
        close_both(&d);
    }
}

/* Exit code of a process in which device 1 gathers a row from another device's memory, or its own. */
static int end_of_gather(int from, bool apart)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (!freopen("/dev/null", "w", stderr)) _exit(4);
        simt::watch.apart = apart;
        const devices d = open_both();
        const int32_t *row = reinterpret_cast<const int32_t *>(d.p[1]);
        const int code = pi__k_gather_rows(pi__rt_stream(d.rt[1]), d.p[from], row, 1, 4, d.p[1] + N / 2);
        _exit(code || pi__rt_wait(d.rt[1]) ? 2 : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_apart(void **)
{
    assert_int_equal(end_of_gather(1, true), 0);
    assert_int_equal(end_of_gather(0, true), 1);
    assert_int_equal(end_of_gather(0, false), 0); /* the check is disabled */
}

static void test_copies(void **)
{
    devices d = open_both();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pi__rt_upload(d.rt[i], d.p[i], d.host, N), 0);
        assert_int_equal(pi__rt_download(d.rt[i], d.host, d.p[i], N), 0);
        assert_int_not_equal(pi__rt_upload(d.rt[i], d.p[1 - i], d.host, N), 0);
        assert_int_not_equal(pi__rt_download(d.rt[i], d.host, d.p[1 - i], N), 0);
        assert_int_equal(pi__rt_wait(d.rt[i]), 0);
    }
    close_both(&d);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_follow), cmocka_unit_test(test_apart),
                                cmocka_unit_test(test_copies)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
