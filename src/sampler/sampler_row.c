/* Passes over a row of logits; selection and sorting of keys.
 *
 * A row has one entry per vocabulary token (262,144 and more), so each pass is a loop that compilers vectorize. It has
 * sixteen parallel accumulators, so the order of sums does not depend on the instruction set. Selection is quickselect
 * with pseudo-random pivots: linear on average for any input. The selected set is unique because keys differ. No
 * memory, no state. */
#include "sampler/sampler_impl.h"

enum { LANES = 16, BLOCK = PI__LOGITS_BLOCK };

float pi__row_max(const float *x, int32_t n, bool *odd)
{
    float m[LANES];
    int32_t bad = 0, i = 0;
    for (int j = 0; j < LANES; j++) m[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
            bad |= !(x[i + j] <= FLT_MAX);
        }
    }
    for (; i < n; i++) {
        m[0] = x[i] > m[0] ? x[i] : m[0];
        bad |= !(x[i] <= FLT_MAX);
    }
    for (int j = 1; j < LANES; j++) m[0] = m[j] > m[0] ? m[j] : m[0];
    if (odd) *odd = bad;
    return m[0];
}

int32_t pi__argmax(const float *x, int32_t n)
{
    float best = -INFINITY;
    int32_t at = -1;
    /* Find the first block with the largest maximum, then search it from its start: the first of equal values wins. */
    for (int32_t i = 0; i < n; i += BLOCK) {
        int32_t len = n - i < BLOCK ? n - i : BLOCK;
        float m = pi__row_max(x + i, len, NULL);
        if (m > best) {
            best = m;
            at = i;
        }
    }
    if (at < 0) return -1;
    while (x[at] != best) at++;
    return at;
}

/* Returns the sum of exp(x - max) over at most BLOCK values: few enough to add in float within a lane. */
static double block_exp_sum(const float *x, int32_t n, float max)
{
    float e[BLOCK], s[LANES] = {0};
    double sum = 0;
    for (int32_t i = 0; i < n; i++) e[i] = pi__exp_neg(x[i] - max);
    memset(e + n, 0, (size_t) (BLOCK - n) * sizeof *e);
    for (int32_t i = 0; i < BLOCK; i += LANES) {
        for (int j = 0; j < LANES; j++) s[j] += e[i + j];
    }
    for (int j = 0; j < LANES; j++) sum += (double) s[j];
    return sum;
}

void pi__row_allow(float *x, int32_t n, const uint64_t *allowed)
{
    for (int32_t i = 0; i < n; i += 64) {
        const int32_t len = n - i < 64 ? n - i : 64;
        const uint64_t bits = allowed[i >> 6];
        uint64_t out = ~bits & (len < 64 ? ((uint64_t) 1 << len) - 1 : UINT64_MAX);
        if (!bits) { /* fast path: most mask words are all ones or all zeros */
            for (int32_t j = 0; j < len; j++) x[i + j] = -INFINITY;
            continue;
        }
        for (; out; out &= out - 1) x[i + __builtin_ctzll(out)] = -INFINITY;
    }
}

double pi__row_exp_sum(const float *x, int32_t n, float max)
{
    /* s[j] adds blocks j, j + PI__LOGITS_RUNS, ...: a device computes these sums in parallel */
    double s[PI__LOGITS_RUNS] = {0}, sum = 0;
    for (int32_t i = 0, b = 0; i < n; i += BLOCK, b++)
        s[b % PI__LOGITS_RUNS] += block_exp_sum(x + i, n - i < BLOCK ? n - i : BLOCK, max);
    for (int j = 0; j < PI__LOGITS_RUNS; j++) sum += s[j];
    return sum;
}

/* Finds the block in which the running sum exceeds the target, then the value in it. If rounding keeps the sum at or
 * below the target, draws the last value with a weight above 0. */
int32_t pi__row_draw(const float *x, int32_t n, float max, double u)
{
    const double target = u * pi__row_exp_sum(x, n, max);
    double sum = 0;
    for (int32_t i = 0; i < n; i += BLOCK) {
        const int32_t end = n - i < BLOCK ? n : i + BLOCK;
        const double b = block_exp_sum(x + i, end - i, max);
        if (sum + b <= target) {
            sum += b;
            continue;
        }
        int32_t last = i;
        for (int32_t j = i; j < end && sum <= target; j++) {
            const float w = pi__exp_neg(x[j] - max);
            if (w > 0) last = j;
            sum += (double) w;
        }
        return last;
    }
    while (n > 0 && !(pi__exp_neg(x[n - 1] - max) > 0)) n--;
    return n - 1;
}

/* Returns the sum of exp(logit - max) over the keys from i on that belong to the same block of the row as key[i]. *end
 * receives the index after the last of them. */
static double keys_exp_sum(const uint64_t *key, size_t n, size_t i, float max, size_t *end)
{
    const int32_t block = pi__key_id(key[i]) / BLOCK;
    float s[LANES] = {0};
    double sum = 0;
    for (; i < n && pi__key_id(key[i]) / BLOCK == block; i++)
        s[pi__key_id(key[i]) % LANES] += pi__exp_neg(pi__key_logit(key[i]) - max);
    for (int j = 0; j < LANES; j++) sum += (double) s[j];
    *end = i;
    return sum;
}

int32_t pi__keys_draw(const uint64_t *key, size_t n, float max, double u)
{
    double s[PI__LOGITS_RUNS] = {0}, all = 0, sum = 0;
    size_t end = 0;
    for (size_t i = 0; i < n; i = end) {
        const double b = keys_exp_sum(key, n, i, max, &end);
        s[pi__key_id(key[i]) / BLOCK % PI__LOGITS_RUNS] += b;
    }
    for (int j = 0; j < PI__LOGITS_RUNS; j++) all += s[j];
    const double target = u * all;
    for (size_t i = 0; i < n; i = end) {
        const double b = keys_exp_sum(key, n, i, max, &end);
        if (sum + b <= target) {
            sum += b;
            continue;
        }
        size_t last = i;
        for (size_t j = i; j < end && sum <= target; j++) {
            const float w = pi__exp_neg(pi__key_logit(key[j]) - max);
            if (w > 0) last = j;
            sum += (double) w;
        }
        return pi__key_id(key[last]);
    }
    while (n > 0 && !(pi__exp_neg(pi__key_logit(key[n - 1]) - max) > 0)) n--;
    return n ? pi__key_id(key[n - 1]) : -1;
}

/* Returns true if any of n values is above t. */
static bool any_above(const float *x, int32_t n, float t)
{
    int32_t any = 0;
    for (int32_t j = 0; j < n; j++) any |= x[j] > t;
    return any;
}

size_t pi__row_gather(const float *x, int32_t n, float limit, uint64_t *key)
{
    size_t got = 0;
    float below = limit > -INFINITY ? nextafterf(limit, -INFINITY) : -INFINITY;
    for (int32_t i = 0; i < n; i += 64) {
        int32_t len = n - i < 64 ? n - i : 64;
        if (!any_above(x + i, len, below)) continue;
        for (int32_t j = i; j < i + len; j++) {
            if (x[j] > below) key[got++] = pi__logit_key(pi__logit_clamp(x[j]), j);
        }
    }
    return got;
}

size_t pi__row_top(const float *x, int32_t n, int32_t k, uint64_t *key)
{
    size_t got = 0, want = (size_t) (k < n ? k : n), cap = want * 2 + 256;
    float t = -INFINITY; /* values at or below t cannot be among the k largest: on ties, later ids lose */
    if (cap > (size_t) n) cap = (size_t) n;
    for (int32_t i = 0; i < n; i += 64) {
        int32_t len = n - i < 64 ? n - i : 64;
        if (!any_above(x + i, len, t)) continue;
        for (int32_t j = i; j < i + len; j++) {
            if (!(x[j] > t)) continue;
            if (got == cap) {
                pi__keys_select(key, got, want);
                got = want;
                uint64_t worst = 0;
                for (size_t a = 0; a < want; a++) worst = key[a] > worst ? key[a] : worst;
                t = pi__key_logit(worst);
                if (!(x[j] > t)) continue;
            }
            key[got++] = pi__logit_key(pi__logit_clamp(x[j]), j);
        }
    }
    if (got > want) {
        pi__keys_select(key, got, want);
        got = want;
    }
    return got;
}

/* Returns a pivot index in [0, n). It is pseudo-random, so that common input orders are not a worst case. */
static size_t pivot_index(uint64_t *state, size_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (size_t) ((*state >> 33) % n);
}

/* Partitions key[0..n) by the pivot key[p]. Returns m: key[m] is then the pivot, smaller keys are before it and larger
 * ones after it. */
static size_t partition(uint64_t *key, size_t n, size_t p)
{
    uint64_t pivot = key[p];
    size_t m = 0;
    key[p] = key[n - 1];
    for (size_t i = 0; i + 1 < n; i++) { /* no branch: always swap; m advances only for smaller keys */
        uint64_t a = key[i];
        key[i] = key[m];
        key[m] = a;
        m += a < pivot;
    }
    key[n - 1] = key[m];
    key[m] = pivot;
    return m;
}

void pi__keys_select(uint64_t *key, size_t n, size_t k)
{
    uint64_t rng = n;
    while (k > 0 && k < n && n > 1) {
        size_t m = partition(key, n, pivot_index(&rng, n));
        if (m >= k) {
            n = m; /* the pivot and all keys after it are not among the k */
        } else {
            key += m + 1;
            n -= m + 1;
            k -= m + 1;
        }
    }
}

void pi__keys_sort(uint64_t *key, size_t n)
{
    uint64_t rng = n;
    while (n > 24) { /* recurse into the shorter side, so that the depth is at most log2(n) */
        size_t m = partition(key, n, pivot_index(&rng, n));
        if (m < n - m - 1) {
            pi__keys_sort(key, m);
            key += m + 1;
            n -= m + 1;
        } else {
            pi__keys_sort(key + m + 1, n - m - 1);
            n = m;
        }
    }
    for (size_t i = 1; i < n; i++) {
        uint64_t a = key[i];
        size_t j = i;
        for (; j > 0 && key[j - 1] > a; j--) key[j] = key[j - 1];
        key[j] = a;
    }
}

/* Swaps the 32-bit halves of each key: logit in the high half becomes id in the high half, or back. */
static void swap_halves(uint64_t *key, size_t n)
{
    for (size_t i = 0; i < n; i++) key[i] = key[i] << 32 | key[i] >> 32;
}

void pi__keys_sort_by_id(uint64_t *key, size_t n)
{
    size_t i = 1;
    while (i < n && pi__key_id(key[i - 1]) < pi__key_id(key[i])) i++;
    if (i >= n) return;
    swap_halves(key, n);
    pi__keys_sort(key, n);
    swap_halves(key, n);
}

size_t pi__keys_select_mass(uint64_t *key, size_t n, const float *weight, double target, size_t min_n)
{
    uint64_t rng = n;
    size_t kept = 0, all = n; /* key[0..kept) are kept; the end of the set is within the next n keys */
    double mass = 0;
    while (n > 0) {
        uint64_t *k = key + kept;
        size_t m = partition(k, n, pivot_index(&rng, n));
        double part = 0;
        for (size_t i = 0; i < m; i++) part += (double) weight[pi__key_id(k[i])];
        /* The keys before the pivot suffice: the set ends among them. */
        if (m > 0 && kept + m >= min_n && mass + part > target) {
            n = m;
            continue;
        }
        mass += part + (double) weight[pi__key_id(k[m])];
        kept += m + 1;
        n -= m + 1;
        if (kept >= min_n && mass > target) return kept;
    }
    return kept < all ? kept : all;
}
