/* Runs each launch twice: the kernel from the host compiler, and the kernel from nvcc's PTX, on the same memory. */
#ifndef SIMT_PTX_TWIN_H
#define SIMT_PTX_TWIN_H

#include <set>

#include "program.h"

namespace simt {
namespace ptx {

struct twin_counts {
    std::map<std::string, long> launches; /* by kernel that ran from PTX */
    std::set<std::string> recent;         /* kernels of both since the caller cleared it */
    std::map<std::string, long> missing;  /* by kernel that is in no module: only the host's ran */
    double host = 0, ptx = 0;             /* seconds of the kernels from both front ends */
};

/* While an object exists, launches run twice. A launch fails if the two runs leave different bytes in device memory, or
 * if the kernel from PTX fails. One object exists at a time. */
class twin {
public:
    /* races: also check the accesses of kernels from PTX (shadow.cpp), several times slower. */
    explicit twin(program *p, bool races = false);
    ~twin();
    twin_counts counts;

private:
    program *kernels;
    bool races;
    static twin *now;
    static int both(const kernel_call &c);
    int run_both(const kernel_call &c);
};

} // namespace ptx
} // namespace simt

#endif
