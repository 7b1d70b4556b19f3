/* Checks LoRA kernels against double precision: types, ranks, partly filled and empty groups, matrices without an
 * adapter. Results are bitwise identical in every order of threads and copies and in any batch. */
#include <deque>

#include "backend/cuda/kernels_lora.h"
#include "selftest/checks.h"
#include "selftest/matrix_ref.h"

namespace selftest {
namespace {

enum { ROWS = 11, N_LIN = 3, GROUPS = 4 /* groups 0 and 1: first adapter; 2: empty; 3: second adapter */ };

/* Matrix A or B: the stored values (raw), and the same values as doubles (of). */
struct values {
    buffer<char> raw;
    std::vector<double> of;

    values(int32_t type, const std::vector<float> &v) : raw(v.size() * (type == PI__F32 ? 4 : 2)), of(v.size())
    {
        pi__quantize_row(type, v.data(), raw.get(), (int64_t) v.size(), nullptr);
        std::vector<float> back(v.size());
        pi__dequantize_row(type, raw.get(), back.data(), (int64_t) v.size());
        of.assign(back.begin(), back.end());
    }
};

/* An adapter's A and B for one matrix. */
struct pair_of {
    int64_t n_in, n_out, lda, ldb;
    int32_t rank;
    values a, b;
    float factor;

    pair_of(random &r, int32_t type, int64_t in, int64_t out, int32_t rank_)
        : n_in(in), n_out(out), lda((in + 15) / 16 * 16),
          ldb((out + PI__LORA_TILE - 1) / PI__LORA_TILE * PI__LORA_TILE), rank(rank_),
          a(type, padded(r, rank_, in, lda)), b(type, r.normals((size_t) (ldb * rank_))),
          factor(1.5f / (float) (rank_ + 1))
    {
    }
    static std::vector<float> padded(random &r, int32_t rank, int64_t n, int64_t ld)
    {
        std::vector<float> v((size_t) (rank * ld));
        for (int32_t i = 0; i < rank; i++)
            for (int64_t c = 0; c < n; c++) v[(size_t) (i * ld + c)] = r.normal();
        return v;
    }
    /* Returns the table entry; its addresses are relative to `from`, the address of the table. */
    pi__lora_pair raw(int32_t type, const pi__lora_pair *from) const
    {
        return {(uint64_t) ((uintptr_t) a.raw.get() - (uintptr_t) from),
                (uint64_t) ((uintptr_t) b.raw.get() - (uintptr_t) from),
                lda,
                ldb,
                rank,
                type,
                factor,
                0};
    }
    /* Returns factor * (B A x)[o]. */
    double times(const double *x, int64_t o) const
    {
        double sum = 0;
        for (int32_t k = 0; k < rank; k++) {
            double t = 0;
            for (int64_t c = 0; c < n_in; c++) t += a.of[(size_t) (k * lda + c)] * x[c];
            sum += b.of[(size_t) ((o / PI__LORA_TILE * rank + k) * PI__LORA_TILE + o % PI__LORA_TILE)] * t;
        }
        return factor * sum;
    }
};

struct fixture {
    int64_t n_in, n_out[N_LIN];
    std::deque<pair_of> pair[2];       /* by adapter, then by matrix */
    buffer<pi__lora_pair> table[2];    /* by adapter, then by target matrix; indexes of targets begin with 1 */
    std::vector<float> x0, w0, y0;
    buffer<float> x, w, t;
    buffer<int32_t> row;
    buffer<pi__k_lora_group> group;
    int64_t at[N_LIN], ldt = 0;
    int32_t kind;

    fixture(int32_t type, int64_t in, int32_t rank, bool norm)
        : n_in(in), n_out {130, 1, 300}, table {buffer<pi__lora_pair>(N_LIN + 1), buffer<pi__lora_pair>(N_LIN + 1)},
          x0(random(1).normals((size_t) (ROWS * in))), w0(random(2).normals((size_t) in)),
          y0(random(3).normals(ROWS * 512)), x(x0), w(w0), t((size_t) (GROUPS * PI__K_LORA_ROWS * N_LIN * 64)),
          row(std::vector<int32_t> {0, 2, 3, 5, 9, 1, 7, 10}), group(GROUPS), kind(norm ? PI__IN_RMSNORM : PI__IN_PLAIN)
    {
        random r(4);
        for (int l = 0, o = 0; l < N_LIN; l++) {
            for (int k = 0; k < 2; k++) { /* the second adapter has no pair for the second matrix */
                pair[k].emplace_back(r, type, in, n_out[l], k && l == 1 ? 0 : rank + 3 * k);
                table[k][(size_t) l + 1] = pair[k].back().raw(type, table[k].get());
            }
            at[l] = o;
            o += (int) n_out[l];
            ldt += rank + 3;
        }
        group[0] = {table[0].get(), 1.0f, 0, 4, 0}; /* rows 0, 2, 3, 5 */
        group[1] = {table[0].get(), 1.0f, 4, 1, 0}; /* row 9 */
        group[2] = {nullptr, 0.0f, 0, 0, 0};
        group[3] = {table[1].get(), -0.5f, 5, 3, 0}; /* rows 1, 7, 10 */
    }
    /* Runs groups [first, first + n). */
    std::vector<float> run(int32_t first, int32_t n)
    {
        buffer<float> out(y0);
        pi__k_lora a = {};
        a.in = {kind, x.get(), n_in, nullptr, 0, w.get(), 1e-6f, 0};
        a.n_in = n_in, a.n_lin = N_LIN, a.n_groups = n, a.group = group.get() + first, a.row = row.get(), a.t = t.get();
        a.ldt = (int32_t) ldt, a.max_out = 300, a.scale = 1;
        for (int l = 0; l < N_LIN; l++) {
            a.lin[l].n_out = n_out[l], a.lin[l].ldy = 512, a.lin[l].y = out.get() + at[l], a.lin[l].target = l + 1;
            a.lin[l].at = l * (int32_t) (ldt / N_LIN);
            a.max_rank = std::max(a.max_rank, pair[1][(size_t) l].rank);
        }
        must_run(pi__k_lora_run(stream(), &a));
        return std::vector<float>(out.get(), out.get() + out.size());
    }
    /* Returns row i of x after the input transformation `kind`. */
    std::vector<double> input(int32_t i) const
    {
        std::vector<double> v((size_t) n_in);
        double sum = 0;
        for (size_t c = 0; c < v.size(); c++) v[c] = x0[(size_t) (i * n_in) + c], sum += v[c] * v[c];
        if (kind == PI__IN_RMSNORM)
            for (size_t c = 0; c < v.size(); c++) v[c] *= w0[c] / std::sqrt(sum / (double) n_in + 1e-6);
        return v;
    }
    std::vector<double> want() const
    {
        std::vector<double> y1(y0.begin(), y0.end());
        for (size_t g = 0; g < GROUPS; g++)
            for (int32_t e = group[g].first; e < group[g].first + group[g].n; e++) {
                const std::vector<double> in = input(row[(size_t) e]);
                for (int l = 0; l < N_LIN; l++)
                    for (int64_t o = 0; o < n_out[l]; o++)
                        y1[(size_t) (row[(size_t) e] * 512 + at[l] + o)] +=
                            group[g].scale * pair[g == 3][(size_t) l].times(in.data(), o);
            }
        return y1;
    }
};

/* Checks that results are close to the reference, and bitwise identical in every order of threads and copies if
 * `modes`. The last group alone must give bitwise identical results. f: either fixture; ld: its output row stride in
 * floats. */
template <class F> void check_runs(F &f, const char *what, int64_t n_in, int32_t rank, size_t ld, bool modes)
{
    const std::vector<double> want = f.want();
    std::vector<float> all;
    const auto once = [&] {
        const std::vector<float> got = f.run(0, GROUPS);
        if (all.empty()) all = got;
        expect_bytes(all.data(), got.data(), got.size() * sizeof(float));
    };
    if (modes) in_all_modes(once);
    else once();
    const double size = std::sqrt((double) n_in * rank);
    for (size_t i = 0; i < want.size(); i++) {
        if (!(std::fabs(all[i] - want[i]) <= 1e-6 * size * (1 + std::fabs(want[i]))))
            fail_check("%s, %lld columns, rank %d: result %zu is %g, expected %g", what, (long long) n_in, rank, i,
                       (double) all[i], want[i]);
    }
    const std::vector<float> last = f.run(3, 1); /* group 3 alone */
    for (size_t e = 5; e < 8; e++)
        expect_bytes(&all[(size_t) f.row[e] * ld], &last[(size_t) f.row[e] * ld], ld * sizeof(float));
}

void check_shape(int32_t type, int64_t n_in, int32_t rank, bool norm, bool modes)
{
    fixture f(type, n_in, rank, norm);
    check_runs(f, pi__type_info_of(type)->name, n_in, rank, 512, modes);
}

void test_types()
{
    for (int32_t type : one_of({PI__F32, PI__F16, PI__BF16})) check_shape(type, 70, 5, type == PI__F16, false);
}

/* Rows that are processed in several pieces; ranks for which the warps take several rounds. */
void test_sizes()
{
    check_shape(PI__F32, 1, 1, false, false);
    check_shape(PI__F16, 1056, 17, true, false);
    if (!slow()) check_shape(PI__BF16, 2100, 40, false, false);
}

void test_modes() { check_shape(PI__F16, 200, 20, true, true); }

/* Adapters of matrices per head; each head's part of a row is followed by a gap. */
struct heads_fixture {
    enum {
        HEADS = 3,
        N_IN = 80,
        N_OUT = 144,
        X_STEP = N_IN + 16,
        Y_STEP = N_OUT + 16,
        LDX = HEADS * X_STEP,
        LDY = HEADS * Y_STEP
    };
    enum { LDB = (N_OUT + PI__LORA_TILE - 1) / PI__LORA_TILE * PI__LORA_TILE };
    int32_t type, rank[2];
    std::deque<values> a, b; /* by adapter, all heads */
    buffer<pi__lora_pair> table[2];
    std::vector<float> x0, y0;
    buffer<float> x;
    buffer<int32_t> row;
    buffer<pi__k_lora_group> group;

    heads_fixture(int32_t type_, int32_t rank_)
        : type(type_), rank{rank_, rank_ + 3}, table{buffer<pi__lora_pair>(2), buffer<pi__lora_pair>(2)},
          x0(random(1).normals(ROWS * LDX)), y0(random(3).normals(ROWS * LDY)), x(x0),
          row(std::vector<int32_t>{0, 2, 3, 5, 9, 1, 7, 10}), group(GROUPS)
    {
        random r(4);
        for (int k = 0; k < 2; k++) {
            a.emplace_back(type, r.normals((size_t) (HEADS * rank[k] * N_IN)));
            b.emplace_back(type, r.normals((size_t) (HEADS * rank[k] * LDB)));
            const uintptr_t from = (uintptr_t) table[k].get();
            table[k][1] = {(uint64_t) ((uintptr_t) a.back().raw.get() - from),
                           (uint64_t) ((uintptr_t) b.back().raw.get() - from),
                           N_IN,
                           LDB,
                           rank[k],
                           type,
                           1.5f / (float) rank[k],
                           0};
        }
        group[0] = {table[0].get(), 1.0f, 0, 4, 0};
        group[1] = {table[0].get(), 1.0f, 4, 1, 0};
        group[2] = {nullptr, 0.0f, 0, 0, 0};
        group[3] = {table[1].get(), -0.5f, 5, 3, 0};
    }
    std::vector<float> run(int32_t first, int32_t n)
    {
        buffer<float> out(y0);
        pi__k_lora_heads k = {};
        k.x = x.get(), k.ldx = LDX, k.x_step = X_STEP, k.n_in = N_IN;
        k.y = out.get(), k.ldy = LDY, k.y_step = Y_STEP, k.n_out = N_OUT;
        k.n_head = HEADS, k.target = 1, k.max_rank = rank[1], k.n_groups = n, k.group = group.get() + first,
        k.row = row.get();
        must_run(pi__k_lora_heads_run(stream(), &k));
        return std::vector<float>(out.get(), out.get() + out.size());
    }
    /* Returns the value that adapter k adds to row i at output o of head h, without the request's scale. */
    double times(size_t k, int h, int32_t i, int o) const
    {
        double sum = 0;
        for (int32_t r = 0; r < rank[k]; r++) {
            const size_t line = (size_t) (h * rank[k] + r) * N_IN;
            const size_t at = (size_t) (h * rank[k] * LDB + (o / PI__LORA_TILE * rank[k] + r) * PI__LORA_TILE +
                                        o % PI__LORA_TILE);
            double t = 0;
            for (int c = 0; c < N_IN; c++) t += a[k].of[line + (size_t) c] * x0[(size_t) (i * LDX + h * X_STEP + c)];
            sum += b[k].of[at] * t;
        }
        return sum * 1.5 / rank[k];
    }
    std::vector<double> want() const
    {
        std::vector<double> y(y0.begin(), y0.end());
        for (size_t g = 0; g < GROUPS; g++)
            for (int32_t e = group[g].first; e < group[g].first + group[g].n; e++)
                for (int h = 0; h < HEADS; h++)
                    for (int o = 0; o < N_OUT; o++)
                        y[(size_t) (row[(size_t) e] * LDY + h * Y_STEP + o)] += group[g].scale *
                                                                                times(g == 3, h, row[(size_t) e], o);
        return y;
    }
};

void check_heads(int32_t type, int32_t rank, bool modes)
{
    char what[40];
    heads_fixture f(type, rank);
    snprintf(what, sizeof what, "heads, %s", pi__type_info_of(type)->name);
    check_runs(f, what, heads_fixture::N_IN, rank, heads_fixture::LDY, modes);
}

void test_heads()
{
    for (int32_t type : one_of({PI__F32, PI__F16, PI__BF16}))
        check_heads(type, type == PI__BF16 ? 19 : 5, type == PI__F16);
}

const entry checks[] = {{"types", test_types}, {"sizes", test_sizes}, {"modes", test_modes}, {"heads", test_heads}};

} // namespace

const family checks_of_lora = {"lora", "adapters", checks, sizeof checks / sizeof *checks};

} // namespace selftest
