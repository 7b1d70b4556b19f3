/* Loading of weights to the emulated device: contents of device memory, and use of host memory. */
#include "answers.h"

#include <algorithm>
#include <string>
#include <unistd.h>

#include "backend/cuda/pack.h"
#include "backend/cuda/runtime.h"
#include "runtime_emu.h"

extern "C" {
#include "backend/cuda/cuda.h"
#include "formats/formats.h"
int simt_small_write(const char *path, const char *arch, int32_t type);
}

static pi__backend *create()
{
    pi__cuda_params p = {};
    pi__backend *be = nullptr;
    pi_error err;
    p.n_threads = 3;
    if (pi__cuda_create(&be, 0, &p, nullptr, &err)) fail_msg("%s", err.msg);
    return be;
}

/* Fills rows of a matrix with bytes that depend only on the row number. */
static void fill(std::vector<uint8_t> &rows, size_t size, int64_t first)
{
    for (size_t i = 0; i < rows.size() / size; i++) {
        uint64_t v = (uint64_t) (first + (int64_t) i) * 0x9e3779b97f4a7c15u + 1;
        for (size_t k = 0; k + 8 <= size; k += 8, v = v * 6364136223846793005u + 1442695040888963407u)
            std::memcpy(&rows[i * size + k], &v, 8);
    }
}

/* Loads two matrices larger than all staging buffers, in pieces whose memory is reused immediately. Checks that each
 * byte is where pack.h says. Copies run as late as possible, so that a buffer that is refilled too early corrupts
 * them. */
static void load(int32_t type, int64_t n_in, int64_t n_out)
{
    pi__backend *be = create();
    pi__weight w = {};
    pi__cuda_shape s;
    pi_error err;
    w.type = type, w.n_in = n_in, w.n_out = n_out, w.n_mat = 2;
    w.size = be->dev->weight_size(be, &w);
    w.data = be->dev->alloc(be, w.size);
    assert_non_null(w.data);
    assert_true(pi__cuda_shape_of(type, n_in, n_out, &s));
    const size_t row = pi__row_size(pi__type_info_of(type), n_in), before = simt::host_bytes();
    const int64_t step = 6400;
    for (int64_t m = 0; m < 2; m++) {
        for (int64_t r = 0; r < n_out; r += step) {
            std::vector<uint8_t> rows(row * (size_t) std::min(step, n_out - r));
            fill(rows, row, m * n_out + r);
            be->dev->weight_load(be, &w, m, r, std::min(step, n_out - r), rows.data());
            std::fill(rows.begin(), rows.end(), 0xcc);
        }
    }
    const float values[3] = {1, 2, 3};
    float *v = static_cast<float *>(be->dev->alloc(be, sizeof values)), temporary[3];
    std::memcpy(temporary, values, sizeof values);
    be->dev->upload(be, v, temporary, sizeof values);
    temporary[0] = 4;
    assert_int_equal(simt::host_bytes() - before, 64 << 20);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    assert_int_equal(simt::host_bytes(), before);
    assert_memory_equal(v, values, sizeof values);

    std::vector<uint8_t> rows(row * 16), tile(s.n_block ? s.tile_bytes : row * 16);
    for (int64_t m = 0; m < 2; m++) {
        for (int64_t r = 0; r < n_out; r += 16) {
            const int64_t n = std::min<int64_t>(16, n_out - r);
            fill(rows, row, m * n_out + r);
            if (s.n_block) pi__cuda_pack_tile(type, &s, n_in, rows.data(), (int32_t) n, tile.data());
            else tile = rows;
            const size_t at = (size_t) m * s.mat_bytes + (size_t) (s.n_block ? r / 16 : r) * s.tile_bytes;
            const size_t size = s.n_block ? s.tile_bytes : row * (size_t) n;
            if (std::memcmp(static_cast<char *>(w.data) + at, tile.data(), size))
                fail_msg("%s: matrix %d, row %d is not what was loaded", pi__type_info_of(type)->name, (int) m,
                         (int) r);
        }
    }
    be->dev->free(be, v, sizeof values);
    be->dev->free(be, w.data, w.size);
    be->dev->destroy(be);
    assert_int_equal(simt::watch.live, 0);
}

static void test_packed(void **) { load(PI__Q4_0, 4096, 17003); }
static void test_as_in_file(void **) { load(PI__BF16, 1056, 18007); }

/* Vectors before any matrix: staged from reserve() to the next finish(), copied directly after that. */
static void test_vectors(void **)
{
    enum { N = 1000 };
    pi__backend *be = create();
    pi_error err;
    pi__limits lim = {};
    lim.max_tokens = lim.max_seqs = lim.max_rows = lim.max_n_head = 1, lim.max_ctx = 64,
    lim.max_n_in = lim.max_n_out = 32;
    lim.max_head_dim = 32;
    float *v = static_cast<float *>(be->dev->alloc(be, 2 * N * sizeof(float)));
    assert_int_equal(be->dev->reserve(be, &lim, &err), PI_OK);
    const size_t before = simt::host_bytes();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            std::vector<float> src(N, (float) (1 + i + 2 * round));
            be->dev->upload(be, v + i * N, src.data(), N * sizeof(float));
            std::fill(src.begin(), src.end(), -1.0f);
        }
        assert_int_equal(simt::host_bytes() - before, round ? 0 : 64 << 20);
        if (!round) assert_true(v[0] == 0 && v[N] == 0); /* the copy is still pending */
        assert_int_equal(be->dev->finish(be, &err), PI_OK);
        assert_int_equal(simt::host_bytes(), before);
        for (int i = 0; i < 2 * N; i++) assert_true(v[i] == (float) (1 + i / N + 2 * round));
    }
    be->dev->free(be, v, 2 * N * sizeof(float));
    be->dev->destroy(be);
    assert_int_equal(simt::watch.live, 0);
}

/* An aborted load frees everything; a tile that does not fit into a staging buffer is refused. */
static void test_given_up(void **)
{
    pi_error err;
    for (int i = 0; i < 2; i++) {
        pi__backend *be = create();
        pi__weight w = {};
        w.type = PI__Q8_0, w.n_in = i ? 32 << 16 : 64, w.n_out = 16, w.n_mat = 1;
        w.size = be->dev->weight_size(be, &w);
        w.data = be->dev->alloc(be, w.size);
        assert_non_null(w.data);
        std::vector<uint8_t> rows(16 * pi__row_size(pi__type_info_of(w.type), w.n_in));
        be->dev->weight_load(be, &w, 0, 0, 16, rows.data());
        if (i) assert_int_equal(be->dev->finish(be, &err), PI_ENOMEM);
        be->dev->free(be, w.data, w.size);
        be->dev->destroy(be);
        assert_int_equal(simt::watch.live, 0);
        assert_int_equal(simt::host_bytes(), 0);
    }
}

/* Tensors of an arena are mapped and unmapped one by one; unmapped memory is inaccessible. */
static void test_arena(void **)
{
    const size_t page = 2 << 20;
    pi__backend *be = create();
    pi_error err;
    char text[] = "what the other tensor has", got[sizeof text] = "", zeros[sizeof text] = "";
    assert_int_equal(be->page, page);
    assert_null(be->opt->arena_alloc(be, page / 2));
    char *a = static_cast<char *>(be->opt->arena_alloc(be, 4 * page)), *b = a + page;
    assert_non_null(a);
    assert_int_equal((uintptr_t) a % page, 0);
    assert_int_equal(simt::device_bytes(), 0);
    assert_true(be->opt->arena_map(be, a, page));
    assert_true(be->opt->arena_map(be, b, 2 * page));
    assert_int_equal(simt::device_bytes(), 3 * page);
    be->dev->upload(be, a, text, sizeof text);
    be->dev->upload(be, b + 2 * page - sizeof text, text, sizeof text);
    be->opt->arena_unmap(be, a, page);
    assert_int_equal(simt::device_bytes(), 2 * page);
    be->dev->download(be, got, b + 2 * page - sizeof text, sizeof text);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    assert_string_equal(got, text);
    char *const outside[] = {a, b - 1, b + 2 * page};
    for (char *p : outside) {
        be->dev->upload(be, p, text, sizeof text);
        assert_int_equal(be->dev->finish(be, &err), PI_EDEVICE);
        assert_non_null(strstr(err.msg, "leaves device memory"));
    }
    assert_true(be->opt->arena_map(be, a, page)); /* again, without the old contents */
    be->dev->download(be, got, a, sizeof text);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    assert_memory_equal(got, zeros, sizeof zeros);
    be->opt->arena_unmap(be, b, 2 * page);
    be->opt->arena_unmap(be, a, page);
    be->opt->arena_free(be, a, 4 * page);
    be->dev->destroy(be);
    assert_int_equal(simt::watch.live, 0);
}

/* The emulator detects misuse of arenas: mapping over a mapping or a partial page; unmapping twice, partially, or
 * releasing addresses with mappings. */
static void test_arena_misuse(void **)
{
    const size_t page = 2 << 20;
    pi__rt *rt;
    pi__rt_info info;
    void *p;
    bool done;
    assert_int_equal(pi__rt_open(&rt, 0, &info), 0);
    assert_int_equal(pi__rt_reserve(rt, &p, 4 * page), 0);
    char *a = static_cast<char *>(p);
    const struct { char *at; size_t size; bool done;
    } maps[] = {{a + page, page, true},  {a, 2 * page, false},          {a + page, page, false},
                {a, page / 2, false},    {a + 64, page, false},         {a + 3 * page, 2 * page, false},
                {a - page, page, false}, {a + 2 * page, 2 * page, true}};
    for (const auto &m : maps) {
        assert_int_equal(pi__rt_map(rt, m.at, m.size, &done), 0);
        assert_int_equal(done, m.done);
    }
    assert_int_equal(simt::watch.live, 4); /* device, addresses, two mappings */
    pi__rt_unmap(rt, a + 2 * page, page);
    pi__rt_unmap(rt, a, page);
    pi__rt_unreserve(rt, a, 4 * page);
    assert_int_equal(simt::watch.live, 7);
    pi__rt_unmap(rt, a + 2 * page, 2 * page);
    pi__rt_unmap(rt, a + page, page);
    pi__rt_unmap(rt, a + page, page);
    pi__rt_unreserve(rt, a, 4 * page);
    pi__rt_unreserve(rt, a, 4 * page);
    pi__rt_close(rt);
    assert_int_equal(simt::watch.live, 5);
    simt::watch.live = 0;
}

static void append_line(void *ud, int, const char *line)
{
    *static_cast<std::string *>(ud) += std::string(line) + "\n";
}

/* A device that cannot map pages reports it in the log. */
static void test_no_pages(void **)
{
    for (size_t page : {(size_t) 0, (size_t) 2 << 20}) {
        std::string lines;
        pi__log log = {append_line, &lines, PI_LOG_INFO};
        pi__cuda_params p = {};
        pi__backend *be;
        pi_error err;
        simt::options.page = page;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        assert_int_equal(be->page, page);
        assert_int_equal(lines.find("weights are one allocation") != std::string::npos, !page);
        be->dev->destroy(be);
    }
}

struct load_watch {
    int64_t cancel_at; /* index of the call that cancels; negative = none */
    int64_t n;         /* number of calls */
    uint64_t done;     /* `done` of the last call */
    bool whole;        /* the last call reported completion */
};

static bool on_load(void *ud, int stage, uint64_t done, uint64_t total)
{
    load_watch *w = static_cast<load_watch *>(ud);
    assert_int_equal(stage, PI_LOAD_WEIGHTS);
    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->whole = done == total;
    return w->n++ == w->cancel_at;
}

/* Opening an engine on the device reports loading progress, stops when the callback cancels, and frees everything. */
static void test_canceled(void **)
{
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_small_write(path, "gemma3", PI__Q8_0), 0);
    int64_t n_calls = 1;
    for (int64_t at = -1; at < n_calls; at += at < 4 ? 1 : 7) {
        load_watch w = {at, 0, 0, false};
        pi_error err = {};
        pi_engine *e = nullptr;
        pi_options *o = pi_options_new();
        const size_t before = simt::host_bytes();
        set(o, "model", path);
        set(o, "device", "emu");
        set(o, "ctx-size", "64");
        pi_options_set_progress(o, on_load, &w);
        assert_int_equal(pi_engine_open(&e, o, &err), at < 0 ? PI_OK : PI_ECANCELED);
        pi_options_free(o);
        pi_engine_close(e);
        if (at < 0) n_calls = w.n;
        else assert_null(e);
        assert_int_equal(w.n, at < 0 ? n_calls : at + 1);
        assert_true(w.whole == (w.n == n_calls));
        assert_int_equal(simt::host_bytes(), before);
    }
    assert_true(n_calls > 20);
    unlink(path);
}

/* A device whose memory is the host's: weights are packed in place without copies, and evicted blocks are not kept in
 * host memory. The results are the same. */
static void test_shared(void **)
{
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_small_write(path, "gemma3", PI__Q8_0), 0);
    std::vector<answer> want;
    long up[2];
    for (bool shares : {false, true}) {
        pi_error err = {};
        pi_engine *e = nullptr;
        pi_plan plan = {};
        std::string lines;
        simt::watch.shares = shares;
        simt::watch.n_up = simt::watch.n_shared = simt::watch.n_prefetched = 0;
        pi_options *o = pi_options_new();
        const std::pair<const char *, const char *> options[] = {
            {"model", path},     {"device", "emu"},       {"ctx-size", "64"}, {"temp", "0"},
            {"max-tokens", "8"}, {"logits", "generated"}, {"cache-ram", "8"}, {"ignore-eos", "true"}};
        for (const auto &kv : options) set(o, kv.first, kv.second);
        pi_options_set_log(o, append_line, &lines, PI_LOG_INFO);
        if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
        up[shares] = simt::watch.n_up;
        plan.size = sizeof plan;
        assert_int_equal(pi_engine_plan(o, &plan, &err), PI_OK);
        assert_true((plan.host_cache_bytes > 0) == !shares);
        assert_true((lines.find("cache-ram is disabled") != std::string::npos) == shares);
        pi_options_free(o);
        if (shares) assert_true(up[1] + (long) plan.weights_bytes / 2 < up[0]);
        /* only weights are in memory that the host writes, and all of them are then moved to the device */
        const long weights = shares ? (long) plan.weights_bytes : 0;
        assert_true(simt::watch.n_shared <= weights && simt::watch.n_shared >= weights * 9 / 10);
        assert_true(simt::watch.n_prefetched <= weights && simt::watch.n_prefetched >= weights * 9 / 10);
        const std::vector<answer> got = ask(e, {"you and the other hand", "once"}, true);
        if (!shares) want = got;
        else compare("in the host's memory", want, got, 0);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::watch.shares = false;
    unlink(path);
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),   cmocka_unit_test(test_as_in_file), cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_given_up), cmocka_unit_test(test_arena),      cmocka_unit_test(test_arena_misuse),
        cmocka_unit_test(test_no_pages), cmocka_unit_test(test_canceled),   cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
