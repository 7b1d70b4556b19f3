/* wgmma of sm_90a: products of warpgroups that run while their threads continue.
 *
 * A warp computes 16 of the 64 rows of A and D, with all of B, so that each warp is emulated separately. An
 * instruction is computed when it is issued (simt::options.eager), or at the wait: the two ends of the time in which
 * it may read A and B. Meanwhile the accumulators are stored here, and their registers hold a mark, which is a NaN.
 * Premature readers get the NaN; writers are detected because the mark is gone.
 *
 * Memory: per block; vectors keep their capacity. Threads: the threads of simt::run, one at a time. */
#include "ptx.h"

#include <algorithm>

#include "counters.h"
#include "simt_impl.h"

namespace simt {

enum { MOST_N = 256 };
static const uint32_t MARK = 0x7fbadbad;

/* An accumulator with instructions in flight. */
struct accumulator {
    float *d[32];              /* the lanes' registers */
    std::vector<float> v;      /* their values: [32][n / 2] */
    int n;
};
struct product {
    const uint32_t *a[32];     /* the lanes' registers; `was`: their contents at issue */
    uint32_t was[32][4];
    uint64_t b;
    wgmma_kind kind;
    size_t to;                 /* index of the accumulator */
    unsigned group;
    const char *file;
    int line;
};
struct seen {                  /* registers covered by a lane's last fence */
    const uint32_t *at;
    std::vector<uint32_t> words;
};
struct warp_state {
    std::vector<product> products; /* in flight, in issue order */
    std::vector<accumulator> sums;
    unsigned group;            /* number of the open group */
    uint64_t issued, fences, done; /* counts so far; done: fences before the registers of D were last released */
    seen fenced[32];
};
static warp_state states[MOST_PLACES][32], *warps = states[0];

void wgmma_select(unsigned resident) { warps = states[resident]; }

void wgmma_begin()
{
    for (unsigned w = 0; w < 32; w++) {
        warp_state &s = warps[w];
        s.products.clear();
        s.sums.clear();
        s.group = 0, s.issued = s.fences = s.done = 0;
        for (seen &f : s.fenced) f.at = nullptr;
    }
}

void wgmma_end()
{
    for (unsigned w = 0; w < 32; w++) {
        if (!warps[w].products.empty()) {
            fail(warps[w].products[0].file, warps[w].products[0].line, "a wgmma is under way when its block ends");
        } else if (warps[w].issued != warps[w / 4 * 4].issued) {
            fail(nullptr, 0, "warps %u and %u of four did not issue as many wgmma", w / 4 * 4, w);
        }
    }
}

static warp_state &mine() { return warps[self->lin / 32]; }

/* Shared address of 16 bytes of B. K-major: column n; piece 0 has rows 0 .. 7, piece 1 the others. MN-major: row k;
 * piece p has columns 8 p .. 8 p + 7. */
static uint32_t k_major(uint64_t b, int n, int piece)
{
    const uint32_t start = (uint32_t) (b & 0x3fff) << 4, leading = (uint32_t) (b >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t) (b >> 32 & 0x3fff) << 4, g = (uint32_t) n / 8, r = (uint32_t) n % 8;
    const int kind = (int) (b >> 62);
    if (!kind) return start + g * stride + (uint32_t) piece * leading + r * 16;
    const uint32_t pieces = 16u >> kind; /* per row of 128, 64 or 32 bytes */
    const uint32_t at = start + g * stride + r * pieces * 16 + (uint32_t) piece * 16;
    return at ^ (at >> 7 & (pieces - 1)) << 4;
}
static uint32_t mn_major(uint64_t b, int k, int piece)
{
    const uint32_t start = (uint32_t) (b & 0x3fff) << 4, leading = (uint32_t) (b >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t) (b >> 32 & 0x3fff) << 4, pieces = 16u >> (b >> 62), p = (uint32_t) piece;
    const uint32_t at = start + p / pieces * leading + (uint32_t) k / 8 * stride +
                        ((uint32_t) k % 8 * pieces + p % pieces) * 16;
    return at ^ (at >> 7 & (pieces - 1)) << 4;
}

static void check_descriptor(uint64_t b, const wgmma_kind &of, const char *file, int line)
{
    const int kind = (int) (b >> 62);
    const uint32_t start = (uint32_t) (b & 0x3fff) << 4, row = 256u >> kind;
    if (b >> 49 & 7) fail(file, line, "a wgmma descriptor with a base offset, which is not emulated");
    if (of.mn && (!kind || start % (8 * row) || (b >> 16 & 0x3fff) << 4 & (8 * row - 1)))
        fail(file, line, "a wgmma descriptor of columns side by side, which is not emulated");
    if (kind && (start % (8 * row) > row - 32 || (b >> 32 & 0x3fff) << 4 & (8 * row - 1)))
        fail(file, line, "a wgmma descriptor whose rows are not where the swizzle has them");
}

/* Reads 16 bytes as lane l, since all lanes wait for all of B. */
static const unsigned char *read_16(const product &p, int l, uint32_t address)
{
    const unsigned char *at = shared_pointer(address);
    shadow_access(self->lin / 32 * 32 + (unsigned) l % 32, at, 16, access::wgmma_read, p.file, p.line);
    return at;
}

/* Reads the fragments of B for each group of 8 columns. The lanes take rows in turn. */
static void read_b(const product &p, uint32_t (*b)[32][2])
{
    for (int i = 0; i < (p.kind.mn ? 0 : p.kind.n); i++) {
        for (int piece = 0; piece < 2; piece++) {
            const unsigned char *at = read_16(p, i, k_major(p.b, i, piece));
            for (int t = 0; t < 4; t++) std::memcpy(&b[i / 8][i % 8 * 4 + t][piece], at + 4 * t, 4);
        }
    }
    for (int k = 0; k < (p.kind.mn ? 16 : 0); k++) {
        for (int g = 0; g < p.kind.n / 8; g++) {
            const unsigned char *at = read_16(p, 16 * g + k, mn_major(p.b, k, g));
            for (int i = 0; i < 8; i++)
                std::memcpy((char *) &b[g][4 * i + k % 8 / 2][k / 8] + k % 2 * 2, at + 2 * i, 2);
        }
    }
}

/* Records for the race checks that p may read B now. */
static void note_b(const product &p)
{
    static uint32_t b[MOST_N / 8][32][2];
    if (instrumented()) read_b(p, b);
}

static void compute(warp_state &s, const product &p)
{
    static uint32_t b[MOST_N / 8][32][2];
    accumulator &to = s.sums[p.to];
    read_b(p, b);
    if (options.no_mma) return;
    if (p.kind.first) std::fill(to.v.begin(), to.v.end(), 0.0f);
    for (int g = 0; g < to.n / 8; g++) {
        float *d[32];
        for (int l = 0; l < 32; l++) d[l] = &to.v[(size_t) (l * to.n / 2 + 4 * g)];
        multiply_16(d, p.was, b[g], p.kind.bf16);
        if (options.spoil & SPOIL_WGMMA) d[0][0] = __uint_as_float(__float_as_uint(d[0][0]) ^ 1);
    }
}

/* ----------------------------------------------------------------------------------------------------------- issue */

struct wgmma_arg {
    float *d;
    const uint32_t *a;
    uint64_t b;
    wgmma_kind kind;
};
static const wgmma_arg *of(void **arg, int lane) { return static_cast<const wgmma_arg *>(arg[lane]); }

/* Counts 8 pieces of 16 bytes at a time: of columns, or of a row. */
static void count_b(uint64_t b, const wgmma_kind &kind)
{
    for (int i = 0; i < kind.n; i += 8) {
        for (int piece = 0; piece < 2; piece++) {
            uint32_t address[8];
            for (int r = 0; r < 8; r++)
                address[r] = kind.mn ? mn_major(b, 8 * piece + r, i / 8) : k_major(b, i + r, piece);
            count_rows(address, 1);
        }
    }
}

/* Finds or opens the accumulator in the lanes' registers, which then hold marks. */
static size_t open_sum(warp_state &s, void **arg, const char *file, int line)
{
    for (size_t i = 0; i < s.sums.size(); i++) {
        if (s.sums[i].d[0] != of(arg, 0)->d || !s.sums[i].n) continue;
        if (s.sums[i].n != of(arg, 0)->kind.n)
            fail(file, line, "wgmma of another shape adds to an accumulator under way");
        return i;
    }
    if (s.fences <= s.done) fail(file, line, "no wgmma.fence since the accumulator was in other use");
    accumulator to;
    to.n = of(arg, 0)->kind.n;
    to.v.resize((size_t) (16 * to.n));
    for (int l = 0; l < 32; l++) {
        to.d[l] = of(arg, l)->d;
        for (int i = 0; i < to.n / 2; i++) {
            to.v[(size_t) (l * to.n / 2 + i)] = to.d[l][i];
            to.d[l][i] = __uint_as_float(MARK);
        }
    }
    s.sums.push_back(to);
    return s.sums.size() - 1;
}

static void do_wgmma(void **arg, const char *file, int line)
{
    warp_state &s = mine();
    product p;
    const wgmma_arg &one = *of(arg, 0);
    count_op(DO_WGMMA, one.kind.n / 128.0);
    if (counting() && self->lin / 32 % 4 == 0) count_b(one.b, one.kind);
    if (options.arch != 90) fail(file, line, "wgmma, which sm_%d has not", options.arch);
    check_descriptor(one.b, one.kind, file, line);
    for (int l = 0; l < 32; l++) {
        const wgmma_arg &x = *of(arg, l);
        const seen &f = s.fenced[l];
        const bool same = x.kind.n == one.kind.n && x.kind.first == one.kind.first && x.kind.mn == one.kind.mn;
        if (x.b != one.b || !same) fail(file, line, "lanes issue different wgmma");
        p.a[l] = x.a;
        std::memcpy(p.was[l], x.a, sizeof p.was[l]);
        const bool inside = f.at && x.a >= f.at && x.a + 4 <= f.at + f.words.size();
        if (!inside || std::memcmp(&f.words[(size_t) (x.a - f.at)], x.a, sizeof p.was[l]))
            fail(file, line, "A of a wgmma was written after the last wgmma.fence");
    }
    p.b = one.b, p.kind = one.kind, p.group = s.group, p.file = file, p.line = line;
    p.to = open_sum(s, arg, file, line);
    s.issued++;
    s.products.push_back(p);
    if (options.eager) compute(s, p);
    else note_b(p);
}

void wgmma(float *d, const wgmma_kind &kind, const uint32_t *a, uint64_t b, const char *file, int line)
{
    wgmma_arg x = {d, a, b, kind};
    warp_op(~0u, do_wgmma, &x, file, line);
}

/* --------------------------------------------------------------------------------------------- fence, commit, wait */

void wgmma_fence(const uint32_t *a, int words)
{
    warp_state &s = mine();
    seen &f = s.fenced[self->lin % 32];
    f.at = a;
    f.words.assign(a, a + words);
    if (self->lin % 32 == 0) s.fences++;
}

void wgmma_commit()
{
    if (self->lin % 32 == 0) mine().group++;
}

/* Writes an accumulator back to its registers. */
static void close_sum(warp_state &s, accumulator &to, const char *file, int line)
{
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < to.n / 2; i++) {
            if (__float_as_uint(to.d[l][i]) != MARK)
                fail(file, line, "an accumulator was written while a wgmma added to it");
            to.d[l][i] = to.v[(size_t) (l * to.n / 2 + i)];
        }
    }
    to.n = 0;
    s.done = s.fences;
}

static void do_wait(void **arg, const char *file, int line)
{
    warp_state &s = mine();
    const unsigned pending = *static_cast<const unsigned *>(arg[0]);
    size_t i = 0;
    for (; i < s.products.size() && s.products[i].group + pending < s.group; i++) {
        const product &p = s.products[i];
        for (int l = 0; l < 32; l++) {
            if (std::memcmp(p.a[l], p.was[l], sizeof p.was[l]))
                fail(p.file, p.line, "A of a wgmma was written while it was under way");
        }
        if (!options.eager) compute(s, p);
        else note_b(p);
    }
    s.products.erase(s.products.begin(), s.products.begin() + (ptrdiff_t) i);
    for (size_t k = 0; k < s.sums.size(); k++) {
        bool used = !s.sums[k].n;
        for (const product &p : s.products) used |= p.to == k;
        if (!used) close_sum(s, s.sums[k], file, line);
    }
    if (s.products.empty()) s.sums.clear();
}

void wgmma_wait(unsigned n, const char *file, int line) { warp_op(~0u, do_wait, &n, file, line); }

} // namespace simt
