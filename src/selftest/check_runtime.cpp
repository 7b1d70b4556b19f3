/* Checks the runtime (backend/cuda/runtime.h): replay of captured work, copies, mapped pages, and two devices in
 * parallel. */
#include "selftest/matrix_ref.h"

#include <thread>

#include "backend/cuda/comm.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

/* Device memory. */
struct device_memory {
    pi__rt *rt;
    char *p;

    device_memory(pi__rt *on, size_t size) : rt(on), p(nullptr)
    {
        void *out = nullptr;
        const int code = pi__rt_alloc(rt, &out, size);
        if (code) fail_check("device memory: %.200s", pi__rt_text(code));
        if (!out) fail_check("no device memory for %zu bytes", size);
        p = static_cast<char *>(out);
    }
    ~device_memory() { pi__rt_free(rt, p); }
};

struct pinned {
    char *p;

    explicit pinned(size_t size) : p(nullptr)
    {
        void *out = nullptr;
        const int code = pi__rt_host_alloc(now->rt, &out, size);
        if (code) fail_check("pinned memory: %.200s", pi__rt_text(code));
        if (!out) fail_check("no pinned memory for %zu bytes", size);
        p = static_cast<char *>(out);
    }
    ~pinned() { pi__rt_host_free(now->rt, p); }
};

struct graph {
    pi__rt *rt;
    pi__rt_graph *g;

    explicit graph(pi__rt *on) : rt(on), g(nullptr) {}
    ~graph() { pi__rt_graph_free(rt, g); }
};

/* A typical repeated step: rows are packed and multiplied, and the result is normed and added to a running sum. */
struct work {
    int32_t rows;
    matrix w;
    buffer<float> x, y, sum, norm;
    buffer<char> prepared;

    work(int32_t type, int64_t n_in, int64_t n_out, int32_t n)
        : rows(n), w(make_matrix(type, n_in, n_out)), x((size_t) (n * n_in)), y((size_t) (n * n_out)),
          sum((size_t) (n * n_out)), norm(random(4).normals((size_t) n_out)),
          prepared(pi__k_packed_x_bytes(n, n_in, pi__type_is_float(type)))
    {
    }
    void begin(uint64_t seed)
    {
        random r(seed);
        for (size_t i = 0; i < x.size(); i++) x[i] = r.normal();
        for (size_t i = 0; i < sum.size(); i++) sum[i] = r.normal();
    }
    /* Queues the work `times` times; returns a runtime error code. */
    int queue(pi__rt *rt, int times)
    {
        const pi__k_input in = {PLAIN, x.get(), w.m.n_in, nullptr, 0, nullptr, 0, 0};
        const pi__k_product p = {w.m, y.get(), w.m.n_out, 0};
        const pi__add_norm add = {sum.get(), y.get(), norm.get(), nullptr, 1e-6f, 0.5f, rows, w.m.n_out};
        int code = 0;
        for (int i = 0; i < times && !code; i++) {
            code = pi__k_pack_x(pi__rt_stream(rt), &in, rows, w.m.n_in, pi__type_is_float(w.m.type), prepared.get());
            if (!code) code = pi__k_linear(pi__rt_stream(rt), &p, 1, prepared.get(), rows);
            if (!code) code = pi__k_add_norm(pi__rt_stream(rt), &add);
        }
        return code;
    }
    std::vector<float> result() const { return std::vector<float>(sum.get(), sum.get() + sum.size()); }
};

/* A graph can be replayed repeatedly, also without waiting in between, and uses the current contents of its memory. */
void test_replay()
{
    for (int32_t rows : {3, 40}) {
        about("%d rows", rows);
        work a(PI__Q4_K, 512, 96, rows);
        std::vector<std::vector<float>> want;
        for (uint64_t seed = 1; seed < 4; seed++) {
            a.begin(seed);
            must_run(a.queue(now->rt, 6));
            want.push_back(a.result());
        }
        graph g(now->rt);
        a.begin(9);
        const std::vector<float> before = a.result();
        expect_equal(pi__rt_capture(now->rt), 0);
        const int queued = a.queue(now->rt, 3);
        const int ended = pi__rt_capture_end(now->rt, &g.g);
        expect_true(!queued && !ended && g.g);
        expect_bytes(before.data(), a.sum.get(), before.size() * sizeof(float)); /* capturing does not run the work */
        for (uint64_t seed : {2, 1, 3, 2}) {
            a.begin(seed);
            const int first = pi__rt_replay(now->rt, g.g);
            expect_equal(first, 0);
            must_run(pi__rt_replay(now->rt, g.g));
            expect_bytes(want[(size_t) seed - 1].data(), a.sum.get(), before.size() * sizeof(float));
        }
    }
}

/* Copies of unaligned sizes; source memory that changes as soon as the call returns; copies that run concurrently with
 * the queue. */
void test_copies()
{
    for (size_t n : {(size_t) 1, (size_t) 4095, ((size_t) 1 << 20) + 3}) {
        about("%zu bytes", n);
        device_memory d(now->rt, 2 * n + 512);
        pinned out(n), beside(n), back(n);
        char *second = d.p + (n + 255) / 256 * 256;
        std::vector<char> some(n), kept;
        random r(n);
        for (char &c : some) c = (char) r.bits();
        kept = some;
        const int code = pi__rt_upload(now->rt, d.p, some.data(), n);
        std::fill(some.begin(), some.end(), (char) 0x55);
        expect_equal(code, 0);
        must_run(pi__rt_download(now->rt, out.p, d.p, n));
        expect_bytes(kept.data(), out.p, n);
        uint64_t ended = 0;
        expect_equal(pi__rt_copy_out(now->rt, beside.p, d.p, n), 0);
        expect_equal(pi__rt_copies(now->rt, 1, &ended), 0);
        expect_bytes(kept.data(), beside.p, n);
        for (size_t i = 0; i < n; i++) beside.p[i] = (char) (kept[i] ^ 0x33);
        expect_equal(pi__rt_copy_in(now->rt, second, beside.p, n), 0);
        expect_equal(pi__rt_copies(now->rt, 1, &ended), 0);
        must_run(pi__rt_download(now->rt, back.p, second, n));
        expect_bytes(beside.p, back.p, n);
    }
}

/* Kernels and copies can use adjacent mapped pages as one memory. Newly mapped pages are zero; other pages keep their
 * contents. */
void test_pages()
{
    const size_t page = now->info.page;
    if (!page) skip_check("the device cannot map pages");
    /* unmaps the remaining pages at the end: two pages that were mapped as one, and one more */
    struct range {
        pi__rt *rt;
        size_t page;
        char *p;
        bool mapped[2];
        ~range()
        {
            if (mapped[0]) pi__rt_unmap(rt, p, 2 * page);
            if (mapped[1]) pi__rt_unmap(rt, p + 2 * page, page);
            pi__rt_unreserve(rt, p, 3 * page);
        }
    } all = {now->rt, page, nullptr, {}};
    void *at = nullptr;
    const int code = pi__rt_reserve(now->rt, &at, 3 * page);
    if (code) fail_check("addresses: %.200s", pi__rt_text(code));
    if (!at) fail_check("no address range for %zu bytes", 3 * page);
    all.p = static_cast<char *>(at);
    must_run(pi__rt_map(now->rt, all.p + 2 * page, page, &all.mapped[1]));
    must_run(pi__rt_map(now->rt, all.p, 2 * page, &all.mapped[0]));
    expect_true(all.mapped[0] && all.mapped[1]);
    const int64_t n = 1000;
    const std::vector<float> some = random(8).normals((size_t) (2 * n));
    const std::vector<float> zeros((size_t) (2 * n));
    buffer<float> got((size_t) (2 * n));
    buffer<int32_t> which(std::vector<int32_t>{1, 0});
    float *const across = reinterpret_cast<float *>(all.p + page) - 700, *const behind = reinterpret_cast<float *>(
                                                                             all.p + 2 * page);
    auto compare = [&](const float *x, const std::vector<float> &want) {
        must_run(pi__k_gather_rows(stream(), x, which.get(), 2, n, got.get()));
        expect_bytes(&want[(size_t) n], got.get(), (size_t) n * sizeof(float));
        expect_bytes(want.data(), got.get() + n, (size_t) n * sizeof(float));
    };
    compare(across, zeros);
    must_run(pi__rt_upload(now->rt, across, some.data(), some.size() * sizeof(float)));
    must_run(pi__rt_upload(now->rt, behind, some.data(), some.size() * sizeof(float)));
    compare(across, some);
    all.mapped[0] = false;
    pi__rt_unmap(now->rt, all.p, 2 * page);
    must_run(pi__rt_map(now->rt, all.p, 2 * page, &all.mapped[0]));
    compare(across, zeros);
    compare(behind, some);
}

/* ----------------------------------------------------------------------------------------------------- two devices */

/* A second device, with its kernels loaded. */
struct other {
    pi__rt *rt = nullptr;

    other()
    {
        pi__rt_info info;
        const char *lazy;
        if (pi__rt_open(&rt, pi__rt_index(now->rt) ? 0 : 1, &info)) skip_check("only one device is present");
        if (pi__rt_load_kernels(rt, &lazy)) fail_check("cannot load kernels to the second device");
    }
    ~other() { pi__rt_close(rt); }
};

/* One thread uses two devices alternately. */
void test_two_devices()
{
    other o;
    work a(PI__Q8_0, 256, 64, 5), b(PI__Q8_0, 256, 64, 5);
    a.begin(1), b.begin(1);
    must_run(a.queue(now->rt, 4));
    const std::vector<float> want = a.result();
    a.begin(1);
    for (int i = 0; i < 4; i++) {
        const int first = a.queue(now->rt, 1), second = b.queue(o.rt, 1);
        expect_true(!first && !second);
    }
    const int code = pi__rt_wait(o.rt);
    must_run(code);
    expect_bytes(want.data(), a.sum.get(), want.size() * sizeof(float));
    expect_bytes(want.data(), b.sum.get(), want.size() * sizeof(float));
}

enum { SHARD = 3000 };

/* Calls f(0) and f(1), each on its own thread; f must not throw. */
template <class F> void on_both(F f)
{
    std::thread t([&] { f(1); });
    f(0);
    t.join();
}

/* After an all-gather, each rank has both shards. The gather is queued directly, or captured on both ranks before
 * either replays it, as backend/tensor.c does. */
void test_all_gather()
{
    other o;
    pi__rt *const rt[2] = {now->rt, o.rt};
    pi_error err;
    struct owned {
        pi__link *l = nullptr;
        ~owned() { if (l) l->ops->destroy(l); }
    } link;
    if (pi__comm_create(&link.l, rt, 2, &err)) skip_check(err.msg);
    device_memory d0(rt[0], 2 * SHARD * sizeof(float)), d1(rt[1], 2 * SHARD * sizeof(float));
    float *const at[2] = {reinterpret_cast<float *>(d0.p), reinterpret_cast<float *>(d1.p)};
    graph g0(rt[0]), g1(rt[1]);
    pi__rt_graph **const g[2] = {&g0.g, &g1.g};
    bool well[2] = {true, true};
    on_both([&](int k) {
        well[k] = !pi__rt_capture(rt[k]);
        well[k] = link.l->ops->gather(link.l, k, at[k], SHARD) && well[k];
        well[k] = !pi__rt_capture_end(rt[k], g[k]) && well[k];
    });
    expect_true(well[0] && well[1]);
    for (int round = 0; round < 4; round++) {
        about("%s, round %d", round % 2 ? "replayed" : "queued", round);
        const std::vector<float> all = random((uint64_t) round).normals(2 * SHARD);
        std::vector<float> got[2] = {std::vector<float>(2 * SHARD), std::vector<float>(2 * SHARD)};
        on_both([&](int k) {
            well[k] = !pi__rt_upload(rt[k], at[k] + k * SHARD, &all[(size_t) (k * SHARD)], SHARD * sizeof(float));
            if (round % 2) well[k] = !pi__rt_replay(rt[k], *g[k]) && well[k];
            else well[k] = link.l->ops->gather(link.l, k, at[k], SHARD) && well[k];
            well[k] = link.l->ops->wait(link.l, k) == PI__LINK_DONE && well[k];
            well[k] = !pi__rt_download(rt[k], got[k].data(), at[k], 2 * SHARD * sizeof(float)) && !pi__rt_wait(rt[k]) &&
                      well[k];
        });
        expect_true(well[0] && well[1]);
        for (int k = 0; k < 2; k++) expect_bytes(all.data(), got[k].data(), all.size() * sizeof(float));
    }
    for (int k = 0; k < 2; k++) { /* free the graphs before the link, which they use */
        pi__rt_graph_free(rt[k], *g[k]);
        *g[k] = nullptr;
    }
}

const entry checks[] = {
    {"replay", test_replay}, {"copies", test_copies}, {"pages", test_pages}, {"two_devices", test_two_devices},
    {"all_gather", test_all_gather},
};

} // namespace

const family checks_of_runtime = {"runtime", "replay, copies, pages, two devices", checks,
                                  sizeof checks / sizeof *checks};

} // namespace selftest
