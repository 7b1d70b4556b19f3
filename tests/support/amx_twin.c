/* linear_amx.c for processors with AVX-512 but without AMX: emulates its tile instructions in plain C. Input that the
 * processor would refuse (unconfigured tiles, shapes that do not fit) ends the test. */
#include "backend/cpu/simd.h"

#ifdef PI__SIMD_X86
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/linear.h"

static _Thread_local struct {
    uint8_t rows[8];
    uint16_t row_bytes[8];
    uint8_t data[8][16][64];
} tiles;

static void check(int ok)
{
    if (!ok) abort();
}

static void twin_loadconfig(const void *config)
{
    const uint8_t *p = config;
    check(p[0] == 1);
    for (int i = 1; i < 16; i++) check(p[i] == 0);
    for (int i = 0; i < 16; i++) {
        uint16_t bytes;
        memcpy(&bytes, p + 16 + 2 * i, sizeof bytes);
        check(i < 8 ? bytes <= 64 && p[48 + i] <= 16 && !bytes == !p[48 + i] : !bytes && !p[48 + i]);
        if (i >= 8) continue;
        tiles.rows[i] = p[48 + i];
        tiles.row_bytes[i] = bytes;
    }
    memset(tiles.data, 0, sizeof tiles.data);
}

static void twin_release(void) { memset(&tiles, 0, sizeof tiles); }

static void twin_zero(int t)
{
    check(tiles.rows[t] > 0);
    memset(tiles.data[t], 0, sizeof tiles.data[t]);
}

static void twin_loadd(int t, const void *p, long stride)
{
    twin_zero(t); /* also zeroes the rows and bytes outside the configured shape */
    for (int r = 0; r < tiles.rows[t]; r++) memcpy(tiles.data[t][r], (const char *) p + r * stride, tiles.row_bytes[t]);
}

static void twin_stored(int t, void *p, long stride)
{
    check(tiles.rows[t] > 0);
    for (int r = 0; r < tiles.rows[t]; r++) memcpy((char *) p + r * stride, tiles.data[t][r], tiles.row_bytes[t]);
}

/* c[m][n] += sum over k and i of a[m][4 k + i] (signed) * b[k][4 n + i] (unsigned). */
static void twin_dpbsud(int c, int a, int b)
{
    check(c != a && a != b && b != c && tiles.rows[c] == tiles.rows[a] && tiles.rows[c] > 0);
    check(tiles.row_bytes[c] == tiles.row_bytes[b] && tiles.row_bytes[a] == 4 * tiles.rows[b]);
    for (int m = 0; m < tiles.rows[c]; m++)
        for (int n = 0; n < tiles.row_bytes[c] / 4; n++) {
            int32_t sum;
            memcpy(&sum, tiles.data[c][m] + 4 * n, sizeof sum);
            for (int k = 0; k < tiles.row_bytes[a]; k++)
                sum += (int8_t) tiles.data[a][m][k] * tiles.data[b][k / 4][4 * n + k % 4];
            memcpy(tiles.data[c][m] + 4 * n, &sum, sizeof sum);
        }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#define _tile_loadconfig twin_loadconfig
#define _tile_release twin_release
#define _tile_zero twin_zero
#define _tile_loadd twin_loadd
#define _tile_stored twin_stored
#define _tile_dpbsud twin_dpbsud
#define PI__AMX_TABLE pi__lin_amx_twin
extern const pi__lin_mul_fn PI__AMX_TABLE[2][PI__LK_N];
#include "backend/cpu/linear_amx.c"
#else
typedef int pi_nothing_here; /* ISO C forbids an empty translation unit */
#endif
