/* The memory that the system and cgroups leave, read from directories with crafted files; reservations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system_memory.h"

static char root[] = "/tmp/pi-system-memory-XXXXXX";
static char proc[256], cgroup[256];

/* Writes root/path and its directories. */
static void put(const char *path, const char *text)
{
    char full[512];
    const int len = snprintf(full, sizeof full, "%s/%s", root, path);
    assert_in_range(len, 1, sizeof full - 1);
    for (char *p = full + strlen(root) + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        (void) mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static int clear(void **state)
{
    char command[300];
    (void) state;
    snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    return system(command);
}

static int setup(void **state)
{
    (void) state;
    if (!mkdtemp(root)) return -1;
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(cgroup, sizeof cgroup, "%s/cgroup", root);
    return 0;
}

static int teardown(void **state)
{
    return clear(state) | rmdir(root);
}

static pi__system_memory read_now(void)
{
    pi__system_memory m;
    memset(&m, 0x55, sizeof m);
    pi__system_memory_read(proc, cgroup, &m);
    return m;
}

enum { KIB = 1024, MIB = 1 << 20 };

static const char meminfo[] = "MemTotal:       8192000 kB\nMemFree:          10000 kB\nMemAvailable:    4096000 kB\n"
                              "SwapTotal:       100000 kB\nSwapFree:          50000 kB\n"
                              "CommitLimit:     900000 kB\nCommitted_AS:     300000 kB\n";

static void system_without_cgroups(void **state)
{
    (void) state;
    pi__system_memory m = read_now(); /* no files at all */
    assert_true(m.available == UINT64_MAX && m.swap == 0 && m.mappable == UINT64_MAX);
    put("proc/meminfo", meminfo);
    m = read_now();
    assert_true(m.available == UINT64_C(4096000) * KIB && m.swap == UINT64_C(50000) * KIB);
    assert_true(m.mappable == UINT64_MAX);
    put("proc/sys/vm/overcommit_memory", "1\n");
    assert_true(read_now().mappable == UINT64_MAX);
    put("proc/sys/vm/overcommit_memory", "2\n");
    assert_true(read_now().mappable == UINT64_C(600000) * KIB);
    put("proc/meminfo", "MemTotal: 1 kB\nCommitLimit: 5 kB\nCommitted_AS: 9 kB\n"); /* an old kernel; over the limit */
    m = read_now();
    assert_true(m.available == UINT64_MAX && m.swap == 0 && m.mappable == 0);
}

/* The lowest limit on the path to the root applies. Page cache that can be dropped does not count as used. */
static void nested_version_2(void **state)
{
    (void) state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "0::/a/b/c\n");
    put("cgroup/a/b/c/memory.max", "max\n");
    put("cgroup/a/b/c/memory.current", "104857600\n");
    assert_true(read_now().available == UINT64_C(4096000) * KIB);
    put("cgroup/a/b/memory.max", "524288000\n");                                          /* 500 MiB */
    put("cgroup/a/b/memory.current", "209715200\n");                                      /* 200 MiB */
    assert_true(read_now().available == 300 * MIB);
    put("cgroup/a/b/memory.stat", "anon 5\ninactive_file 41943040\nactive_file 20971520\nslab 7\n"); /* 40 + 20 MiB */
    assert_true(read_now().available == 350 * MIB);
    put("cgroup/a/memory.max", "314572800\n");                                            /* 300 MiB */
    put("cgroup/a/memory.current", "209715200\n");
    assert_true(read_now().available == 100 * MIB);
    put("cgroup/a/b/c/memory.high", "115343360\n"); /* 110 MiB: processes above it are slowed down */
    assert_true(read_now().available == 10 * MIB);
    put("cgroup/memory.max", "1048576\n"); /* the root of a container's tree; more in use than the limit */
    put("cgroup/memory.current", "2097152\n");
    assert_true(read_now().available == 0);
    assert_true(read_now().swap == UINT64_C(50000) * KIB);
    put("cgroup/a/memory.swap.max", "10485760\n");
    put("cgroup/a/memory.swap.current", "4194304\n");
    assert_true(read_now().swap == 6 * MIB);
}

static void nested_version_1(void **state)
{
    (void) state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "9:name=systemd:/x\n4:hugetlb,memory:/job/1\n3:cpuset:/\n0::/\n");
    put("cgroup/memory/job/1/memory.limit_in_bytes", "9223372036854771712\n");
    put("cgroup/memory/job/1/memory.usage_in_bytes", "1048576\n");
    assert_true(read_now().available == UINT64_C(4096000) * KIB);
    put("cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
    put("cgroup/memory/job/memory.usage_in_bytes", "104857600\n");
    assert_true(read_now().available == 100 * MIB);
    put("cgroup/memory/job/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file 10485760\n");
    assert_true(read_now().available == 110 * MIB);
    /* an ancestor outside the container is visible only as this field */
    put("cgroup/memory/job/1/memory.stat", "hierarchical_memory_limit 52428800\n");
    assert_true(read_now().available == 49 * MIB);
    put("cgroup/memory/job/1/memory.memsw.limit_in_bytes", "62914560\n");
    put("cgroup/memory/job/1/memory.memsw.usage_in_bytes", "1048576\n");
    assert_true(read_now().available == 49 * MIB && read_now().swap == 10 * MIB);
}

/* In a container the path of the host does not exist below the mounted tree: its root has the limit. */
static void path_of_the_host(void **state)
{
    (void) state;
    put("proc/meminfo", meminfo);
    put("proc/self/cgroup", "4:memory:/docker/0123\n0::/../../other\n");
    put("cgroup/memory/memory.limit_in_bytes", "104857600\n");
    put("cgroup/memory/memory.usage_in_bytes", "4194304\n");
    assert_true(read_now().available == 96 * MIB);
    put("cgroup/memory.max", "52428800\n");
    put("cgroup/memory.current", "0\n");
    assert_true(read_now().available == 50 * MIB);
    put("other/memory.max", "1\n"); /* outside the tree: must not be read */
    put("other/memory.current", "1\n");
    put("proc/self/cgroup", "0::/../other\n");
    assert_true(read_now().available == 50 * MIB);
}

/* Damaged files set no limit, and no access leaves a buffer. */
static void hostile_files(void **state)
{
    (void) state;
    static const char *const bad[] = {"", "\n", "-1\n", "x", "99999999999999999999999999\n", "18446744073709551615\n",
                                      "18446744073709551617\n" /* 2^64 + 1 */};
    put("proc/meminfo", meminfo);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("proc/self/cgroup", "0::/a\n4:memory:/a\n");
        put("cgroup/a/memory.current", "1\n");
        put("cgroup/a/memory.max", bad[i]);
        put("cgroup/memory/a/memory.usage_in_bytes", bad[i]);
        put("cgroup/memory/a/memory.limit_in_bytes", "4096\n");
        assert_true(read_now().available == UINT64_C(4096000) * KIB);
    }
    static const char *const lines[] = {":", "::", "0:", "0::", "0::a", "4:memory", "4:memory:", "4:memory:a",
                                        "::::::", "\n\n\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        put("proc/self/cgroup", lines[i]);
        put("cgroup/memory.max", "1048576\n");
        put("cgroup/memory.current", "0\n");
        assert_true(read_now().available == UINT64_C(4096000) * KIB);
    }
    /* a line longer than every buffer, and a path longer than a path may be */
    char *text = malloc(40000);
    assert_non_null(text);
    memset(text, 'a', 39999);
    memcpy(text, "0::/", 4);
    text[39999] = 0;
    put("proc/self/cgroup", text);
    (void) read_now();
    text[9000] = 0;
    put("proc/self/cgroup", text);
    assert_true(read_now().available == MIB); /* the root's limit */
    memset(text, '7', 39999);
    put("proc/meminfo", text);
    assert_true(read_now().available == MIB && read_now().swap == 0);
    free(text);
    put("proc/meminfo", "MemAvailable: 18446744073709551615 kB\nSwapFree: x kB\n");
    put("proc/self/cgroup", "0::/none\n");
    put("cgroup/memory.max", "max\n");
    assert_true(read_now().available == UINT64_MAX && read_now().swap == 0);
}

static void reservations_add_up(void **state)
{
    (void) state;
    pi__reservation a = {0}, b = {0};
    if (pi__available_memory() == SIZE_MAX) skip();
    pi__reserve_memory(&a, 1000);
    pi__reserve_memory(&b, 500);
    assert_int_equal(pi__reserved_memory(), 1500);
    pi__reserve_memory(&a, 200);
    assert_int_equal(pi__reserved_memory(), 700);
    assert_true(pi__available_memory() > 0);
    pi__reserve_memory(&b, UINT64_C(1) << 60); /* more than any machine has */
    assert_int_equal(pi__available_memory(), 0);
    pi__reserve_memory(&b, 0);
    pi__reserve_memory(&a, 0);
    assert_int_equal(pi__reserved_memory(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(system_without_cgroups, clear), cmocka_unit_test_teardown(nested_version_2, clear),
        cmocka_unit_test_teardown(nested_version_1, clear),       cmocka_unit_test_teardown(path_of_the_host, clear),
        cmocka_unit_test_teardown(hostile_files, clear),          cmocka_unit_test(reservations_add_up),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
