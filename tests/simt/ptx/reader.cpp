/* Text of PTX -> module.
 *
 * The reader accepts the statements that nvcc emits. Names of registers, variables and labels belong to the innermost
 * braces around their declaration, since inline assembly declares its own. A branch may precede its label: uses are
 * resolved at the closing brace. Anything unknown is an error, so that no statement is skipped silently. */
#include "lexer.h"
#include "module.h"

#include <cstring>
#include <unordered_map>

namespace simt {
namespace ptx {

namespace {

/* Use of a label: operand `arg` of instruction `at`; arg < 0: entry -1 - arg of table `at`. */
struct use {
    std::string name;
    size_t at;
    int arg, line;
};
struct range {
    int first, n;
};
struct scope {
    std::unordered_map<std::string, int> registers, variables, labels;
    std::unordered_map<std::string, range> ranges; /* by prefix: %r<9> */
    std::vector<use> uses;
};

struct type {
    size_t size;
    bool predicate;
};

class reader {
public:
    reader(const std::string &file, const std::string &text) : in(file, text) { m.file = file; }
    module all();

private:
    lexer in;
    module m;
    function *f = nullptr;
    std::vector<scope> scopes;
    std::unordered_map<std::string, int> globals;

    [[noreturn]] void fail(const std::string &why) { throw error(m.file, in.line(), why); }
    type read_type(const std::string &word);
    uint64_t number();
    variable declaration(space where);
    void initial(variable *v, size_t element);
    void global_variable(space where, bool external);
    std::vector<int> parameters();
    void a_function(bool entry);
    void body();
    void statement();
    void registers();
    void local_variables(space where);
    void label(const std::string &name);
    void targets(size_t table);
    void an_instruction();
    void close_scope();
    operand one_operand(const std::string &op, size_t at, int arg);
    operand list(const char *end, const std::string &op, size_t at);
    operand named(const std::string &word, const std::string &op, size_t at, int arg);
    bool find_register(const std::string &word, operand *o);
    bool find_variable(const std::string &word, operand *o);
};

type reader::read_type(const std::string &word)
{
    static const std::unordered_map<std::string, type> types = {
        {".pred", {1, true}}, {".b8", {1, false}},  {".u8", {1, false}},  {".s8", {1, false}},
        {".b16", {2, false}}, {".u16", {2, false}}, {".s16", {2, false}}, {".f16", {2, false}},
        {".b32", {4, false}}, {".u32", {4, false}}, {".s32", {4, false}}, {".f32", {4, false}},
        {".b64", {8, false}}, {".u64", {8, false}}, {".s64", {8, false}}, {".f64", {8, false}}};
    const auto it = types.find(word);
    if (it == types.end()) fail("unknown type '" + word + "'");
    return it->second;
}

/* Reads a number with an optional sign; a float as its bits. */
uint64_t reader::number()
{
    const bool minus = in.accept("-");
    uint64_t v = 0;
    if (!parse_number(in.next(), &v)) fail("no number: '" + in.last() + "'");
    return minus ? 0 - v : v;
}

void reader::initial(variable *v, size_t element)
{
    in.expect("{");
    do {
        const uint64_t u = number();
        const unsigned char *p = reinterpret_cast<const unsigned char *>(&u);
        v->initial.insert(v->initial.end(), p, p + element);
    } while (in.accept(","));
    in.expect("}");
    if (v->initial.size() > v->size) fail("more initial values than the variable has room for");
    v->initial.resize(v->size);
}

/* After the space: [.align N] .type [.ptr .align N] name [[size]]. */
variable reader::declaration(space where)
{
    variable v;
    v.where = where;
    size_t element = 0;
    for (;;) {
        const std::string word = in.next();
        if (word == ".align") v.align = (size_t) number();
        else if (word == ".ptr") in.skip_pointer();
        else if (word[0] == '.') element = read_type(word).size;
        else {
            v.name = word;
            break;
        }
    }
    if (!element) fail("a variable without a type");
    if (v.align < element) v.align = element;
    v.size = element;
    while (in.accept("[")) {
        v.size = in.peek() == "]" ? 0 : v.size * (size_t) number();
        in.expect("]");
    }
    if (in.accept("=")) initial(&v, element);
    return v;
}

void reader::global_variable(space where, bool external)
{
    const variable v = declaration(where);
    in.expect(";");
    if (where == space::shared && v.size) fail("a static __shared__ variable: kernels use dynamic shared memory");
    if (external && where != space::shared) fail("an external variable");
    globals[v.name] = (int) m.variables.size();
    m.variables.push_back(v);
}

std::vector<int> reader::parameters()
{
    std::vector<int> out;
    if (!in.accept("(")) return out;
    while (!in.accept(")")) {
        in.expect(".param");
        out.push_back((int) f->variables.size());
        f->variables.push_back(declaration(space::param));
        scopes.back().variables[f->variables.back().name] = out.back();
        in.accept(",");
    }
    return out;
}

void reader::a_function(bool entry)
{
    function now;
    f = &now;
    now.entry = entry;
    now.line = in.line();
    scopes.assign(1, scope());
    if (!entry) now.results = parameters();
    now.name = in.next();
    now.params = parameters();
    while (in.peek() != "{" && in.peek() != ";") in.next(); /* .maxntid and other limits */
    if (!in.accept(";")) {
        in.expect("{");
        body();
        m.functions.push_back(std::move(now));
    }
    f = nullptr;
}

void reader::body()
{
    while (!scopes.empty()) {
        if (in.accept("}")) close_scope();
        else if (in.accept("{")) scopes.emplace_back();
        else statement();
    }
}

void reader::statement()
{
    if (in.accept(".reg")) return registers();
    if (in.accept(".local")) return local_variables(space::local);
    if (in.accept(".param")) return local_variables(space::param);
    if (in.accept(".pragma")) return in.skip_past(";");
    if (in.accept(".loc")) return in.skip_line();
    if (in.peek_label()) {
        const std::string name = in.next();
        in.expect(":");
        return label(name);
    }
    an_instruction();
}

void reader::registers()
{
    const type t = read_type(in.next());
    do {
        const std::string name = in.next();
        int n = 1;
        if (in.accept("<")) {
            n = (int) number();
            in.expect(">");
            scopes.back().ranges[name] = {(int) f->registers.size(), n};
        } else {
            scopes.back().registers[name] = (int) f->registers.size();
        }
        f->registers.insert(f->registers.end(), (size_t) n, (uint8_t) t.size);
    } while (in.accept(","));
    in.expect(";");
}

void reader::local_variables(space where)
{
    const variable v = declaration(where);
    in.expect(";");
    scopes.back().variables[v.name] = (int) f->variables.size();
    f->variables.push_back(v);
}

void reader::label(const std::string &name)
{
    if (scopes.back().labels.count(name)) fail("a second label '" + name + "'");
    scopes.back().labels[name] = (int) f->labels.size();
    f->labels.push_back(f->body.size());
    f->tables.emplace_back();
    if (in.accept(".branchtargets")) targets(f->tables.size() - 1);
}

void reader::targets(size_t table)
{
    do {
        f->tables[table].push_back(0);
        scopes.back().uses.push_back({in.next(), table, -(int) f->tables[table].size(), in.line()});
    } while (in.accept(","));
    in.expect(";");
}

void reader::an_instruction()
{
    instruction i;
    const size_t at = f->body.size();
    i.line = in.line();
    if (in.accept("@")) {
        operand p;
        i.unless = in.accept("!");
        if (!find_register(in.next(), &p)) fail("no predicate register '" + in.last() + "'");
        i.guard = p.index;
    }
    i.op = in.next();
    if (!(i.op[0] >= 'a' && i.op[0] <= 'z')) fail("unknown statement '" + i.op + "'");
    while (!in.accept(";")) {
        i.args.push_back(one_operand(i.op, at, (int) i.args.size()));
        if (in.accept("|")) {
            operand both;
            both.kind = operand::LIST;
            both.parts.push_back(i.args.back());
            both.parts.push_back(one_operand(i.op, at, -1));
            i.args.back() = both;
        }
        if (!in.accept(",") && in.peek() != ";") fail("unexpected '" + in.peek() + "'");
    }
    f->body.push_back(std::move(i));
}

operand reader::list(const char *end, const std::string &op, size_t at)
{
    operand o;
    o.kind = operand::LIST;
    while (!in.accept(end)) {
        o.parts.push_back(one_operand(op, at, -1));
        in.accept(",");
    }
    return o;
}

/* Operand `arg` of instruction `at`; arg < 0 within lists, which contain no labels. */
operand reader::one_operand(const std::string &op, size_t at, int arg)
{
    if (in.accept("{")) return list("}", op, at);
    if (in.accept("(")) return list(")", op, at);
    if (in.accept("[")) {
        operand o = one_operand(op, at, -1);
        if (in.accept("+")) o.value = number();
        o.address = true;
        in.expect("]");
        return o;
    }
    if (in.accept("!")) {
        operand o = one_operand(op, at, -1);
        o.negated = true;
        return o;
    }
    if (in.peek() == "-" || in.peek_number()) {
        operand o;
        o.kind = operand::IMM;
        o.value = number();
        return o;
    }
    return named(in.next(), op, at, arg);
}

operand reader::named(const std::string &word, const std::string &op, size_t at, int arg)
{
    operand o;
    if (word == "_") return o;
    if (find_register(word, &o) || find_variable(word, &o)) return o;
    const int s = special_of(word);
    if (s >= 0) {
        o.kind = operand::SPECIAL;
        o.index = s;
        return o;
    }
    if (!op.compare(0, 4, "call")) {
        o.kind = operand::FUNCTION;
        o.name = word;
        return o;
    }
    if (op[0] != 'b' || arg < 0) fail("unknown name '" + word + "'");
    o.kind = operand::LABEL;
    scopes.back().uses.push_back({word, at, arg, in.line()});
    return o;
}

bool reader::find_register(const std::string &word, operand *o)
{
    size_t digits = word.size();
    while (digits && word[digits - 1] >= '0' && word[digits - 1] <= '9') digits--;
    for (size_t i = scopes.size(); i-- > 0;) {
        const auto it = scopes[i].registers.find(word);
        const auto r = scopes[i].ranges.find(word.substr(0, digits));
        o->kind = operand::REG;
        if (it != scopes[i].registers.end()) {
            o->index = it->second;
            return true;
        }
        if (digits == word.size() || r == scopes[i].ranges.end()) continue;
        const long k = strtol(word.c_str() + digits, nullptr, 10);
        if (k >= r->second.n) fail("register '" + word + "' is past the end of its range");
        o->index = r->second.first + (int) k;
        return true;
    }
    o->kind = operand::SINK;
    return false;
}

bool reader::find_variable(const std::string &word, operand *o)
{
    for (size_t i = scopes.size(); i-- > 0;) {
        const auto it = scopes[i].variables.find(word);
        if (it == scopes[i].variables.end()) continue;
        o->kind = operand::VAR;
        o->index = it->second;
        return true;
    }
    const auto it = globals.find(word);
    if (it == globals.end()) return false;
    o->kind = operand::VAR;
    o->index = -1 - it->second;
    return true;
}

/* Resolves the labels of the innermost scope; its other uses move to the scope around it. */
void reader::close_scope()
{
    scope inner = std::move(scopes.back());
    scopes.pop_back();
    for (const use &u : inner.uses) {
        const auto it = inner.labels.find(u.name);
        if (it == inner.labels.end()) {
            if (scopes.empty()) throw error(m.file, u.line, "no label '" + u.name + "'");
            scopes.back().uses.push_back(u);
        } else if (u.arg < 0) {
            f->tables[u.at][(size_t) (-1 - u.arg)] = it->second;
        } else {
            f->body[u.at].args[(size_t) u.arg].index = it->second;
        }
    }
}

module reader::all()
{
    bool external = false;
    while (!in.at_end()) {
        const std::string word = in.next();
        if (word == ".version" || word == ".address_size") in.next();
        else if (word == ".target") m.target = in.next();
        else if (word == ".visible" || word == ".weak" || word == ".extern") external = word == ".extern";
        else if (word == ".entry" || word == ".func") a_function(word == ".entry");
        else if (word == ".global" || word == ".const") global_variable(space::global, external);
        else if (word == ".shared") global_variable(space::shared, external);
        else fail("unknown statement '" + word + "'");
        if (word != ".extern") external = false;
    }
    return std::move(m);
}

} // namespace

module read(const std::string &file, const std::string &text) { return reader(file, text).all(); }

} // namespace ptx
} // namespace simt
