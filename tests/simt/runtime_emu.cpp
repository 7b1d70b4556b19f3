/* The runtime of the CUDA backend over the emulator: device memory that only looks separate, kernels that are done when
 * their launch returns.
 *
 * Copies beside the queue are as bad as they may be: one half of the bytes moves at once, the other when the copy is said
 * to have ended, which is 0 to 3 questions later. */
#include <cstdio>
#include <deque>

#include "backend/cuda/runtime.h"
#include "simt.h"

struct copy {
    char *dst;
    const char *src;
    size_t n;      /* bytes of the second half */
    unsigned left; /* questions that find it under way */
};

struct pi__rt {
    std::deque<copy> copies; /* under way */
    uint64_t n_copies = 0;   /* queued so far */
    uint64_t rng = 1;        /* how long they take */
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

void pi__rt_close(pi__rt *rt) { rt->copies.clear(); }

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

static int copy_beside(pi__rt *rt, void *dst, const void *src, size_t n)
{
    if (simt::options.fail_copy >= 0 && simt::options.fail_copy-- == 0) return 1;
    rt->rng = rt->rng * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(dst, src, n / 2);
    rt->copies.push_back({static_cast<char *>(dst) + n / 2, static_cast<const char *>(src) + n / 2, n - n / 2,
                          (unsigned) (rt->rng >> 62)});
    rt->n_copies++;
    return 0;
}
int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n) { return copy_beside(rt, dst, src, n); }
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n) { return copy_beside(rt, dst, src, n); }

int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended)
{
    while (!rt->copies.empty() && (wait || rt->copies.front().left-- == 0)) {
        const copy &c = rt->copies.front();
        std::memcpy(c.dst, c.src, c.n);
        rt->copies.pop_front();
    }
    *ended = rt->n_copies - rt->copies.size();
    return 0;
}

int pi__rt_pin(pi__rt *, void *, size_t) { return simt::options.fail_pin; }
void pi__rt_unpin(pi__rt *, void *) {}
int pi__rt_wait(pi__rt *) { return 0; }
void *pi__rt_stream(pi__rt *) { return nullptr; }
