/* The self-test on request (pi_selftest): compares a device's results with references on the host, and measures its
 * speed.
 *
 * selftest.c parses the request. device.cpp runs the kernel checks (check_*.cpp) on a CUDA device, or on the
 * emulator, and measures it (measure.cpp); cpu.c checks the CPU's products. The report is lines of text, passed on
 * immediately. The other self-test (backend/cuda/selftest.c) takes milliseconds and runs whenever an engine opens. */
#ifndef PI__SELFTEST_H
#define PI__SELFTEST_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/devices.h"

typedef struct pi__selftest {
    const char *device;   /* one device, as in option device; NULL = the best device */
    const char *checks;   /* words: "linear", "linear.formats", "rates"; NULL or "" = all */
    pi__device_params params; /* options of the devices */
    pi_line_fn fn;        /* receives the report's lines */
    void *ud;
    int n_failed, n_done; /* checks so far */
} pi__selftest;

/* Returns PI_OK if all checks pass, PI_EDEVICE if one fails (see the report), other codes if the test could not
 * run. */
int pi__selftest_run(pi__selftest *t, pi_error *err);

/* Calls f with each word of the list until f returns true. Returns true if f did. */
bool pi__selftest_any_word(const char *list, bool (*f)(void *ud, const char *word, size_t n), void *ud);
/* Passes a line of the report to `fn`. */
void pi__selftest_line(const pi__selftest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* True if the words select the family, or one of its checks. */
bool pi__selftest_wants(const pi__selftest *t, const char *family, const char *check);

/* Tests the device with that index (device.cpp). Fails only if the test could not begin. */
int pi__selftest_device(pi__selftest *t, const char *name, int32_t index, pi_error *err);
/* Name of check family i, for `checks`; families follow the words of cpu.c; NULL after the last one. */
const char *pi__selftest_device_family(int i);
/* cpu.c */
int pi__selftest_cpu(pi__selftest *t, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
