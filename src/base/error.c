/* Texts of error codes, and filling a pi_error. No state, no memory. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#define PI__STR2(x) #x
#define PI__STR(x) PI__STR2(x)

int pi_abi_version(void) { return PI_ABI_VERSION; }

const char *pi_version(void)
{
    return PI__STR(PI_VERSION_MAJOR) "." PI__STR(PI_VERSION_MINOR) "." PI__STR(PI_VERSION_PATCH);
}

const char *pi_strerror(int code)
{
    switch (code) {
#define X(name, value, text, retryable) case name: return text;
        PI_ERRORS(X)
#undef X
    }
    return "unknown error";
}

const char *pi_err_name(int code)
{
    switch (code) {
#define X(name, value, text, retryable) case name: return #name;
        PI_ERRORS(X)
#undef X
    }
    return "PI_UNKNOWN";
}

int pi__fail(pi_error *err, int code, const char *fmt, ...)
{
    if (!err) return code;
    err->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    return code;
}

int pi__fail_mem(pi_error *err, const char *what) { return pi__fail(err, PI_ENOMEM, "out of memory for %s", what); }
