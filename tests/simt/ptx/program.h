/* A program of PTX modules: runs their kernels on the emulator, instead of kernels from the host compiler.
 *
 * Memory: a program owns its modules and their global variables. Threads: one; launches take the emulator's lock. */
#ifndef SIMT_PTX_PROGRAM_H
#define SIMT_PTX_PROGRAM_H

#include "emit.h"

namespace simt {
namespace ptx {

class program {
public:
    /* Reads and decodes a module. Throws `error`. */
    void add(const std::string &file, const std::string &text);
    /* The function of that name, ready to run; NULL = there is none. Kernels with internal linkage have the names of
     * the host compiler. Throws `error` if the function calls one that no module has. */
    const decoded *find(const std::string &name);
    /* The instructions that cannot run, as "FILE:LINE: mnemonic". Throws `error` if a function is missing. */
    std::vector<std::string> unknown();
    /* Architecture of the first module, e.g. 120. */
    int arch() const;
    /* Launches a kernel like simt::run(). */
    int launch(const decoded &kernel, const kernel_call &call);

private:
    struct unit {
        module m; /* without the bodies of its functions */
        loaded l;
        std::vector<std::vector<char>> memory; /* of global variables */
    };
    struct symbol {
        const unit *u;
        decoded d;
        bool linked;
    };
    std::deque<unit> units;
    std::deque<symbol> symbols;
    std::map<std::pair<const unit *, std::string>, symbol *> own; /* functions by module */
    std::unordered_map<std::string, symbol *> names;              /* of all modules */

    void load_variables(unit *u);
    symbol *resolve(const unit *from, const std::string &name);
    const decoded *link(symbol *s);
};

/* Runs a function of one float that neither waits nor uses special registers, also outside of launches. */
float call_float(const decoded &function, float x);

/* The name of a function in this program's own file, mangled; "" = unknown. */
std::string host_name(const void *function);
/* The name that the host compiler gives to a function with internal linkage that nvcc names `name`. */
std::string without_file(const std::string &name);

} // namespace ptx
} // namespace simt

#endif
