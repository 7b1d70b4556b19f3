/* Function of a module -> decoded function. */
#include "emit.h"

namespace simt {
namespace ptx {

static const forms &all_forms()
{
    static const forms all = [] {
        forms f;
        add_integers(&f);
        add_floats(&f);
        return f;
    }();
    return all;
}

emitter::emitter(const loaded &l, const function &source, decoded *out) : from(l), f(source), d(out)
{
    d->name = f.name;
    d->file = from.m->file;
    d->entry = f.entry;
    lay_out();
}

static uint32_t align_up(size_t at, size_t align) { return (uint32_t) ((at + align - 1) / align * align); }

void emitter::lay_out()
{
    uint32_t at = sizeof(frame);
    for (const variable &v : f.variables) {
        at = align_up(at, v.align > 16 ? v.align : 16);
        variables.push_back(at);
        at += (uint32_t) v.size;
    }
    for (int v : f.params) d->params.push_back({variables[(size_t) v], (uint32_t) f.variables[(size_t) v].size});
    for (int v : f.results) d->results.push_back({variables[(size_t) v], (uint32_t) f.variables[(size_t) v].size});
    for (const size_t size : {size_t(8), size_t(4), size_t(2), size_t(1)}) {
        at = align_up(at, 8);
        registers.resize(f.registers.size());
        for (size_t i = 0; i < f.registers.size(); i++) {
            if (f.registers[i] != size) continue;
            registers[i] = at;
            at += (uint32_t) size;
        }
    }
    d->constants_at = align_up(at, 8);
}

void emitter::fail(const instruction &i, const std::string &why) const
{
    throw error(from.m->file, i.line, i.op + ": " + why);
}

void emitter::all()
{
    for (const instruction &i : f.body) {
        starts.push_back(d->text.size());
        now = &i;
        one(i);
    }
    starts.push_back(d->text.size());
    d->text.push_back({[](const code *, char *) -> const code * { return nullptr; }, {}, 0, {0}});
    d->size = align_up(d->constants_at + 8 * d->constants.size(), 16);
    link_jumps();
}

static const code *skip_if(const code *c, char *f) { return c + (get<uint8_t>(f, c->r[0]) ? c->value : 1); }
static const code *skip_unless(const code *c, char *f) { return c + (get<uint8_t>(f, c->r[0]) ? 1 : c->value); }

void emitter::one(const instruction &i)
{
    const size_t guard = d->text.size();
    if (i.guard >= 0) add(i.unless ? skip_if : skip_unless, i).r[0] = registers[(size_t) i.guard];
    if (!emit_memory(*this, i) && !by_form(i) && !emit_async(*this, i) && !emit_warp(*this, i) && !emit_flow(*this, i))
        d->unknown.push_back(from.m->file + ":" + std::to_string(i.line) + ": " + i.op);
    if (i.guard >= 0) d->text[guard].value = d->text.size() - guard;
}

/* Emits an instruction of the tables of forms. */
bool emitter::by_form(const instruction &i)
{
    const auto it = all_forms().find(i.op);
    if (it == all_forms().end()) return false;
    const form &how = it->second;
    const size_t n = std::strlen(how.sizes);
    if (i.args.size() != n) fail(i, "it has " + std::to_string(i.args.size()) + " operands");
    uint32_t r[5] = {};
    for (size_t k = 0; k < n; k++) {
        const size_t size = (size_t) (how.sizes[k] - '0');
        r[k] = k ? in(i.args[k], size, how.loose) : out(i.args[k], size, how.loose);
    }
    std::memcpy(add(how.run, i).r, r, sizeof r);
    return true;
}

size_t emitter::register_size(const operand &o) const
{
    return o.kind == operand::REG ? f.registers[(size_t) o.index] : 0;
}

const operand &emitter::arg(const instruction &i, size_t n) const
{
    if (n >= i.args.size()) fail(i, "operand " + std::to_string(n + 1) + " is missing");
    return i.args[n];
}

uint32_t emitter::constant(uint64_t bits)
{
    const auto it = known.find(bits);
    if (it != known.end()) return it->second;
    const uint32_t at = d->constants_at + 8 * (uint32_t) d->constants.size();
    d->constants.push_back(bits);
    return known[bits] = at;
}

uint32_t emitter::in(const operand &o, size_t size, bool loose)
{
    if (o.address || o.negated) fail(*now, "an address or a negated predicate where a value is needed");
    switch (o.kind) {
    case operand::IMM: return constant(size == 1 ? o.value != 0 : o.value);
    case operand::REG:
        if (register_size(o) != size && !(loose && register_size(o) > size))
            fail(*now, "a register of " + std::to_string(register_size(o)) + " bytes where " + std::to_string(size) +
                           " are needed");
        return registers[(size_t) o.index];
    case operand::SPECIAL:
        if (size != 4 || o.index >= N_SPECIAL) fail(*now, "a special register of another size");
        return (uint32_t) (offsetof(frame, special) + 4 * (size_t) o.index);
    default: fail(*now, "a value is needed");
    }
}

uint32_t emitter::out(const operand &o, size_t size, bool loose)
{
    if (o.kind != operand::REG) fail(*now, "a register is needed for the result");
    return in(o, size, loose);
}

place emitter::variable_at(const operand &o)
{
    if (o.kind != operand::VAR || o.index < 0) fail(*now, "a variable of the function is needed");
    return {variables[(size_t) o.index], (uint32_t) f.variables[(size_t) o.index].size};
}

place_of emitter::address(const operand &o, space where, bool generic)
{
    if (!o.address) fail(*now, "an address is needed");
    if (o.kind == operand::REG) {
        const size_t size = register_size(o);
        if (size == 4 && where != space::shared) fail(*now, "an address of 4 bytes, of another space than .shared");
        if (size < 4) fail(*now, "an address of " + std::to_string(size) + " bytes");
        return {where == space::shared && !generic ? by::shared : by::pointer,
                in({o.kind, false, false, o.index, 0, {}, {}}, size), o.value};
    }
    if (o.kind != operand::VAR) fail(*now, "an address without a register or a variable");
    if (o.index >= 0) return {by::frame, 0, variables[(size_t) o.index] + o.value};
    char *const memory = from.memory[(size_t) (-1 - o.index)];
    if (!memory) return {by::shared, constant(shared_address(here.shared)), o.value};
    return {by::pointer, constant((uint64_t) (uintptr_t) memory), o.value};
}

code &emitter::add(handler run, const instruction &i)
{
    d->text.push_back({run, {}, i.line, {0}});
    return d->text.back();
}

const uint32_t *emitter::keep(std::vector<uint32_t> list)
{
    d->lists.push_back(std::move(list));
    return d->lists.back().data();
}

call_site &emitter::new_call()
{
    d->calls.emplace_back();
    return d->calls.back();
}

void emitter::jump_by(int table)
{
    const std::vector<int> &labels = f.tables[(size_t) table];
    d->lists.push_back({(uint32_t) labels.size()});
    d->lists.back().resize(1 + labels.size());
    for (size_t k = 0; k < labels.size(); k++)
        jumps.push_back({d->text.size() - 1, labels[k], &d->lists.back(), k + 1});
    d->text.back().list = d->lists.back().data();
}

void emitter::link_jumps()
{
    for (const jump &j : jumps) {
        const size_t to = starts[f.labels[(size_t) j.label]];
        if (j.list) (*j.list)[j.entry] = (uint32_t) (to - j.at);
        else d->text[j.at].value = to - j.at;
    }
}

} // namespace ptx
} // namespace simt
