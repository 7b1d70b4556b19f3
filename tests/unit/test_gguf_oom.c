/* Each allocation of reader, writer and inspect fails in turn: PI_ENOMEM, no leak, no remaining file; the next attempt
 * succeeds. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "gguf_seed.h"

static char dir[200], path[300];

static int files_in_dir(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* Runs job with allocation 0, 1, 2 ... failing, until it succeeds. `optional`: number of allocations that the library
 * can do without, so that the job survives their failure. Returns the number of allocations that the job makes. */
static long fail_each(int (*job)(pi_error *err), long optional)
{
    counting_alloc a;
    long survived = 0;
    for (long i = 0;; i++) {
        pi_error err = {0};
        counting_use(&a, i);
        int rc = job(&err);
        assert_int_equal(a.live, 0);
        assert_int_equal(a.bytes, 0);
        pi_set_allocator(NULL);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            assert_int_equal(survived, optional);
            return i;
        }
        if (rc == PI_OK) {
            survived++;
            continue;
        }
        assert_int_equal(rc, PI_ENOMEM);
        assert_int_equal(err.code, PI_ENOMEM);
        assert_non_null(strstr(err.msg, "memory for"));
    }
}

static int read_mode(int mode, pi_error *err)
{
    pi__gguf *g;
    int rc = pi__gguf_open(&g, path, mode, err);
    if (rc != PI_OK) {
        assert_null(g);
        return rc;
    }
    assert_true(touch_all(g) > 0);
    pi__gguf_close(g);
    return PI_OK;
}

static int read_mmap(pi_error *err) { return read_mode(PI__LOAD_MMAP, err); }
static int read_copy(pi_error *err) { return read_mode(PI__LOAD_READ, err); }
static int read_dio(pi_error *err) { return read_mode(PI__LOAD_DIO, err); }

static const uint8_t *memory;
static size_t memory_n;

static int read_memory(pi_error *err)
{
    pi__gguf *g;
    int rc = pi__gguf_open_memory(&g, memory, memory_n, err);
    if (rc == PI_OK) assert_true(touch_all(g) > 0);
    else assert_null(g);
    pi__gguf_close(g);
    return rc;
}

static void test_reader(void **state)
{
    (void) state;
    assert_int_equal(seed_write(path, 64, true, NULL), PI_OK);
    assert_true(fail_each(read_mmap, 0) > 10);
    assert_true(fail_each(read_copy, 0) > 11);
    uint8_t *p = slurp(path, &memory_n);
    memory = p;
    assert_true(fail_each(read_memory, 0) > 10);
    free(p);
    /* Each tensor is read once through a bounce buffer, if the file system has O_DIRECT. Without the buffer, the read
     * goes through the page cache. */
    counting_alloc a;
    counting_use(&a, -1);
    pi__gguf *g;
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_DIO, NULL), PI_OK);
    long before = a.count;
    assert_true(touch_all(g) > 0);
    long buffers = a.count - before;
    pi__gguf_close(g);
    pi_set_allocator(NULL);
    assert_true(buffers == 0 || buffers == SEED_TENSORS);
    fail_each(read_dio, buffers);
}

/* Tensors in another order than their data: the sort also allocates. */
static void test_unordered(void **state)
{
    (void) state;
    static image m;
    img_head(&m, 3, 2, 0);
    img_tensor(&m, "b", PI__F32, 1, (uint64_t[]) {8}, 32);
    img_tensor(&m, "a", PI__F32, 1, (uint64_t[]) {8}, 0);
    img_pad(&m, 32);
    img_bytes(&m, (uint8_t[64]) {1}, 64);
    memory = m.b;
    memory_n = m.n;
    assert_true(fail_each(read_memory, 0) >= 6);
}

static int write_seed(pi_error *err) { return seed_write(path, 64, true, err); }

static void test_writer(void **state)
{
    (void) state;
    unlink(path);
    counting_alloc a;
    counting_use(&a, 6);
    assert_int_equal(write_seed(NULL), PI_ENOMEM);
    pi_set_allocator(NULL);
    assert_int_equal(files_in_dir(), 0);
    assert_true(fail_each(write_seed, 0) > 12);
    assert_int_equal(files_in_dir(), 1);
    assert_int_equal(read_mmap(NULL), PI_OK);
}

static int write_part(const char *name, uint16_t no, pi_error *err)
{
    pi__gguf_writer *w;
    char p[600];
    snprintf(p, sizeof p, "%s/%s", dir, name);
    int rc = pi__gguf_writer_open(&w, p, 0, err);
    if (rc != PI_OK) return rc;
    pi__gguf_put(w, "split.no", PI__GGUF_U16, &no);
    pi__gguf_put(w, "split.count", PI__GGUF_U16, &(uint16_t) {2});
    pi__gguf_put(w, "general.name", PI__GGUF_STR, SEED_STR("n"));
    pi__gguf_put_tensor(w, name, PI__F32, 1, (int64_t[]) {1});
    rc = pi__gguf_writer_begin(w, err);
    if (rc == PI_OK) rc = pi__gguf_writer_data(w, "0123", 4, err);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), rc);
    return rc;
}

static char second[600];

static int read_parts(pi_error *err)
{
    pi__gguf *g;
    int rc = pi__gguf_open(&g, second, PI__LOAD_READ, err);
    if (rc == PI_OK) assert_int_equal(pi__gguf_n_tensors(g), 2);
    pi__gguf_close(g);
    return rc;
}

static void ignore(void *ud, const char *line)
{
    (void) ud;
    assert_non_null(line);
}

static int inspect(pi_error *err) { return pi_model_inspect(second, true, ignore, NULL, err); }

static void test_parts(void **state)
{
    (void) state;
    char first[600];
    snprintf(first, sizeof first, "%s/m-00001-of-00002.gguf", dir);
    snprintf(second, sizeof second, "%s/m-00002-of-00002.gguf", dir);
    assert_int_equal(write_part("m-00001-of-00002.gguf", 0, NULL), PI_OK);
    assert_int_equal(write_part("m-00002-of-00002.gguf", 1, NULL), PI_OK);
    assert_true(fail_each(read_parts, 0) > 12);
    assert_true(fail_each(inspect, 0) > 12);
    unlink(first);
    unlink(second);
}

int main(void)
{
    temp_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/t.gguf", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader), cmocka_unit_test(test_unordered), cmocka_unit_test(test_writer),
        cmocka_unit_test(test_parts),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(dir);
    return rc;
}
