/* Attention over the paged cache on the CPU: ops qkv (cache writes) and attention, the block layout, and the
 * distribution of work.
 *
 * Memory: the backend's scratch. Threads: called by the step thread, which forks and joins the pool inside. Invariant:
 * the distribution of work never changes a result (attention.h gives the reason).
 *
 * The query rows of a sequence that share a KV head are numbered token by token, head by head. They are split into
 * groups of at most kernels->max_rows. A group is an item: one thread computes its attention to all keys. With many
 * items (prompts), a thread processes up to STACK adjacent items together, KV split by KV split. Each KV split is then
 * read from memory once for all of them. With too few items for the threads (a few decode sequences), the keys of an
 * item are split over threads as well. Then the op runs in waves: in a wave, the next splits_a_wave KV splits of each
 * item are separate work units. After each wave, the units' sums are folded into the item's total in order.
 *
 * In sparse prefill, items are formed from runs (pi__runs) instead of sequences. A run that is a query block skips KV
 * splits without a selected key block (attention_blocks.c). In a KV split with one selected key block, the run attends
 * to that half only. The other splits are processed in order, so selecting all blocks is bitwise identical to dense
 * attention. */
#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/simd.h"

enum {
    /* work units per thread if the keys of items are split; keys are split if items are at most half of all units */
    UNITS_A_THREAD = 4,
    STACK = 8,             /* max items that a thread processes together */
    STACKS_A_THREAD = 8,   /* min stacks per thread: with fewer, stacks have fewer items */
    SMALL_WORK = 1 << 17,  /* with fewer multiply-adds, the calling thread computes everything */
};

/* Working memory of one thread. */
typedef struct attn_work {
    float *qt[STACK];        /* packed queries of each item of the stack: [head_dim, max_rows] */
    float *s;                /* scores of one KV split: [max_rows, PI__ATTN_S_STRIDE] */
    pi__attn_sum sum;        /* result of the current KV split of one item */
    pi__attn_sum run[STACK]; /* result of all KV splits so far, for each item of the stack */
} attn_work;

/* One call of attention. */
typedef struct attn_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__attention *a;
    const pi__kv_layer *kv;
    const pi__kv_batch *kb;
    int32_t group;         /* query heads per KV head */
    pi__runs runs;         /* the token ranges that items are formed from: one per sequence, or the batch's runs */
    pi__taken taken;       /* selected key blocks of query blocks; bits NULL = dense attention */
    int32_t n_items;       /* number of items */
    int32_t stack;         /* items per stack, if keys are not split */
    int32_t *first_item;   /* [runs.n + 1] index of each run's first item */
    attn_work *work;       /* [threads] working memory */
    int32_t n_waves;       /* number of waves; 0 = the keys of an item are not split over threads */
    int32_t splits_a_wave; /* KV splits of an item per wave */
    pi__attn_sum *unit;    /* [n_items * splits_a_wave] results of the KV splits of a wave */
    pi__attn_sum *total;   /* [n_items] result of the earlier waves */
} attn_job;

/* --------------------------------------------------------------------------------------------------------- layout */

size_t pi__cpu_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                        int32_t block_size)
{
    (void) be;
    if (pi__kv_index(type_k) < 0 || pi__kv_index(type_v) < 0) return 0;
    if (head_dim < 32 || head_dim > PI__MAX_HEAD_DIM || head_dim % 16 || n_head_kv < 1) return 0;
    if (head_dim % pi__kv_group(type_k) || head_dim % pi__kv_group(type_v)) return 0;
    if (block_size != 16 && block_size != 32 && block_size != 64) return 0;
    size_t tiles = (size_t) n_head_kv * (size_t) (block_size / PI__ATTN_TILE);
    size_t size = tiles * (pi__cpu_tile_bytes(type_k, head_dim) + pi__cpu_tile_bytes(type_v, head_dim));
    return (size + 63) & ~(size_t) 63;
}

/* Returns the address of the V tile with token `offset` of a block, for one KV head (like pi__cpu_k_tile). */
static char *v_tile(const pi__kv_layer *kv, int32_t block_size, int64_t block, int32_t offset, int32_t head)
{
    int32_t per_head = block_size / PI__ATTN_TILE, tile = head * per_head + offset / PI__ATTN_TILE;
    size_t keys = (size_t) (kv->n_head_kv * per_head) * pi__cpu_tile_bytes(kv->type_k, kv->head_dim);
    return kv->base + (size_t) block * kv->stride + keys + (size_t) tile * pi__cpu_tile_bytes(kv->type_v, kv->head_dim);
}

/* ------------------------------------------------------------------------------------------------------------ qkv */

typedef struct qkv_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__qkv *a;
    const pi__kv_layer *kv;
} qkv_job;

/* Returns the n values of head `head` plus their bias: x if bias is NULL, else the sums written to `to`. bias: [heads,
 * n]. */
static const float *biased(const float *x, const float *bias, int32_t head, int32_t n, float *to)
{
    if (!bias) return x;
    bias += (size_t) head * (size_t) n;
    for (int32_t i = 0; i < n; i++) to[i] = x[i] + bias[i];
    return to;
}

static void qkv_token(const qkv_job *j, int32_t i)
{
    const pi__cpu_attn_kernels *kn = j->cpu->attn;
    const pi__qkv *a = j->a;
    const pi__kv_layer *kv = j->kv;
    const pi__kv_batch *kb = &j->b->kv[kv->group];
    int32_t n = kv->head_dim;
    const float *rope = a->rope ? a->rope + (size_t) i * (size_t) a->n_rot : NULL;
    const float *q_rope = a->q_rope ? a->q_rope + (size_t) i * (size_t) a->n_rot : rope;

    int64_t q_stride = a->q_stride ? a->q_stride : n;
    pi__head_prep q = {n, a->q_norm != NULL, a->q_norm, a->eps, q_rope, a->n_rot, a->pair_stride, a->q_scale,
                       a->norm_last};
    for (int32_t h = 0; h < a->n_head; h++) {
        float *x = a->q + i * a->ldq + h * q_stride;
        kn->prep(&q, biased(x, a->q_bias, h, n, x), x);
        if (pi__kv_rotated(kv->type_k)) kn->turn(n, x, false);
    }
    if (!a->k || kb->slot[i] < 0) return;
    int64_t block = kb->slot[i] / kb->block_size;
    int32_t offset = kb->slot[i] % kb->block_size, lane = offset % PI__ATTN_TILE;
    pi__head_prep k = {n, a->k_norm != NULL, a->k_norm, a->eps, rope, a->n_rot, a->pair_stride, 1.0f, a->norm_last};
    pi__head_prep v = {n, a->v_norm, NULL, a->eps, NULL, 0, 0, 1.0f, false};
    for (int32_t h = 0; h < kv->n_head_kv; h++) {
        float x[PI__MAX_HEAD_DIM];
        kn->prep(&k, biased(a->k + i * a->ldk + (size_t) h * (size_t) n, a->k_bias, h, n, x), x);
        kn->store_k(kv->type_k, pi__cpu_k_tile(kv, kb->block_size, block, offset, h), lane, n, x);
        kn->prep(&v, biased(a->v + i * a->ldv + (size_t) h * (size_t) n, a->v_bias, h, n, x), x);
        kn->store_v(kv->type_v, v_tile(kv, kb->block_size, block, offset, h), lane, n, x);
    }
}

/* Job of op qkv. A thread processes a range of adjacent tokens, because these write to the same cache lines of a K
 * tile. */
static void qkv_run(void *arg, int32_t ith, int32_t nth)
{
    const qkv_job *j = arg;
    int64_t n = j->b->n_tokens;
    for (int64_t i = n * ith / nth; i < n * (ith + 1) / nth; i++) qkv_token(j, (int32_t) i);
}

void pi__cpu_qkv(pi__backend *be, const pi__batch *b, const pi__qkv *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    qkv_job j = {cpu, b, a, a->kv};
    int64_t work = (int64_t) b->n_tokens * (a->n_head + 2 * a->kv->n_head_kv) * a->kv->head_dim;
    if (b->n_tokens == 1 || work < 8192) {
        qkv_run(&j, 0, 1);
    } else {
        pi__pool_run(cpu->pool, qkv_run, &j);
    }
}

/* ---------------------------------------------------------------------------------------------------------- items */

static int32_t div_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

static int32_t seq_of(const attn_job *j, int32_t run) { return j->runs.seq ? j->runs.seq[run] : run; }
/* Returns the index of the query block that this run is; -1 = the run is not a query block, or attention is dense. */
static int32_t query_block(const attn_job *j, int32_t run) { return j->taken.bits ? j->runs.block[run] : -1; }

/* Returns the number of items of a run for one KV head. */
static int32_t n_row_groups(const attn_job *j, int32_t run)
{
    int32_t rows = (j->runs.start[run + 1] - j->runs.start[run]) * j->group;
    return div_up(rows, j->cpu->attn->max_rows);
}

/* Returns the position of the first key that a query at position pos attends to. */
static int32_t lowest_key(const pi__attention *a, int32_t pos)
{
    int32_t lo = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    return lo > a->first ? lo : a->first;
}

/* Returns the position of the last key that a query at position pos attends to, in a sequence of n_keys keys. see_to:
 * the token's entry in pi__batch.see_to; -1 = none. */
static int32_t highest_key(const pi__attention *a, int32_t pos, int32_t n_keys, int32_t see_to)
{
    if (a->spans && see_to > pos) return see_to;
    if (!a->block) return pos - a->past;
    return a->ahead && pos + a->ahead < n_keys ? pos + a->ahead : n_keys - 1;
}

/* Returns the number of values up to the last one that is not zero in some query row. Looks at the last 15 values only:
 * vision models fill their heads up to a multiple of 16 with zeros. Products with zeros change no bit of a score. */
static int32_t n_dot(const pi__attn_rows *w)
{
    int32_t n = w->head_dim;
    for (; w->type_k == PI__F32 && n > w->head_dim - 15; n--)
        for (int32_t r = 0; r < w->n; r++)
            if (w->q[r][n - 1] != 0) return n;
    return n;
}

/* Sets *w to the query rows of an item and *head to its KV head. Returns the index of its run. */
static int32_t item_rows(const attn_job *j, int32_t item, pi__attn_rows *w, int32_t *head)
{
    int32_t lo = 0, hi = j->runs.n - 1;
    while (lo < hi) { /* binary search: the last run with first_item <= item */
        int32_t mid = (lo + hi + 1) / 2;
        if (j->first_item[mid] <= item) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    int32_t start = j->runs.start[lo], groups = n_row_groups(j, lo), i = item - j->first_item[lo];
    int64_t n_rows = (int64_t) (j->runs.start[lo + 1] - start) * j->group;
    *head = i / groups;
    /* The last rows of a run are its first items: they attend to more keys, and short items at the end balance the
     * threads. */
    int64_t g = groups - 1 - i % groups, first = n_rows * g / groups, end = n_rows * (g + 1) / groups;
    w->n = (int32_t) (end - first);
    w->n_padded = j->cpu->attn->round_rows(w->n);
    w->head_dim = j->kv->head_dim;
    w->type_k = j->kv->type_k;
    w->type_v = j->kv->type_v;
    w->softcap = j->a->softcap;
    w->has_sinks = j->a->sinks != NULL;
    w->n_rel = j->a->rel ? j->a->n_rel : 0;
    int64_t q_stride = j->a->q_stride ? j->a->q_stride : w->head_dim;
    for (int32_t r = 0; r < w->n; r++) {
        int32_t token = start + (int32_t) ((first + r) / j->group),
                h = *head * j->group + (int32_t) ((first + r) % j->group);
        int32_t pos = j->b->pos[token];
        w->hi[r] = highest_key(j->a, pos, j->b->seq_len[seq_of(j, lo)], j->b->see_to ? j->b->see_to[token] : -1);
        w->lo[r] = lowest_key(j->a, pos);
        int64_t at = token * j->a->ldq + h * q_stride;
        w->q[r] = j->a->q + at;
        w->gate[r] = j->a->gate ? j->a->gate + at : NULL;
        w->out[r] = j->a->out + token * j->a->ldo + (size_t) h * (size_t) w->head_dim;
        w->sink[r] = w->has_sinks ? j->a->sinks[h] : 0;
        w->rel[r] = w->n_rel ? j->a->rel + (int64_t) h * w->n_rel : NULL;
        w->pos[r] = pos;
    }
    w->n_dot = n_dot(w);
    return lo;
}

/* Return the indices of the first and last KV split that the item attends to. Rows are in order of position, so row 0
 * has the lowest key and the last row the highest. */
static int32_t first_split(const pi__attn_rows *w) { return w->lo[0] / PI__KV_SPLIT; }
static int32_t last_split(const pi__attn_rows *w) { return w->hi[w->n - 1] / PI__KV_SPLIT; }

/* Returns the key blocks of a KV split that the run attends to: bit 0 = first key block, bit 1 = second. 3 if the run
 * is not a query block. */
static int halves(const attn_job *j, int32_t run, int32_t head, int32_t split)
{
    _Static_assert(PI__KV_SPLIT == 2 * PI__SPARSE_BLOCK, "assumed by the code below");
    const int32_t block = query_block(j, run);
    if (block < 0) return 3;
    int is = pi__is_taken(&j->taken, block, head, 2 * split);
    if ((2 * split + 1) / 64 < j->taken.words) is |= pi__is_taken(&j->taken, block, head, 2 * split + 1) << 1;
    return is;
}

/* Limits the key range of each row to half 0 or 1 (a key block) of the KV split. */
static void only_half(pi__attn_rows *w, int32_t split, int half)
{
    const int32_t first = split * PI__KV_SPLIT + half * PI__SPARSE_BLOCK, last = first + PI__SPARSE_BLOCK - 1;
    for (int32_t r = 0; r < w->n; r++) {
        if (w->lo[r] < first) w->lo[r] = first;
        if (w->hi[r] > last) w->hi[r] = last;
    }
}

/* *sum = the item's attention to one KV split. qt: the item's packed queries; s: scratch for scores. Returns false,
 * with sum unchanged, if no key block of the split is selected. */
static bool do_split(const attn_job *j, const pi__attn_rows *rows, int32_t run, int32_t head, int32_t split,
                     const float *qt, float *s, pi__attn_sum *sum)
{
    enum { TILES = PI__KV_SPLIT / PI__ATTN_TILE };
    const char *k[TILES] = {0}, *v[TILES] = {0};
    const int32_t *table = j->kb->block_table + (size_t) seq_of(j, run) * (size_t) j->kb->table_stride;
    const int some = halves(j, run, head, split);
    const pi__attn_rows *w = rows;
    pi__attn_rows half;
    if (!some) return false;
    if (some != 3) {
        half = *rows;
        only_half(&half, split, some >> 1);
        w = &half;
    }
    int32_t size = j->kb->block_size;
    for (int32_t t = 0; t < TILES; t++) {
        int32_t pos = split * PI__KV_SPLIT + t * PI__ATTN_TILE;
        if (pos + PI__ATTN_TILE <= w->lo[0] || pos > w->hi[w->n - 1]) continue;
        int32_t block = table[pos / size];
        k[t] = pi__cpu_k_tile(j->kv, size, block, pos % size, head);
        v[t] = v_tile(j->kv, size, block, pos % size, head);
    }
    j->cpu->attn->split(w, qt, split, k, v, s, sum);
    return true;
}

/* -------------------------------------------------------------------------------------------------------- threads */

/* Processes stack number `index`: up to j->stack items from index * j->stack on, KV split by KV split. */
static void do_stack(const attn_job *j, int32_t index, attn_work *work)
{
    const pi__cpu_attn_kernels *kn = j->cpu->attn;
    pi__attn_rows w[STACK];
    int32_t run[STACK], head[STACK], first = INT32_MAX, last = 0, item = index * j->stack, n = j->n_items - item;
    if (n > j->stack) n = j->stack;
    for (int32_t i = 0; i < n; i++) {
        run[i] = item_rows(j, item + i, &w[i], &head[i]);
        kn->pack(&w[i], work->qt[i]);
        if (first_split(&w[i]) < first) first = first_split(&w[i]);
        if (last_split(&w[i]) > last) last = last_split(&w[i]);
    }
    for (int32_t p = first; p <= last; p++) {
        for (int32_t i = 0; i < n; i++) {
            if (p < first_split(&w[i]) || p > last_split(&w[i])) continue;
            if (do_split(j, &w[i], run[i], head[i], p, work->qt[i], work->s, &work->sum))
                kn->fold(&w[i], p, &work->run[i], &work->sum);
        }
    }
    for (int32_t i = 0; i < n; i++) kn->finish(&w[i], &work->run[i]);
}

static void run_stacks(void *arg, int32_t ith, int32_t nth)
{
    (void) nth;
    const attn_job *j = arg;
    const int32_t n = div_up(j->n_items, j->stack);
    for (int32_t i; (i = pi__pool_next(j->cpu->pool, n)) >= 0;) do_stack(j, i, &j->work[ith]);
}

/* Folds the sums of the wave's KV splits of an item into the item's total. After its last KV split, writes the item's
 * result. */
static void fold_item(const attn_job *j, int32_t item, int32_t wave)
{
    const pi__cpu_attn_kernels *kn = j->cpu->attn;
    pi__attn_rows w;
    int32_t head, run = item_rows(j, item, &w, &head);
    int32_t p = first_split(&w) + wave * j->splits_a_wave, last = last_split(&w);
    for (int32_t i = 0; i < j->splits_a_wave && p <= last; i++, p++) {
        /* the first and last split of an item are always selected: attention sinks, and the query block's own keys */
        if (!halves(j, run, head, p)) continue;
        kn->fold(&w, p, &j->total[item], &j->unit[item * j->splits_a_wave + i]);
        if (p == last) kn->finish(&w, &j->total[item]);
    }
}

static void run_waves(void *arg, int32_t ith, int32_t nth)
{
    const attn_job *j = arg;
    pi__pool *pool = j->cpu->pool;
    attn_work *work = &j->work[ith];
    int32_t packed = -1; /* item with its queries packed in work->qt[0]; -1 = none */
    for (int32_t wave = 0; wave < j->n_waves; wave++) {
        for (int32_t u; (u = pi__pool_next(pool, j->n_items * j->splits_a_wave)) >= 0;) {
            pi__attn_rows w;
            int32_t head, item = u / j->splits_a_wave, run = item_rows(j, item, &w, &head);
            int32_t p = first_split(&w) + wave * j->splits_a_wave + u % j->splits_a_wave;
            if (p > last_split(&w)) continue;
            if (packed != item) j->cpu->attn->pack(&w, work->qt[0]);
            packed = item;
            do_split(j, &w, run, head, p, work->qt[0], work->s, &j->unit[u]);
        }
        pi__pool_barrier(pool);
        if (ith == 0) pi__pool_reset(pool);
        for (int32_t i = ith; i < j->n_items; i += nth) fold_item(j, i, wave);
        pi__pool_barrier(pool);
    }
}

/* -------------------------------------------------------------------------------------------------------- scratch */

/* Takes all scratch memory of an attention call from the arena. An arena without memory only adds up the bytes. */
static void take_scratch(attn_job *j, pi__arena *ar, int32_t n_runs, int32_t head_dim)
{
    size_t n_threads = (size_t) pi__pool_size(j->cpu->pool), rows = (size_t) j->cpu->attn->max_rows;
    size_t acc = rows * (size_t) head_dim * sizeof(float), n_units = n_threads * UNITS_A_THREAD;
    j->first_item = pi__arena_take(ar, ((size_t) n_runs + 1) * sizeof(int32_t));
    j->work = pi__arena_take(ar, n_threads * sizeof(attn_work));
    j->unit = pi__arena_take(ar, n_units * sizeof(pi__attn_sum));
    j->total = pi__arena_take(ar, n_units * sizeof(pi__attn_sum));
    for (size_t i = 0; i < n_threads; i++) {
        attn_work w = {0};
        w.s = pi__arena_take(ar, rows * PI__ATTN_S_STRIDE * sizeof(float));
        w.sum.acc = pi__arena_take(ar, acc);
        for (int32_t k = 0; k < STACK; k++) {
            w.qt[k] = pi__arena_take(ar, acc);
            w.run[k].acc = pi__arena_take(ar, acc);
        }
        if (j->work) j->work[i] = w;
    }
    for (size_t i = 0; i < n_units; i++) {
        float *unit = pi__arena_take(ar, acc), *total = pi__arena_take(ar, acc);
        if (j->unit) j->unit[i].acc = unit;
        if (j->total) j->total[i].acc = total;
    }
}

size_t pi__cpu_attn_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    attn_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    take_scratch(&j, &ar, pi__max_runs(lim->max_seqs, lim->key_blocks ? lim->max_tokens : 0), lim->max_head_dim);
    return ar.used + pi__cpu_take_scratch(cpu, lim);
}

/* ------------------------------------------------------------------------------------------------------------ run */

/* Returns the number of items per stack, 1..STACK. groups: the largest number of items of one KV head of a run. */
static int32_t stack_of(int32_t n_items, int32_t groups, int32_t n_threads)
{
    int32_t n = n_threads == 1 ? STACK : n_items / (n_threads * STACKS_A_THREAD);
    if (n > STACK) n = STACK;
    if (n > groups) n = groups;
    return n < 1 ? 1 : n;
}

/* Sets j->first_item, n_items and stack. *max_splits = upper bound of the KV splits of an item. Returns an upper bound
 * of the multiply-adds of the call. */
static int64_t plan_items(attn_job *j, int32_t *max_splits)
{
    int64_t work = 0;
    int32_t item = 0, groups = 1; /* max items of one KV head of a run */
    *max_splits = 0;
    for (int32_t s = 0; s < j->runs.n; s++) {
        int64_t tokens = j->runs.start[s + 1] - j->runs.start[s], keys = j->b->seq_len[seq_of(j, s)];
        j->first_item[s] = item;
        item += n_row_groups(j, s) * j->kv->n_head_kv;
        if (n_row_groups(j, s) > groups) groups = n_row_groups(j, s);
        if (j->a->window > 0 && keys > j->a->window + tokens) keys = j->a->window + tokens;
        work += tokens * keys * j->a->n_head * j->kv->head_dim * 2;
        if (tokens <= 0) continue;
        int32_t lo = lowest_key(j->a, j->b->pos[j->runs.start[s]]);
        int32_t splits = (j->b->seq_len[seq_of(j, s)] - 1) / PI__KV_SPLIT - lo / PI__KV_SPLIT + 1;
        if (splits > *max_splits) *max_splits = splits;
    }
    j->first_item[j->runs.n] = j->n_items = item;
    j->stack = stack_of(item, groups, pi__pool_size(j->cpu->pool));
    return work;
}

void pi__cpu_attention(pi__backend *be, const pi__batch *b, const pi__attention *a)
{
    pi__cpu *cpu = (pi__cpu *) be;
    attn_job j = {.cpu = cpu,
                  .b = b,
                  .a = a,
                  .kv = a->kv,
                  .kb = &b->kv[a->kv->group],
                  .group = a->n_head / a->kv->n_head_kv,
                  .runs = {.n = b->n_seqs, .start = b->seq_start}};
    pi__arena ar = {.base = cpu->scratch, .size = cpu->scratch_size};
    const bool sparse = a->sparsity > 0 && b->runs.n_blocks;
    if (sparse) j.runs = b->runs;
    take_scratch(&j, &ar, j.runs.n, a->kv->head_dim);
    if (sparse) pi__cpu_take_blocks(cpu, b, a, &ar, &j.taken);
    int32_t max_splits, n_threads = pi__pool_size(cpu->pool), n_units = n_threads * UNITS_A_THREAD;
    int64_t work = plan_items(&j, &max_splits);
    if (n_threads == 1 || work < SMALL_WORK || (j.n_items == 1 && max_splits == 1)) {
        for (int32_t i = 0; i < div_up(j.n_items, j.stack); i++) do_stack(&j, i, &j.work[0]);
    } else if (max_splits > 1 && j.n_items * 2 <= n_units) {
        j.splits_a_wave = n_units / j.n_items;
        j.n_waves = div_up(max_splits, j.splits_a_wave);
        pi__pool_run(cpu->pool, run_waves, &j);
    } else {
        pi__pool_run(cpu->pool, run_stacks, &j);
    }
}

const pi__cpu_attn_kernels *pi__cpu_attn_kernels_of(int isa)
{
#if defined(PI__SIMD_X86)
    PI__RETURN_X86(isa, pi__cpu_attn);
#elif defined(PI__SIMD_ARM)
    if (isa == PI__ISA_SVE256) return &pi__cpu_attn_sve256;
    if (isa != PI__ISA_GENERIC) return &pi__cpu_attn_neon;
#endif
    (void) isa;
    return &pi__cpu_attn_generic;
}
