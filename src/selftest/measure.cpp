/* Measures rates of a device: copies, weights read for few rows, products with many rows, attention, delta nets,
 * launches. Times are measured by the queue (pi__rt_stamp); the best of several rounds counts. Memory is filled with
 * random bits, which are floats between 0 and 1, since zeros may take less power.
 *
 * Memory: buffers that exceed the device's caches; freed after each measurement. */
#include "selftest/measure.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/kernels.h"
extern "C" {
#include "formats/formats.h"
}

namespace selftest {
namespace {

/* Published peak rates of devices. The first entry with a name that is part of the device's name applies. gbs: memory
 * bandwidth in GB/s. f16, s8, fp4: dense matmul throughput in 10^12 operations per second, with 16-bit floats and F32
 * sums, int8, FP4; 0 = not published. */
const struct peak {
    const char *name;
    double gbs, f16, s8, fp4;
} peaks[] = {
    {"H200", 4800, 989, 1979, 0},
    {"H100 PCIe", 2039, 756, 1513, 0},
    {"H100 NVL", 3938, 835, 1671, 0},
    {"H100", 3352, 989, 1979, 0},
    {"A100-SXM4-80GB", 2039, 312, 624, 0},
    {"A100 80GB", 1935, 312, 624, 0},
    {"A100", 1555, 312, 624, 0},
    {"GB10", 273, 0, 0, 500},
    {"RTX PRO 6000 Blackwell Server", 1597, 0, 0, 0},
    {"RTX PRO 6000 Blackwell Max-Q", 1792, 439, 878, 1755},
    {"RTX PRO 6000", 1792, 504, 1007, 2015},
    {"RTX 5090", 1792, 210, 838, 1676},
    {"RTX 4090", 1008, 165, 661, 0},
    {"RTX 3090", 936, 71, 284, 0},
};

const peak *peak_of(const target &t)
{
    for (const peak &p : peaks)
        if (std::strstr(t.info.name, p.name)) return &p;
    return nullptr;
}

struct meter {
    target &t;
    pi__selftest &to;
    double gbs;       /* peak memory bandwidth in GB/s; 0 = unknown */
    bool timed;       /* the device has a clock (an emulator has none) */
    size_t beyond;    /* number of bytes that exceeds every cache */
    std::vector<uint32_t> bits; /* contents for device memory */

    struct region { /* device memory */
        pi__rt *rt = nullptr;
        char *p = nullptr;
        ~region() { pi__rt_free(rt, p); }
    };
    bool take(region &r, size_t size)
    {
        void *out = nullptr;
        r.rt = t.rt;
        int code = pi__rt_alloc(t.rt, &out, size);
        r.p = static_cast<char *>(out);
        for (size_t at = 0; at < size && !code && out; at += bits.size() * 4)
            code = pi__rt_upload(t.rt, r.p + at, bits.data(), std::min(bits.size() * 4, size - at));
        return !code && out;
    }

    /* Returns the best time of f in ms; negative if it failed. f queues work and returns a runtime code. */
    template <class F> double time(F f)
    {
        double best = -1;
        int code = f();
        if (!code) code = pi__rt_wait(t.rt);
        for (int i = 0; i < (timed ? 5 : 1) && !code; i++) {
            float ms = 0;
            code = pi__rt_stamp(t.rt, 0);
            for (int k = 0; k < (timed ? 4 : 1) && !code; k++) code = f();
            if (!code) code = pi__rt_stamp(t.rt, 1);
            if (!code) code = pi__rt_wait(t.rt);
            if (!code) code = pi__rt_stamped(t.rt, &ms);
            ms /= 4;
            if (!code && (best < 0 || ms < best)) best = ms;
        }
        if (code) pi__selftest_line(&to, "  not measured: %s", pi__rt_text(code));
        return code ? -1 : best;
    }

    /* Adds a rate to the JSON report. rate: NAN = not measured. most: the peak rate; 0 = unknown. */
    void rate_json(const char *what, double rate, const char *unit, double most)
    {
        pi__selftest_open(&to, nullptr, '{');
        pi__selftest_text(&to, "name", what);
        pi__selftest_number(&to, "rate", rate);
        pi__selftest_text(&to, "unit", unit);
        if (most > 0) pi__selftest_number(&to, "peak", most);
        pi__selftest_close(&to, '}');
    }
    /* Reports a rate, and its percentage of the peak rate `most`; 0 = unknown peak. */
    void tell(const char *what, double ms, double rate, const char *unit, double most)
    {
        if (ms < 0) return;
        rate_json(what, timed ? rate : NAN, unit, most);
        if (!timed) pi__selftest_line(&to, "  %-44s ran; no clock is available", what);
        else if (most > 0)
            pi__selftest_line(&to, "  %-44s %8.1f %s  %3.0f %% of %.0f", what, rate, unit, 100 * rate / most, most);
        else pi__selftest_line(&to, "  %-44s %8.1f %s", what, rate, unit);
    }
    void bandwidth(const char *what, double ms, double bytes, double peak_gbs)
    {
        tell(what, ms, bytes / ms * 1e-6, "GB/s", peak_gbs);
    }
    void operations(const char *what, double ms, double flop, double peak)
    {
        tell(what, ms, flop / ms * 1e-9, "TFLOPS", peak);
    }
    void no_room(const char *what) { pi__selftest_line(&to, "  %-44s not measured: no memory", what); }

    void copies();
    void product(int32_t type, int way, int32_t n_rows, double peak_tflops);
    void attention(int32_t seqs, int32_t tokens, int32_t keys, double peak_tflops);
    void deltas(int32_t seqs, int32_t tokens);
    void launches();
};

/* Copies between host and device count each byte once. Copies on the device (gathered rows) count each byte twice: read
 * and written. */
void meter::copies()
{
    const int64_t n = 4096;
    const int32_t rows = (int32_t) (beyond / (size_t) n / sizeof(float));
    region from, to_, which;
    if (!take(from, (size_t) rows * (size_t) n * sizeof(float)) ||
        !take(to_, (size_t) rows * (size_t) n * sizeof(float)) || !take(which, (size_t) rows * sizeof(int32_t)))
        return no_room("copy on the device");
    std::vector<int32_t> number((size_t) rows);
    for (int32_t i = 0; i < rows; i++) number[(size_t) i] = i;
    if (pi__rt_upload(t.rt, which.p, number.data(), number.size() * sizeof(int32_t)))
        return no_room("copy on the device");
    const double bytes = (double) rows * n * 4;
    bandwidth("copy on the device, read and write", time([&] {
                  return pi__k_gather_rows(pi__rt_stream(t.rt), (const float *) from.p, (const int32_t *) which.p, rows,
                                           n, (float *) to_.p);
              }),
              2 * bytes, gbs);
    void *host = nullptr;
    const size_t size = (size_t) bytes / 4;
    if (pi__rt_host_alloc(t.rt, &host, size) || !host) return no_room("copies to and from the host");
    bandwidth("from pinned memory of the host", time([&] { return pi__rt_upload(t.rt, from.p, host, size); }),
              (double) size, 0);
    bandwidth("to pinned memory of the host", time([&] { return pi__rt_download(t.rt, host, from.p, size); }),
              (double) size, 0);
    pi__rt_host_free(t.rt, host);
}

/* Matmul modes (`way`): the exact kernel of the format; FP4 activations; 16-bit floats; 16-bit floats by wgmma, for
 * many rows. */
enum { EXACTLY, IN_FP4, IN_W16, BY_WGMMA };

/* Measures a product. n_rows <= 32: how fast weights are read. More rows: throughput; peak_tflops is its peak, 0 =
 * unknown. */
void meter::product(int32_t type, int way, int32_t n_rows, double peak_tflops)
{
    const bool many = n_rows > 32, mma16 = pi__k_mma16_has(type, 4096);
    static const char *const names[] = {"", " in FP4,", " in 16 bits,", " by wgmma,"};
    char what[64];
    pi__k_matrix m = {};
    m.type = type, m.n_in = timed ? 4096 : 256;
    m.n_out = many ? timed ? 8192 : 128 : (int64_t) (beyond / (pi__row_size(pi__type_info_of(type), m.n_in))) / 16 * 16;
    std::snprintf(what, sizeof what, "%s%s weights, %d row%s", pi__type_info_of(type)->name, names[way], (int) n_rows,
                  n_rows > 1 ? "s" : "");
    if (!pi__cuda_shape_of(type, m.n_in, m.n_out, &m.shape)) return;
    region w, x, y, prepared;
    if (!take(w, m.shape.mat_bytes) || !take(x, (size_t) n_rows * (size_t) m.n_in * 4) ||
        !take(y, (size_t) n_rows * (size_t) m.n_out * 4) ||
        !take(prepared, pi__k_mma16_packed_x_bytes(PI__BF16, n_rows, m.n_in))) return no_room(what);
    m.data = (const uint8_t *) w.p;
    const pi__k_input in = {PI__IN_PLAIN, (const float *) x.p, m.n_in, nullptr, 0, nullptr, 0, 0};
    const pi__k_product p = {m, (float *) y.p, m.n_out, 0};
    void *s = pi__rt_stream(t.rt);
    int code = way == IN_FP4 ? pi__k_fp4_pack_x(s, &in, type, n_rows, m.n_in, prepared.p)
             : way >= IN_W16 ? pi__k_w16_pack_x(s, &in, type, n_rows, m.n_in, prepared.p)
             : mma16 ? pi__k_mma16_pack_x(s, &in, type, n_rows, m.n_in, prepared.p)
                     : pi__k_pack_x(s, &in, n_rows, m.n_in, 0, prepared.p);
    const double ms = code ? -1 : time([&] {
        s = pi__rt_stream(t.rt);
        return way == IN_FP4 ? pi__k_fp4_linear(s, &p, 1, prepared.p, n_rows)
             : way == IN_W16 ? pi__k_w16_linear(s, &p, 1, prepared.p, n_rows)
             : way == BY_WGMMA ? pi__k_wgmma_linear(s, &p, 1, prepared.p, n_rows, t.info.n_sm)
             : mma16 ? pi__k_mma16_linear(s, &m, prepared.p, n_rows, (float *) y.p, m.n_out)
                     : pi__k_linear(s, &p, 1, prepared.p, n_rows);
    });
    if (many) operations(what, ms, 2.0 * (double) m.n_in * (double) m.n_out * n_rows, peak_tflops);
    else bandwidth(what, ms, (double) m.shape.mat_bytes, gbs);
}

/* Measures attention over F16 caches with 8 KV heads and 4 query heads per KV head: one token each of several sequences
 * with many keys, or the prompt of one sequence. */
void meter::attention(int32_t seqs, int32_t tokens, int32_t keys, double peak_tflops)
{
    enum { KV = 8, HEADS = 32, DIM = 128, BLOCK = 16 };
    const int32_t blocks = seqs * keys / BLOCK, rows = seqs * tokens;
    const size_t block = (size_t) 2 * KV * BLOCK * DIM * 2, heads = (size_t) HEADS * DIM;
    const size_t scratch_size = timed ? (size_t) 64 << 20 : (size_t) 1 << 20;
    std::vector<int32_t> ints;
    for (int32_t i = 0; i < rows; i++) ints.push_back(keys - tokens + i % tokens);
    for (int32_t i = 0; i <= seqs; i++) ints.push_back(i * tokens);
    for (int32_t i = 0; i < blocks; i++) ints.push_back(i);
    region cache, q, out, table, scratch, arrived;
    if (!take(cache, block * (size_t) blocks) || !take(q, (size_t) rows * heads * 4) ||
        !take(out, (size_t) rows * heads * 4) || !take(table, ints.size() * 4) || !take(scratch, scratch_size) ||
        !take(arrived, 2 * sizeof(uint32_t)))
        return no_room("attention");
    const uint32_t none[2] = {};
    if (pi__rt_upload(t.rt, arrived.p, none, sizeof none)) return no_room("attention");
    if (pi__rt_upload(t.rt, table.p, ints.data(), ints.size() * 4)) return no_room("attention");
    pi__k_attn a = {};
    a.q = (const float *) q.p, a.ldq = a.ldo = (int64_t) heads, a.q_stride = DIM;
    a.out = (float *) out.p, a.n_head = HEADS, a.n_tokens = rows, a.n_seqs = seqs;
    a.pos = (const int32_t *) table.p, a.seq_start = a.pos + rows, a.block_table = a.seq_start + seqs + 1;
    a.table_stride = keys / BLOCK, a.max_keys = keys;
    a.cache = {cache.p, block, PI__F16, PI__F16, KV, DIM, BLOCK};
    a.scratch = scratch.p, a.scratch_size = scratch_size, a.n_sm = t.info.n_sm;
    a.arrived = (uint32_t *) arrived.p, a.waits = {t.info.places, t.info.stuck};
    a.fast = 1, a.wgmma = t.info.arch == 90;
    char what[64];
    if (tokens > 1) std::snprintf(what, sizeof what, "attention, a prompt of %d tokens", (int) tokens);
    else std::snprintf(what, sizeof what, "attention, %d sequences x %d keys", (int) seqs, (int) keys);
    const double ms = time([&] { return pi__k_attention(pi__rt_stream(t.rt), &a); });
    /* causal: only half of the token pairs are computed */
    if (tokens > 1) operations(what, ms, 2.0 * HEADS * DIM * (double) tokens * tokens, peak_tflops);
    else bandwidth(what, ms, (double) block * blocks, gbs);
}

/* Measures delta nets with the heads of Qwen3.6 27B: the prompt of one sequence, in tokens per second of one layer; or
 * one token each of many sequences, as bandwidth of reading their states. Slots then have the state after 40 tokens:
 * two chunks in the state, and single rows after them. */
void meter::deltas(int32_t seqs, int32_t tokens)
{
    enum { N_K = 16, N_V = 48, DIM = 128, TAPS = 4, BEFORE = 40 };
    const size_t channels = (2 * N_K + N_V) * DIM, values = N_V * DIM, ld = channels + values + 2 * N_V;
    pi__k_state state = {nullptr, 0, nullptr, 0, N_K, N_V, DIM, 0, TAPS, 0, 0, 0, 0};
    state.stride = pi__k_state_bytes(&state);
    const int32_t first = tokens > 1 ? tokens : BEFORE, rows = seqs * first;
    std::vector<int32_t> ints;
    for (int32_t i = 0; i < rows; i++) ints.push_back(i % first);
    for (int32_t i = 0; i < seqs; i++) ints.push_back(BEFORE);
    for (int32_t n : {first, 1})
        for (int32_t i = 0; i <= seqs; i++) ints.push_back(i * n);
    for (int32_t n : {first, 1}) ints.insert(ints.end(), (size_t) seqs, n);
    for (int32_t i = 0; i < seqs; i++) ints.push_back(i);
    ints.insert(ints.end(), (size_t) seqs + 2, 0); /* nothing is saved */
    std::vector<float> decay(N_V, -0.05f);
    region slots, in, out, table, weights, scratch;
    if (!take(slots, state.stride * (size_t) seqs) || !take(in, (size_t) rows * ld * 4) ||
        !take(out, (size_t) rows * values * 4) || !take(table, ints.size() * 4) ||
        !take(weights, (channels * TAPS + 2 * N_V + DIM) * 4) || !take(scratch, pi__k_gdn_scratch(&state, rows)))
        return no_room("delta nets");
    state.base = slots.p;
    pi__k_gdn a = {};
    const int32_t *const p = (const int32_t *) table.p;
    a.qkv = (const float *) in.p, a.ld_qkv = a.ld_z = a.ld_ab = (int64_t) ld;
    a.z = a.qkv + channels, a.alpha = a.z + values, a.beta = a.alpha + N_V;
    a.conv = (const float *) weights.p, a.dt_bias = a.conv + channels * TAPS, a.norm = a.dt_bias + N_V,
    a.a = a.norm + DIM;
    a.eps = 1e-6f, a.out = (float *) out.p, a.ldo = (int64_t) values, a.state = state, a.scratch = (float *) scratch.p;
    a.n_sm = t.info.n_sm, a.n_seqs = seqs;
    const int32_t *const starts = p + rows + seqs, *const lengths = starts + 2 * (seqs + 1);
    a.state_slot = lengths + 2 * seqs, a.save_start = a.state_slot + seqs, a.save = a.save_start + seqs + 1;
    a.n_tokens = rows, a.least = a.most = first, a.pos = p, a.seq_start = starts, a.n_verified = lengths;
    int code = pi__rt_upload(t.rt, table.p, ints.data(), ints.size() * 4);
    if (!code)
        code = pi__rt_upload(t.rt, (char *) weights.p + (channels * TAPS + N_V + DIM) * 4, decay.data(),
                             sizeof(float) * N_V);
    if (!code && tokens == 1) code = pi__k_gdn_run(pi__rt_stream(t.rt), &a);
    if (tokens == 1) {
        a.n_tokens = seqs, a.least = a.most = 1, a.pos = p + rows, a.seq_start = starts + seqs + 1,
        a.n_verified = lengths + seqs;
    }
    const double ms = code ? -1 : time([&] { return pi__k_gdn_run(pi__rt_stream(t.rt), &a); });
    char what[64];
    if (tokens > 1) std::snprintf(what, sizeof what, "delta net, a prompt of %d tokens", (int) tokens);
    else std::snprintf(what, sizeof what, "delta nets, a token of %d sequences", (int) seqs);
    if (code) pi__selftest_line(&to, "  %-44s not measured: %s", what, pi__rt_text(code));
    else if (tokens > 1) tell(what, ms, tokens / ms * 1e-3, "M tokens/s", 0);
    else bandwidth(what, ms, (double) N_V * DIM * DIM * 4 * seqs, gbs);
}

/* Measures the minimum time of a launch, queued directly and in a graph. */
void meter::launches()
{
    enum { N = 100 };
    region x;
    if (!take(x, 1024)) return no_room("launches");
    const pi__softcap a = {(float *) x.p, 2, 1, 64};
    auto all = [&] {
        int code = 0;
        for (int i = 0; i < (timed ? N : 2) && !code; i++) code = pi__k_softcap(pi__rt_stream(t.rt), &a);
        return code;
    };
    const double alone = time(all);
    pi__rt_graph *g = nullptr;
    int code = pi__rt_capture(t.rt);
    const int queued = code ? code : all();
    if (!code) code = pi__rt_capture_end(t.rt, &g);
    const double replayed = code || queued ? -1 : time([&] { return pi__rt_replay(t.rt, g); });
    pi__rt_graph_free(t.rt, g);
    if (code || queued)
        pi__selftest_line(&to, "  launches in a graph: not measured: %s", pi__rt_text(code ? code : queued));
    if (alone >= 0 && replayed >= 0) {
        rate_json("a launch", timed ? alone * 1000 / N : NAN, "us", 0);
        rate_json("a launch, replayed", timed ? replayed * 1000 / N : NAN, "us", 0);
    }
    if (alone >= 0 && replayed >= 0 && timed)
        pi__selftest_line(&to, "  %-44s %8.2f us, replayed %.2f us", "a launch", alone * 1000 / N, replayed * 1000 / N);
    else if (!timed) pi__selftest_line(&to, "  %-44s ran; no clock is available", "launches, queued and replayed");
}

} // namespace

double memory_peak(const target &t, const pi__rt_facts &f, bool *published)
{
    const peak *p = peak_of(t);
    *published = p != nullptr;
    return p ? p->gbs : 2.0 * f.memory_clock * f.bus / 8 * 1e-3;
}

void measure(target &t, const pi__rt_facts &f, pi__selftest &to)
{
    bool published;
    const peak *p = peak_of(t);
    const size_t cached = (size_t) f.l2 << 10, least = (size_t) 256 << 20;
    meter m = {t, to, memory_peak(t, f, &published), f.driver != 0, 0, {}};
    random r(1);
    m.bits.resize(m.timed ? 1 << 20 : 1 << 10);
    for (uint32_t &u : m.bits) u = (r.bits() ^ r.bits() << 16) & 0x3f3f3f3f;
    m.beyond = !m.timed ? (size_t) 1 << 16 : cached * 4 > least ? cached * 4 : least;
    m.copies();
    for (int32_t type : {PI__Q8_0, PI__Q4_K, PI__NVFP4, PI__BF16})
        for (int32_t rows : {1, 8}) m.product(type, EXACTLY, rows, 0);
    for (int32_t type : {PI__Q8_0, PI__Q4_K, PI__NVFP4})
        for (int32_t rows : {1, 16}) m.product(type, IN_W16, rows, 0);
    if (t.info.arch / 10 == 12) m.product(PI__NVFP4, IN_FP4, 1, 0);
    m.product(PI__Q4_K, EXACTLY, m.timed ? 2048 : 40, p ? p->s8 : 0);
    m.product(PI__Q4_K, IN_W16, m.timed ? 2048 : 72, p ? p->f16 : 0);
    if (t.info.arch / 10 == 9) m.product(PI__Q4_K, BY_WGMMA, m.timed ? 2048 : 72, p ? p->f16 : 0);
    m.product(PI__BF16, EXACTLY, m.timed ? 2048 : 40, p ? p->f16 : 0);
    if (t.info.arch / 10 == 12) m.product(PI__NVFP4, IN_FP4, m.timed ? 2048 : 40, p ? p->fp4 : 0);
    m.attention(m.timed ? 8 : 2, 1, m.timed ? 8192 : 64, 0);
    m.attention(1, m.timed ? 4096 : 64, m.timed ? 4096 : 64, p ? p->f16 : 0);
    m.deltas(m.timed ? 64 : 2, 1);
    m.deltas(1, m.timed ? 2048 : 64);
    m.launches();
}

} // namespace selftest
