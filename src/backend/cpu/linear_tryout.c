/* Self-test of kernels on canonical tiles before their first use. Used for AMX, which no test machine had. Results must
 * be bitwise identical to the kernels of AVX-512. Entry point: pi__lin_agrees. No memory. Threads: any. */
#include <string.h>

#include "backend/cpu/linear.h"

enum { BLOCKS = 3, MOST = PI__LIN_COLS };

/* A random canonical tile, a random group of activations, and the results y of both kernels. Scales are below 0.5, so
 * float sums stay finite. */
typedef struct trial {
    _Alignas(64) uint8_t tile[BLOCKS * 768];
    _Alignas(64) int8_t q[BLOCKS * MOST * 64];
    float d[BLOCKS * MOST], ds[BLOCKS * MOST], dsh[2 * BLOCKS * MOST];
    int32_t n7[BLOCKS * MOST], n7h[2 * BLOCKS * MOST];
    float y[2][MOST * 16];
} trial;

static uint32_t next(uint32_t *rng)
{
    *rng ^= *rng << 13, *rng ^= *rng >> 17, *rng ^= *rng << 5;
    return *rng;
}

static void floats(uint32_t *rng, float *to, int n)
{
    for (int i = 0; i < n; i++) to[i] = (float) (int32_t) (next(rng) % 65536) / 65536.0f - 0.5f;
}

static void fill(trial *t, int kind)
{
    uint32_t rng = 2463534242u;
    const size_t size = pi__lin_block_size(kind);
    for (int b = 0; b < BLOCKS; b++) {
        float scale[64];
        floats(&rng, scale, 64);
        for (int i = 0; i < 512; i++) t->tile[(size_t) b * size + (size_t) i] = (uint8_t) next(&rng);
        memcpy(t->tile + (size_t) b * size + 512, scale, size - 512);
    }
    for (size_t i = 0; i < sizeof t->q; i++) t->q[i] = (int8_t) ((int32_t) (next(&rng) % 255) - 127);
    floats(&rng, t->d, BLOCKS * MOST);
    floats(&rng, t->ds, BLOCKS * MOST);
    floats(&rng, t->dsh, 2 * BLOCKS * MOST);
    for (int i = 0; i < BLOCKS * MOST; i++) t->n7[i] = -128 * (int32_t) (next(&rng) % 8192);
    for (int i = 0; i < 2 * BLOCKS * MOST; i++) t->n7h[i] = -128 * (int32_t) (next(&rng) % 4096);
}

bool pi__lin_agrees(const pi__cpu_linear_kernels *k, const pi__lin_mul_fn *many)
{
    trial t;
    for (int kind = PI__LK_OFF32; kind <= PI__LK_MIN16; kind++) {
        fill(&t, kind);
        for (int32_t cols = PI__LIN_MANY; many[kind] && cols <= k->max_cols; cols++) {
            const pi__lin_w w = {.data = t.tile, .n_in = 32 * BLOCKS};
            const pi__lin_x x = {.cols = cols, .q = t.q, .d = t.d, .n7 = t.n7, .ds = t.ds, .n7h = t.n7h, .dsh = t.dsh};
            const int32_t lanes = cols % 2 ? 16 : 11;
            memset(t.y, 0, sizeof t.y);
            k->mul[kind][cols](&w, &x, &(pi__lin_y) {.y = t.y[0], .ld = 16, .lanes = lanes, .scale = 0.75f});
            many[kind](&w, &x, &(pi__lin_y) {.y = t.y[1], .ld = 16, .lanes = lanes, .scale = 0.75f});
            if (memcmp(t.y[0], t.y[1], sizeof t.y[0])) return false;
        }
    }
    return true;
}
