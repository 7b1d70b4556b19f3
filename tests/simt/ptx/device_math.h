/* Replaces the host's mathematical functions: see device_math.cpp. */
#ifndef SIMT_PTX_DEVICE_MATH_H
#define SIMT_PTX_DEVICE_MATH_H

#include "program.h"

namespace simt {
namespace ptx {

/* Uses the program's functions device_NAME from now on; NULL = the host's. */
void use_math(program *p);

} // namespace ptx
} // namespace simt

#endif
