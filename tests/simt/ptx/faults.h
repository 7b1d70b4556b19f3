/* Mistakes in inline assembly that only kernels from PTX show: see faults.cu. */
#ifndef SIMT_PTX_FAULTS_H
#define SIMT_PTX_FAULTS_H

#include "program.h"

namespace simt {
namespace ptx {

/* Prints a line for each mistake. Returns the number of mistakes that were not found. */
int run_faults(program *p);

} // namespace ptx
} // namespace simt

#endif
