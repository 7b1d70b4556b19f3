/* The scheduler: continuous batching with chunked prefill. Its rules:
 *
 * Budget of a step
 *  1. There is no prefill or decode phase: each sequence has n_computed catching up with n_tokens.
 *  2. A step computes at most max_tokens tokens, its budget.
 *  3. A sequence with one uncomputed token is decoding.
 *  4. A sequence with only a grammar-forced run of at most MAX_AHEAD uncomputed tokens is decoding.
 *  5. Decoding sequences take budget first, in list order.
 *  6. Drafts take budget after all decoding sequences and before prefill.
 *  7. Only a sequence with exactly one uncomputed token, and that token in the step, gets its drafts verified.
 *  8. Drafts leave `min_prefill` tokens of the budget for prefill.
 *  9. Drafts of a sequence are left out if the cache has no free blocks for them.
 * 10. Running prefills take budget next, in list order.
 * 11. Waiting sequences are admitted last, while budget remains.
 * 12. Budget left at the end extends the chunks of prefills in the step, without preemption.
 *
 * Prefill chunks
 * 13. A prefill takes all of the remaining budget.
 * 14. A prefill of more than LONG_PROMPT * max_tokens uncomputed tokens takes half of the remaining budget if others
 *     wait for prefill.
 * 15. With max_prefill set, a step that decodes has at most max(max_prefill, `min_prefill`) prefill tokens.
 * 16. A chunk inside the sparse span of a sequence ends at a sparse block boundary.
 * 17. A single-step prompt (bidirectional attention) is admitted only if the remaining budget holds all of it.
 *
 * Order of admission
 * 18. With by_priority, the sequence with the lower params.priority goes first.
 * 19. Among equal priorities, the sequence of the tenant with fewer running sequences goes first.
 * 20. Among equal priorities and equal numbers of running sequences, the sequence that arrived first goes first.
 * 21. A sequence that has waited longer than max_wait_ms goes before all others, in order of arrival.
 *
 * Conditions of admission
 * 22. A sequence is admitted only if a row is free.
 * 23. A sequence is admitted only if the free blocks suffice for all of its tokens, computed in chunks.
 * 24. A sequence without a free row or blocks ends the admission of the step. Missing blocks are counted and logged.
 * 25. A single-step prompt that exceeds the remaining budget ends the admission of the step.
 * 26. A sequence waits while a running prefill computes a longer prefix of it than the cache holds.
 * 27. A sequence waits while the tiers load blocks of its prefix.
 * 28. A sequence that waits for a prefix does not end the admission of the step.
 * 29. A step tries to admit at most MAX_TRIES sequences.
 * 30. A step that has preempted a sequence admits no more.
 *
 * Grammars
 * 31. The last token of a sequence is not computed while the grammar mask after it is not ready.
 * 32. No token of a single-step prompt is computed while that mask is not ready.
 *
 * Preemption
 * 33. Out of blocks, blocks pinned for a copy are unpinned one by one before a sequence is preempted.
 * 34. Out of blocks, the last running sequence in list order is preempted, even if it is the one that needs them.
 * 35. A preempted sequence loses its row and its blocks and returns to the waiting list.
 * 36. A preempted sequence returns the budget that it took in this step.
 * 37. Hashed blocks of a preempted sequence stay in the prefix cache until they are evicted.
 *
 * Lookahead steps (pi__schedule_ahead)
 * 38. A lookahead step has one token of each sequence of the step in flight that does not reach max_total with it.
 * 39. There is no lookahead step if a running sequence is not in the step in flight.
 * 40. There is no lookahead step while a sequence waits, unless the last admission lacked a row or blocks for the
 *     first one.
 * 41. There are at most MAX_FED lookahead steps in a row while a sequence waits.
 * 42. There is no lookahead step if one of its sequences needs a block and none is free.
 * 43. There is no lookahead step that completes a chunk of a recurrent state.
 *
 * Images
 * 44. Tokens of an image, and all tokens after them, are not computed before the image's rows are there.
 * 45. A chunk does not end inside an image whose tokens see each other.
 * 46. Drafts and rule 15 leave budget for the next such image of each running prefill.
 *
 * See sched.h. Step thread only. */
#include "engine/sched.h"

#include <string.h>

#include "backend/kernel_args.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    LONG_PROMPT = 4, /* a prefill of more steps than this takes half of the budget if others wait */
    MAX_TRIES = 64,  /* waiting sequences that a step tries to admit */
    MAX_AHEAD = 32,  /* longest grammar-forced run that counts as decoding, tokens */
    /* lookahead steps before waiting sequences are tried again: a window or a copy may have freed blocks */
    MAX_FED = 32,
    BLOCK_LOG_MS = 60000, /* min time between log lines about missing blocks */
};

int pi__sched_init(pi__sched *sc, const pi__sched_config *config, pi__cache *cache, pi__stats *stats, pi_error *err)
{
    *sc = (pi__sched) {.config = *config, .cache = cache, .stats = stats};
    sc->row_seq = pi__calloc((size_t) config->max_seqs, sizeof(pi__seq *));
    bool all = sc->row_seq;
    for (int i = 0; i < 2; i++) {
        sc->plan[i].seq = pi__calloc((size_t) config->max_seqs, sizeof(pi__seq *));
        sc->plan[i].from = pi__calloc((size_t) config->max_seqs, sizeof(int32_t));
        all = all && sc->plan[i].seq && sc->plan[i].from;
    }
    if (all) return PI_OK;
    pi__sched_destroy(sc);
    return pi__fail_mem(err, "the scheduler");
}

size_t pi__sched_bytes(int32_t max_seqs) { return (size_t) max_seqs * (3 * sizeof(pi__seq *) + 2 * sizeof(int32_t)); }

void pi__sched_destroy(pi__sched *sc)
{
    pi__free(sc->row_seq);
    for (int i = 0; i < 2; i++) {
        pi__free(sc->plan[i].seq);
        pi__free(sc->plan[i].from);
    }
    memset(sc, 0, sizeof *sc);
}

void pi__sched_add(pi__sched *sc, pi__seq *s)
{
    pi__assert(s->row < 0 && !s->n_computed);
    sc->full = false;
    pi__list_insert(&sc->waiting, s, sc->config.by_priority);
}

static void drop_row(pi__sched *sc, pi__seq *s, bool intact)
{
    if (s->row < 0) return;
    pi__assert(sc->row_seq[s->row] == s);
    if (sc->config.hooks.leaves) sc->config.hooks.leaves(sc->config.hooks.ud, s, intact);
    pi__cache_release(sc->cache, s->row);
    sc->row_seq[s->row] = NULL;
    s->row = -1;
    s->n_computed = 0;
}

void pi__sched_remove(pi__sched *sc, pi__seq *s, bool intact)
{
    pi__list_remove(s->row < 0 ? &sc->waiting : &sc->running, s);
    sc->full = false;
    drop_row(sc, s, intact);
}

/* Releases the row of s and moves s to the waiting list. Returns its tokens in this step: the budget gets them back. */
static int32_t preempt_seq(pi__sched *sc, pi__seq *s)
{
    int32_t back = s->n_new;
    s->n_new = s->n_draft = 0;
    s->fetch.rounds = 0; /* the tiers may load the lost blocks when s is tried again */
    s->n_preempted++;
    sc->stats->n_preempted++;
    pi__list_remove(&sc->running, s);
    drop_row(sc, s, true);
    pi__list_insert(&sc->waiting, s, sc->config.by_priority);
    pi__logf(&sc->config.log, PI_LOG_DEBUG, "preempted request %llu: out of cache blocks",
             (unsigned long long) s->arrival);
    return back;
}

/* Reserves blocks for n more tokens of s and takes the tokens from the budget. While blocks are missing, it unpins
 * copies, then preempts the last running sequence and sets *preempted. Returns false if s itself was preempted. */
static bool take_tokens(pi__sched *sc, pi__seq *s, int32_t n, int32_t *budget, bool *preempted)
{
    while (!pi__cache_reserve(sc->cache, s->row, s->n_computed + n)) {
        const pi__sched_hooks *h = &sc->config.hooks;
        if (h->yield && h->yield(h->ud)) continue;
        pi__seq *victim = sc->running.tail;
        *preempted = true;
        *budget += preempt_seq(sc, victim);
        if (victim == s) return false;
    }
    s->n_new = n;
    *budget -= n;
    return true;
}

/* Returns the group that lacks free blocks for the tokens of s, computed in chunks of the step budget; NULL = none. */
static const pi__cache_group *group_without_room(const pi__sched *sc, const pi__seq *s)
{
    for (int32_t i = 0; i < sc->cache->n_groups; i++) {
        const pi__cache_group *g = &sc->cache->group[i];
        if (!pi__cache_has(sc->cache, s->row, i)) continue;
        int32_t has = sc->cache->seq[s->row].n_blocks[i] - sc->cache->seq[s->row].n_freed[i];
        if (pi__group_need(&g->spec, s->n_tokens, sc->max_tokens) - has > pi__block_available(&g->pool)) return g;
    }
    return NULL;
}

/* True if a running prefill shares a longer prefix with s than the cache holds (`got` tokens): waiting is cheaper than
 * computing it again. A prefill advances in every step, so s does not wait for long. Then also requests a snapshot of
 * the prefill's recurrent states at the end of the common prefix. */
static bool better_to_wait(const pi__sched *sc, const pi__seq *s, int32_t got)
{
    const int32_t most = pi__seq_max_reuse(s);
    for (pi__seq *r = sc->running.head; r; r = r->next) {
        if (r->n_computed >= r->n_prompt || !r->cacheable || r->skip_groups & ~s->skip_groups) continue;
        int32_t common = pi__cache_common(sc->cache, s->row, r->row);
        if (common > most) common = most;
        common = pi__cache_cut(sc->cache, s->row, common - common % sc->cache->reuse_block);
        if (common <= got || r->n_computed >= common) continue;
        if (r->save.requested <= r->n_computed || common < r->save.requested) r->save.requested = common;
        return true;
    }
    return false;
}

static bool tiers_bring(const pi__sched *sc, pi__seq *s, int32_t got)
{
    const pi__sched_hooks *h = &sc->config.hooks;
    return h->wait && h->wait(h->ud, s, got);
}

enum admission { ADMITTED, NO_ROOM /* no free row or blocks */, LATER /* waits for a prefix: a prefill or a load */ };

/* Returns a free row, -1 = all are in use. Prefers the row that keeps the block hashes of s from its last try, then a
 * row that keeps no hashes of another waiting sequence. */
static int32_t free_row(const pi__sched *sc, const pi__seq *s)
{
    int32_t best = -1;
    for (int32_t row = 0; row < sc->config.max_seqs; row++) {
        const uint64_t left_for = sc->cache->seq[row].left_for;
        if (sc->row_seq[row]) continue;
        if (left_for && left_for == s->arrival) return row;
        if (best < 0 || (sc->cache->seq[best].left_for && !left_for)) best = row;
    }
    return best;
}

static void start_row(const pi__sched *sc, const pi__seq *s, int32_t row)
{
    /* hashing a long prompt again in each step would be slow */
    if (pi__cache_start_again(sc->cache, row, s->arrival)) return;
    pi__cache_start(sc->cache, row, s->params.salt);
    pi__cache_skip_groups(sc->cache, row, s->skip_groups);
    pi__cache_start_sparse(sc->cache, row, &s->sparse);
    pi__cache_start_media(sc->cache, row, s->images.at, s->images.n, s->whole_images);
    if (s->sample_group) pi__cache_start_private(sc->cache, row, &s->sample_group->root);
    pi__cache_start_variant(sc->cache, row, &s->lora.id);
}

/* Counts s, which waits because the pool of a group lacks blocks, and logs it at most once per BLOCK_LOG_MS. */
static void record_block_wait(pi__sched *sc, pi__seq *s, const pi__cache_group *g)
{
    const double now = pi__now_ms();
    if (!s->block_wait) sc->stats->n_block_waits++;
    s->block_wait = true;
    if (sc->block_log_ms > 0 && now - sc->block_log_ms < BLOCK_LOG_MS) return;
    sc->block_log_ms = now;
    pi__logf(&sc->config.log, PI_LOG_WARN,
             "requests wait for cache blocks: %d run, %d wait, %d of %d %s blocks are free: enlarge the cache "
             "(kv-cache-tokens, memory-utilization), or give cache-type-k and cache-type-v smaller types",
             sc->running.n, sc->waiting.n, pi__block_available(&g->pool), g->pool.n_blocks, g->spec.name);
}

/* Tries to admit s: gives s a row and the longest cached prefix, and moves s to the running list. */
static enum admission admit_seq(pi__sched *sc, pi__seq *s)
{
    const int32_t row = free_row(sc, s);
    if (row < 0) return NO_ROOM;
    s->row = row;
    start_row(sc, s, row);
    int32_t wanted = 0, got = 0;
    if (s->cacheable) got = pi__cache_match(sc->cache, row, s->tokens, pi__seq_max_reuse(s) + 1, &wanted);
    const pi__cache_group *lacks = group_without_room(sc, s);
    enum admission a = lacks ? NO_ROOM
                       : s->cacheable && (better_to_wait(sc, s, got) || tiers_bring(sc, s, got)) ? LATER : ADMITTED;
    if (lacks) record_block_wait(sc, s, lacks);
    if (a != ADMITTED) {
        pi__cache_leave(sc->cache, row, s->arrival);
        s->row = -1;
        return a;
    }
    sc->row_seq[row] = s;
    s->n_computed = s->n_found = got;
    s->save.branch = wanted > got ? wanted : 0;
    if (sc->config.hooks.admitted) sc->config.hooks.admitted(sc->config.hooks.ud, s);
    if (!s->t.start) {
        s->t.start = pi__now_ms();
        s->n_cached = got;
        s->n_matched = wanted;
        sc->stats->prompt_tokens += (unsigned) s->n_prompt;
        sc->stats->cached_tokens += (unsigned) got;
        sc->stats->n_prefix_hits += got > 0;
    }
    pi__list_remove(&sc->waiting, s);
    pi__list_insert(&sc->running, s, sc->config.by_priority);
    return ADMITTED;
}

/* Returns n, or the largest smaller number of tokens after n_computed that cuts neither a sparse block nor an image
 * whose tokens see each other. */
static int32_t whole_blocks(const pi__sched *sc, const pi__seq *s, int32_t n)
{
    const int32_t end = pi__cache_cut(sc->cache, s->row, s->n_computed + n);
    return end > s->n_computed ? end - s->n_computed : 0;
}

/* Returns the number of uncomputed tokens of s that can be computed now. While the grammar mask after the last token is
 * not ready, this token waits; a single-step prompt waits with all tokens. Tokens of images wait for their rows. */
static int32_t missing_of(const pi__sched *sc, pi__seq *s)
{
    const pi__sched_hooks *h = &sc->config.hooks;
    int32_t missing = s->n_tokens - s->n_computed;
    if (missing > 0 && s->matcher && h->ready && !h->ready(h->ud, s)) missing = s->whole ? 0 : missing - 1;
    if (missing > 0 && h->images && pi__images_end(&s->images) > s->n_computed)
        missing = h->images(h->ud, s, missing);
    return missing;
}

/* Returns the prefill chunk of s: all of the budget, or half of it if s needs many steps and others wait for prefill.
 * 0 = the budget is less than one block of sparse prefill, or no token of s can be computed now. */
static int32_t chunk_of(const pi__sched *sc, pi__seq *s, int32_t budget)
{
    int32_t missing = missing_of(sc, s), all = missing < budget ? missing : budget;
    bool others = sc->waiting.n > 0;
    for (const pi__seq *r = s->next; r && !others; r = r->next) others = r->n_tokens - r->n_computed > 1;
    const int32_t half = whole_blocks(sc, s, (budget + 1) / 2 < missing ? (budget + 1) / 2 : missing);
    return others && half && missing > LONG_PROMPT * sc->max_tokens ? half : whole_blocks(sc, s, all);
}

/* Prepares an admission: counts the running sequences of each tenant, marks waiting sequences that exceeded
 * max_wait_ms, and sets `chosen`. */
static void update_admission(pi__sched *sc)
{
    const double now = pi__now_ms(), most = sc->config.max_wait_ms;
    sc->chosen = false;
    memset(sc->n_of, 0, sizeof sc->n_of);
    for (const pi__seq *s = sc->running.head; s; s = s->next) sc->n_of[s->params.tenant]++;
    for (pi__seq *s = sc->waiting.head; s; s = s->next) {
        s->tried = false;
        s->aged = s->aged || (most > 0 && now - s->t.submit > most);
        sc->chosen |= s->params.tenant != sc->waiting.head->params.tenant || (s->aged && sc->config.by_priority);
    }
}

static bool goes_before(const pi__sched *sc, const pi__seq *a, const pi__seq *b)
{
    const int32_t x = sc->n_of[a->params.tenant], y = sc->n_of[b->params.tenant];
    if (a->aged || b->aged) return a->aged && (!b->aged || a->arrival < b->arrival);
    if (sc->config.by_priority && a->params.priority != b->params.priority)
        return a->params.priority < b->params.priority;
    return x != y ? x < y : a->arrival < b->arrival;
}

/* Returns the next waiting sequence to try, NULL = all were tried. */
static pi__seq *next_waiting(const pi__sched *sc)
{
    pi__seq *best = NULL;
    for (pi__seq *s = sc->waiting.head; s && (sc->chosen || !best); s = s->next)
        if (!s->tried && (!best || goes_before(sc, s, best))) best = s;
    return best;
}

static void admit_waiting(pi__sched *sc, int32_t *budget, bool *preempted)
{
    bool passed = false; /* a sequence was skipped because it waits for a prefix or a copy */
    if (*budget <= 0 || *preempted) return;
    update_admission(sc);
    for (int tries = MAX_TRIES; *budget > 0 && !*preempted && tries > 0; tries--) {
        pi__seq *s = next_waiting(sc);
        /* The next step can hold a single-step prompt: bidirectional sequences end in the step they start in. */
        if (!s || (s->whole && s->n_tokens > *budget)) return;
        s->tried = true;
        enum admission a = admit_seq(sc, s);
        passed |= a == LATER;
        if (a == LATER) continue;
        sc->full = a == NO_ROOM && !passed;
        if (a == NO_ROOM) return;
        const int32_t n = chunk_of(sc, s, *budget);
        if (n && !take_tokens(sc, s, n, budget, preempted)) return;
        sc->n_of[s->params.tenant]++;
    }
}

/* Extends the prefill chunks of this step by the rest of the budget, while blocks are free. */
static void extend_chunks(pi__sched *sc, int32_t budget)
{
    for (pi__seq *s = sc->running.head; s && budget > 0; s = s->next) {
        if (!s->n_new) continue;
        int32_t missing = missing_of(sc, s) - s->n_new, more = missing < budget ? missing : budget;
        more = whole_blocks(sc, s, s->n_new + more) - s->n_new;
        if (more <= 0) continue;
        if (!pi__cache_reserve(sc->cache, s->row, s->n_computed + s->n_new + more)) return;
        s->n_new += more;
        budget -= more;
    }
}

/* Returns the tokens that a step leaves for prefill, if it decodes: `min_prefill`, or the largest image that a running
 * prefill computes next in one piece. */
static int32_t least_prefill(const pi__sched *sc)
{
    int32_t least = sc->config.min_prefill;
    for (const pi__seq *s = sc->running.head; s; s = s->next) {
        const int32_t k = s->whole_images ? pi__images_from(&s->images, s->n_computed) : s->images.n;
        if (k == s->images.n || s->images.at[k].start > s->n_computed) continue;
        if (s->images.at[k].n > least) least = s->images.at[k].n;
    }
    return least;
}

/* Adds drafts of decoding sequences as far as the budget and the free blocks allow. Leaves `least` tokens of the
 * budget for prefill. */
static void take_drafts(pi__sched *sc, int32_t *budget, int32_t least)
{
    for (pi__seq *s = sc->running.head; s; s = s->next) {
        const int32_t room = *budget - least;
        int32_t n = s->n_draft < room ? s->n_draft : room;
        if (n <= 0 || s->n_new != 1 || s->n_tokens - s->n_computed != 1) continue;
        if (!pi__cache_reserve(sc->cache, s->row, s->n_tokens + n)) continue;
        s->n_new += n;
        *budget -= n;
    }
}

/* Fills the plan with all sequences that have tokens in this step. */
static pi__step_plan *plan_of(pi__sched *sc)
{
    pi__step_plan *p = &sc->plan[sc->now];
    p->n_seqs = p->n_tokens = p->n_prefill = 0;
    p->ahead = false;
    for (pi__seq *s = sc->running.head; s; s = s->next) {
        if (!s->n_new) continue;
        if (s->n_tokens - s->n_computed > 1) p->n_prefill += s->n_new;
        p->seq[p->n_seqs++] = s;
        p->n_tokens += s->n_new;
    }
    pi__assert(p->n_tokens <= sc->max_tokens);
    return p;
}

/* True if s is decoding: it has one uncomputed token, or a short run forced by its grammar. */
static bool is_decoding(const pi__seq *s)
{
    const int32_t missing = s->n_tokens - s->n_computed;
    return missing == 1 || (missing == s->n_ahead && missing <= MAX_AHEAD);
}

pi__step_plan *pi__schedule(pi__sched *sc, int32_t max_tokens)
{
    int32_t budget = sc->max_tokens = max_tokens;
    bool preempted = false;
    sc->full = false;
    sc->n_ahead = 0;
    for (pi__seq *s = sc->running.head; s; s = s->next) s->n_new = 0;
    for (int pass = 0; pass < 2; pass++) { /* decode, then prefill */
        for (pi__seq *s = sc->running.head, *next; s && budget > 0; s = next) {
            next = s->next;
            if (is_decoding(s) != (pass == 0) || s->n_new) continue;
            const int32_t missing = pass ? 0 : missing_of(sc, s);
            const int32_t n = pass ? chunk_of(sc, s, budget) : missing < budget ? missing : budget;
            if (!n) continue;
            if (!take_tokens(sc, s, n, &budget, &preempted)) break;
            next = s->next; /* the sequences after s may have been preempted */
        }
        if (pass) break;
        const int32_t least = least_prefill(sc);
        take_drafts(sc, &budget, least);
        const bool any = budget < max_tokens;
        const int32_t most = sc->max_prefill > least ? sc->max_prefill : least;
        if (any && sc->max_prefill && budget > most) budget = most;
    }
    admit_waiting(sc, &budget, &preempted);
    extend_chunks(sc, budget);
    return plan_of(sc);
}

/* ------------------------------------------------------------------------------------------------------- lookahead */

/* True if the token after the last one of s can be computed before the host knows it, and its block was reserved. A
 * token that completes a chunk of a recurrent state cannot: the step folds the chunk into the state, and a token that
 * is rejected later cannot be removed. */
static bool can_follow(pi__sched *sc, const pi__seq *s)
{
    for (int32_t i = 0; i < sc->cache->n_groups; i++)
        if (sc->cache->group[i].spec.state && (s->n_tokens + 1) % PI__STATE_CHUNK == 0) return false;
    return pi__cache_reserve(sc->cache, s->row, s->n_tokens + 1);
}

pi__step_plan *pi__schedule_ahead(pi__sched *sc)
{
    const pi__step_plan *now = &sc->plan[sc->now];
    pi__step_plan *p = &sc->plan[1 - sc->now];
    int32_t n_there = 0;
    bool good = !sc->waiting.n || (sc->full && sc->n_ahead < MAX_FED);
    p->n_seqs = p->n_prefill = 0;
    p->ahead = true;
    for (int32_t q = 0; q < now->n_seqs && good; q++) {
        pi__seq *s = now->seq[q];
        if (!s) continue;
        n_there++;
        if (s->n_tokens + 1 >= s->max_total) continue; /* s ends with the token of the step in flight */
        good = can_follow(sc, s);
        p->from[p->n_seqs] = q;
        p->seq[p->n_seqs++] = s;
    }
    if (!good || n_there != sc->running.n) p->n_seqs = 0;
    p->n_tokens = p->n_seqs;
    if (!p->n_seqs) return p;
    for (int32_t q = 0; q < p->n_seqs; q++) p->seq[q]->n_new = 1;
    sc->n_ahead++;
    sc->now = 1 - sc->now;
    return p;
}
