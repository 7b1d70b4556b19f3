/* An index of strings: open addressing, at most half full, SipHash-1-3 keyed at random.
 *
 * The strings come from a file that may be hostile. With a fixed hash, an attacker could write a million keys that
 * all hash to one slot, and reading them would take hours. Memory: one array of 4-byte slots. Read-only once
 * built. */
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "gguf/gguf_priv.h"

static inline uint64_t rotl(uint64_t x, int n) { return x << n | x >> (64 - n); }

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1]; v[1] = rotl(v[1], 13); v[1] ^= v[0]; v[0] = rotl(v[0], 32);
    v[2] += v[3]; v[3] = rotl(v[3], 16); v[3] ^= v[2];
    v[0] += v[3]; v[3] = rotl(v[3], 21); v[3] ^= v[0];
    v[2] += v[1]; v[1] = rotl(v[1], 17); v[1] ^= v[2]; v[2] = rotl(v[2], 32);
}

static uint64_t hash(const uint64_t key[2], const char *s, size_t n)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
                     key[1] ^ 0x7465646279746573u};
    size_t i = 0;
    uint64_t w;
    for (; n - i >= 8; i += 8) {
        memcpy(&w, s + i, 8);
        v[3] ^= w;
        sip_round(v);
        v[0] ^= w;
    }
    w = 0;
    if (n > i) memcpy(&w, s + i, n - i);
    w |= (uint64_t) n << 56;
    v[3] ^= w;
    sip_round(v);
    v[0] ^= w;
    v[2] ^= 0xff;
    for (int r = 0; r < 3; r++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Makes a random key. Without random bytes (a very old kernel), the clock and an address still differ between runs. */
static void make_key(pi__strmap *m)
{
    if (getrandom(m->key, sizeof m->key, GRND_NONBLOCK) == (ssize_t) sizeof m->key) return;
    m->key[0] = (uint64_t) pi__now_ns() * 0x9e3779b97f4a7c15u;
    m->key[1] = (uint64_t) (uintptr_t) m->slot * 0xc2b2ae3d27d4eb4fu;
}

static const pi__str *item(const pi__strmap *m, size_t i)
{
    return (const pi__str *) (const void *) (m->items + i * m->stride);
}

/* Returns the slot that holds s, or the empty slot for it. */
static size_t probe(const pi__strmap *m, const char *s, size_t n)
{
    size_t i = (size_t) hash(m->key, s, n) & m->mask;
    while (m->slot[i]) {
        const pi__str *it = item(m, m->slot[i] - 1);
        if (it->n == n && (n == 0 || memcmp(it->p, s, n) == 0)) break;
        i = (i + 1) & m->mask;
    }
    return i;
}

int pi__strmap_build(pi__strmap *m, const void *items, size_t stride, size_t n, size_t *dup)
{
    *m = (pi__strmap) {.items = items, .stride = stride};
    if (n == 0) return PI_OK;
    if (n >= UINT32_MAX / 4) return PI_ENOMEM;
    size_t slots = 4;
    while (slots < 2 * n) slots *= 2;
    m->slot = pi__calloc(slots, sizeof *m->slot);
    if (!m->slot) return PI_ENOMEM;
    m->mask = slots - 1;
    make_key(m);
    for (size_t i = 0; i < n; i++) {
        const pi__str *it = item(m, i);
        size_t at = probe(m, it->p, it->n);
        if (m->slot[at]) {
            *dup = i;
            return PI_EINVAL;
        }
        m->slot[at] = (uint32_t) i + 1;
    }
    return PI_OK;
}

int64_t pi__strmap_find(const pi__strmap *m, const char *s, size_t n)
{
    if (!m->slot) return -1;
    return (int64_t) m->slot[probe(m, s, n)] - 1;
}

void pi__strmap_free(pi__strmap *m)
{
    pi__free(m->slot);
    *m = (pi__strmap) {0};
}
