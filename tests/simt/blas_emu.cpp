/* The BLAS library of blas.h, on the emulator: a product is queued like a kernel. The order of its sums depends on
 * the number of rows, as in real libraries. */
#include <cstring>

#include "backend/cuda/blas.h"
#include "runtime_emu.h"
#include "simt.h"

extern "C" {
#include "formats/formats.h"
}

enum { NO_WORKSPACE = 101, WORKSPACE = 1 << 16 };

struct pi__blas {
    simt::stream *queue;
    char *workspace; /* NULL = none was set */
    size_t size;     /* bytes of the workspace */
};

/* Queues work and makes its device the current one, as the library's calls do (blas.h). */
static int given(simt::stream *queue, std::function<int()> work)
{
    simt::current_device = queue->device();
    return queue->take(std::move(work));
}

int pi__blas_open(pi__blas **out, pi__rt *rt)
{
    *out = nullptr;
    if (simt::watch.no_library) return 0;
    simt::stream *queue = static_cast<simt::stream *>(pi__rt_stream(rt));
    int code = given(queue, [] { return 0; });
    if (code) return code;
    *out = new pi__blas{queue, nullptr, 0};
    simt::watch.live++;
    return 0;
}

void pi__blas_close(pi__blas *b)
{
    if (!b) return;
    simt::watch.live--;
    delete b;
}

size_t pi__blas_workspace(const pi__blas *) { return WORKSPACE; }

int pi__blas_use(pi__blas *b, void *workspace, size_t size)
{
    b->workspace = static_cast<char *>(workspace);
    b->size = size;
    return given(b->queue, [] { return 0; });
}

static float value(const pi__gemm &g, const void *p, size_t i)
{
    uint16_t h;
    std::memcpy(&h, static_cast<const char *>(p) + 2 * i, 2);
    return g.bf16 ? pi__bf16_to_f32(h) : pi__f16_to_f32(h);
}

static int run(const pi__gemm &g, char *workspace, size_t size)
{
    simt::visible all;
    std::memset(workspace, 0x5a, size);
    size_t n = (size_t) g.n_in, step = g.n_rows % 2 ? 16 : 48;
    for (size_t r = 0; r < (size_t) g.n_rows; r++) {
        for (size_t o = 0; o < (size_t) g.n_out; o++) {
            float *y = g.y + r * (size_t) g.ldy + o, sum = 0;
            for (size_t at = 0; at < n; at += step) {
                float part = 0;
                for (size_t i = at; i < n && i < at + step; i++)
                    part += value(g, g.w, o * (size_t) g.ldw + i) * value(g, g.x, r * n + i);
                sum += part;
            }
            *y = g.add ? *y + sum : sum;
        }
    }
    return 0;
}

int pi__blas_gemm(pi__blas *b, const pi__gemm *g)
{
    pi__gemm copy = *g;
    simt::watch.n_products++;
    if (!b->workspace) return NO_WORKSPACE;
    if (simt::watch.wrong_products) copy.n_rows--;
    char *workspace = b->workspace;
    size_t size = b->size;
    return given(b->queue, [=] { return run(copy, workspace, size); });
}
