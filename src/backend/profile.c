/* The profile of a backend's ops (see profile.h): bytes and products of a call come from the table of operands. */
#include "backend/profile.h"

#include <stdio.h>
#include <string.h>

#include "backend/operands.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "formats/formats.h"

pi__profile *pi__profile_new(const pi__backend *be)
{
    pi__profile *p = pi__calloc(1, sizeof *p);
    if (!p) return NULL;
    if (pthread_mutex_init(&p->lock, NULL)) {
        pi__free(p);
        return NULL;
    }
    p->own_time = be->dev->n_threads && be->dev->n_threads(be) == 1;
    return p;
}

void pi__profile_free(pi__profile *p)
{
    if (!p) return;
    pthread_mutex_destroy(&p->lock);
    pi__free(p);
}

static int64_t now(const pi__profile *p) { return p->own_time ? (int64_t) (pi__thread_ms() * 1e6) : pi__now_ns(); }

/* ----------------------------------------------------------------------------------------------------------- counts */

/* Counts products of n_rows rows with w, and the bytes of n_mat of its matrices, at most all. */
static void count_matrix(const pi__weight *w, int64_t n_rows, int64_t n_mat, pi__profile_row *r)
{
    const pi__type_info *t = pi__type_info_of(w->type);
    const uint64_t products = (uint64_t) n_rows * (uint64_t) w->n_in * (uint64_t) w->n_out;
    r->bytes += w->size / (uint64_t) w->n_mat * (uint64_t) (n_mat < w->n_mat ? n_mat : w->n_mat);
    if (t && t->blck_size > 1) r->integers += products;
    else r->floats += products;
}

static void count_linear(const pi__linear *a, pi__profile_row *r)
{
    r->type = a->lin[0].w->type;
    r->n_in = a->lin[0].w->n_in;
    for (int32_t i = 0; i < a->n_lin; i++) {
        r->n_out += a->lin[i].w->n_out;
        count_matrix(a->lin[i].w, a->n_rows, 1, r);
    }
}

/* The experts of a step are not known here: bytes are counted as if all (row, expert) pairs had different experts. */
static void count_moe(const pi__moe *a, pi__profile_row *r)
{
    const pi__weight *w[] = {a->gate, a->up, a->down};
    const int64_t pairs = (int64_t) a->n_rows * a->n_used;
    r->type = a->gate->type;
    r->n_in = a->gate->n_in;
    r->n_out = a->down->n_in;
    for (int i = 0; i < 3; i++)
        if (w[i]) count_matrix(w[i], pairs, pairs, r);
}

/* Counts each visible key and value once per sequence, and two products per value of each (query head, key) pair. */
static void count_attention(const pi__attention *a, const pi__batch *b, pi__profile_row *r)
{
    const pi__kv_layer *kv = a->kv;
    const size_t key = pi__kv_row_size(kv->type_k, kv->head_dim) + pi__kv_row_size(kv->type_v, kv->head_dim);
    r->type = kv->type_k;
    r->n_in = kv->head_dim;
    r->n_out = a->window;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const int64_t n = b->seq_start[s + 1] - b->seq_start[s], len = b->seq_len[s];
        int64_t sum = 0, all = len;
        for (int64_t i = 0; i < n; i++) {
            const int64_t seen = len - n + i + 1;
            sum += a->window && seen > a->window ? a->window : seen;
        }
        if (a->window && all > a->window + n) all = a->window + n;
        r->bytes += n ? (uint64_t) all * (uint64_t) kv->n_head_kv * key : 0;
        r->floats += (uint64_t) (sum * a->n_head * kv->head_dim) * 2;
    }
}

/* Counts the state's bytes: read once per sequence, and written if the step ends a chunk. */
static void count_gdn(const pi__gdn *a, const pi__batch *b, pi__profile_row *r)
{
    const uint64_t state = (uint64_t) a->st->n_v * (uint64_t) a->st->dim * (uint64_t) pi__state_dim_v(a->st);
    r->n_in = a->st->dim;
    r->n_out = a->st->n_v;
    r->floats += 3 * state * (uint64_t) b->n_tokens;
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const int32_t n = b->seq_start[s + 1] - b->seq_start[s], from = n ? b->pos[b->seq_start[s]] : 0;
        const int32_t folds = (from + n) / PI__STATE_CHUNK > from / PI__STATE_CHUNK;
        r->bytes += n ? 4 * state * (uint64_t) (1 + folds) : 0;
    }
}

static void count_activations(pi__op_id id, const pi__batch *b, const void *args, pi__profile_row *r)
{
    pi__operands o;
    pi__operands_of(id, b, args, &o);
    for (int32_t i = 0; i < o.n; i++) {
        const pi__operand *p = &o.op[i];
        if (p->kind <= PI__UPDATE && p->n > 0)
            r->bytes += (uint64_t) (p->n * p->width) * (p->kind == PI__UPDATE ? 8 : 4);
    }
}

static pi__profile_row row_of(pi__op_id id, const pi__batch *b, const void *args)
{
    pi__profile_row r = {.op = (int32_t) id, .type = -1, .n_calls = 1};
    count_activations(id, b, args, &r);
    if (id == PI__OP_linear) count_linear(args, &r);
    if (id == PI__OP_moe) count_moe(args, &r);
    if (id == PI__OP_attention) count_attention(args, b, &r);
    if (id == PI__OP_gdn) count_gdn(args, b, &r);
    return r;
}

/* ------------------------------------------------------------------------------------------------------------- rows */

static bool same(const pi__profile_row *a, const pi__profile_row *b)
{
    return a->op == b->op && a->type == b->type && a->n_in == b->n_in && a->n_out == b->n_out && a->decode == b->decode;
}

static pi__profile_row *find(pi__profile *p, const pi__profile_row *r)
{
    for (int32_t i = 0; i < p->n; i++)
        if (same(&p->row[i], r)) return &p->row[i];
    return NULL;
}

/* Returns the row of p for calls like r; adds the row if p has none. The last two rows are reserved for all calls that
 * find no free row, one per kind of step; r is then changed to PI__PART_OTHER. NULL = all rows are in use. */
static pi__profile_row *place_of(pi__profile *p, pi__profile_row *r)
{
    pi__profile_row *found = find(p, r);
    if (!found && p->n >= PI__PROFILE_ROWS - 2) {
        r->op = PI__PART_OTHER, r->type = -1, r->n_in = r->n_out = 0;
        found = find(p, r);
    }
    if (found || p->n == PI__PROFILE_ROWS) return found;
    p->row[p->n] = (pi__profile_row) {r->op, r->type, r->n_in, r->n_out, r->decode, 0, 0, 0, 0, 0};
    return &p->row[p->n++];
}

static void add(pi__profile *p, pi__profile_row r)
{
    r.decode = p->decode;
    pi__profile_row *to = place_of(p, &r);
    if (!to) return;
    to->n_calls += r.n_calls;
    to->bytes += r.bytes;
    to->integers += r.integers;
    to->floats += r.floats;
    to->ns += r.ns;
}

/* Adds the time since the end of the last op or part to this part. Returns the current time. */
static int64_t add_part(pi__profile *p, pi__profile_part part)
{
    const int64_t t = now(p);
    if (p->last) add(p, (pi__profile_row) {.op = (int32_t) part, .type = -1, .n_calls = 1, .ns = t - p->last});
    return p->last = t;
}

void pi__profile_step(pi__profile *p, bool decode)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->decode = decode;
    p->n_steps[decode]++;
    add_part(p, PI__PART_BATCH);
    pthread_mutex_unlock(&p->lock);
}

void pi__profile_end(pi__profile *p, pi__profile_part part)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    add_part(p, part);
    pthread_mutex_unlock(&p->lock);
}

void pi__profile_idle(pi__profile *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->last = 0;
    pthread_mutex_unlock(&p->lock);
}

void pi__profile_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args)
{
    pi__profile *p = be->profile;
    pthread_mutex_lock(&p->lock);
    const int64_t from = p->last, t = now(p);
    pi__profile_row r = row_of(id, b, args);
    r.ns = from ? t - from : 0;
    add(p, r);
    p->last = now(p); /* later times exclude the time spent on counting */
    pthread_mutex_unlock(&p->lock);
}

void pi__profile_before(const pi__backend *be) { pi__profile_end(be->profile, PI__PART_BETWEEN); }

void pi__profile_take(pi__profile *p, void (*fn)(void *ud, const pi__profile_row *row, uint64_t n_steps), void *ud)
{
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < p->n; i++) fn(ud, &p->row[i], p->n_steps[p->row[i].decode]);
    p->n = 0;
    p->n_steps[0] = p->n_steps[1] = 0;
    pthread_mutex_unlock(&p->lock);
}

void pi__profile_name(const pi__profile_row *r, char *to, size_t size)
{
    static const char *const parts[] = {"(batch)", "(between ops)", "(tokens)", "(schedule)", "(other ops)"};
    if (r->op >= PI__PART_BATCH) {
        snprintf(to, size, "%s", parts[r->op - PI__PART_BATCH]);
        return;
    }
    const pi__type_info *t = r->type >= 0 ? pi__type_info_of(r->type) : NULL;
    const char *op = pi__op_name((pi__op_id) r->op), *space = t ? " " : "", *type = t ? t->name : "";
    const long long n_in = r->n_in, n_out = r->n_out;
    if (r->op == PI__OP_attention && n_out)
        snprintf(to, size, "%s %s %lld window %lld", op, pi__kv_name(r->type), n_in, n_out);
    else if (r->op == PI__OP_attention) snprintf(to, size, "%s %s %lld", op, pi__kv_name(r->type), n_in);
    else if (n_in) snprintf(to, size, "%s%s%s %lld x %lld", op, space, type, n_in, n_out);
    else snprintf(to, size, "%s", op);
}
