/* Barriers, collectives of a warp and tensor cores. The emulator's own functions (simt.h, ptx.h) perform them: all
 * lanes of a collective meet at one line of the PTX. */
#include "emit.h"
#include "ptx.h"

namespace simt {
namespace ptx {

namespace {

const code *sync_block(const code *c, char *f)
{
    barrier(file_of(f), c->line);
    return c + 1;
}
const code *sync_first(const code *c, char *f)
{
    first_barrier(get<uint32_t>(f, c->r[0]), file_of(f), c->line);
    return c + 1;
}
const code *sync_lanes(const code *c, char *f)
{
    sync_warp(get<uint32_t>(f, c->r[0]), file_of(f), c->line);
    return c + 1;
}

/* ---------------------------------------------------------------------------------------------------- shuffles */

enum class shuffle_by { up, down, bfly, idx };

/* Lane that this lane reads, of a segment by the third operand `c`; in_range: false if it is outside. */
template <shuffle_by M> unsigned source_lane(unsigned b, unsigned c, bool *in_range)
{
    const unsigned l = lane(), segment = c >> 8 & 31, last = (l & segment) | (c & 31 & ~segment);
    unsigned from = 0;
    b &= 31;
    switch (M) {
    case shuffle_by::up: from = l - b; break;
    case shuffle_by::down: from = l + b; break;
    case shuffle_by::bfly: from = l ^ b; break;
    case shuffle_by::idx: from = (l & segment) | (b & ~segment); break;
    }
    *in_range = M == shuffle_by::up ? (int) from >= (int) last : from <= last;
    return *in_range ? from : l;
}

/* Operands: result, value, b, c, mask; value: offset of the result predicate; 0 = none. */
template <shuffle_by M> const code *shuffle(const code *c, char *f)
{
    bool in_range;
    const unsigned from = source_lane<M>(get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[3]), &in_range);
    put(f, c->r[0], shuffled(get<uint32_t>(f, c->r[4]), get<uint32_t>(f, c->r[1]), from, file_of(f), c->line));
    if (c->value) put<uint8_t>(f, (uint32_t) c->value, in_range);
    return c + 1;
}

bool emit_shuffle(emitter &e, const instruction &i)
{
    const operand &d = e.arg(i, 0);
    const bool both = d.kind == operand::LIST;
    uint32_t r[5] = {e.out(both ? d.parts[0] : d, 4)};
    const uint32_t p = both && d.parts[1].kind != operand::SINK ? e.out(d.parts[1], 1) : 0;
    for (size_t k = 1; k < 5; k++) r[k] = e.in(e.arg(i, k), 4);
    const handler h = i.op == "shfl.sync.up.b32"     ? shuffle<shuffle_by::up>
                      : i.op == "shfl.sync.down.b32" ? shuffle<shuffle_by::down>
                      : i.op == "shfl.sync.bfly.b32" ? shuffle<shuffle_by::bfly>
                      : i.op == "shfl.sync.idx.b32"  ? shuffle<shuffle_by::idx>
                                                     : nullptr;
    if (!h) return false;
    code &c = e.add(h, i);
    std::memcpy(c.r, r, sizeof r);
    c.value = p;
    return true;
}

/* ----------------------------------------------------------------------------------------------- votes and sums */

const code *ballot(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], __ballot_sync(get<uint32_t>(f, c->r[2]), get<uint8_t>(f, c->r[1]), file_of(f), c->line));
    return c + 1;
}
const code *any(const code *c, char *f)
{
    put<uint8_t>(f, c->r[0], __any_sync(get<uint32_t>(f, c->r[2]), get<uint8_t>(f, c->r[1]), file_of(f), c->line));
    return c + 1;
}
const code *every(const code *c, char *f)
{
    put<uint8_t>(f, c->r[0], __all_sync(get<uint32_t>(f, c->r[2]), get<uint8_t>(f, c->r[1]), file_of(f), c->line));
    return c + 1;
}
const code *reduce_add(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0],
                  __reduce_add_sync(get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[1]), file_of(f), c->line));
    return c + 1;
}
const code *reduce_max(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0],
                  __reduce_max_sync(get<uint32_t>(f, c->r[2]), get<uint32_t>(f, c->r[1]), file_of(f), c->line));
    return c + 1;
}

bool emit_vote(emitter &e, const instruction &i)
{
    const handler h = i.op == "vote.sync.ballot.b32"                                 ? ballot
                      : i.op == "vote.sync.any.pred"                                 ? any
                      : i.op == "vote.sync.all.pred"                                 ? every
                      : i.op == "redux.sync.add.u32" || i.op == "redux.sync.add.s32" ? reduce_add
                      : i.op == "redux.sync.max.u32"                                 ? reduce_max
                                                                                     : nullptr;
    if (!h) return false;
    const bool vote = i.op[0] == 'v';
    const uint32_t r[3] = {e.out(e.arg(i, 0), has_part(i.op, ".pred") ? 1 : 4), e.in(e.arg(i, 1), vote ? 1 : 4),
                           e.in(e.arg(i, 2), 4)};
    std::memcpy(e.add(h, i).r, r, sizeof r);
    return true;
}

/* ------------------------------------------------------------------------------------------------- tensor cores */

/* Operands: list[0 .. 3] the results, r[1], r[2] the address. */
template <bool TRANS> const code *load_matrices(const code *c, char *f)
{
    uint32_t r[4];
    ldmatrix(r, 4, TRANS, get<uint32_t>(f, c->r[1]) + c->r[2], file_of(f), c->line);
    for (int k = 0; k < 4; k++) put(f, c->list[k], r[k]);
    return c + 1;
}

bool emit_ldmatrix(emitter &e, const instruction &i)
{
    const handler h = i.op == "ldmatrix.sync.aligned.m8n8.x4.shared.b16"         ? load_matrices<false>
                      : i.op == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16" ? load_matrices<true>
                                                                                 : nullptr;
    if (!h) return false;
    std::vector<uint32_t> at;
    for (const operand &o : e.arg(i, 0).parts) at.push_back(e.out(o, 4));
    if (at.size() != 4) e.fail(i, "it has four results");
    const place_of p = e.address(e.arg(i, 1), space::shared, false);
    if (p.how != by::shared) e.fail(i, "an address of shared memory is needed");
    const uint32_t *list = e.keep(at);
    code &c = e.add(h, i);
    c.r[1] = p.at, c.r[2] = (uint32_t) p.value;
    c.list = list;
    return true;
}

/* Fragments of one mma: list has the offsets of D, A, B and C, then of the scales and their selectors. */
template <class T> struct fragments {
    T d[4];
    uint32_t a[4], b[2];
    const uint32_t *list;
    fragments(const code *c, const char *f, int n_a, int n_b) : list(c->list)
    {
        for (int k = 0; k < n_a; k++) a[k] = get<uint32_t>(f, list[4 + k]);
        for (int k = 0; k < n_b; k++) b[k] = get<uint32_t>(f, list[4 + n_a + k]);
        for (int k = 0; k < 4; k++) d[k] = get<T>(f, list[4 + n_a + n_b + k]);
    }
    void finish(char *f) const
    {
        for (int k = 0; k < 4; k++) put(f, list[k], d[k]);
    }
};

template <class T, int A, int B, void (*F)(T *, const uint32_t *, const uint32_t *, const char *, int)>
const code *multiply(const code *c, char *f)
{
    fragments<T> x(c, f, A, B);
    F(x.d, x.a, x.b, file_of(f), c->line);
    x.finish(f);
    return c + 1;
}

typedef void scaled_fn(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line);
template <mx A, mx B>
void mxf8f6f4(float *d, const uint32_t *a, const uint32_t *b, const scales &s, const char *file, int line)
{
    mma_mxf8f6f4(d, a, b, A, B, s, file, line);
}
template <scaled_fn *F> const code *multiply_scaled(const code *c, char *f)
{
    fragments<float> x(c, f, 4, 2);
    const uint32_t *s = c->list + 14;
    F(x.d, x.a, x.b,
      {get<uint32_t>(f, s[0]), get<uint32_t>(f, s[3]), get<uint16_t>(f, s[1]), get<uint16_t>(f, s[2]),
       get<uint16_t>(f, s[4]), get<uint16_t>(f, s[5])},
      file_of(f), c->line);
    x.finish(f);
    return c + 1;
}

struct mma_form {
    handler run;
    size_t a, b; /* words of A and of B */
    bool scaled;
};
const std::unordered_map<std::string, mma_form> &mma_forms()
{
    static const std::unordered_map<std::string, mma_form> all = {
        {"m16n8k16.row.col.f32.bf16.bf16.f32", {multiply<float, 4, 2, mma_bf16>, 4, 2, false}},
        {"m16n8k16.row.col.f32.f16.f16.f32", {multiply<float, 4, 2, mma_f16>, 4, 2, false}},
        {"m16n8k8.row.col.f32.tf32.tf32.f32", {multiply<float, 4, 2, mma_tf32>, 4, 2, false}},
        {"m16n8k32.row.col.s32.s8.s8.s32", {multiply<int32_t, 4, 2, mma_s8_k32>, 4, 2, false}},
        {"m16n8k16.row.col.s32.s8.s8.s32", {multiply<int32_t, 2, 1, mma_s8_k16>, 2, 1, false}},
        {"m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
         {multiply_scaled<mma_mxf4nvf4>, 4, 2, true}},
        {"m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
         {multiply_scaled<mma_mxf4>, 4, 2, true}},
        {"m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
         {multiply_scaled<mxf8f6f4<mx::e4m3, mx::e4m3>>, 4, 2, true}},
        {"m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e4m3.f32.ue8m0",
         {multiply_scaled<mxf8f6f4<mx::e2m1, mx::e4m3>>, 4, 2, true}},
        {"m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e2m1.f32.ue8m0",
         {multiply_scaled<mxf8f6f4<mx::e2m1, mx::e2m1>>, 4, 2, true}}};
    return all;
}

bool emit_mma(emitter &e, const instruction &i)
{
    static const char prefix[] = "mma.sync.aligned.";
    const auto it = mma_forms().find(i.op.substr(std::min(i.op.size(), sizeof prefix - 1)));
    if (i.op.compare(0, sizeof prefix - 1, prefix) || it == mma_forms().end()) return false;
    const mma_form &m = it->second;
    const size_t sizes[] = {4, m.a, m.b, 4, 1, 2, 1, 2}, n = m.scaled ? 8 : 4;
    std::vector<uint32_t> at;
    for (size_t k = 0; k < n; k++) {
        const std::vector<operand> &parts = e.arg(i, k).parts;
        if (parts.size() != sizes[k])
            e.fail(i, "operand " + std::to_string(k + 1) + " has a wrong number of registers");
        for (const operand &o : parts) at.push_back(k ? e.in(o, k == 5 || k == 7 ? 2 : 4) : e.out(o, 4));
    }
    const uint32_t *list = e.keep(at);
    e.add(m.run, i).list = list;
    return true;
}

/* wgmma, one after the other: the accumulators in PTX are values, which the assembler later keeps in place. So an
 * instruction ends where it is issued, and fence, commit and wait do nothing. list: the registers of D, then of A;
 * r[1]: descriptor of B; r[2]: false = D = A B; r[3]: B is MN-major. */
template <int N, bool BF16> const code *multiply_group(const code *c, char *f)
{
    float d[N / 2];
    uint32_t a[4];
    for (int k = 0; k < N / 2; k++) d[k] = get<float>(f, c->list[k]);
    for (int k = 0; k < 4; k++) a[k] = get<uint32_t>(f, c->list[N / 2 + k]);
    const bool first = !get<uint8_t>(f, c->r[2]), mn = get<uint32_t>(f, c->r[3]) != 0;
    wgmma_fence(a, 4);
    wgmma(d, {N, first, mn, BF16}, a, get<uint64_t>(f, c->r[1]), file_of(f), c->line);
    wgmma_commit();
    wgmma_wait(0, file_of(f), c->line);
    for (int k = 0; k < N / 2; k++) put(f, c->list[k], d[k]);
    return c + 1;
}

bool emit_wgmma(emitter &e, const instruction &i)
{
    static const std::unordered_map<std::string, std::pair<handler, size_t>> all = {
        {"wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16", {multiply_group<32, false>, 32}},
        {"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", {multiply_group<64, false>, 64}},
        {"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", {multiply_group<128, false>, 128}},
        {"wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16", {multiply_group<32, true>, 32}},
        {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", {multiply_group<64, true>, 64}},
        {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", {multiply_group<128, true>, 128}}};
    const auto it = all.find(i.op);
    if (it == all.end() || i.args.size() != 7) return false;
    std::vector<uint32_t> at;
    for (const operand &o : i.args[0].parts) at.push_back(e.out(o, 4));
    for (const operand &o : i.args[1].parts) at.push_back(e.in(o, 4));
    if (at.size() != it->second.second / 2 + 4) e.fail(i, "it has a wrong number of registers");
    for (size_t k = 4; k < 6; k++) /* A and B are not negated */
        if (i.args[k].kind != operand::IMM || i.args[k].value != 1) return false;
    const uint32_t r[] = {0, e.in(i.args[2], 8), e.in(i.args[3], 1), e.in(i.args[6], 4)}, *list = e.keep(at);
    code &c = e.add(it->second.first, i);
    std::memcpy(c.r, r, sizeof r);
    c.list = list;
    return true;
}

/* -------------------------------------------------------------------------------------------- barriers and grids */

const code *wait_for_grids(const code *c, char *)
{
    wait_grids();
    return c + 1;
}
const code *nothing(const code *c, char *) { return c + 1; }

bool emit_barrier(emitter &e, const instruction &i)
{
    const operand &id = e.arg(i, 0);
    if (i.op == "bar.warp.sync") {
        const uint32_t mask = e.in(id, 4);
        e.add(sync_lanes, i).r[0] = mask;
        return true;
    }
    if (i.op != "bar.sync" || id.kind != operand::IMM) return false;
    if (i.args.size() == 1 && !id.value) {
        e.add(sync_block, i);
        return true;
    }
    if (i.args.size() != 2 || id.value != 1) return false;
    const uint32_t n = e.in(i.args[1], 4);
    e.add(sync_first, i).r[0] = n;
    return true;
}

bool starts(const std::string &op, const char *with) { return !op.compare(0, std::strlen(with), with); }

} // namespace

bool emit_warp(emitter &e, const instruction &i)
{
    if (starts(i.op, "bar.")) return emit_barrier(e, i);
    if (starts(i.op, "shfl.")) return emit_shuffle(e, i);
    if (starts(i.op, "vote.") || starts(i.op, "redux.")) return emit_vote(e, i);
    if (starts(i.op, "ldmatrix.")) return emit_ldmatrix(e, i);
    if (starts(i.op, "mma.")) return emit_mma(e, i);
    if (starts(i.op, "wgmma.mma_async.")) return emit_wgmma(e, i);
    static const char *const without_effect[] = {"griddepcontrol.launch_dependents", "setmaxnreg.dec.sync.aligned.u32",
                                                 "setmaxnreg.inc.sync.aligned.u32",  "wgmma.fence.sync.aligned",
                                                 "wgmma.commit_group.sync.aligned",  "wgmma.wait_group.sync.aligned"};
    bool any = false;
    for (const char *op : without_effect) any |= i.op == op;
    const handler h = i.op == "griddepcontrol.wait" ? wait_for_grids : any ? nothing : nullptr;
    if (h) e.add(h, i);
    return h != nullptr;
}

} // namespace ptx
} // namespace simt
