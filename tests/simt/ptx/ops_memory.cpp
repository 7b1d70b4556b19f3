/* Loads, stores, atomics, moves and addresses.
 *
 * A generic or global address is a pointer of the host. An address of shared memory has 32 bits and an offset, as in
 * simt.h. Variables of the function are in its frame, and so are the parameters of calls. */
#include "emit.h"
#include "simt_impl.h"

namespace simt {
namespace ptx {

bool watching; /* set by launches: check_access() checks everything */

void check_access(const void *p, size_t size, bool write, const code *c, const char *f)
{
    const unsigned char *b = static_cast<const unsigned char *>(p);
    if ((uintptr_t) p % size) fail(file_of(f), c->line, "misaligned: %zu bytes at %p", size, p);
    if (!watching) return;
    if (here.shared && b >= here.shared && b < here.shared + here.shared_size) {
        shadow_access(self->lin, p, size, write ? access::write : access::read, file_of(f), c->line);
    } else if (in_device_region(p) && !in_device_memory(p, size)) {
        fail(file_of(f), c->line, "out of bounds: %zu bytes at %p, in no allocation", size, p);
    } else {
        between_access(p, size, write ? access::write : access::read, nullptr, file_of(f), c->line);
    }
}

/* nvcc loads 16 bytes where a kernel reads 12 (.pragma "used_bytes_mask"), also at the end of shared memory: devices
 * allocate it in larger units. */
char *shared_at(uint32_t address, size_t size, const code *c, const char *f)
{
    unsigned char *p = shared_pointer(address);
    const size_t allocated = (here.shared_size + 15) / 16 * 16;
    if (p < here.shared || size > allocated || p > here.shared + allocated - size)
        fail(file_of(f), c->line, "out of bounds: %zu bytes at shared address %u of %zu bytes", size, address,
             here.shared_size);
    return reinterpret_cast<char *>(p);
}

namespace {

/* The operands of a load or store: r[1] and r[2] are the address, as in place_of; r[0] is the register, or `list` has
 * the registers of a vector. */
template <by B> char *find(const code *c, char *f, size_t size)
{
    if (B == by::frame) return f + c->r[2];
    if (B == by::pointer) return get<char *>(f, c->r[1]) + (int32_t) c->r[2];
    return shared_at(get<uint32_t>(f, c->r[1]) + c->r[2], size, c, f);
}

template <by B, class T, class R> const code *load(const code *c, char *f)
{
    const char *p = find<B>(c, f, sizeof(T));
    if (B != by::frame) access_memory(p, sizeof(T), false, c, f);
    put<R>(f, c->r[0], (R) get<T>(p, 0));
    return c + 1;
}
template <by B, class T> const code *store(const code *c, char *f)
{
    char *p = find<B>(c, f, sizeof(T));
    if (B != by::frame) access_memory(p, sizeof(T), true, c, f);
    put<T>(p, 0, get<T>(f, c->r[0]));
    return c + 1;
}
/* R: type of the registers, which may be larger than a value. */
template <by B, class T, int N, class R = T> const code *load_vector(const code *c, char *f)
{
    const char *p = find<B>(c, f, sizeof(T) * N);
    if (B != by::frame) access_memory(p, sizeof(T) * N, false, c, f);
    T v[N]; /* the address may be one of the results */
    std::memcpy(v, p, sizeof v);
    for (int i = 0; i < N; i++) put<R>(f, c->list[i], v[i]);
    return c + 1;
}
template <by B, class T, int N> const code *store_vector(const code *c, char *f)
{
    char *p = find<B>(c, f, sizeof(T) * N);
    if (B != by::frame) access_memory(p, sizeof(T) * N, true, c, f);
    for (uint32_t i = 0; i < N; i++) put<T>(p, i * (uint32_t) sizeof(T), get<T>(f, c->list[i]));
    return c + 1;
}
const code *load_acquired(const code *c, char *f)
{
    const uint32_t *p = reinterpret_cast<const uint32_t *>(find<by::pointer>(c, f, 4));
    polled(reinterpret_cast<frame *>(f)->owner);
    put<uint32_t>(f, c->r[0], load_acquire(p, file_of(f), c->line));
    return c + 1;
}
/* A store to the host's memory: pi__k_waits.stuck. */
const code *store_relaxed(const code *c, char *f)
{
    put<uint32_t>(find<by::pointer>(c, f, 4), 0, get<uint32_t>(f, c->r[0]));
    return c + 1;
}

/* ------------------------------------------------------------------------------------- choice of the C++ function */

struct type {
    size_t size;
    bool is_signed;
};
type type_of(const std::string &op)
{
    const std::string t = op.substr(op.rfind('.') + 1);
    return {t.size() > 1 ? (size_t) strtoul(t.c_str() + 1, nullptr, 10) / 8 : 0, t[0] == 's'};
}

template <by B, class T> handler load_to(size_t size)
{
    typedef std::conditional_t<std::is_signed<T>::value, int16_t, uint16_t> r16;
    typedef std::conditional_t<std::is_signed<T>::value, int32_t, uint32_t> r32;
    typedef std::conditional_t<std::is_signed<T>::value, int64_t, uint64_t> r64;
    return size == 2 ? load<B, T, r16> : size == 4 ? load<B, T, r32> : load<B, T, r64>;
}
template <by B> handler choose_load(type t, size_t size)
{
    switch (t.size) {
    case 1: return t.is_signed ? load_to<B, int8_t>(size) : load_to<B, uint8_t>(size);
    case 2: return t.is_signed ? load_to<B, int16_t>(size) : load_to<B, uint16_t>(size);
    case 4: return t.is_signed ? load_to<B, int32_t>(size) : load_to<B, uint32_t>(size);
    default: return load_to<B, uint64_t>(size);
    }
}
template <by B> handler choose_store(type t, size_t)
{
    return t.size == 1   ? store<B, uint8_t>
           : t.size == 2 ? store<B, uint16_t>
           : t.size == 4 ? store<B, uint32_t>
                         : store<B, uint64_t>;
}
/* Vectors of bytes: registers have at least 16 bits. */
template <by B, int N> handler choose_bytes(bool stores, type t)
{
    if (stores) return store_vector<B, uint8_t, N>;
    return t.is_signed ? load_vector<B, int8_t, N, int16_t> : load_vector<B, uint8_t, N, uint16_t>;
}
template <by B> handler choose_vector(bool stores, type t, size_t n)
{
    if (t.size == 1 && n == 2) return choose_bytes<B, 2>(stores, t);
    if (t.size == 1 && n == 4) return choose_bytes<B, 4>(stores, t);
    if (t.size == 2 && n == 2) return stores ? store_vector<B, uint16_t, 2> : load_vector<B, uint16_t, 2>;
    if (t.size == 2 && n == 4) return stores ? store_vector<B, uint16_t, 4> : load_vector<B, uint16_t, 4>;
    if (t.size == 4 && n == 2) return stores ? store_vector<B, uint32_t, 2> : load_vector<B, uint32_t, 2>;
    if (t.size == 4 && n == 4) return stores ? store_vector<B, uint32_t, 4> : load_vector<B, uint32_t, 4>;
    if (t.size == 8 && n == 2) return stores ? store_vector<B, uint64_t, 2> : load_vector<B, uint64_t, 2>;
    return nullptr;
}
template <by B> handler choose(bool stores, type t, size_t n, size_t size)
{
    return n > 1 ? choose_vector<B>(stores, t, n) : stores ? choose_store<B>(t, size) : choose_load<B>(t, size);
}

/* Sets r[1], r[2]: the address. */
void set_address(code *c, const place_of &p)
{
    c->r[1] = p.at;
    c->r[2] = (uint32_t) p.value;
}

space space_of(const std::string &op, bool *generic)
{
    *generic = false;
    if (has_part(op, ".shared") || has_part(op, ".shared::cta")) return space::shared;
    if (has_part(op, ".local")) return space::local;
    if (has_part(op, ".param")) return space::param;
    *generic = !has_part(op, ".global");
    return space::global;
}

/* Only these modifiers may appear between the mnemonic and the type: others would change the meaning. */
bool known_access(const std::string &op)
{
    static const char *const parts[] = {"global", "shared", "local",       "param", "nc",       "v2",
                                        "v4",     "weak",   "shared::cta", "ca",    "volatile", "cg"};
    for (size_t at = 2; at < op.rfind('.');) {
        const size_t end = op.find('.', at + 1);
        const std::string part = op.substr(at + 1, end - at - 1);
        bool any = false;
        for (const char *p : parts) any |= part == p;
        if (!any) return false;
        at = end;
    }
    return true;
}

bool emit_access(emitter &e, const instruction &i)
{
    const bool stores = i.op[0] == 's';
    if (!known_access(i.op)) return false;
    bool generic;
    const space where = space_of(i.op, &generic);
    const type t = type_of(i.op);
    const operand &to = e.arg(i, stores ? 0 : 1), &value = e.arg(i, stores ? 1 : 0);
    const place_of p = e.address(to, where, generic);
    const bool vector = value.kind == operand::LIST;
    const std::vector<operand> values = vector ? value.parts : std::vector<operand>{value};
    std::vector<uint32_t> at;
    for (const operand &o : values) at.push_back(stores ? e.in(o, t.size, true) : e.out(o, t.size, true));
    const size_t size = e.register_size(values[0]);
    if (vector && size > (t.size == 1 ? 2 : t.size)) e.fail(i, "a vector of registers that are larger than its values");
    if (vector != (has_part(i.op, ".v2") || has_part(i.op, ".v4"))) e.fail(i, "a vector of another size");
    const handler h = p.how == by::frame    ? choose<by::frame>(stores, t, at.size(), size)
                      : p.how == by::shared ? choose<by::shared>(stores, t, at.size(), size)
                                            : choose<by::pointer>(stores, t, at.size(), size);
    if (!h || !t.size || t.size > 8) return false;
    const uint32_t *list = vector ? e.keep(at) : nullptr;
    code &c = e.add(h, i);
    set_address(&c, p);
    c.r[0] = at[0];
    c.list = list;
    return true;
}

/* ----------------------------------------------------------------------------------------------- moves, addresses */

const code *move_clock(const code *c, char *f)
{
    put<uint64_t>(f, c->r[0], clock_of(reinterpret_cast<frame *>(f)->owner));
    return c + 1;
}
const code *address_of(const code *c, char *f)
{
    put<char *>(f, c->r[0], f + c->r[2]);
    return c + 1;
}
const code *copy_8(const code *c, char *f)
{
    put<uint64_t>(f, c->r[0], get<uint64_t>(f, c->r[1]));
    return c + 1;
}
const code *copy_4(const code *c, char *f)
{
    put<uint32_t>(f, c->r[0], get<uint32_t>(f, c->r[1]));
    return c + 1;
}
template <class WHOLE, class PART, int N> const code *pack(const code *c, char *f)
{
    WHOLE v = 0;
    for (int i = 0; i < N; i++) v |= (WHOLE) get<PART>(f, c->list[i]) << 8 * sizeof(PART) * (unsigned) i;
    put<WHOLE>(f, c->r[0], v);
    return c + 1;
}
/* A list entry of 0 is a part that no register receives. */
template <class WHOLE, class PART, int N> const code *unpack(const code *c, char *f)
{
    const WHOLE v = get<WHOLE>(f, c->r[0]);
    for (int i = 0; i < N; i++)
        if (c->list[i]) put<PART>(f, c->list[i], (PART) (v >> 8 * sizeof(PART) * (unsigned) i));
    return c + 1;
}

bool emit_pack(emitter &e, const instruction &i, bool packs)
{
    const size_t size = type_of(i.op).size;
    const operand &list = e.arg(i, packs ? 1 : 0), &one = e.arg(i, packs ? 0 : 1);
    const size_t n = list.parts.size();
    std::vector<uint32_t> at;
    for (const operand &o : list.parts)
        at.push_back(packs ? e.in(o, size / n) : o.kind == operand::SINK ? 0 : e.out(o, size / n));
    handler h = nullptr;
    if (size == 4 && n == 2) h = packs ? pack<uint32_t, uint16_t, 2> : unpack<uint32_t, uint16_t, 2>;
    if (size == 8 && n == 2) h = packs ? pack<uint64_t, uint32_t, 2> : unpack<uint64_t, uint32_t, 2>;
    if (size == 8 && n == 4) h = packs ? pack<uint64_t, uint16_t, 4> : unpack<uint64_t, uint16_t, 4>;
    if (!h) return false;
    const uint32_t whole = packs ? e.out(one, size) : e.in(one, size), *kept = e.keep(at);
    code &c = e.add(h, i);
    c.r[0] = whole;
    c.list = kept;
    return true;
}

/* The moves that are not in the table of forms: addresses of variables, vectors, the clock. */
bool emit_move(emitter &e, const instruction &i)
{
    const operand &to = e.arg(i, 0);
    operand from = e.arg(i, 1);
    if (to.kind == operand::LIST) return emit_pack(e, i, false);
    if (from.kind == operand::LIST) return emit_pack(e, i, true);
    if (from.kind == operand::SPECIAL && from.index == CLOCK) {
        const uint32_t at = e.out(to, 8);
        e.add(move_clock, i).r[0] = at;
        return true;
    }
    if (from.kind != operand::VAR) return false;
    from.address = true;
    const place_of p = e.address(from, space::shared, false);
    const uint32_t at = e.out(to, p.how == by::shared ? 4 : 8, true);
    const bool wide = e.register_size(to) == 8;
    code &c = e.add(p.how == by::frame ? address_of : wide ? copy_8 : copy_4, i);
    c.r[0] = at;
    set_address(&c, p);
    return true;
}

const code *to_generic(const code *c, char *f)
{
    put<char *>(f, c->r[0], shared_at((uint32_t) get<uint64_t>(f, c->r[1]), 0, c, f));
    return c + 1;
}
const code *to_shared(const code *c, char *f)
{
    put<uint64_t>(f, c->r[0], shared_address(get<char *>(f, c->r[1])));
    return c + 1;
}

bool emit_cvta(emitter &e, const instruction &i)
{
    const uint32_t at = e.out(e.arg(i, 0), 8), from = e.in(e.arg(i, 1), 8);
    handler h = copy_8;
    if (has_part(i.op, ".shared")) h = has_part(i.op, ".to") ? to_shared : to_generic;
    code &c = e.add(h, i);
    c.r[0] = at;
    c.r[1] = from;
    return true;
}

/* --------------------------------------------------------------------------------------------------------- atomics */

template <class T, T (*F)(T *, T, const char *, int), by B> const code *atomic(const code *c, char *f)
{
    T *p = reinterpret_cast<T *>(find<B>(c, f, sizeof(T)));
    if ((uintptr_t) p % sizeof(T)) fail(file_of(f), c->line, "misaligned: an atomic at %p", static_cast<void *>(p));
    put<T>(f, c->r[0], F(p, get<T>(f, c->r[3]), file_of(f), c->line));
    return c + 1;
}
template <class T> T add(T *p, T v, const char *file, int line) { return atomicAdd(p, v, file, line); }
template <class T> T either(T *p, T v, const char *file, int line) { return atomicOr(p, v, file, line); }
template <class T> T exchange(T *p, T v, const char *file, int line) { return atomicExch(p, v, file, line); }
template <class T> T largest(T *p, T v, const char *file, int line) { return atomicMax(p, v, file, line); }
uint32_t increment(uint32_t *p, uint32_t last, const char *file, int line)
{
    atomic_access(p, sizeof *p, false, file, line);
    const uint32_t old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}
uint32_t add_in_order(uint32_t *p, uint32_t v, const char *file, int line)
{
    atomic_access(p, sizeof *p, false, file, line, semantics::acq_rel);
    const uint32_t old = *p;
    *p += v;
    return old;
}

template <class T, T (*F)(T *, T, const char *, int)> handler choose_atomic(by how)
{
    return how == by::shared ? atomic<T, F, by::shared> : how == by::pointer ? atomic<T, F, by::pointer> : nullptr;
}

bool emit_atomic(emitter &e, const instruction &i)
{
    bool generic;
    const space where = space_of(i.op, &generic);
    const place_of p = e.address(e.arg(i, 1), where, generic);
    const type t = type_of(i.op);
    const bool ordered = has_part(i.op, ".acq_rel");
    handler h = nullptr;
    if (t.size == 8 && has_part(i.op, ".add")) h = choose_atomic<uint64_t, add>(p.how);
    if (t.size == 4 && has_part(i.op, ".add")) h = choose_atomic<uint32_t, add>(p.how);
    if (t.size == 4 && has_part(i.op, ".add") && ordered) h = choose_atomic<uint32_t, add_in_order>(p.how);
    if (t.size == 4 && has_part(i.op, ".or")) h = choose_atomic<uint32_t, either>(p.how);
    if (t.size == 4 && has_part(i.op, ".inc")) h = choose_atomic<uint32_t, increment>(p.how);
    if (t.size == 4 && has_part(i.op, ".exch")) h = choose_atomic<uint32_t, exchange>(p.how);
    if (t.size == 4 && has_part(i.op, ".max") && !t.is_signed) h = choose_atomic<uint32_t, largest>(p.how);
    if (!h || i.op.back() == 'f' || has_part(i.op, ".f32")) return false;
    const uint32_t at = e.out(e.arg(i, 0), t.size), v = e.in(e.arg(i, 2), t.size);
    code &c = e.add(h, i);
    set_address(&c, p);
    c.r[0] = at;
    c.r[3] = v;
    return true;
}

bool starts(const std::string &op, const char *with) { return !op.compare(0, std::strlen(with), with); }

/* Loads and stores with an order. */
bool emit_ordered(emitter &e, const instruction &i, handler h, bool stores)
{
    const place_of p = e.address(e.arg(i, stores ? 0 : 1), space::global, false);
    if (p.how != by::pointer) return false;
    if (!stores) e.mark_waiting();
    const uint32_t at = stores ? e.in(e.arg(i, 1), 4) : e.out(e.arg(i, 0), 4);
    code &c = e.add(h, i);
    set_address(&c, p);
    c.r[0] = at;
    return true;
}

} // namespace

bool emit_memory(emitter &e, const instruction &i)
{
    if (i.op == "ld.acquire.gpu.global.u32") return emit_ordered(e, i, load_acquired, false);
    if (i.op == "st.relaxed.sys.global.u32") return emit_ordered(e, i, store_relaxed, true);
    if (starts(i.op, "ld.") || starts(i.op, "st.")) return emit_access(e, i);
    if (starts(i.op, "mov.")) return emit_move(e, i);
    if (starts(i.op, "cvta.")) return emit_cvta(e, i);
    if (starts(i.op, "atom.")) return emit_atomic(e, i);
    return false;
}

} // namespace ptx
} // namespace simt
