/* A PTX module as the reader sees it: functions with resolved names, in the order of the text.
 *
 * Memory: a module owns everything that it contains. Threads: a module is constant once it has been read. */
#ifndef SIMT_PTX_MODULE_H
#define SIMT_PTX_MODULE_H

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace simt {
namespace ptx {

/* A text that cannot be read or run: "FILE:LINE: reason". */
struct error : std::runtime_error {
    error(const std::string &file, int line, const std::string &why)
        : std::runtime_error(file + ":" + std::to_string(line) + ": " + why)
    {
    }
};

/* Special registers that threads read as memory, and the clock. */
enum special { TID, NTID = 3, CTAID = 6, NCTAID = 9, LANEID = 12, N_SPECIAL, CLOCK = 32 };

enum class space : uint8_t { param, local, shared, global };

struct operand {
    enum kind_t : uint8_t {
        REG,      /* index: register */
        IMM,      /* value: its bits */
        VAR,      /* a variable of the function, or of the module if index < 0: then -1 - index */
        SPECIAL,  /* index: special register */
        LABEL,    /* index: label */
        FUNCTION, /* name */
        LIST,     /* parts: {a, b}, (a, b) or a|b */
        SINK      /* _ */
    } kind = SINK;
    bool address = false; /* [REG + value], [VAR + value], or [IMM] */
    bool negated = false; /* !predicate */
    int index = 0;
    uint64_t value = 0;
    std::string name;
    std::vector<operand> parts;
};

struct instruction {
    std::string op;      /* the complete mnemonic, with its suffixes */
    int guard = -1;      /* predicate register; -1 = none */
    bool unless = false; /* runs if the guard is false */
    int line = 0;
    std::vector<operand> args;
};

struct variable {
    std::string name;
    space where = space::global;
    size_t size = 0, align = 1;         /* bytes; size 0 = the dynamic shared memory */
    std::vector<unsigned char> initial; /* empty = zeros */
};

struct function {
    std::string name;
    bool entry = false;
    int line = 0;
    std::vector<int> params, results;     /* variables */
    std::vector<uint8_t> registers;       /* sizes in bytes; 1 = predicate */
    std::vector<variable> variables;      /* of space param or local */
    std::vector<size_t> labels;           /* index of the instruction that follows */
    std::vector<std::vector<int>> tables; /* labels of .branchtargets, by number of the table's own label */
    std::vector<instruction> body;
};

struct module {
    std::string file, target;
    std::vector<variable> variables;
    std::vector<function> functions;
};

/* Reads a module. Throws `error`. file: its name in messages. */
module read(const std::string &file, const std::string &text);

} // namespace ptx
} // namespace simt

#endif
