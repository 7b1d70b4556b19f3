/* An engine's grammars: compiling, sharing, and the matchers of sequences (see grammar.h).
 *
 * The most recently used grammars are cached; an evicted one lives until its last reference is released. Locks: the
 * engine's cache has one, never held while compiling; each grammar has one for its machine and its list of matchers. */
#include "grammar/grammar.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "grammar/machine.h"

enum { KEPT = 64, MAX_TRIGGERS = 64 };

struct pi__grammar {
    atomic_uint ref;
    atomic_int n_waiting;  /* threads that wait for the lock; the worker yields to them */
    pi__grammars *all;     /* owner */
    pi__digest key;        /* digest of its spec */
    pthread_mutex_t lock;  /* guards all following fields */
    pi__program program;
    pi__machine machine;
    pi__matcher *matchers; /* matchers with a state */
    pi__grammar_counts counts;
};

struct pi__matcher {
    pi__grammar *g;
    pi__matcher *prev, *next; /* in g's list while state is not 0 */
    uint32_t state;           /* current state; 0 = at the start, not in the list yet */
    bool over;                /* the end token was generated, or nothing can follow */
    bool has_mask;            /* n, only, bits and slot are the mask of `state` */
    int32_t n, only;          /* number of allowed tokens, without end tokens; the highest allowed id */
    const uint64_t *bits;     /* [words] the mask: in the pinned slot, or `own` */
    int32_t slot;             /* pinned slot; -1 = none */
    pi_error why;             /* why.code set: computing the mask failed with this error */
    bool pending;             /* the worker is computing the mask */
    pi__matcher *next_job;    /* next in the worker's queue */
    uint64_t *own, *ended;    /* [words] each: a mask without a slot; a mask with end tokens added */
};

/* The thread that computes slow masks. Started when the first slow mask is queued. */
typedef struct worker {
    pthread_mutex_t lock;     /* guards all following fields; taken last */
    pthread_cond_t wake;
    pi__matcher *first, *last; /* queue of matchers whose masks the worker computes, linked by next_job */
    pi__matcher *now;         /* matcher of the mask in progress; NULL = idle, or the mask was dropped */
    bool started, closing;
    pthread_t thread;
    void (*on_ready)(void *ud);
    void *ud;
} worker;

struct pi__grammars {
    const pi__vocab *v;
    int32_t n_vocab;
    int32_t *never;           /* [n_never] */
    int32_t n_never;
    pthread_mutex_t lock;     /* guards all following fields */
    pi__tokens *tokens;       /* created for the first grammar */
    pi__grammar *kept[KEPT];  /* [n_kept] most recently used first */
    size_t n_kept;
    worker worker;
};

/* Takes g's lock. Until then n_waiting is raised, so that the worker releases the lock soon. */
static void lock(pi__grammar *g)
{
    atomic_fetch_add(&g->n_waiting, 1);
    pthread_mutex_lock(&g->lock);
    atomic_fetch_sub(&g->n_waiting, 1);
}

static void unlock(pi__grammar *g) { pthread_mutex_unlock(&g->lock); }

/* --------------------------------------------------------------------------------------------------------- grammars */

static void stop_worker(worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->started) pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
}

void pi__grammars_on_ready(pi__grammars *gs, void (*fn)(void *ud), void *ud)
{
    gs->worker.on_ready = fn;
    gs->worker.ud = ud;
}

int pi__grammars_create(pi__grammars **out, const pi__vocab *v, int32_t n_vocab, const int32_t *never, int32_t n_never,
                        pi_error *err)
{
    *out = NULL;
    pi__grammars *gs = pi__calloc(1, sizeof *gs);
    int32_t *copy = pi__calloc((size_t) n_never + 1, sizeof *copy);
    if (!gs || !copy) {
        pi__free(gs);
        pi__free(copy);
        return pi__fail_mem(err, "grammars");
    }
    if (n_never) memcpy(copy, never, (size_t) n_never * sizeof *copy);
    *gs = (pi__grammars) {.v = v, .n_vocab = n_vocab, .never = copy, .n_never = n_never};
    pthread_mutex_init(&gs->lock, NULL);
    pthread_mutex_init(&gs->worker.lock, NULL);
    pthread_cond_init(&gs->worker.wake, NULL);
    *out = gs;
    return PI_OK;
}

void pi__grammars_free(pi__grammars *gs)
{
    if (!gs) return;
    stop_worker(&gs->worker);
    for (size_t i = 0; i < gs->n_kept; i++) pi__grammar_release(gs->kept[i]);
    pi__tokens_free(gs->tokens);
    pthread_mutex_destroy(&gs->lock);
    pi__free(gs->never);
    pi__free(gs);
}

pi__grammar *pi__grammar_retain(pi__grammar *g)
{
    if (g) atomic_fetch_add(&g->ref, 1);
    return g;
}

void pi__grammar_release(pi__grammar *g)
{
    if (!g || atomic_fetch_sub(&g->ref, 1) != 1) return;
    pi__machine_free(&g->machine);
    pi__program_free(&g->program);
    pthread_mutex_destroy(&g->lock);
    pi__free(g);
}

/* -------------------------------------------------------------------------------------------------------- compiling */

/* Reads a JSON array of strings. */
static int read_texts(pi__builder *b, const char *json, const char *what, pi__str **out, size_t *n)
{
    pi__val v;
    int rc = pi__json_read(&b->zone, json, strlen(json), what, &v, b->err);
    *n = 0;
    if (rc) return b->code = rc;
    if (v.type != PI__V_LIST || !v.list->n) return pi__builder_fail(b, PI_EINVAL,
                                                                    "%s: give a JSON array of texts, for example "
                                                                    "[\"yes\", \"no\"]", what);
    *out = pi__builder_take(b, v.list->n * sizeof **out);
    for (size_t i = 0; i < v.list->n && !b->code; i++) {
        if (v.list->v[i].type != PI__V_STR) return pi__builder_fail(b, PI_EINVAL, "%s: entry %zu is %s; give texts",
                                                                    what, i, pi__val_type_name(&v.list->v[i]));
        (*out)[(*n)++] = v.list->v[i].s;
    }
    return b->code;
}

pi__expr *pi__read_choice(pi__builder *b, const char *text, size_t n)
{
    pi__str *s = NULL;
    size_t count = 0;
    (void) n; /* text is NUL-terminated */
    pi__expr *alt = pi__x_alt(b);
    if (read_texts(b, text, "choice", &s, &count)) return alt;
    for (size_t i = 0; i < count; i++) pi__x_add(b, alt, pi__x_bytes(b, s[i].p, s[i].n));
    return alt;
}

static pi__expr *read_spec(pi__builder *b, const pi__grammar_spec *spec, const char *start)
{
    const size_t n = strlen(spec->text);
    switch (spec->kind) {
    case PI__GRAMMAR_GBNF: return pi__read_gbnf(b, spec->text, n, start);
    case PI__GRAMMAR_SCHEMA: return pi__read_schema_text(b, spec->text, n, "json-schema");
    case PI__GRAMMAR_REGEX: return pi__read_regex(b, spec->text, n, "regex", false, NULL);
    default: return pi__read_choice(b, spec->text, n);
    }
}

/* Returns x with the GBNF text before it (in_front) or after it. text NULL = x unchanged. */
static pi__expr *add_gbnf(pi__builder *b, const char *text, pi__expr *x, bool in_front)
{
    if (!text || b->code) return x;
    pi__expr *more = pi__read_gbnf(b, text, strlen(text), "root");
    return in_front ? pi__x_cat2(b, more, x) : pi__x_cat2(b, x, more);
}

/* Returns the expression lead (before form after | calls) of the parts. */
static pi__expr *read_parts(pi__builder *b, const pi__grammar_parts *p)
{
    pi__expr *x = read_spec(b, &p->form, p->start ? p->start : "root");
    x = add_gbnf(b, p->before, x, true);
    x = add_gbnf(b, p->after, x, false);
    if (p->calls && !b->code) x = pi__x_alt2(b, x, pi__read_gbnf(b, p->calls, strlen(p->calls), "root"));
    return add_gbnf(b, p->lead, x, true);
}

/* Returns an expression of free text, in which a trigger of the JSON list starts root; sets the builder's triggers. */
static pi__expr *add_trigger(pi__builder *b, const char *json, pi__expr *root)
{
    const uint32_t rule = pi__rule_new(b);
    pi__rule_set(b, rule, root);
    if (read_texts(b, json, "grammar-trigger", &b->trigger, &b->n_triggers)) return root;
    for (size_t i = 0; i < b->n_triggers; i++)
        if (!b->trigger[i].n)
            pi__builder_fail(b, PI_EINVAL,
                             "grammar-trigger: entry %zu is empty; leave the option out for a grammar that binds from "
                             "the start",
                             i);
    if (b->n_triggers > MAX_TRIGGERS)
        pi__builder_fail(b, PI_EINVAL, "grammar-trigger: %zu texts; give at most %d", b->n_triggers, MAX_TRIGGERS);
    pi__expr *x = pi__x_rule(b, rule);
    if (!b->code) x->kind = PI__X_FREE;
    return x;
}

static int compile(pi__grammars *gs, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out, pi_error *err)
{
    const pi__tokens *t = gs->tokens;
    const double start = pi__now_ms();
    pi__grammar *g = pi__calloc(1, sizeof *g);
    if (!g) return pi__fail_mem(err, "the grammar");
    atomic_init(&g->ref, 1);
    atomic_init(&g->n_waiting, 0);
    g->all = gs;
    pthread_mutex_init(&g->lock, NULL);
    pi__builder b;
    pi_error why = {0};
    pi__builder_init(&b, t, &why);
    b.zone.work = work;
    const pi__grammar_spec *spec = &parts->form;
    pi__expr *root = read_parts(&b, parts);
    b.thoughts = spec->thoughts;
    if (!b.code && spec->trigger && *spec->trigger) root = add_trigger(&b, spec->trigger, root);
    if (!b.code) pi__program_make(&g->program, &b, root);
    int rc = b.code;
    pi__builder_free(&b);
    if (!rc) rc = pi__machine_init(&g->machine, &g->program, t, &why);
    if (!rc && pi__machine_start(&g->machine) == PI__STATE_NONE)
        rc = pi__fail(&why, PI_EUNSUPPORTED, "the grammar has more than %d alternatives at its start: make it less "
                                             "ambiguous",
                      PI__MAX_CONFIGS);
    /* PI_ETOOBIG tells clients to shorten their prompt; a grammar's size limit is PI_EINVAL. `work` keeps its code. */
    if (rc == PI_ETOOBIG && !pi__work_code(work)) rc = why.code = PI_EINVAL;
    if (rc) {
        if (err) *err = why;
        pi__grammar_release(g);
        return rc;
    }
    g->counts.compile_ms = pi__now_ms() - start;
    *out = g;
    return PI_OK;
}

/* Returns the cached grammar of this key, moved to the front; NULL if not cached. Lock held. */
static pi__grammar *find(pi__grammars *gs, const pi__digest *key)
{
    for (size_t i = 0; i < gs->n_kept; i++) {
        pi__grammar *g = gs->kept[i];
        if (!pi__digest_equal(&g->key, key)) continue;
        memmove(gs->kept + 1, gs->kept, i * sizeof gs->kept[0]);
        return gs->kept[0] = g;
    }
    return NULL;
}

/* Adds g at the front of the cache with a reference; evicts the last grammar if the cache is full. Lock held. */
static void keep(pi__grammars *gs, pi__grammar *g)
{
    if (gs->n_kept == KEPT) pi__grammar_release(gs->kept[--gs->n_kept]);
    memmove(gs->kept + 1, gs->kept, gs->n_kept * sizeof gs->kept[0]);
    gs->kept[0] = pi__grammar_retain(g);
    gs->n_kept++;
}

static pi__digest key_of(const pi__grammar_parts *p)
{
    const pi__grammar_spec *spec = &p->form;
    const char *const part[] = {spec->trigger, p->lead, p->before, p->after, p->calls, p->start};
    const int how[2] = {spec->kind, spec->thoughts};
    pi__hasher h;
    pi__hash_begin(&h, PI__HASH_GRAMMAR);
    pi__hash_field(&h, how, sizeof how);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        pi__hash_field(&h, part[i] ? part[i] : "", part[i] ? strlen(part[i]) : 0);
    pi__hash_field(&h, spec->text, strlen(spec->text));
    return pi__hash_end(&h);
}

int pi__grammar_get_within(pi__grammars *gs, const pi__grammar_parts *parts, pi__work *work, pi__grammar **out,
                           pi_error *err)
{
    const pi__digest key = key_of(parts);
    int rc = PI_OK;
    *out = NULL;
    pthread_mutex_lock(&gs->lock);
    *out = pi__grammar_retain(find(gs, &key));
    if (!*out && !gs->tokens) rc = pi__tokens_create(&gs->tokens, gs->v, gs->n_vocab, gs->never, gs->n_never, err);
    pthread_mutex_unlock(&gs->lock);
    if (rc || *out) return rc;
    rc = compile(gs, parts, work, out, err);
    if (rc) return rc;
    (*out)->key = key;
    pthread_mutex_lock(&gs->lock);
    pi__grammar *other = find(gs, &key); /* another thread compiled it at the same time */
    if (other) {
        pi__grammar_release(*out);
        *out = pi__grammar_retain(other);
    } else {
        keep(gs, *out);
    }
    pthread_mutex_unlock(&gs->lock);
    return PI_OK;
}

void pi__grammar_count(pi__grammar *g, pi__grammar_counts *out)
{
    lock(g);
    *out = g->counts;
    out->n_states = g->machine.n_states;
    out->n_masks_made = g->machine.n_masks;
    out->work = g->machine.work;
    out->bytes = pi__program_bytes(&g->program) + pi__machine_used(&g->machine);
    unlock(g);
}

/* --------------------------------------------------------------------------------------------------------- matchers */

int pi__matcher_create(pi__matcher **out, pi__grammar *g, pi_error *err)
{
    const size_t words = pi__mask_words(g->machine.t);
    pi__matcher *m = *out = pi__calloc(1, sizeof *m);
    if (m) m->own = pi__calloc(2 * words, sizeof *m->own);
    if (!m || !m->own) {
        pi__free(m);
        *out = NULL;
        return pi__fail_mem(err, "the request");
    }
    m->ended = m->own + words;
    m->slot = -1;
    m->g = pi__grammar_retain(g);
    return PI_OK;
}

/* Unpins and drops m's mask and its error, and removes m from the worker's queue. Lock held. */
static void drop_mask(pi__matcher *m)
{
    worker *w = &m->g->all->worker;
    if (m->slot >= 0) m->g->machine.slot[m->slot].pins--;
    m->slot = -1;
    m->has_mask = false;
    m->why.code = PI_OK;
    if (!m->pending) return;
    m->pending = false;
    pthread_mutex_lock(&w->lock);
    if (w->now == m) w->now = NULL;
    pi__matcher *before = NULL;
    for (pi__matcher *x = w->first; x; before = x, x = x->next_job) {
        if (x != m) continue;
        if (before) before->next_job = m->next_job;
        else w->first = m->next_job;
        if (w->last == m) w->last = before;
        break;
    }
    pthread_mutex_unlock(&w->lock);
}

void pi__matcher_free(pi__matcher *m)
{
    if (!m) return;
    pi__grammar *g = m->g;
    lock(g);
    drop_mask(m);
    if (m->prev) m->prev->next = m->next;
    else if (g->matchers == m) g->matchers = m->next;
    if (m->next) m->next->prev = m->prev;
    unlock(g);
    pi__grammar_release(g);
    pi__free(m->own);
    pi__free(m);
}

/* Frees table space: keeps only the states of matchers. There is at most one matcher per running sequence (4096).
 * Lock held. */
static void collect(pi__grammar *g)
{
    pi__machine *m = &g->machine;
    size_t n = 0;
    uint32_t **root = (uint32_t **) (void *) m->todo; /* has 4 * PI__MAX_CONFIGS elements */
    for (pi__matcher *x = g->matchers; x; x = x->next) {
        pi__assert(n < 4 * PI__MAX_CONFIGS);
        if (n < 4 * PI__MAX_CONFIGS) root[n++] = &x->state;
        else x->over = true;
    }
    pi__machine_collect(m, root, n);
    g->counts.n_collections++;
}

/* If m has no state yet, sets it to the start state and adds m to g's list of matchers. false = the tables are full or
 * the grammar is too wide. Lock held. */
static bool settle(pi__matcher *m)
{
    pi__grammar *g = m->g;
    if (m->state) return true;
    const uint32_t start = pi__machine_start(&g->machine);
    if (!start) return false;
    m->state = start;
    m->next = g->matchers;
    if (g->matchers) g->matchers->prev = m;
    g->matchers = m;
    return true;
}

static int too_much(pi_error *err)
{
    return pi__fail(err, PI_EUNSUPPORTED, "the grammar is too ambiguous or nested too deeply: make it less ambiguous");
}

/* Returns the result of f, which may call the machine; if f fails because the tables are full, frees table space and
 * calls f once more. After false the flags full and wide are cleared. */
typedef bool (*step_fn)(pi__matcher *m, void *ud);
static bool with_room(pi__matcher *m, step_fn f, void *ud)
{
    pi__machine *x = &m->g->machine;
    for (int i = 0; i < 2; i++) {
        if (settle(m) && f(m, ud)) return true;
        if (x->wide) break;
        collect(m->g);
    }
    x->full = x->wide = false;
    return false;
}

enum { MAX_FULL = 64 }; /* max collections while one mask is computed */

/* Makes the mask in this slot m's mask, and pins the slot until drop_mask. */
static void take_slot(pi__matcher *m, int32_t slot)
{
    pi__machine *x = &m->g->machine;
    x->slot[slot].pins++;
    m->slot = slot;
    m->bits = pi__mask_bits(x, slot);
    m->n = x->slot[slot].n;
    m->only = x->slot[slot].only;
    m->has_mask = true;
}

/* Copies the mask of walk w to m->own; used if all slots were pinned. */
static void take_copy(pi__matcher *m, const pi__walk *w)
{
    memcpy(m->own, w->bits, pi__mask_words(m->g->machine.t) * sizeof *m->own);
    m->bits = m->own;
    m->n = w->n;
    m->only = w->only;
    m->has_mask = true;
}

/* Sets m's mask: the cached mask of its state, or one that walk w computes in at most `steps` steps. PI_EBUSY: not done
 * within these. Stores other errors in m->why. Lock held. */
static int make_mask(pi__matcher *m, pi__walk *w, uint64_t steps)
{
    pi__machine *x = &m->g->machine;
    for (int n_full = 0; !m->has_mask && !m->why.code; n_full++) {
        const int32_t slot = settle(m) ? pi__machine_mask(x, m->state) : -1;
        int end = PI__WALK_FULL;
        if (slot >= 0) {
            take_slot(m, slot);
            break;
        }
        if (!x->full && !x->wide) end = steps ? pi__machine_walk(x, w, m->state, steps) : PI__WALK_MORE;
        if (end == PI__WALK_MORE) return PI_EBUSY;
        if (end == PI__WALK_WIDE || x->wide || n_full == MAX_FULL) {
            x->full = x->wide = false;
            w->state = 0;
            return too_much(&m->why);
        }
        if (end == PI__WALK_FULL) collect(m->g);
        else if (pi__machine_mask(x, m->state) < 0) take_copy(m, w);
    }
    return m->why.code;
}

/* Sets out->bits to a copy of m's mask with end tokens: all of them, or only the usual one if no other token may
 * follow. */
static void add_ends(pi__matcher *m, pi__mask *out)
{
    const pi__tokens *t = m->g->machine.t;
    const bool all = out->n > 0;
    uint64_t *bits = m->ended;
    memcpy(bits, m->bits, pi__mask_words(t) * sizeof *bits);
    for (int32_t i = 0; i < t->n_eog; i++) {
        const int32_t id = t->eog[i];
        if ((!all && id != t->eos) || (bits[id >> 6] >> (id & 63) & 1)) continue;
        bits[id >> 6] |= (uint64_t) 1 << (id & 63);
        out->only = id;
        out->n++;
    }
    out->bits = bits;
}

int pi__matcher_mask(pi__matcher *m, bool end, pi__mask *out, pi_error *err)
{
    pi__grammar *g = m->g;
    int rc = PI_OK;
    *out = (pi__mask) {.only = -1};
    lock(g);
    const uint64_t made = g->machine.n_masks;
    const double start = pi__now_ms();
    if (!m->over) rc = make_mask(m, &g->machine.walk[0], UINT64_MAX / 2);
    if (rc && err) *err = m->why;
    if (!m->over && !rc) {
        const bool ends = pi__state_at(&g->machine, m->state)->ends;
        *out = (pi__mask) {m->bits, m->n, m->only};
        if (ends && (end || !out->n)) add_ends(m, out);
        if (!out->n && !ends) rc = pi__fail(err, PI_EINVAL,
                                            "no token of the vocabulary can continue the text: change the grammar");
        m->over = !out->n;
    }
    const double ms = g->machine.n_masks > made ? pi__now_ms() - start : 0;
    g->counts.n_masks++;
    g->counts.mask_ms += ms;
    if (ms > g->counts.mask_max_ms) g->counts.mask_max_ms = ms;
    unlock(g);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- worker */

enum { CHUNK = 8192 }; /* steps for which the worker keeps the grammar's lock: below 0.1 ms */

/* Computes the mask of w->now, a matcher of g, unless it is dropped meanwhile. */
static void make_in_chunks(worker *w, pi__grammar *g)
{
    int rc = PI_EBUSY;
    while (rc == PI_EBUSY) {
        while (atomic_load(&g->n_waiting)) sched_yield();
        pthread_mutex_lock(&g->lock);
        pthread_mutex_lock(&w->lock);
        pi__matcher *m = w->now; /* freed only under g's lock */
        pthread_mutex_unlock(&w->lock);
        rc = m ? make_mask(m, &g->machine.walk[1], CHUNK) : PI_ECANCELED;
        if (!m) g->machine.walk[1].state = 0;
        if (m && rc != PI_EBUSY) {
            pthread_mutex_lock(&w->lock);
            w->now = NULL;
            pthread_mutex_unlock(&w->lock);
            m->pending = false;
        }
        unlock(g);
    }
    if (w->on_ready && rc != PI_ECANCELED) w->on_ready(w->ud);
}

static void *work(void *arg)
{
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first && !w->closing) pthread_cond_wait(&w->wake, &w->lock);
        if (w->closing) break;
        w->now = w->first;
        w->first = w->now->next_job;
        if (!w->first) w->last = NULL;
        pi__grammar *g = pi__grammar_retain(w->now->g);
        pthread_mutex_unlock(&w->lock);
        make_in_chunks(w, g);
        pi__grammar_release(g);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Queues m's mask for the worker. If no thread can be started, callers continue themselves. Lock held. */
static void hand_over(pi__matcher *m)
{
    worker *w = &m->g->all->worker;
    pthread_mutex_lock(&w->lock);
    if (!w->started) w->started = pi__thread_start(&w->thread, work, w);
    if (w->started) {
        m->pending = true;
        m->next_job = NULL;
        if (w->last) w->last->next_job = m;
        else w->first = m;
        w->last = m;
        m->g->counts.n_handed_over++;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

bool pi__matcher_ready(pi__matcher *m, uint64_t *steps)
{
    pi__grammar *g = m->g;
    if (m->over) return true;
    lock(g);
    bool ready = m->has_mask || m->why.code;
    if (!ready && !m->pending) {
        const uint64_t before = g->machine.work;
        ready = make_mask(m, &g->machine.walk[0], *steps) != PI_EBUSY;
        const uint64_t spent = g->machine.work - before;
        *steps -= spent < *steps ? spent : *steps;
        if (!ready) hand_over(m);
    }
    unlock(g);
    return ready;
}

/* -------------------------------------------------------------------------------------------------------- following */

typedef struct step { int32_t id; uint32_t to; } step;

static bool step_token(pi__matcher *m, void *ud)
{
    step *s = ud;
    s->to = pi__machine_token(&m->g->machine, m->state, s->id);
    return s->to != PI__STATE_NONE;
}

/* Moves m's state past token id and drops its mask; an end token makes it over. Lock held. */
static int follow(pi__matcher *m, int32_t id, pi_error *err)
{
    const pi__machine *x = &m->g->machine;
    step s = {id, 0};
    if (id < 0 || id >= x->t->n_vocab || m->over) return pi__fail(err, PI_EINVAL,
                                                                  "the grammar does not allow token %d here", id);
    if (!with_room(m, step_token, &s)) return too_much(err);
    if (s.to != PI__STATE_DEAD) {
        m->state = s.to;
        drop_mask(m);
        return PI_OK;
    }
    if (!pi__tokens_is_eog(x->t, id) || !pi__state_at(x, m->state)->ends)
        return pi__fail(err, PI_EINVAL, "the grammar does not allow token %d here", id);
    m->over = true;
    return PI_OK;
}

int pi__matcher_accept(pi__matcher *m, int32_t id, pi_error *err)
{
    lock(m->g);
    const int rc = follow(m, id, err);
    unlock(m->g);
    return rc;
}

int32_t pi__matcher_count(pi__matcher *m, const int32_t *ids, int32_t n)
{
    int32_t k = 0;
    lock(m->g);
    pi__matcher probe = {.g = m->g, .state = 0, .over = m->over, .slot = -1};
    bool ok = settle(m) && settle(&probe); /* in the list, so that a collection keeps its state */
    probe.state = m->state;
    while (ok && k < n && !probe.over && !follow(&probe, ids[k], NULL)) k++;
    if (ok) {
        m->g->matchers = probe.next; /* added last, so it is the first */
        if (probe.next) probe.next->prev = NULL;
    }
    unlock(m->g);
    return k;
}

bool pi__matcher_is_over(const pi__matcher *m) { return m->over; }

bool pi__matcher_is_bound(pi__matcher *m)
{
    const pi__machine *x = &m->g->machine;
    lock(m->g);
    bool bound = settle(m);
    const pi__gstate *s = bound ? pi__state_at(x, m->state) : NULL;
    for (uint32_t i = 0; bound && i < s->n; i++) bound = x->p->node[s->config[i] >> 44].kind != PI__G_FREE;
    unlock(m->g);
    return bound;
}
