/* The self-test on request (pi_selftest): compares a device's results with references on the host, and measures its
 * speed.
 *
 * selftest.c parses the request. device.cpp runs the kernel checks (check_*.cpp) on a CUDA device, or on the emulator,
 * and measures its speed (measure.cpp). cpu.c checks the CPU's products. The report is lines of text; each is passed on
 * immediately. A different self-test (backend/cuda/selftest.c) takes milliseconds and runs whenever an engine opens. */
#ifndef PI__SELFTEST_H
#define PI__SELFTEST_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/devices.h"

enum { PI__SELFTEST_SCHEMA = 1 }; /* version of the JSON object; docs/CARDS.md describes it */

/* A JSON object while it is written (report.c). */
typedef struct pi__selftest_json {
    bool on;              /* the report is a JSON object instead of lines */
    bool failed;          /* out of memory */
    bool comma;           /* the next value follows another one */
    char *p;              /* n bytes and a NUL; NULL = empty */
    size_t n, size;
} pi__selftest_json;

typedef struct pi__selftest {
    const char *device;   /* one device, as in option device; NULL = the best device */
    /* list of words, separated by commas or spaces: a family ("linear"), a check ("linear.formats") or "rates"; NULL or
     * "" = all */
    const char *checks;
    pi__device_params params; /* options of the devices */
    pi_line_fn fn;        /* receives the report's lines */
    void *ud;
    uint32_t stress;      /* seconds of the stress test, which replaces checks and rates; 0 = no stress test */
    uint64_t seed;        /* first seed of the stress test */
    pi__selftest_json json;
    const char *issues;   /* address of the project's issues, for the last line of the report; "" = unknown */
    char summary[200];    /* device and driver in one line, for the address of a report */
    int n_failed, n_done; /* failed checks and completed checks so far */
} pi__selftest;

/* Returns PI_OK if all checks pass, PI_EDEVICE if one fails (see the report), other codes if the test could not
 * run. */
int pi__selftest_run(pi__selftest *t, pi_error *err);

/* Calls f(ud, word, its length) for each word of the list until f returns true. Returns true if f did. */
bool pi__selftest_any_word(const char *list, bool (*f)(void *ud, const char *word, size_t n), void *ud);
/* Passes a line of the report to `fn`; does nothing if the report is a JSON object. */
void pi__selftest_line(const pi__selftest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns true if t->checks selects the check; with check NULL, if it selects the family or any of its checks. */
bool pi__selftest_wants(const pi__selftest *t, const char *family, const char *check);

/* Parts of the JSON object; they do nothing without t->json.on. key: NULL in arrays. open: '{' or '['; close: '}' or
 * ']'. A number that is not finite is null. */
void pi__selftest_open(pi__selftest *t, const char *key, char open);
void pi__selftest_close(pi__selftest *t, char close);
void pi__selftest_text(pi__selftest *t, const char *key, const char *value);
void pi__selftest_number(pi__selftest *t, const char *key, double value);
void pi__selftest_bool(pi__selftest *t, const char *key, bool value);
/* Adds a check to the open array. status: "ok", "failed" or "skipped". worst: the largest error as a part of its bound;
 * 0 = not measured. text: reason of a failure or a skip; "" = none. */
void pi__selftest_check(pi__selftest *t, const char *family, const char *check, const char *status, double seconds,
                        double worst, const char *text);
/* Ends the report: the line with the result, and where to send a report; or the JSON object. Returns PI_OK or
 * PI_ENOMEM. */
int pi__selftest_end(pi__selftest *t, pi_error *err);

/* Tests the device with that index (device.cpp). Failed checks are counted in t; returns an error only if the test
 * could not begin. */
int pi__selftest_device(pi__selftest *t, const char *name, int32_t index, pi_error *err);
/* Returns the name of check family i of device.cpp, as used in `checks`; NULL after the last one. */
const char *pi__selftest_device_family(int i);
/* Tests the CPU (cpu.c); failed checks are counted in t. */
int pi__selftest_cpu(pi__selftest *t, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
