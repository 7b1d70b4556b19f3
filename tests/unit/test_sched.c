/* The scheduler with the real cache, without a model. Random submits, cancels, failures, ends and step budgets in
 * pools that are too small, compared with a simple model of the cache memory.
 *
 * After each operation, the cache satisfies its invariants (pi__cache_check: references equal the tables with a block
 * plus the loads that fill it; free list, index, tables), and rows and lists agree.
 * After each step, every position that a token can read holds its own sequence's prefix, recurrent states included. No
 * sequence in decode was left out, and the budget was kept. Decode-only steps are followed by asynchronous steps.
 *
 * A second run has a host tier: blocks that the pools evict are copied there and back, torn and late, and must be
 * unchanged. A third run has sequences with slow grammars: their last token waits, while all others continue.
 *
 * test_sched_rules.c has one test per rule of the scheduler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/sched.h"
#include "engine/snapshots.h"
#include "engine/tiering.h"
#include "discrete_device.h"

enum { SEQS = 8, CTX = 400, MOST = 24, PROMPT = 150, SAVES = 64 };

typedef struct fixture {
    pi__backend be;                   /* first member: saves and loads states */
    pi__cache cache;
    pi__stats stats;
    pi__sched sched;
    pi__snapshots snapshots;
    pi__tiering tiering;
    pi__block_map map;                /* map of `slot` */
    int state_group;                  /* -1 = no state group */
    int32_t budget;                   /* tokens of a step */
    /* [n_blocks * block_size] hash of the prefix that ends in this token, or of a snapshot */
    uint64_t *slot[PI__MAX_GROUPS];
    pi__state_layer layer;
    uint64_t state[SEQS];             /* for each row: hash of the computed prefix */
    uint64_t bound[SEQS];             /* hash up to the last chunk boundary */
    int32_t bound_at[SEQS];           /* position of that boundary */
    uint64_t rng;
    int32_t n_live;
    uint64_t n_arrived;
    bool masks;                       /* some sequences have a grammar with masks that are sometimes late */
    long late;                        /* last tokens that waited for a mask */
    /* counters that prove that the test was not idle */
    long submitted, ended, preempted, resumed, reused, restored, saved, steps;
    /* asynchronous steps; their rows of ended sequences; asynchronous steps while sequences wait */
    long ahead, dropped, while_waiting;
} fixture;

static uint32_t rnd(fixture *w, uint32_t n)
{
    w->rng = w->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((w->rng >> 33) % n);
}

static uint64_t mix(uint64_t h, int32_t t) { return (h ^ (uint64_t) (uint32_t) t) * 0x9E3779B97F4A7C15u + 0x1234567; }

static uint64_t *at(fixture *w, int g, const pi__seq *s, int32_t pos)
{
    const pi__cache_group *gr = &w->cache.group[g];
    int32_t bs = gr->spec.block_size, block = gr->table[s->row * gr->stride + pos / bs];
    assert_in_range(block, 0, gr->spec.n_blocks - 1);
    return &w->slot[g][block * bs + pos % bs];
}

static uint64_t *snapshot(fixture *w, int32_t id)
{
    return &w->slot[w->state_group][id * w->cache.group[w->state_group].spec.block_size];
}

static void save_state(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    fixture *w = (fixture *) be;
    assert_true(a->st == &w->layer && a->pos == w->bound_at[a->slot]);
    *snapshot(w, a->snap) = w->bound[a->slot];
}

static void load_state(pi__backend *be, const pi__batch *b, const pi__state_copy *a)
{
    (void) b;
    fixture *w = (fixture *) be;
    assert_ptr_equal(a->st, &w->layer);
    w->state[a->slot] = w->bound[a->slot] = *snapshot(w, a->snap);
    w->bound_at[a->slot] = a->pos;
    w->restored++;
}

static const pi__op_fns state_ops = {.state_save = save_state, .state_load = load_state};

/* Opens a host tier of twice the size of the pools, in the fixture's memory. */
static void open_tier(fixture *w, pi__device_opt *opt)
{
    pi__tiering_config c = {.offload = {.be = &w->be, .map = &w->map, .cache = &w->cache, .stats = &w->stats,
                                        .prefix_cache = true, .ahead = w->budget, .ahead_seqs = SEQS}};
    *opt = discrete_opt((pi__device_opt) {0});
    w->be.opt = opt;
    w->be.discrete = true;
    w->map.n_groups = w->cache.n_groups;
    w->map.n_ranks = 1;
    for (int g = 0; g < w->map.n_groups; g++) {
        const pi__group_spec *sp = &w->cache.group[g].spec;
        w->map.pool[g][PI__AT_DEVICE] = (char *) w->slot[g];
        w->map.block_size[g] = sp->block_size;
        w->map.n_blocks[g] = sp->n_blocks;
        w->map.bytes[g][PI__AT_DEVICE] = (size_t) sp->block_size * sizeof(uint64_t);
        c.offload.ram += 2 * (int64_t) w->map.bytes[g][PI__AT_DEVICE] * sp->n_blocks;
    }
    assert_int_equal(pi__tiering_open(&w->tiering, &c, NULL), PI_OK);
    assert_non_null(w->tiering.offload.host);
}

/* The scheduler's callbacks. */
static bool yield_block(void *ud) { return pi__offload_yield(&((fixture *) ud)->tiering.offload); }
static bool wait_tiers(void *ud, pi__seq *s, int32_t got)
{
    return pi__tiering_wait(&((fixture *) ud)->tiering, s, got);
}
static bool is_ready(void *ud, pi__seq *s) { return mix(s->arrival, (int32_t) ((fixture *) ud)->steps) >> 40 & 1; }
static bool is_late(fixture *w, pi__seq *s) { return s->matcher && !is_ready(w, s); }
static void admitted(void *ud, pi__seq *s) { pi__snapshot_restore(&((fixture *) ud)->snapshots, s); }

static void leaves(void *ud, pi__seq *s, bool intact)
{
    fixture *w = ud;
    if (intact) pi__snapshot_last(&w->snapshots, s);
    pi__tiering_touch(&w->tiering, s);
}

/* Returns references of loads to blocks of group g; slots true = references of copies and loads to host tier slots. */
static int32_t *held_of(const fixture *w, int g, bool slots)
{
    int32_t *refs = calloc((size_t) (slots ? pi__host_pool(w->tiering.offload.host,
                                                           g)->n_blocks : w->cache.group[g].spec.n_blocks) + 1,
                           sizeof *refs);
    for (int32_t i = 0; slots && i < w->tiering.offload.n_copies; i++) {
        const pi__copy *c = &w->tiering.offload.copy[(w->tiering.offload.first_copy + i) % PI__MAX_COPIES];
        if (c->group == g) refs[c->slot]++;
    }
    for (int32_t i = 0; w->tiering.load && i < PI__MAX_LOADS; i++)
        if (w->tiering.load[i].number && w->tiering.load[i].group == g)
            refs[slots ? w->tiering.load[i].slot : w->tiering.load[i].block]++;
    return refs;
}

/* ---------------------------------------------------------------------------------------------------- conservation */

static void check_cache(fixture *w)
{
    int32_t *pinned_for_copy[PI__MAX_GROUPS] = {0}, *slots;
    for (int g = 0; g < w->cache.n_groups; g++) pinned_for_copy[g] = held_of(w, g, false);
    const char *bad = pi__cache_check(&w->cache, (const int32_t *const *) pinned_for_copy);
    for (int g = 0; g < w->cache.n_groups; g++) {
        slots = !bad && w->tiering.offload.host ? held_of(w, g, true) : NULL;
        if (slots) bad = pi__block_pool_check(pi__host_pool(w->tiering.offload.host, g), slots);
        free(slots);
        free(pinned_for_copy[g]);
    }
    if (bad) fail_msg("%s", bad);
}

static void check(fixture *w)
{
    int32_t rows = 0, running = 0, waiting = 0;
    bool seen[SEQS] = {false};
    check_cache(w);
    for (const pi__seq *s = w->sched.running.head; s; s = s->next, running++) {
        assert_in_range(s->row, 0, SEQS - 1);
        assert_true(w->sched.row_seq[s->row] == s && !seen[s->row] && s->n_computed <= s->n_tokens);
        seen[s->row] = true;
        if (s->next) assert_true(s->arrival < s->next->arrival);
    }
    for (const pi__seq *s = w->sched.waiting.head; s; s = s->next, waiting++) {
        assert_int_equal(s->row, -1);
        assert_int_equal(s->n_computed, 0);
        if (s->next) assert_true(s->arrival < s->next->arrival);
    }
    for (int i = 0; i < SEQS; i++) rows += w->sched.row_seq[i] != NULL;
    assert_int_equal(rows, running);
    assert_int_equal(running, w->sched.running.n);
    assert_int_equal(waiting, w->sched.waiting.n);
    assert_int_equal(running + waiting, w->n_live);
}

/* ------------------------------------------------------------------------------------------------------ operations */

static void submit(fixture *w)
{
    if (w->n_live == MOST) return;
    pi__seq *s = calloc(1, sizeof *s);
    int32_t n = 1 + (int32_t) rnd(w, PROMPT), kind = (int32_t) rnd(w, 3);
    s->tokens = calloc(CTX, sizeof *s->tokens);
    for (int32_t i = 0; i < n; i++) s->tokens[i] = i < 96 && rnd(w, 60) ? kind + i / 40 : (int32_t) rnd(w, 1000);
    s->row = -1;
    s->n_tokens = s->n_prompt = n;
    s->max_total = n + 1 + (int32_t) rnd(w, 60);
    s->arrival = ++w->n_arrived;
    s->params.cache = s->cacheable = rnd(w, 10) != 0;
    s->params.salt = rnd(w, 8) ? NULL : "tenant";
    if (w->masks && rnd(w, 2)) s->matcher = (pi__matcher *) (void *) w; /* never dereferenced */
    pi__sched_add(&w->sched, s);
    w->n_live++;
    w->submitted++;
}

static void end(fixture *w, pi__seq *s, bool intact)
{
    pi__sched_remove(&w->sched, s, intact);
    free(s->tokens);
    free(s);
    w->n_live--;
    w->ended++;
}

static pi__seq *any(fixture *w)
{
    if (!w->n_live) return NULL;
    int32_t i = (int32_t) rnd(w, (uint32_t) w->n_live);
    pi__seq *s = i < w->sched.running.n ? w->sched.running.head : w->sched.waiting.head;
    for (i = i < w->sched.running.n ? i : i - w->sched.running.n; i > 0; i--) s = s->next;
    return s;
}

/* Initializes the model's state of newly admitted sequences from their cached prefix. */
static void note_new(fixture *w, pi__seq *const *before, int32_t n_before)
{
    for (const pi__seq *s = w->sched.running.head; s; s = s->next) {
        bool old = false;
        for (int32_t i = 0; i < n_before; i++) old |= before[i] == s;
        if (old) continue;
        w->reused += s->n_computed;
        w->resumed += s->n_preempted > 0;
        if (s->n_computed) continue;
        w->state[s->row] = 7; /* the first token reads zeros, regardless of the slot's old content */
        w->bound_at[s->row] = 0;
    }
}

/* Reads and writes the cache as a model would for n_new tokens of s from `from` on. next: the token after the known
 * ones. */
static void compute(fixture *w, pi__seq *s, int32_t from, int32_t n_new, int32_t next)
{
    uint64_t h = 7;
    int32_t to = from + n_new, n_groups = w->cache.n_groups;
    for (int32_t p = 0; p < to; p++) {
        const int32_t token = p < s->n_tokens ? s->tokens[p] : next;
        h = mix(h, token);
        for (int g = 0; g < n_groups; g++) {
            const pi__group_spec *sp = &w->cache.group[g].spec;
            if (sp->state || (sp->window && p <= from - sp->window)) continue;
            if (p >= from) *at(w, g, s, p) = h;
            assert_true(*at(w, g, s, p) == h);
        }
        if (p < from) continue;
        w->state[s->row] = mix(w->state[s->row], token);
        if ((p + 1) % PI__STATE_CHUNK == 0) {
            w->bound[s->row] = w->state[s->row];
            w->bound_at[s->row] = p + 1;
        }
        for (int32_t i = 0; i < w->snapshots.n_saving; i++) {
            const pi__saving *v = &w->snapshots.saving[i];
            if (v->seq == s && v->pos == p + 1) *snapshot(w, v->id) = w->state[s->row];
        }
    }
    if (w->state_group >= 0) assert_true(w->state[s->row] == h);
}

/* All sequences that were in decode before the step are in it, unless they lost their blocks. */
static void check_decoders(fixture *w, pi__seq *const *decoder, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const bool late = is_late(w, decoder[i]);
        assert_true(decoder[i]->row < 0 || decoder[i]->n_new == !late);
        w->late += late;
    }
}

/* Blocks that no later token can read were freed. */
static void check_windows(const fixture *w, const pi__seq *s)
{
    for (int g = 0; g < w->cache.n_groups; g++) {
        const pi__group_spec *sp = &w->cache.group[g].spec;
        int32_t behind = s->n_computed - sp->window + 1;
        if (sp->window && behind > 0) assert_int_equal(w->cache.seq[s->row].n_freed[g], behind / sp->block_size);
    }
}

/* Completes a step's token of s. Returns true if it ended the sequence. */
static bool landed(fixture *w, pi__seq *s, int32_t n_new, int32_t token)
{
    s->n_computed += n_new;
    pi__cache_commit(&w->cache, s->row, s->tokens, s->n_computed, s->cacheable);
    check_windows(w, s);
    if (s->n_computed < s->n_tokens) return false;
    s->tokens[s->n_tokens++] = token;
    const bool ends = s->n_tokens == s->max_total || rnd(w, 80) == 0;
    if (ends) end(w, s, true);
    return ends;
}

/* True if every sequence of the plan computes exactly its one pending token. */
static bool only_decodes(const pi__step_plan *p)
{
    for (int32_t q = 0; q < p->n_seqs; q++)
        if (p->seq[q]->n_tokens - p->seq[q]->n_computed != 1 || p->seq[q]->matcher) return false;
    return p->n_seqs > 0;
}

/* Runs asynchronous steps: the host sees a step's tokens only after the next step, so only the device knows them. If a
 * sequence ends, its row in the next step is dropped. Later steps check that the row's writes damage nothing. */
static void fly(fixture *w, pi__step_plan *p)
{
    int32_t token[2][SEQS];
    for (int i = 0; p; i = 1 - i) {
        for (int32_t q = 0; q < p->n_seqs; q++) token[i][q] = (int32_t) rnd(w, 4);
        const int32_t n_running = w->sched.running.n, waiting = w->sched.waiting.n;
        const unsigned long long preempted = w->stats.n_preempted;
        pi__step_plan *next = rnd(w, 6) ? pi__schedule_ahead(&w->sched) : NULL;
        assert_true(w->sched.running.n == n_running && w->sched.waiting.n == waiting &&
                    w->stats.n_preempted == preempted);
        check(w);
        if (next && !next->n_seqs) next = NULL;
        for (int32_t q = 0; next && q < next->n_seqs; q++) {
            pi__seq *s = next->seq[q];
            assert_true(p->seq[next->from[q]] == s && s->n_new == 1 && s->n_tokens + 1 < s->max_total);
            if (w->state_group >= 0) assert_true((s->n_tokens + 1) % PI__STATE_CHUNK);
            compute(w, s, s->n_tokens, 1, token[i][next->from[q]]);
        }
        w->ahead += next != NULL;
        w->while_waiting += next && waiting;
        const bool failed = rnd(w, 50) == 0;
        for (int32_t q = 0; q < p->n_seqs; q++) {
            if (!p->seq[q]) continue;
            if (failed) end(w, p->seq[q], false);
            else if (!landed(w, p->seq[q], 1, token[i][q])) continue;
            for (int32_t k = 0; next && k < next->n_seqs; k++) {
                if (next->from[k] != q) continue;
                next->seq[k] = NULL;
                w->dropped++;
            }
        }
        check(w);
        p = failed ? NULL : next;
    }
}

static void step(fixture *w)
{
    pi__seq *before[SEQS], *decoder[SEQS];
    int32_t n_before = 0, n_decoders = 0, used = 0, n_prefill = 0, n_decode = 0;
    unsigned long long preempted = w->stats.n_preempted;
    w->budget = 1 + (int32_t) rnd(w, rnd(w, 4) ? 64 : 8);
    for (pi__seq *s = w->sched.running.head; s; s = s->next) {
        before[n_before++] = s;
        if (s->n_tokens - s->n_computed == 1) decoder[n_decoders++] = s;
    }
    pi__tiering_poll(&w->tiering);
    w->sched.max_prefill = rnd(w, 2) ? 0 : 1 + (int32_t) rnd(w, 16);
    pi__step_plan *plan = pi__schedule(&w->sched, w->budget);
    w->preempted += (long) (w->stats.n_preempted - preempted);
    note_new(w, before, n_before);
    check(w);
    if (n_decoders <= w->budget) check_decoders(w, decoder, n_decoders);
    for (pi__seq *s = w->sched.running.head; s; s = s->next) {
        const bool prefill = s->n_tokens - s->n_computed > 1;
        if (is_late(w, s)) assert_true(s->n_computed + s->n_new < s->n_tokens);
        used += s->n_new;
        n_prefill += prefill ? s->n_new : 0;
        n_decode += !prefill && s->n_new;
    }
    assert_int_equal(used, plan->n_tokens);
    assert_int_equal(n_prefill, plan->n_prefill);
    /* a preempted sequence leaves its part unused */
    if (n_decoders && !w->masks && w->stats.n_preempted == preempted && w->sched.max_prefill)
        assert_true(n_prefill <= w->sched.max_prefill && n_decode);
    assert_true(used <= w->budget && (used > 0) == (plan->n_seqs > 0));
    /* some sequence can always continue */
    assert_true(used > 0 || !w->n_live || w->masks || pi__tiering_busy(&w->tiering, w->sched.waiting.n));
    bool failed = rnd(w, 50) == 0;
    for (int32_t i = 0; i < plan->n_seqs; i++)
        pi__snapshots_plan(&w->snapshots, plan->seq[i], plan->seq[i]->n_computed + plan->seq[i]->n_new);
    for (int32_t i = 0; i < plan->n_seqs; i++)
        compute(w, plan->seq[i], plan->seq[i]->n_computed, plan->seq[i]->n_new, -1);
    const bool flies = !failed && !w->snapshots.n_saving && only_decodes(plan);
    w->saved += failed ? 0 : w->snapshots.n_saving;
    pi__snapshots_done(&w->snapshots, !failed);
    w->steps++;
    if (flies) {
        fly(w, plan);
        return;
    }
    for (int32_t i = 0; i < plan->n_seqs; i++) {
        pi__seq *s = plan->seq[i];
        if (failed) end(w, s, false);
        else landed(w, s, s->n_new, (int32_t) rnd(w, 4));
    }
}

static void run_fixture(const pi__group_spec *spec, int32_t n_groups, int n_ops, bool tier, bool masks)
{
    static const int32_t turn_id = 500;
    pi__device_opt opt;
    fixture *w = calloc(1, sizeof *w);
    w->rng = 5 + (uint64_t) n_groups;
    w->be.ops = &state_ops;
    w->state_group = -1;
    w->masks = masks;
    w->budget = 64;
    for (int g = 0; g < n_groups; g++) {
        w->slot[g] = calloc((size_t) (spec[g].n_blocks * spec[g].block_size), sizeof(uint64_t));
        if (spec[g].state) w->state_group = g;
    }
    assert_int_equal(pi__cache_init(&w->cache, spec, n_groups, SEQS, CTX, NULL), PI_OK);
    const pi__sched_config sched = {.max_seqs = SEQS,
                                    .hooks = {w, yield_block, wait_tiers, is_ready, admitted, leaves}};
    assert_int_equal(pi__sched_init(&w->sched, &sched, &w->cache, &w->stats, NULL), PI_OK);
    const pi__snapshots_config snapshots = {
        .cache = &w->cache, .stats = &w->stats, .row_seq = w->sched.row_seq, .be = &w->be, .layer = &w->layer,
        .n_layers = w->state_group >= 0, .group = w->state_group, .interval = 64, .turn_id = &turn_id, .n_turn_ids = 1,
        .max_saves = SAVES,
    };
    assert_int_equal(pi__snapshots_init(&w->snapshots, &snapshots, NULL), PI_OK);
    w->cache.reuse_point = pi__reuse_point;
    w->cache.reuse_point_ud = &w->snapshots;
    if (tier) open_tier(w, &opt);
    for (int i = 0; i < n_ops; i++) {
        uint32_t what = rnd(w, 100);
        pi__seq *s = any(w);
        if (what < 20) submit(w);
        else if (what < 24 && s) end(w, s, true); /* canceled in any state */
        else if (what == 99 && rnd(w, 20) == 0) {
            pi__cache_clear(&w->cache, NULL);
            pi__tiering_clear(&w->tiering, NULL);
        }
        else step(w);
        check(w);
    }
    while (w->n_live) end(w, any(w), true);
    check(w);
    if (tier) assert_true(w->stats.host_writes > 1000 && w->stats.host_reads > 200);
    for (int i = 0; tier && i < 4 * PI__MAX_LOADS; i++) pi__tiering_poll(&w->tiering);
    pi__tiering_close(&w->tiering);
    for (int g = 0; g < n_groups; g++) assert_int_equal(w->cache.group[g].pool.n_free, spec[g].n_blocks);
    long least = tier ? 20 : 100; /* sequences that wait for copies are not preempted */
    assert_true(w->submitted > 1000 && w->preempted > least && w->resumed > least && w->reused > 10000);
    if (masks) assert_true(w->late > 1000);
    else assert_true(w->ahead > 1000 && w->dropped > 100 && w->while_waiting > 100);
    if (w->state_group >= 0) assert_true(w->saved > 500 && w->restored > 200);
    for (int g = 0; g < n_groups; g++) free(w->slot[g]);
    pi__snapshots_destroy(&w->snapshots);
    pi__sched_destroy(&w->sched);
    pi__cache_destroy(&w->cache);
    free(w);
}

static const pi__group_spec only_full[] = {{"full", 16, 0, 40, false, 0}};
static const pi__group_spec with_window[] = {{"full", 16, 0, 44, false, 0}, {"window", 16, 50, 40, false, 0}};
static const pi__group_spec with_states[] = {{"full", 16, 0, 44, false, 0}, {"recurrent", 16, 0, 12, true, 0}};

static void full(void **st)
{
    (void) st;
    run_fixture(only_full, 1, 40000, false, false);
}

static void full_and_window(void **st)
{
    (void) st;
    run_fixture(with_window, 2, 40000, false, false);
}

static void full_and_recurrent(void **st)
{
    (void) st;
    run_fixture(with_states, 2, 40000, false, false);
}

static void host_tier(void **st)
{
    (void) st;
    run_fixture(only_full, 1, 40000, true, false);
    run_fixture(with_window, 2, 40000, true, false);
    run_fixture(with_states, 2, 40000, true, false);
}

static void late_masks(void **st)
{
    (void) st;
    run_fixture(with_window, 2, 40000, false, true);
    run_fixture(with_states, 2, 40000, false, true);
    run_fixture(only_full, 1, 40000, true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_masks),         cmocka_unit_test(full),      cmocka_unit_test(full_and_window),
        cmocka_unit_test(full_and_recurrent), cmocka_unit_test(host_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
