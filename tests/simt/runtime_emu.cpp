/* The runtime of the CUDA backend over the emulator: device memory that only looks separate, kernels that are done when
 * their launch returns. */
#include <cstdio>

#include "backend/cuda/runtime.h"
#include "simt.h"

struct pi__rt {
    int unused;
};
static pi__rt the_device;

const char *pi__rt_text(int code)
{
    (void) code;
    return *simt::last_error() ? simt::last_error() : "no such device";
}

int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info)
{
    *out = index == 0 ? &the_device : nullptr;
    snprintf(info->name, sizeof info->name, "emu");
    info->n_sm = 4;
    return index != 0;
}

void pi__rt_close(pi__rt *) {}

int pi__rt_alloc(pi__rt *, void **out, size_t size)
{
    *out = simt::device_alloc(size);
    if (*out) std::memset(*out, 0, size);
    return 0;
}
void pi__rt_free(pi__rt *, void *p) { simt::device_free(p); }

int pi__rt_host_alloc(pi__rt *, void **out, size_t size)
{
    *out = std::malloc(size);
    return 0;
}
void pi__rt_host_free(pi__rt *, void *p) { std::free(p); }

int pi__rt_upload(pi__rt *, void *dst, const void *src, size_t n)
{
    std::memcpy(dst, src, n);
    return 0;
}
int pi__rt_download(pi__rt *, void *dst, const void *src, size_t n)
{
    std::memcpy(dst, src, n);
    return 0;
}
int pi__rt_wait(pi__rt *) { return 0; }
void *pi__rt_stream(pi__rt *) { return nullptr; }
