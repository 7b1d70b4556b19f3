/* Branches, calls and ends. */
#include "emit.h"
#include "simt_impl.h"

namespace simt {
namespace ptx {

namespace {

const code *jump(const code *c, char *) { return c + (int64_t) c->value; }
const code *jump_indexed(const code *c, char *f)
{
    const uint32_t k = get<uint32_t>(f, c->r[0]);
    if (k >= c->list[0]) fail(file_of(f), c->line, "a jump table of %u entries has no entry %u", c->list[0], k);
    return c + (int32_t) c->list[1 + k];
}
const code *leave(const code *, char *) { return nullptr; }
const code *stop(const code *c, char *f)
{
    fail(file_of(f), c->line, "a trap");
    return nullptr;
}

/* Runs the callee in its own frame. An error inside ends the thread here: the frame's memory belongs to the thread. */
const code *enter(const code *c, char *f)
{
    const call_site &s = *c->call;
    thread *t = reinterpret_cast<frame *>(f)->owner;
    char *g = new_frame(t, *s.callee);
    std::memcpy(reinterpret_cast<frame *>(g)->special, reinterpret_cast<frame *>(f)->special, sizeof(frame::special));
    for (const call_site::move &m : s.in) std::memcpy(g + m.there, f + m.here, m.size);
    execute(*s.callee, g);
    for (const call_site::move &m : s.out) std::memcpy(f + m.here, g + m.there, m.size);
    release_frame(t, g);
    return c + 1;
}

/* call.uni (results), name, (arguments): the first and the last list may be missing. */
bool emit_call(emitter &e, const instruction &i)
{
    call_site &s = e.new_call();
    for (const operand &o : i.args) {
        if (o.kind == operand::FUNCTION) s.name = o.name;
        if (o.kind != operand::LIST) continue;
        for (const operand &p : o.parts) (s.name.empty() ? s.results : s.args).push_back(e.variable_at(p));
    }
    if (s.name.empty()) return false;
    e.add(enter, i).call = &s;
    return true;
}

} // namespace

bool emit_flow(emitter &e, const instruction &i)
{
    if (i.op == "bra" || i.op == "bra.uni") {
        e.add(jump, i);
        e.jump_to(e.arg(i, 0).index);
    } else if (i.op == "brx.idx" || i.op == "brx.idx.uni") {
        const uint32_t at = e.in(e.arg(i, 0), 4);
        e.add(jump_indexed, i).r[0] = at;
        e.jump_by(e.arg(i, 1).index);
    } else if (i.op == "call" || i.op == "call.uni") {
        return emit_call(e, i);
    } else if (i.op == "ret" || i.op == "ret.uni") {
        e.add(leave, i);
    } else if (i.op == "trap") {
        e.add(stop, i);
    } else {
        return false;
    }
    return true;
}

} // namespace ptx
} // namespace simt
