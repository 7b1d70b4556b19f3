/* Filters of the sampler chain.
 *
 * The definitions are llama.cpp's, but filters select (quickselect) instead of sorting. Every filter keeps at least one
 * candidate. Filters use the scratch of the caller's thread and keep no state. Sums are in double or in integers. */
#include "sampler/sampler_impl.h"

/* Returns the row's maximum, after clamping NaN and +inf in the row (pi__logit_clamp). Sets v->clean. */
static float clean_row(pi__cands *v)
{
    bool odd = false;
    float max = pi__row_max(v->row, v->n_row, &odd);
    if (odd && !v->clean) {
        for (int32_t i = 0; i < v->n_row; i++) v->row[i] = pi__logit_clamp(v->row[i]);
        max = max > FLT_MAX ? FLT_MAX : max;
    }
    v->clean = true;
    return max;
}

float pi__cands_max(pi__cands *v)
{
    if (!v->list) return clean_row(v);
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < v->n; i++) best = v->w->key[i] < best ? v->w->key[i] : best;
    return v->n ? pi__key_logit(best) : -INFINITY;
}

void pi__cands_list(pi__cands *v)
{
    if (v->list) return;
    v->n = pi__row_gather(v->row, v->n_row, -INFINITY, v->w->key);
    v->list = true;
}

double pi__list_weights(pi__cands *v, float max)
{
    double sum = 0;
    for (size_t i = 0; i < v->n; i++) {
        float p = pi__exp_neg(pi__key_logit(v->w->key[i]) - max);
        v->w->weight[pi__key_id(v->w->key[i])] = p;
        sum += (double) p;
    }
    return sum;
}

void pi__stage_top_k(pi__cands *v, int32_t k)
{
    if (v->list) {
        if ((size_t) k >= v->n) return;
        pi__keys_select(v->w->key, v->n, (size_t) k);
        v->n = (size_t) k;
        return;
    }
    v->n = pi__row_top(v->row, v->n_row, k, v->w->key);
    v->list = true;
    if (k <= PI__MAX_TOP) pi__keys_sort(v->w->key, v->n);
}

/* Keeps the list's entries with a logit of at least limit. */
static void list_keep_from(pi__cands *v, float limit)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        if (pi__key_logit(v->w->key[i]) >= limit) v->w->key[n++] = v->w->key[i];
    }
    v->n = n;
}

void pi__cands_keep_from(pi__cands *v, float limit)
{
    if (v->list) {
        list_keep_from(v, limit);
        return;
    }
    v->n = pi__row_gather(v->row, v->n_row, limit, v->w->key);
    v->list = true;
}

/* Returns the number of candidates with a logit of at least limit. */
static size_t count_from(const pi__cands *v, float limit)
{
    size_t n = 0;
    if (v->list) {
        for (size_t i = 0; i < v->n; i++) n += pi__key_logit(v->w->key[i]) >= limit;
    } else {
        for (int32_t i = 0; i < v->n_row; i++) n += v->row[i] >= limit;
    }
    return n;
}

float pi__min_p_limit(float max, float p)
{
    float limit = max + logf(p);
    return limit > max ? max : limit;
}

void pi__stage_min_p(pi__cands *v, float p, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    float limit = pi__min_p_limit(max, p);
    if (min_keep > 1 && count_from(v, limit) < min_keep) {
        pi__stage_top_k(v, min_keep < INT32_MAX ? (int32_t) min_keep : INT32_MAX);
        return;
    }
    pi__cands_keep_from(v, limit);
}

/* Stores the sum of the logits above -inf and the sum of their squared distances from mean; returns their number. */
static size_t moments(const pi__cands *v, double mean, double *sum, double *squares)
{
    enum { LANES = 8 };
    double a[LANES] = {0}, b[LANES] = {0};
    size_t count = 0, i = 0, all = v->list ? v->n : (size_t) v->n_row;
    for (; i < all; i += LANES) {
        float x[LANES];
        for (size_t j = 0; j < LANES; j++) {
            if (i + j >= all) x[j] = -INFINITY;
            else x[j] = v->list ? pi__key_logit(v->w->key[i + j]) : v->row[i + j];
        }
        for (size_t j = 0; j < LANES; j++) {
            bool in = x[j] > -INFINITY;
            double d = in ? (double) x[j] - mean : 0;
            a[j] += in ? (double) x[j] : 0;
            b[j] += d * d;
            count += in;
        }
    }
    *sum = *squares = 0;
    for (size_t j = 0; j < LANES; j++) {
        *sum += a[j];
        *squares += b[j];
    }
    return count;
}

void pi__stage_top_n_sigma(pi__cands *v, float n_sigma)
{
    float max = pi__cands_max(v);
    double sum, squares, mean;
    if (max == -INFINITY) return;
    size_t n = moments(v, 0, &sum, &squares);
    if (n <= 1) return;
    mean = sum / (double) n;
    moments(v, mean, &sum, &squares);
    pi__cands_keep_from(v, (float) ((double) max - (double) n_sigma * sqrt(squares / (double) n)));
}

static uint64_t units_of(uint64_t key, float max) { return pi__weight_units(pi__exp_neg(pi__key_logit(key) - max)); }
static uint32_t far_of(uint64_t key, float max) { return pi__far_below(max, pi__key_logit(key)); }

bool pi__cands_keep_mass(pi__cands *v, uint64_t target, size_t min_n, bool all)
{
    uint64_t *key = v->w->key, mass = 0;
    const float max = pi__key_logit(key[0]);
    size_t n = 0, from, end; /* keys[from, end) have the same distance from max as the last kept key */
    while (n < v->n && (!n || mass < target)) mass += units_of(key[n++], max);
    const bool reached = mass >= target;
    for (end = n; end < v->n && far_of(key[end], max) == far_of(key[n - 1], max);) end++;
    if (!all && (!reached || end == v->n || min_n > v->n)) return false;
    for (from = n; reached && from > 0 && far_of(key[from - 1], max) == far_of(key[end - 1], max);)
        mass -= units_of(key[--from], max);
    if (n < min_n) {
        n = min_n < v->n ? min_n : v->n;
    } else if (reached && end - from > 1) {
        pi__keys_sort_by_id(key + from, end - from);
        for (n = from; !n || mass < target;) mass += units_of(key[n++], max);
    }
    v->n = n;
    return true;
}

/* Applies top-p to a row if the row's PI__MAX_TOP best values include the result; else returns false. */
static bool top_p_of_best(pi__cands *v, uint64_t target, size_t min_keep)
{
    pi__cands best = *v;
    pi__stage_top_k(&best, PI__MAX_TOP);
    if (!best.n || !pi__cands_keep_mass(&best, target, min_keep, best.n < PI__MAX_TOP)) return false;
    *v = best;
    return true;
}

static float logit_at(const pi__cands *v, size_t i) { return v->list ? pi__key_logit(v->w->key[i]) : v->row[i]; }
static size_t n_values(const pi__cands *v) { return v->list ? v->n : (size_t) v->n_row; }

static uint64_t list_mass(const pi__cands *v, float max)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < v->n; i++) sum += units_of(v->w->key[i], max);
    return sum;
}

/* Adds the weight of each of n values to mass[(far >> shift) % bins], far being its distance below max (pi__far_below).
 * Skips values unless the highest `known` bits of far equal those of `found`. */
static void add_masses(const float *x, size_t n, float max, uint32_t found, int known, int shift, uint32_t bins,
                       uint64_t *mass)
{
    enum { SOME = 64 };
    for (size_t i = 0; i < n; i += SOME) {
        const size_t len = n - i < SOME ? n - i : SOME;
        uint32_t far[SOME], any = 0;
        float w[SOME];
        for (size_t j = 0; j < len; j++) far[j] = pi__far_below(max, x[i + j]);
        for (size_t j = 0; j < len && known; j++) any |= (far[j] ^ found) >> (32 - known) == 0;
        if (known && !any) continue;
        for (size_t j = 0; j < len; j++) w[j] = pi__exp_neg(x[i + j] - max);
        for (size_t j = 0; j < len; j++) {
            const bool in = !known || (far[j] ^ found) >> (32 - known) == 0;
            if (in) mass[far[j] >> shift & (bins - 1)] += pi__weight_units(w[j]);
        }
    }
}

/* The set that top-p keeps: all values with a distance below max less than far, and at distance far the ids up to
 * last. */
typedef struct reach {
    uint32_t far; /* UINT32_MAX = all values */
    int32_t last;
} reach;
static bool is_within(reach r, float max, float x, int32_t id)
{
    const uint32_t far = pi__far_below(max, x);
    return far < r.far || (far == r.far && id <= r.last);
}
static int32_t id_at(const pi__cands *v, size_t i) { return v->list ? pi__key_id(v->w->key[i]) : (int32_t) i; }

/* Returns the id at which mass reaches target if the weights of all values at distance far are added in ascending order
 * of ids. Sorts a list by id. */
static int32_t last_of_mass(const pi__cands *v, float max, uint32_t far, uint64_t mass, uint64_t target)
{
    int32_t last = -1;
    if (v->list) pi__keys_sort_by_id(v->w->key, v->n);
    for (size_t i = 0; i < n_values(v) && (last < 0 || mass < target); i++) {
        const float x = logit_at(v, i);
        if (pi__far_below(max, x) != far) continue;
        mass += pi__weight_units(pi__exp_neg(x - max));
        last = id_at(v, i);
    }
    return last;
}

/* Finds the smallest set with a weight of at least target. Its distance is determined in three digits, the highest
 * first; for each digit, the weights of all values with the digits so far are summed by the digit's value. */
static reach reach_of_mass(const pi__cands *v, float max, uint64_t target)
{
    static const uint8_t digits[] = {11, 11, 10}; /* bits */
    /* below: weight of all values with a smaller distance than the digits so far */
    uint64_t mass[1 << 11], below = 0;
    uint32_t found = 0;
    for (int d = 0, known = 0; d < 3; known += digits[d++]) {
        const int shift = 32 - known - digits[d];
        const uint32_t bins = 1u << digits[d];
        uint32_t digit = 0;
        memset(mass, 0, sizeof mass);
        if (!v->list) add_masses(v->row, (size_t) v->n_row, max, found, known, shift, bins, mass);
        for (size_t i = 0; v->list && i < v->n; i++)
            add_masses(&(float) {logit_at(v, i)}, 1, max, found, known, shift, bins, mass);
        while (digit < bins && below + mass[digit] < target) below += mass[digit++];
        if (digit == bins) return (reach) {UINT32_MAX, INT32_MAX};
        found |= digit << shift;
    }
    return (reach) {found, last_of_mass(v, max, found, below, target)};
}

/* Keeps the candidates within reach r; a row stays a row. */
static void keep_within(pi__cands *v, float max, reach r)
{
    size_t n = 0;
    for (int32_t i = 0; i < v->n_row && !v->list; i++)
        if (!is_within(r, max, v->row[i], i)) v->row[i] = -INFINITY;
    for (size_t i = 0; v->list && i < v->n; i++)
        if (is_within(r, max, logit_at(v, i), id_at(v, i))) v->w->key[n++] = v->w->key[i];
    if (v->list) v->n = n;
}

void pi__stage_top_p(pi__cands *v, float p, size_t min_keep)
{
    const float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    const uint64_t target = v->list ? (uint64_t) ((double) p * (double) list_mass(v, max))
                                    : pi__mass_units((double) p * pi__row_exp_sum(v->row, v->n_row, max));
    if (!v->list && top_p_of_best(v, target, min_keep)) return;
    const reach r = reach_of_mass(v, max, target);
    size_t n = 0;
    for (size_t i = 0; i < n_values(v) && n < min_keep; i++) n += is_within(r, max, logit_at(v, i), id_at(v, i));
    if (n < min_keep) pi__stage_top_k(v, min_keep < INT32_MAX ? (int32_t) min_keep : INT32_MAX);
    else keep_within(v, max, r);
}

/* Locally typical sampling: keeps the tokens with a surprise nearest to the entropy until their total probability
 * exceeds p; on ties, the lower id comes first. */
void pi__stage_typical(pi__cands *v, float p, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    pi__cands_list(v);
    uint64_t *key = v->w->key;
    double sum = pi__list_weights(v, max), mean = 0;
    for (size_t i = 0; i < v->n; i++) {
        float w = v->w->weight[pi__key_id(key[i])];
        if (w > 0) mean += (double) w * ((double) pi__key_logit(key[i]) - (double) max);
    }
    /* entropy = log(sum) - mean and -log p = log(sum) - (logit - max): log(sum) drops out of their difference. */
    mean /= sum;
    for (size_t i = 0; i < v->n; i++) {
        int32_t id = pi__key_id(key[i]);
        float logit = pi__key_logit(key[i]);
        v->row[id] = logit; /* save the logit: the key is overwritten */
        float far = fabsf((float) (mean - ((double) logit - (double) max)));
        key[i] = (uint64_t) pi__f32_order(far) << 32 | (uint32_t) id;
    }
    v->n = pi__keys_select_mass(key, v->n, v->w->weight, (double) p * sum, min_keep > 1 ? min_keep : 1);
    for (size_t i = 0; i < v->n; i++) key[i] = pi__logit_key(v->row[pi__key_id(key[i])], pi__key_id(key[i]));
}

/* Removes the tokens with a probability of at least threshold, except the least probable of them. */
void pi__stage_xtc(pi__cands *v, float threshold, size_t min_keep)
{
    float max = pi__cands_max(v);
    if (max == -INFINITY) return;
    pi__cands_list(v);
    uint64_t *key = v->w->key, last = 0;
    double limit = (double) threshold * pi__list_weights(v, max);
    size_t n = 0, above = 0;
    if (v->n < 2) return;
    for (size_t i = 0; i < v->n; i++) {
        if ((double) v->w->weight[pi__key_id(key[i])] < limit) continue;
        above++;
        last = key[i] > last ? key[i] : last;
    }
    if (above < 2 || v->n - (above - 1) < min_keep) return;
    for (size_t i = 0; i < v->n; i++) {
        if (key[i] >= last) key[n++] = key[i];
    }
    v->n = n;
}

void pi__stage_temperature(pi__cands *v, float temp)
{
    /* Subtract the largest logit first if the division could overflow. */
    float max = pi__cands_max(v);
    float shift = max > -INFINITY && !(fabsf(max) / temp < 1e30f) ? max : 0;
    if (!v->list) {
        for (int32_t i = 0; i < v->n_row; i++) v->row[i] = (v->row[i] - shift) / temp;
        return;
    }
    for (size_t i = 0; i < v->n; i++) {
        float x = (pi__key_logit(v->w->key[i]) - shift) / temp;
        v->w->key[i] = pi__logit_key(x, pi__key_id(v->w->key[i]));
    }
}

/* Returns the entropy of the list's probabilities, divided by the entropy of a uniform distribution over as many
 * tokens. */
static double relative_entropy(pi__cands *v, float max)
{
    double sum = pi__list_weights(v, max), mean = 0;
    for (size_t i = 0; i < v->n; i++) {
        const float w = v->w->weight[pi__key_id(v->w->key[i])];
        if (w > 0) mean += (double) w * ((double) pi__key_logit(v->w->key[i]) - (double) max);
    }
    return (log(sum) - mean / sum) / log((double) v->n);
}

void pi__stage_dynamic_temperature(pi__cands *v, float temp, float range, float exponent)
{
    const float max = pi__cands_max(v), low = temp - range > 0 ? temp - range : 0, high = temp + range;
    if (max == -INFINITY) return;
    pi__cands_list(v);
    if (v->n < 2) return;
    const double h = relative_entropy(v, max), part = pow(h > 0 ? h : 0, (double) exponent);
    const float t = (float) ((double) low + (double) (high - low) * part);
    if (t > 0) pi__stage_temperature(v, t);
    else pi__stage_top_k(v, 1);
}
