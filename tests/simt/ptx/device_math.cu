/* The library functions that kernels call, as nvcc implements them. tests/simt/ptx/device_math.cpp runs them in place
 * of the host's, whose last bits differ. */
#define DEVICE extern "C" __device__ float
DEVICE device_expf(float x) { return expf(x); }
DEVICE device_expm1f(float x) { return expm1f(x); }
DEVICE device_logf(float x) { return logf(x); }
DEVICE device_log1pf(float x) { return log1pf(x); }
DEVICE device_sinf(float x) { return sinf(x); }
DEVICE device_cosf(float x) { return cosf(x); }
DEVICE device_tanhf(float x) { return tanhf(x); }
DEVICE device_erff(float x) { return erff(x); }
