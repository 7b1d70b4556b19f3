/* Asynchronous copies, the mbarriers that count them, and hints to the caches. The emulator's own functions (ptx.h)
 * perform them. */
#include "emit.h"
#include "ptx.h"

namespace simt {
namespace ptx {

namespace {

/* Operands: r[0] and r[1] are the addresses of the copy in shared and in global memory, list[0] and list[1] their
 * offsets, r[2] the number of bytes to read, r[3] the size or the address of the mbarrier, list[2] its offset. */
uint32_t shared_operand(const code *c, const char *f, int r, int offset)
{
    return get<uint32_t>(f, c->r[r]) + c->list[offset];
}
const char *global_operand(const code *c, const char *f)
{
    return get<const char *>(f, c->r[1]) + (int32_t) c->list[1];
}

const code *copy_async(const code *c, char *f)
{
    cp_async(shared_operand(c, f, 0, 0), global_operand(c, f), get<uint32_t>(f, c->r[3]), get<uint32_t>(f, c->r[2]),
             file_of(f), c->line);
    return c + 1;
}
const code *copy_bulk(const code *c, char *f)
{
    bulk_copy(shared_operand(c, f, 0, 0), global_operand(c, f), get<uint32_t>(f, c->r[2]), shared_operand(c, f, 3, 2),
              file_of(f), c->line);
    return c + 1;
}
const code *commit(const code *c, char *)
{
    cp_async_commit();
    return c + 1;
}
const code *wait_group(const code *c, char *f)
{
    cp_async_wait((unsigned) c->value, file_of(f), c->line);
    return c + 1;
}
const code *init(const code *c, char *f)
{
    mbarrier_init(shared_operand(c, f, 0, 0), get<uint32_t>(f, c->r[2]), file_of(f), c->line);
    return c + 1;
}
const code *arrive(const code *c, char *f)
{
    mbarrier_arrive_expect(shared_operand(c, f, 0, 0), get<uint32_t>(f, c->r[2]), file_of(f), c->line);
    return c + 1;
}
/* try_wait returns only when the phase has ended: the loop around it ends at once. */
const code *try_wait(const code *c, char *f)
{
    mbarrier_wait(shared_operand(c, f, 0, 0), get<uint32_t>(f, c->r[2]), file_of(f), c->line);
    put<uint8_t>(f, c->r[1], 1);
    return c + 1;
}
const code *fence_proxy(const code *c, char *)
{
    fence_async();
    return c + 1;
}
const code *fence_all(const code *c, char *)
{
    fence();
    return c + 1;
}
const code *nothing(const code *c, char *) { return c + 1; }
const code *zero_8(const code *c, char *f)
{
    put<uint64_t>(f, c->r[0], 0);
    return c + 1;
}

bool starts(const std::string &op, const char *with) { return !op.compare(0, std::strlen(with), with); }

uint32_t shared_register(emitter &e, const instruction &i, size_t n, std::vector<uint32_t> *offsets)
{
    const place_of p = e.address(e.arg(i, n), space::shared, false);
    if (p.how != by::shared) e.fail(i, "an address of shared memory is needed");
    offsets->push_back((uint32_t) p.value);
    return p.at;
}
uint32_t global_register(emitter &e, const instruction &i, size_t n, std::vector<uint32_t> *offsets)
{
    const place_of p = e.address(e.arg(i, n), space::global, false);
    if (p.how != by::pointer) e.fail(i, "an address of global memory is needed");
    offsets->push_back((uint32_t) p.value);
    return p.at;
}

/* cp.async[.bulk]. The fourth operand of cp.async is the number of bytes to read, or a cache policy. */
bool emit_copy(emitter &e, const instruction &i, bool bulk)
{
    std::vector<uint32_t> offsets;
    uint32_t r[4];
    const bool hint = has_part(i.op, ".L2::cache_hint");
    r[0] = shared_register(e, i, 0, &offsets);
    r[1] = global_register(e, i, 1, &offsets);
    r[2] = e.in(e.arg(i, i.args.size() > 3 && !hint && !bulk ? 3 : 2), 4);
    r[3] = bulk ? shared_register(e, i, 3, &offsets) : e.in(e.arg(i, 2), 4);
    const uint32_t *list = e.keep(offsets);
    code &c = e.add(bulk ? copy_bulk : copy_async, i);
    std::memcpy(c.r, r, sizeof r);
    c.list = list;
    return true;
}

/* An instruction on the mbarrier of operand `at`, with a value in operand `value`; NULL = the value is 0. */
bool emit_barrier(emitter &e, const instruction &i, handler h, size_t at, const operand *value)
{
    std::vector<uint32_t> offsets;
    const uint32_t address = shared_register(e, i, at, &offsets), v = value ? e.in(*value, 4) : e.constant(0);
    const uint32_t result = h == try_wait ? e.out(e.arg(i, 0), 1) : 0;
    const uint32_t *list = e.keep(offsets);
    code &c = e.add(h, i);
    c.r[0] = address, c.r[1] = result, c.r[2] = v;
    c.list = list;
    return true;
}

bool emit_group(emitter &e, const instruction &i)
{
    if (i.op == "cp.async.commit_group") {
        e.add(commit, i);
        return true;
    }
    const bool all = i.op == "cp.async.wait_all";
    if (!all && (i.op != "cp.async.wait_group" || e.arg(i, 0).kind != operand::IMM)) return false;
    e.add(wait_group, i).value = all ? 0 : i.args[0].value;
    return true;
}

} // namespace

bool emit_async(emitter &e, const instruction &i)
{
    if (starts(i.op, "cp.async.commit") || starts(i.op, "cp.async.wait")) return emit_group(e, i);
    if (i.op == "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes") return emit_copy(e, i, true);
    if (starts(i.op, "cp.async.cg.shared.global") || starts(i.op, "cp.async.ca.shared.global"))
        return emit_copy(e, i, false);
    if (i.op == "mbarrier.init.shared::cta.b64") return emit_barrier(e, i, init, 0, &e.arg(i, 1));
    if (i.op == "mbarrier.arrive.expect_tx.shared::cta.b64") return emit_barrier(e, i, arrive, 1, &e.arg(i, 2));
    if (i.op == "mbarrier.arrive.shared::cta.b64") return emit_barrier(e, i, arrive, 1, nullptr);
    if (i.op == "mbarrier.try_wait.parity.shared::cta.b64") return emit_barrier(e, i, try_wait, 1, &e.arg(i, 2));
    if (i.op == "createpolicy.fractional.L2::evict_first.b64") {
        const uint32_t at = e.out(e.arg(i, 0), 8);
        e.add(zero_8, i).r[0] = at;
        return true;
    }
    const handler h = i.op == "fence.proxy.async.shared::cta"              ? fence_proxy
                      : i.op == "membar.gl" || i.op == "fence.acq_rel.gpu" ? fence_all
                      : i.op == "fence.sc.gpu"                             ? fence_all
                      : i.op == "prefetch.global.L2"                       ? nothing
                                                                           : nullptr;
    if (h) e.add(h, i);
    return h != nullptr;
}

} // namespace ptx
} // namespace simt
