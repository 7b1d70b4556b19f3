/* The self-test that is asked for (pi_selftest): what a device computes against references on the host, and how fast.
 *
 * selftest.c takes the request apart. device.cpp runs the checks of kernels (check_*.cpp) on a CUDA device, or on the
 * emulator, and measures it (measure.cpp); cpu.c checks the CPU's products. The report is lines of text, passed on as they
 * are found. The other self-test, of milliseconds whenever an engine opens, is backend/cuda/selftest.c. */
#ifndef PI__SELFTEST_H
#define PI__SELFTEST_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/device.h"

typedef struct pi__selftest {
    const char *device;   /* as option device has it: one, or NULL for the best */
    const char *checks;   /* words: "linear", "linear.formats", "rates"; NULL or "": all */
    pi__cpu_params cpu;   /* of the options */
    pi_line_fn fn;        /* gets the report's lines */
    void *ud;
    int n_failed, n_done; /* checks so far */
} pi__selftest;

/* PI_OK: all is right. PI_EDEVICE: something is not, as the report says; others: it could not be done. */
int pi__selftest_run(pi__selftest *t, pi_error *err);

/* A line of the report. */
void pi__selftest_line(const pi__selftest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether the words ask for a family, or for one of its checks. */
bool pi__selftest_wants(const pi__selftest *t, const char *family, const char *check);

/* device.cpp, of a device's number: the error is that it could not begin. */
int pi__selftest_device(pi__selftest *t, const char *name, int32_t index, pi_error *err);
/* Words that checks may name there, after cpu.c's. */
const char *pi__selftest_device_family(int i);
/* cpu.c */
int pi__selftest_cpu(pi__selftest *t, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
