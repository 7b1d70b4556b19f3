#include "program.h"

#include <sys/mman.h>

#include "simt_impl.h"

namespace simt {
namespace ptx {

/* --------------------------------------------------------------------------------------------- threads and frames */

enum { ARENA = 1 << 20, MAX_THREADS = 1024, POISON = 0x7b };
/* Clocks after which kernels give up waiting: PTX_MAX_WAIT of kernels/ptx.cuh. */
static const uint64_t max_wait = UINT64_C(1) << 31;

struct thread {
    char *arena;
    size_t used;
    uint64_t polls;
};
static thread threads[MOST_RESIDENT][MAX_THREADS];

static bool have_arena(thread *t)
{
    if (t->arena) return true;
    void *p = mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    t->arena = p == MAP_FAILED ? nullptr : static_cast<char *>(p);
    return t->arena != nullptr;
}

/* Registers begin as a pattern, so that the use of an unwritten one shows. */
char *new_frame(thread *t, const decoded &d)
{
    if (t->used + d.size > ARENA) fail(d.file.c_str(), d.text[0].line, "no memory for a frame of %s", d.name.c_str());
    char *f = t->arena + t->used;
    t->used += d.size;
    std::memset(f + sizeof(frame), POISON, d.constants_at - sizeof(frame));
    if (!d.constants.empty()) std::memcpy(f + d.constants_at, d.constants.data(), 8 * d.constants.size());
    reinterpret_cast<frame *>(f)->owner = t;
    reinterpret_cast<frame *>(f)->file = d.file.c_str();
    return f;
}
void release_frame(thread *t, char *f) { t->used = (size_t) (f - t->arena); }

void polled(thread *t) { t->polls++; }
/* The clock advances only by polls: a kernel gives up after options.max_polls of them; 0 = never. */
uint64_t clock_of(thread *t) { return options.max_polls ? t->polls * (max_wait / options.max_polls + 1) : 0; }

struct start {
    const decoded *kernel;
    std::vector<char> arguments;
};

static void set_specials(uint32_t *s)
{
    const dim3 *const all[] = {&self->tid, &here.dim, &here.idx, &here.grid};
    for (int i = 0; i < 4; i++) s[3 * i] = all[i]->x, s[3 * i + 1] = all[i]->y, s[3 * i + 2] = all[i]->z;
    s[LANEID] = lane();
}

static void thread_main(void *arg)
{
    const start &s = *static_cast<const start *>(arg);
    thread *t = &threads[resident()][self->lin];
    if (!have_arena(t)) fail(nullptr, 0, "no memory for the frames of a thread");
    t->used = t->polls = 0;
    char *f = new_frame(t, *s.kernel);
    set_specials(reinterpret_cast<frame *>(f)->special);
    size_t at = 0;
    for (const place &p : s.kernel->params) {
        std::memcpy(f + p.at, s.arguments.data() + at, p.size);
        at += p.size;
    }
    execute(*s.kernel, f);
}

float call_float(const decoded &function, float x)
{
    static thread own;
    if (!have_arena(&own) || function.params.size() != 1 || function.results.size() != 1) return NAN;
    own.used = 0;
    char *f = new_frame(&own, function);
    put(f, function.params[0].at, x);
    execute(function, f);
    return get<float>(f, function.results[0].at);
}

/* -------------------------------------------------------------------------------------------------------- programs */

void program::load_variables(unit *u)
{
    for (const variable &v : u->m.variables) {
        u->memory.emplace_back(v.size + v.align); /* aligned below */
        char *p = u->memory.back().data();
        p += (v.align - (uintptr_t) p % v.align) % v.align;
        if (!v.initial.empty()) std::memcpy(p, v.initial.data(), v.initial.size());
        u->l.memory.push_back(v.where == space::shared ? nullptr : p);
    }
}

void program::add(const std::string &file, const std::string &text)
{
    units.emplace_back();
    unit &u = units.back();
    u.m = read(file, text);
    u.l.m = &u.m;
    load_variables(&u);
    for (function &f : u.m.functions) {
        symbols.emplace_back();
        symbol &s = symbols.back();
        s.u = &u, s.linked = false;
        emitter(u.l, f, &s.d).all();
        own[{&u, f.name}] = &s;
        names.emplace(without_file(f.name), &s);
        f = function(); /* its instructions have served */
    }
}

program::symbol *program::resolve(const unit *from, const std::string &name)
{
    const auto mine = own.find({from, name});
    if (mine != own.end()) return mine->second;
    const auto any = names.find(name);
    return any == names.end() ? nullptr : any->second;
}

const decoded *program::link(symbol *from)
{
    decoded *d = &from->d;
    if (from->linked) return d;
    from->linked = true;
    for (call_site &s : d->calls) {
        symbol *to = resolve(from->u, s.name);
        if (!to) throw error(d->file, d->text[0].line, "no function " + s.name);
        s.callee = link(to);
        d->waits |= s.callee->waits;
        for (const auto &pair : {std::make_pair(&s.args, &s.callee->params), {&s.results, &s.callee->results}}) {
            bool same = pair.first->size() == pair.second->size();
            for (size_t i = 0; same && i < pair.first->size(); i++) {
                const place here = (*pair.first)[i], there = (*pair.second)[i];
                same = here.size == there.size;
                (pair.first == &s.args ? s.in : s.out).push_back({here.at, there.at, here.size});
            }
            if (!same)
                throw error(d->file, d->text[0].line, "a call of " + s.name + " with other parameters than it has");
        }
    }
    return d;
}

const decoded *program::find(const std::string &name)
{
    symbol *s = resolve(nullptr, name);
    return s ? link(s) : nullptr;
}

int program::arch() const
{
    const std::string target = units.empty() ? "" : units[0].m.target;
    return target.size() > 3 ? atoi(target.c_str() + 3) : 0;
}

std::vector<std::string> program::unknown()
{
    std::vector<std::string> all;
    for (symbol &s : symbols) {
        const decoded *d = link(&s);
        all.insert(all.end(), d->unknown.begin(), d->unknown.end());
    }
    return all;
}

int program::launch(const decoded &kernel, const kernel_call &c)
{
    start s = {&kernel, {}};
    const char *name = kernel.name.c_str(), *file = kernel.file.c_str();
    if (!kernel.unknown.empty()) {
        fail(nullptr, 0, "%s cannot run: %s", name, kernel.unknown[0].c_str());
        return 1;
    }
    if ((size_t) c.n_args != kernel.params.size()) {
        fail(file, 0, "%s has %zu parameters, its launch %d", name, kernel.params.size(), c.n_args);
        return 1;
    }
    for (int i = 0; i < c.n_args; i++) {
        if (c.args[i].size != kernel.params[(size_t) i].size) {
            fail(file, 0, "parameter %d of %s has %u bytes, in its launch %zu", i, name, kernel.params[(size_t) i].size,
                 c.args[i].size);
            return 1;
        }
        const char *p = static_cast<const char *>(c.args[i].p);
        s.arguments.insert(s.arguments.end(), p, p + c.args[i].size);
    }
    extern bool watching;
    watching = instrumented() && options.check;
    return simt::run(c.kernel, c.grid, c.block, c.shared, thread_main, &s);
}

} // namespace ptx
} // namespace simt
