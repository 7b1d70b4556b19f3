/* Decoded functions, and the frames that they run in.
 *
 * Each instruction is a `code`: a C++ function, and the places of its operands in the frame. All operands are bytes of
 * the frame: registers, constants, special registers, variables. So one C++ function serves registers and constants.
 *
 *     frame   [ header | variables | registers | constants ]
 *
 * Memory: a program owns its functions; frames are in the arenas of threads (exec.cpp). */
#ifndef SIMT_PTX_CODE_H
#define SIMT_PTX_CODE_H

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>

#include "module.h"
#include "simt.h"

namespace simt {
namespace ptx {

struct code;
/* Runs an instruction in frame f and returns the next one; NULL = the function returns. */
typedef const code *(*handler)(const code *c, char *f);

struct code {
    handler run;
    uint32_t r[5]; /* offsets in the frame; the result first */
    int line;      /* in the module's text */
    union {
        uint64_t value;       /* a constant; of a branch: the distance to its target */
        const uint32_t *list; /* more offsets, or other data of the instruction */
        const struct call_site *call;
    };
};

struct thread;
struct frame {
    thread *owner;
    const char *file;            /* of the function's module */
    uint32_t special[N_SPECIAL]; /* by enum special */
};

/* Bytes of a frame. */
struct place {
    uint32_t at, size;
};
struct decoded;
/* A call: bytes to copy from the caller's frame to the callee's, and back. */
struct call_site {
    const decoded *callee;
    std::string name;
    struct move {
        uint32_t here, there, size;
    };
    std::vector<place> args, results; /* variables of the caller */
    std::vector<move> in, out;        /* after linking */
};

struct decoded {
    std::string name, file;
    bool entry = false;
    bool waits = false; /* for other blocks: it, or a function that it calls, polls memory */
    std::vector<code> text;
    std::vector<uint64_t> constants;
    uint32_t size = 0;         /* bytes of a frame */
    uint32_t constants_at = 0; /* offset of the constants, which end the frame */
    std::vector<place> params, results;
    std::deque<std::vector<uint32_t>> lists;
    std::deque<call_site> calls;
    std::vector<std::string> unknown; /* instructions that cannot run */
};

/* How to run a mnemonic: `sizes` has the bytes of each operand, the result first. loose: registers may be larger. */
struct form {
    handler run;
    const char *sizes;
    bool loose;
};
typedef std::unordered_map<std::string, form> forms;

/* ops_int.cpp, ops_float.cpp: instructions that only compute. */
void add_integers(forms *out);
void add_floats(forms *out);

class emitter;
/* The other instructions. Returns false if the mnemonic belongs to another file. ops_memory.cpp: loads, stores,
 * addresses. ops_async.cpp: copies and mbarriers. ops_warp.cpp: barriers, collectives, tensor cores. ops_flow.cpp:
 * branches and calls. */
bool emit_memory(emitter &e, const instruction &i);
bool emit_async(emitter &e, const instruction &i);
bool emit_warp(emitter &e, const instruction &i);
bool emit_flow(emitter &e, const instruction &i);

template <class T> T get(const char *f, uint32_t at)
{
    T v;
    std::memcpy(&v, f + at, sizeof v);
    return v;
}
template <class T> void put(char *f, uint32_t at, T v) { std::memcpy(f + at, &v, sizeof v); }
inline const char *file_of(const char *f) { return reinterpret_cast<const frame *>(f)->file; }

/* Runs a function in its frame. */
inline void execute(const decoded &d, char *f)
{
    for (const code *c = d.text.data(); c;) c = c->run(c, f);
}
/* A frame for a call in the running thread, with constants and poisoned registers; release it after the call. */
char *new_frame(thread *t, const decoded &d);
void release_frame(thread *t, char *f);
/* Memory: misaligned addresses and shared memory past its end are always errors. In programs whose hooks enable the
 * checks of shadow.cpp, races, uninitialized and out-of-bounds accesses are, too. */
void check_access(const void *p, size_t size, bool write, const code *c, const char *f);
inline void access_memory(const void *p, size_t size, bool write, const code *c, const char *f)
{
    extern bool watching;
    if (watching || (uintptr_t) p % size) check_access(p, size, write, c, f);
}
/* Address of `size` bytes of shared memory. */
char *shared_at(uint32_t address, size_t size, const code *c, const char *f);
/* Value of %clock64: see exec.cpp. `polled` counts a load that waits for another block. */
uint64_t clock_of(thread *t);
void polled(thread *t);

/* True if the text has this suffix as a part between dots, e.g. ".nc". */
inline bool has_part(const std::string &op, const char *part)
{
    const size_t at = op.find(part), end = at + std::strlen(part);
    return at != std::string::npos && (end == op.size() || op[end] == '.');
}

} // namespace ptx
} // namespace simt

#endif
