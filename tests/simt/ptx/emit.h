/* Decodes one function: assigns places in its frame, and appends instructions. */
#ifndef SIMT_PTX_EMIT_H
#define SIMT_PTX_EMIT_H

#include "code.h"

namespace simt {
namespace ptx {

/* The variables of a module in memory: addresses of .global ones. */
struct loaded {
    const module *m;
    std::vector<char *> memory; /* by variable; NULL = the dynamic shared memory */
};

/* How an instruction finds memory: by a pointer, by an address of shared memory, or in the frame. */
enum class by : uint8_t { pointer, shared, frame };
struct place_of {
    by how;
    uint32_t at;    /* offset of the register with the pointer or address */
    uint64_t value; /* is added; the offset, for by::frame */
};

class emitter {
public:
    emitter(const loaded &from, const function &f, decoded *out);
    void all();

    /* Offset of a source of `size` bytes, or of a result. loose: a register may be larger. */
    uint32_t in(const operand &o, size_t size, bool loose = false);
    uint32_t out(const operand &o, size_t size, bool loose = false);
    uint32_t constant(uint64_t bits);
    /* Address operand of an instruction for that space. */
    place_of address(const operand &o, space where, bool generic);
    /* A variable of the function in its frame. */
    place variable_at(const operand &o);
    size_t register_size(const operand &o) const;
    const operand &arg(const instruction &i, size_t n) const;
    /* Appends an instruction. */
    code &add(handler run, const instruction &i);
    /* Keeps a list as long as the function. */
    const uint32_t *keep(std::vector<uint32_t> list);
    call_site &new_call();
    void mark_waiting() { d->waits = true; }
    /* The last instruction jumps to the label, or to a label of a table by its operand. */
    void jump_to(int label) { jumps.push_back({d->text.size() - 1, label}); }
    void jump_by(int table);
    [[noreturn]] void fail(const instruction &i, const std::string &why) const;

private:
    struct jump {
        size_t at; /* index of the branch; for jump tables also of its entry in the list */
        int label;
        std::vector<uint32_t> *list = nullptr;
        size_t entry = 0;
    };
    const loaded &from;
    const function &f;
    decoded *d;
    std::vector<uint32_t> registers, variables; /* offsets */
    std::vector<size_t> starts;                 /* by instruction: its first code */
    std::vector<jump> jumps;
    std::unordered_map<uint64_t, uint32_t> known; /* constants */
    const instruction *now = nullptr;

    void lay_out();
    void one(const instruction &i);
    bool by_form(const instruction &i);
    void link_jumps();
    uint64_t immediate(const operand &o, size_t size) const;
};

} // namespace ptx
} // namespace simt

#endif
