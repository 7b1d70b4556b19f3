/* GGUF files: split models, files over 4 GiB, load modes, files left by the writer, and `inspect`. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_seed.h"

static char dir[200];

/* Returns the path of a file in the folder, valid for the next 15 calls. */
static const char *in_dir(const char *name)
{
    static char path[16][600];
    static int turn;
    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void assert_text(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void refused(const char *path, int code, const char *part, const char *part2)
{
    for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
        pi_error err = {0};
        pi__gguf *g = (pi__gguf *) 1;
        assert_int_equal(pi__gguf_open(&g, path, mode, &err), code);
        assert_null(g);
        assert_text(err.msg, part);
        assert_text(err.msg, part2);
    }
}

/* Removes every file of the folder; returns their number. */
static int empty_dir(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        unlink(in_dir(e->d_name));
        n++;
    }
    if (d) closedir(d);
    return n;
}

static int clean(void **state)
{
    (void) state;
    empty_dir();
    return 0;
}

/* -------------------------------------------------------------------------------------------------------- one file */

static void write_file(const char *path, const void *p, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), n);
    close(fd);
}

static void test_not_a_model(void **state)
{
    (void) state;
    char name[300];
    memset(name, 'x', sizeof name);
    name[200] = 0;
    refused(in_dir("missing.gguf"), PI_ENOENT, "no such file: ", "missing.gguf");
    write_file(in_dir("file"), "x", 1);
    refused(in_dir("file/child.gguf"), PI_ENOENT, "no such file: ", "child.gguf");
    refused(dir, PI_EINVAL, "is a folder", "name the .gguf file");
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    refused(in_dir("fifo"), PI_EINVAL, "fifo is a device or pipe", "");
    write_file(in_dir("empty.gguf"), "", 0);
    refused(in_dir("empty.gguf"), PI_EFORMAT, "empty.gguf: the file is empty", "fetch it again");
    write_file(in_dir("model.safetensors"), "\x10\0\0\0\0\0\0\0{}", 10);
    refused(in_dir("model.safetensors"), PI_EFORMAT, "model.safetensors: magic at offset 0", "not a GGUF model file");
    write_file(in_dir(name), "GGUF\3", 5);
    refused(in_dir(name), PI_EFORMAT, "...xxx", "needs 24 bytes, but the file ends after 5");
    pi__gguf *g;
    pi_error err;
    assert_int_equal(pi__gguf_open(&g, dir, 3, &err), PI_EINVAL);
    assert_text(err.msg, "load mode 3");
    pi__gguf_close(NULL);
}

/* A file that shrinks while it is open: reads that bypass the page cache detect the shrink. */
static void test_shrunk(void **state)
{
    (void) state;
    const char *path = in_dir("m.gguf");
    assert_int_equal(seed_write(path, 4096, true, NULL), PI_OK);
    pi__gguf *g;
    uint8_t buf[16];
    pi_error err = {0};
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_DIO, NULL), PI_OK);
    const pi__tensor *t = pi__gguf_tensor_at(g, 3);
    assert_int_equal(pi__gguf_read(g, t, 0, buf, sizeof buf, &err), PI_OK);
    assert_int_equal(truncate(path, (off_t) t->offset + 8), 0);
    assert_int_equal(pi__gguf_read(g, t, 0, buf, sizeof buf, &err), PI_EIO);
    assert_text(err.msg, "m.gguf: the file ends at offset");
    pi__gguf_close(g);
}

/* Reads cross the direct reader's chunks at odd offsets. */
static void test_large_tensor(void **state)
{
    (void) state;
    enum { N = 9 << 20 };
    const char *path = in_dir("m.gguf");
    pi__gguf_writer *w;
    uint8_t *data = malloc(N), *back = malloc(N);
    for (uint32_t i = 0; i < N; i++) data[i] = (uint8_t) (i * 2654435761u >> 24);
    assert_int_equal(pi__gguf_writer_open(&w, path, 0, NULL), PI_OK);
    pi__gguf_put_tensor(w, "small", PI__I8, 1, (int64_t[]) {33});
    pi__gguf_put_tensor(w, "large", PI__I8, 1, (int64_t[]) {N});
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, data, 33, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, data, 100, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, data + 100, 300000, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_data(w, data + 300100, N - 300100, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode++) {
        static const size_t from[] = {0, 1, 4000, 4095, 4096, 5000000, N - 1};
        pi__gguf *g;
        assert_int_equal(pi__gguf_open(&g, path, mode, NULL), PI_OK);
        const pi__tensor *t = pi__gguf_find_tensor(g, "large");
        for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
            for (size_t n = N - from[i]; n > 0; n = n / 3) {
                memset(back, 0, n);
                assert_int_equal(pi__gguf_read(g, t, from[i], back, n, NULL), PI_OK);
                assert_true(memcmp(back, data + from[i], n) == 0);
            }
        }
        pi__gguf_drop(g, t, 0, t->size);
        pi__gguf_close(g);
    }
    free(data);
    free(back);
}

/* Offsets and sizes over 4 GiB, in a sparse file. */
static void test_over_4_gib(void **state)
{
    (void) state;
    const char *path = in_dir("sparse.gguf");
    const uint64_t large = (5ull << 30) + 64;
    image m;
    img_head(&m, 3, 2, 0);
    img_tensor(&m, "large", PI__F16, 3, (uint64_t[]) {32, (5ull << 24) + 1, 1}, 0);
    img_tensor(&m, "last", PI__I8, 1, (uint64_t[]) {10}, large);
    img_pad(&m, 32);
    write_file(path, m.b, m.n);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t end = (off_t) (m.n + large);
    if (pwrite(fd, "0123456789", 10, end) != 10 || pwrite(fd, "xyz", 3, end - 3) != 3) {
        close(fd);
        skip(); /* the file system does not support large sparse files */
    }
    close(fd);
    for (int mode = PI__LOAD_MMAP; mode <= PI__LOAD_DIO; mode += PI__LOAD_DIO) {
        pi__gguf *g;
        char buf[10];
        assert_int_equal(pi__gguf_open(&g, path, mode, NULL), PI_OK);
        const pi__tensor *a = pi__gguf_tensor_at(g, 0), *b = pi__gguf_find_tensor(g, "last");
        assert_true(a->size == large);
        assert_true(b->offset == m.n + large);
        assert_int_equal(pi__gguf_read(g, b, 0, buf, 10, NULL), PI_OK);
        assert_memory_equal(buf, "0123456789", 10);
        assert_int_equal(pi__gguf_read(g, a, large - 3, buf, 3, NULL), PI_OK);
        assert_memory_equal(buf, "xyz", 3);
        const char *p = pi__gguf_tensor_data(g, b);
        if (p) assert_memory_equal(p, "0123456789", 10);
        pi__gguf_drop(g, b, 0, b->size);
        pi__gguf_close(g);
    }
    assert_int_equal(truncate(path, (off_t) (m.n + large + 9)), 0);
    pi__gguf *g;
    pi_error err = {0};
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, &err), PI_EFORMAT);
    assert_text(err.msg, "data of tensor 'last' at offset 5368709");
    assert_text(err.msg, "10 bytes reach beyond the file's 5368709");
}

/* ---------------------------------------------------------------------------------------------------- split models */

/* Writes part `no` of `count` with tensors "tN" of 40 bytes each from first to last; total < 0 = no
 * split.tensors.count. */
static void write_part(const char *name, uint16_t no, uint16_t count, int first, int last, int32_t total,
                       uint32_t alignment)
{
    pi__gguf_writer *w;
    char tensor[16];
    assert_int_equal(pi__gguf_writer_open(&w, in_dir(name), alignment, NULL), PI_OK);
    if (no == 0) pi__gguf_put(w, "general.architecture", PI__GGUF_STR, SEED_STR("gemma3"));
    pi__gguf_put(w, "split.no", PI__GGUF_U16, &no);
    pi__gguf_put(w, "split.count", PI__GGUF_U16, &count);
    if (total >= 0) pi__gguf_put(w, "split.tensors.count", PI__GGUF_I32, &total);
    for (int i = first; i <= last; i++) {
        snprintf(tensor, sizeof tensor, "t%d", i);
        pi__gguf_put_tensor(w, tensor, PI__F32, 1, (int64_t[]) {10});
    }
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    for (int i = first; i <= last; i++) assert_int_equal(seed_data(w, (size_t) i, 40, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
}

static void write_parts(void)
{
    write_part("m-00001-of-00003.gguf", 0, 3, 0, 3, 6, 32);
    write_part("m-00002-of-00003.gguf", 1, 3, 4, 4, 6, 4096); /* each part has its own alignment */
    write_part("m-00003-of-00003.gguf", 2, 3, 5, 5, 6, 8);
}

static void test_split(void **state)
{
    (void) state;
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};
    write_parts();
    for (int i = 0; i < 9; i++) {
        pi__gguf *g;
        pi_error err = {0};
        pi__str s;
        assert_int_equal(pi__gguf_open(&g, in_dir(names[i / 3]), i % 3, &err), PI_OK);
        assert_int_equal(pi__gguf_n_files(g), 3);
        assert_int_equal(pi__gguf_n_tensors(g), 6);
        assert_int_equal(pi__gguf_alignment(g), 32);
        /* Metadata comes from the first part, no matter which part was opened. */
        assert_int_equal(pi__gguf_get_str(g, "general.architecture", &s, NULL), PI_OK);
        assert_int_equal(s.n, 6);
        for (size_t t = 0; t < 6; t++) {
            char name[16];
            uint8_t data[40];
            snprintf(name, sizeof name, "t%zu", t);
            const pi__tensor *x = pi__gguf_find_tensor(g, name);
            assert_non_null(x);
            assert_int_equal(x->file, t < 4 ? 0 : t - 3);
            assert_true(x->offset + x->size <= pi__gguf_file_size(g, x->file));
            assert_int_equal(pi__gguf_read(g, x, 0, data, sizeof data, NULL), PI_OK);
            for (size_t k = 0; k < sizeof data; k++) assert_int_equal(data[k], seed_byte(t, k));
        }
        pi__gguf_close(g);
    }
}

static void test_split_refused(void **state)
{
    (void) state;
    char first[600];
    snprintf(first, sizeof first, "%s", in_dir("m-00001-of-00003.gguf"));
    write_parts();
    unlink(in_dir("m-00003-of-00003.gguf"));
    refused(first, PI_ENOENT, "no such file: m-00003-of-00003.gguf", "part 3 of 3");
    write_part("m-00003-of-00003.gguf", 1, 3, 5, 5, 6, 8);
    refused(first, PI_EFORMAT, "m-00003-of-00003.gguf: split.no 1, split.count 3", "number 2 of 3");
    write_part("m-00003-of-00003.gguf", 2, 4, 5, 5, 6, 8);
    refused(first, PI_EFORMAT, "split.no 2, split.count 4", "files are mixed up");
    write_part("m-00003-of-00003.gguf", 2, 3, 4, 4, 6, 8);
    refused(first, PI_EFORMAT, "m-00003-of-00003.gguf: tensor name 't4' at offset", "the name occurs twice");
    write_part("m-00003-of-00003.gguf", 2, 3, 5, 6, 6, 8);
    refused(first, PI_EFORMAT, "m-00001-of-00003.gguf: split.tensors.count is 6", "hold 7 tensors");
    write_part("m-00003-of-00003.gguf", 3, 3, 5, 5, 6, 8);
    refused(first, PI_EFORMAT, "m-00003-of-00003.gguf: split.no 3 of split.count 3", "0..count-1");
    write_part("other.gguf", 0, 3, 0, 3, 6, 32);
    refused(in_dir("other.gguf"), PI_EFORMAT, "other.gguf: split.count: part 1 of 3", "in \"-00001-of-00003.gguf\"");
    write_part("m-00001-of-00003.gguf", 2, 3, 0, 3, 6, 32);
    refused(first, PI_EFORMAT, "part 3 of 3", "end in \"-00003-of-00003.gguf\"");
    write_part("one.gguf", 0, 1, 0, 3, -1, 32); /* a single part may have any name */
    pi__gguf *g;
    assert_int_equal(pi__gguf_open(&g, in_dir("one.gguf"), PI__LOAD_MMAP, NULL), PI_OK);
    pi__gguf_close(g);

    size_t n;
    pi_error err = {0};
    uint8_t *p = slurp(in_dir("other.gguf"), &n); /* a model in memory cannot have other parts */
    assert_int_equal(pi__gguf_open_memory(&g, p, n, &err), PI_EFORMAT);
    assert_text(err.msg, "(memory): split.count: part 1 of 3");
    free(p);
}

/* --------------------------------------------------------------------------------------------------------- writing */

static pi__gguf_writer *writer(const char *path)
{
    pi__gguf_writer *w;
    pi_error err = {0};
    if (pi__gguf_writer_open(&w, path, 0, &err) != PI_OK) fail_msg("%s", err.msg);
    return w;
}

/* begin fails with this text, and close leaves no file. */
static void begin_fails(pi__gguf_writer *w, const char *part)
{
    pi_error err = {0};
    assert_int_equal(pi__gguf_writer_begin(w, &err), PI_EINVAL);
    assert_text(err.msg, part);
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_EINVAL);
    assert_int_equal(pi__gguf_writer_close(w, true, &err), PI_EINVAL);
    assert_text(err.msg, part);
    assert_int_equal(empty_dir(), 0);
}

static void test_writer_refuses(void **state)
{
    (void) state;
    char path[600];
    snprintf(path, sizeof path, "%s", in_dir("w.gguf")); /* empty_dir calls in_dir */
    pi_error err = {0};
    pi__gguf_writer *w;
    static const uint32_t bad[] = {1, 4, 24, 0xffffffff};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi__gguf_writer_open(&w, path, bad[i], &err), PI_EINVAL);
        assert_text(err.msg, "alignment is ");
        assert_null(w);
    }
    assert_int_equal(pi__gguf_writer_open(&w, in_dir("no/folder.gguf"), 0, &err), PI_ENOENT);
    assert_text(err.msg, "no/folder.gguf");

    pi__gguf_put((w = writer(path)), "", PI__GGUF_U8, &(uint8_t) {1});
    begin_fails(w, "a metadata key of 0 bytes");
    pi__gguf_put((w = writer(path)), "k", PI__GGUF_ARR, &(uint8_t) {1});
    begin_fails(w, "metadata key 'k' has an unknown type");
    pi__gguf_put_arr((w = writer(path)), "k", 77, 0, NULL);
    begin_fails(w, "metadata key 'k' has an unknown type");
    w = writer(path);
    for (int i = 0; i < 2; i++) pi__gguf_put(w, "twice", PI__GGUF_U8, &(uint8_t) {1});
    begin_fails(w, "metadata key 'twice' was added twice");
    w = writer(path);
    for (int i = 0; i < 2; i++) pi__gguf_put_tensor(w, "twice", PI__F32, 1, (int64_t[]) {1});
    begin_fails(w, "tensor 'twice' was added twice");
    pi__gguf_put_tensor((w = writer(path)), "t", 4, 1, (int64_t[]) {32});
    begin_fails(w, "tensor 't' has an unknown type");
    static const struct { int type, n_dims; int64_t ne[5]; } shape[] = {
        {PI__F32, 0, {1}}, {PI__F32, 5, {1, 1, 1, 1, 1}}, {PI__F32, 1, {0}}, {PI__F32, 2, {1, -1}}, {PI__Q8_0, 1, {33}},
        {PI__I8, 2, {INT64_MAX, 2}}, {PI__F64, 1, {INT64_MAX}}, {PI__I8, 3, {1ll << 32, 1ll << 31, 1}},
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        pi__gguf_put_tensor((w = writer(path)), "t", shape[i].type, shape[i].n_dims, shape[i].ne);
        begin_fails(w, "tensor 't' has a shape that its type cannot hold");
    }
    w = writer(path);
    for (int i = 0; i < 2; i++) {
        char name[2] = {(char) ('a' + i), 0};
        pi__gguf_put_tensor(w, name, PI__I8, 1, (int64_t[]) {INT64_MAX});
    }
    begin_fails(w, "tensor 'b' has a shape");
}

/* Returns a writer with one tensor of 10 bytes and a complete header. */
static pi__gguf_writer *begun(const char *path)
{
    pi__gguf_writer *w = writer(path);
    pi__gguf_put_tensor(w, "t", PI__I8, 1, (int64_t[]) {10});
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    return w;
}

static void test_writer_sequence(void **state)
{
    (void) state;
    const char *path = in_dir("w.gguf");
    pi_error err = {0};
    pi__gguf_writer *w = begun(path);
    assert_int_equal(pi__gguf_writer_data(w, "0123456789", 9, &err), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, &err), PI_EINVAL);
    assert_text(err.msg, "only 0 of 1 tensors");
    w = begun(path);
    assert_int_equal(pi__gguf_writer_data(w, "0123456789a", 11, &err), PI_EINVAL);
    assert_text(err.msg, "1 bytes more than the tensors");
    assert_int_equal(pi__gguf_writer_close(w, true, &err), PI_EINVAL);
    w = begun(path);
    pi__gguf_put(w, "late", PI__GGUF_U8, &(uint8_t) {1});
    assert_int_equal(pi__gguf_writer_data(w, "0123456789", 10, &err), PI_EINVAL);
    assert_text(err.msg, "a metadata key after the header was written");
    assert_int_equal(pi__gguf_writer_close(w, false, &err), PI_OK);
    w = begun(path);
    assert_int_equal(pi__gguf_writer_begin(w, &err), PI_EINVAL);
    assert_text(err.msg, "was already written");
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_EINVAL);
    w = writer(path);
    assert_int_equal(pi__gguf_writer_data(w, "0", 1, &err), PI_EINVAL);
    assert_text(err.msg, "tensor data before the header");
    assert_int_equal(pi__gguf_writer_close(w, false, &err), PI_OK);
    assert_int_equal(pi__gguf_writer_close(writer(path), true, &err), PI_EINVAL);
    assert_text(err.msg, "closed before its header");
    assert_int_equal(pi__gguf_writer_close(NULL, true, &err), PI_OK);
    assert_int_equal(empty_dir(), 0);
}

/* The old file under the name stays until the new file is complete, even while it is being read. */
static void test_writer_replaces(void **state)
{
    (void) state;
    const char *path = in_dir("w.gguf");
    assert_int_equal(seed_write(path, 0, true, NULL), PI_OK);
    pi__gguf *g;
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, NULL), PI_OK);
    uint64_t sum = touch_all(g);
    pi__gguf_writer *w = begun(path);
    assert_int_equal(pi__gguf_writer_data(w, "0123456789", 9, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, false, NULL), PI_OK);
    assert_int_equal(touch_all(g), sum);
    w = begun(path);
    assert_int_equal(pi__gguf_writer_data(w, "0123456789", 10, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    assert_int_equal(touch_all(g), sum);
    pi__gguf_close(g);
    assert_int_equal(pi__gguf_open(&g, path, PI__LOAD_MMAP, NULL), PI_OK);
    assert_memory_equal(pi__gguf_tensor_data(g, pi__gguf_find_tensor(g, "t")), "0123456789", 10);
    pi__gguf_close(g);
    assert_int_equal(empty_dir(), 1);

    w = begun("/dev/null"); /* a device is written directly, and is not removed */
    assert_int_equal(pi__gguf_writer_data(w, "0123456789", 10, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    if (access("/dev/full", W_OK) == 0) {
        pi_error err = {0};
        w = begun("/dev/full");
        assert_int_equal(pi__gguf_writer_data(w, "0123456789", 10, NULL), PI_OK);
        assert_int_equal(pi__gguf_writer_close(w, true, &err), PI_EIO);
        assert_text(err.msg, "cannot write /dev/full: No space left");
    }
}

/* A copied model: the source's general.alignment does not replace the writer's own. */
static void test_writer_copies(void **state)
{
    (void) state;
    static const uint32_t to[] = {0, 8, 256};
    const char *from = in_dir("from.gguf"), *copy = in_dir("copy.gguf");
    assert_int_equal(seed_write(from, 64, true, NULL), PI_OK);
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        pi__gguf *g, *h;
        pi__gguf_writer *w;
        assert_int_equal(pi__gguf_open(&g, from, PI__LOAD_MMAP, NULL), PI_OK);
        assert_int_equal(pi__gguf_writer_open(&w, copy, to[i], NULL), PI_OK);
        for (size_t k = 0; k < pi__gguf_n_kv(g); k++) pi__gguf_put_kv(w, pi__gguf_kv_at(g, k));
        for (size_t t = 0; t < pi__gguf_n_tensors(g); t++) {
            const pi__tensor *x = pi__gguf_tensor_at(g, t);
            pi__gguf_put_tensor(w, x->cname, x->type, x->n_dims, x->ne);
        }
        assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
        for (size_t t = 0; t < pi__gguf_n_tensors(g); t++) {
            const pi__tensor *x = pi__gguf_tensor_at(g, t);
            assert_int_equal(pi__gguf_writer_data(w, pi__gguf_tensor_data(g, x), x->size, NULL), PI_OK);
        }
        assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
        assert_int_equal(pi__gguf_open(&h, copy, PI__LOAD_MMAP, NULL), PI_OK);
        assert_int_equal(pi__gguf_alignment(h), to[i] ? to[i] : 32);
        for (size_t t = 0; t < pi__gguf_n_tensors(g); t++) {
            const pi__tensor *x = pi__gguf_tensor_at(g, t), *y = pi__gguf_find_tensor(h, x->cname);
            assert_int_equal(y->size, x->size);
            assert_int_equal(y->offset % pi__gguf_alignment(h), 0);
            assert_memory_equal(pi__gguf_tensor_data(h, y), pi__gguf_tensor_data(g, x), x->size);
        }
        pi__gguf_close(g);
        pi__gguf_close(h);
    }
}

/* --------------------------------------------------------------------------------------------------------- inspect */

typedef struct lines { /* all lines, each after a newline */
    char text[20000];
    size_t n, count;
} lines;

static void collect(void *ud, const char *line)
{
    lines *l = ud;
    assert_null(strchr(line, '\n'));
    l->n += (size_t) snprintf(l->text + l->n, sizeof l->text - l->n, "\n%s", line);
    l->count++;
}

static void test_inspect(void **state)
{
    (void) state;
    static lines l;
    const char *path = in_dir("m.gguf");
    assert_int_equal(seed_write(path, 64, true, NULL), PI_OK);
    assert_int_equal(pi_model_inspect(path, true, collect, &l, NULL), PI_OK);
    assert_int_equal(l.count, 1 + 20 + 1 + 6 + SEED_TENSORS);
    assert_text(l.text, "\nm.gguf: GGUF v3, ");
    assert_text(l.text, "alignment 64, 20 metadata entries\n");
    assert_text(l.text, "\ngeneral.architecture                        str          \"gemma3\"\n");
    assert_text(l.text, "\ngemma3.rope.freq_base                       f32          1e+06\n");
    assert_text(l.text, "\ntokenizer.ggml.tokens                       str[12]      [\"<pad>\", \"<eos>\"");
    assert_text(l.text, "\"\xe2\x96\x81the\", \"ing\", \"e\", ...]\n");
    assert_text(l.text, ".merges                       str[4]       [\"i n\", \"in g\", \"t h\", \"th e\"]\n");
    assert_text(l.text, "f32[12]      [-1000, -1000, -1000, 0, 0, -1, -2, -3.5, ...]\n");
    assert_text(l.text, "bool         true\n");
    assert_text(l.text, "i64          -9223372036854775808\n");
    assert_text(l.text, "u64          18446744073709551615\n");
    assert_text(l.text, "f64          0.1\n");
    assert_text(l.text, "str[0]       []\n");
    /* 384 Q8_0, 5 F32, 256 Q4_K, 24 F16, 8 BF16, 3 I32 */
    assert_text(l.text, "\ntensors: 6, 680 parameters, 648 bytes\n");
    assert_text(l.text, "\n  Q8_0          1 tensors              384 parameters              408 bytes\n");
    assert_text(l.text, "\noutput_norm.weight                  [5]  F32  20 bytes  file 0  offset ");
    assert_text(l.text, "\nblk.1.bias                          [2, 1, 2, 2]  BF16  16 bytes  file 0  offset ");

    l = (lines) {.n = 0};
    assert_int_equal(pi_model_inspect(path, false, collect, &l, NULL), PI_OK);
    assert_int_equal(l.count, 1 + 20 + 1 + 6);

    pi_error err = {0};
    assert_int_equal(pi_model_inspect(in_dir("none.gguf"), true, collect, &l, &err), PI_ENOENT);
    assert_int_equal(pi_model_inspect(NULL, true, collect, &l, &err), PI_EINVAL);
    assert_int_equal(pi_model_inspect(path, true, NULL, NULL, &err), PI_EINVAL);
}

/* Strings with terminal escapes, and very long ones; totals of a split model. */
static void test_inspect_hostile(void **state)
{
    (void) state;
    static lines l;
    static char key[30000], text[30000];
    const char *path = in_dir("m\x1b.gguf");
    memset(key, 'k', sizeof key - 1);
    memset(text, '\n', sizeof text);
    pi__str many[300];
    for (size_t i = 0; i < 300; i++) many[i] = (pi__str) {text, sizeof text};
    pi__gguf_writer *w = writer(path);
    pi__gguf_put(w, key, PI__GGUF_STR, &(pi__str) {text, sizeof text});
    pi__gguf_put(w, "a\x1b[2J", PI__GGUF_STR, SEED_STR("\x1b]0;x\x07"));
    pi__gguf_put_arr(w, "many", PI__GGUF_STR, 300, many);
    pi__gguf_put_tensor(w, "t\x1b", PI__I8, 1, (int64_t[]) {2000});
    assert_int_equal(pi__gguf_writer_begin(w, NULL), PI_OK);
    assert_int_equal(seed_data(w, 0, 2000, NULL), PI_OK);
    assert_int_equal(pi__gguf_writer_close(w, true, NULL), PI_OK);
    l = (lines) {.n = 0};
    assert_int_equal(pi_model_inspect(path, true, collect, &l, NULL), PI_OK);
    assert_null(strchr(l.text, '\x1b'));
    assert_text(l.text, "\nm\\x1b.gguf: ");
    assert_text(l.text, "\na\\x1b[2J");
    assert_text(l.text, "\"\\x1b]0;x\\x07\"");
    assert_text(l.text, "kkk...  str          \"\\n\\n");
    assert_text(l.text, "\\n...\"\n");
    assert_text(l.text, "str[300]     [\"\\n\\n");
    assert_text(l.text, "tensors: 1, 2000 parameters (2.00 K), 2000 bytes (1.95 KiB)\n");
    assert_true(l.n < 4000);

    write_parts();
    l = (lines) {.n = 0};
    assert_int_equal(pi_model_inspect(in_dir("m-00002-of-00003.gguf"), true, collect, &l, NULL), PI_OK);
    assert_text(l.text, "GGUF v3, 3 files, ");
    assert_text(l.text, "\ntensors: 6, 60 parameters, 240 bytes\n");
    assert_text(l.text, "\nt5                                  [10]  F32  40 bytes  file 2  offset ");
}

int main(void)
{
    temp_dir(dir, sizeof dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_not_a_model, clean),     cmocka_unit_test_teardown(test_shrunk, clean),
        cmocka_unit_test_teardown(test_large_tensor, clean),    cmocka_unit_test_teardown(test_over_4_gib, clean),
        cmocka_unit_test_teardown(test_split, clean),           cmocka_unit_test_teardown(test_split_refused, clean),
        cmocka_unit_test_teardown(test_writer_refuses, clean),  cmocka_unit_test_teardown(test_writer_sequence, clean),
        cmocka_unit_test_teardown(test_writer_replaces, clean), cmocka_unit_test_teardown(test_writer_copies, clean),
        cmocka_unit_test_teardown(test_inspect, clean),         cmocka_unit_test_teardown(test_inspect_hostile, clean),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    return rc;
}
