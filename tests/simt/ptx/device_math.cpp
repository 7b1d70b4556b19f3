/* The mathematical functions of this program are those of nvcc's library, so that kernels from both front ends give the
 * same bits. device_math.cu defines them; a program that links this file loads its PTX (use_math). Until then, and in
 * functions that the module lacks, they are the host's. */
#include "device_math.h"

#include <dlfcn.h>

extern "C" {
float expf(float);
float expm1f(float);
float logf(float);
float log1pf(float);
float sinf(float);
float cosf(float);
void sincosf(float, float *, float *);
float tanhf(float);
float erff(float);
}

namespace simt {
namespace ptx {

static program *with;

void use_math(program *p) { with = p; }

/* Calls device_NAME, of one float. d: the function once it is known. */
static float call(const char *name, float x, const decoded **d)
{
    if (with && !*d) *d = with->find(std::string("device_") + name);
    if (with && *d) return call_float(**d, x);
    void *host = dlsym(RTLD_NEXT, name);
    return reinterpret_cast<float (*)(float)>(host)(x);
}

} // namespace ptx
} // namespace simt

#define DEFINE(name)                          \
    float name(float x)                       \
    {                                         \
        static const simt::ptx::decoded *d;   \
        return simt::ptx::call(#name, x, &d); \
    }
extern "C" {
DEFINE(expf)
DEFINE(expm1f)
DEFINE(logf)
DEFINE(log1pf)
DEFINE(sinf)
DEFINE(cosf)
DEFINE(tanhf)
DEFINE(erff)
void sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
}
