/* The plan of a pipeline run (see stages.c): segments, copies between them, and microbatches.
 *
 * A list of ranges says which bytes are not up to date everywhere. An op that writes adds a range of its stage. If
 * an op reads bytes that its stage lacks, two moves are added: out of the writer's stage at the end of the segment
 * that wrote the bytes, and in at the start of the segment that reads them. So only data that a later stage reads
 * is copied between segments: for example the residual stream, and tables of positions. Data from an earlier run is
 * copied while the plan is made, because no run is in progress then.
 *
 *     ops        embed rope linear qkv attention ... | linear qkv attention ...      | gather_rows linear
 *     stage      0                                   | 1                             | 1
 *     moves                           out: x, table -^-> in: x, table
 *
 * In a run of microbatches a move copies the bytes of each microbatch's tokens, at the rows where the writing op put
 * them. An op that writes only some columns of rows first fetches the other columns, unless the results of the op
 * together are complete rows. So a range has no holes.
 *
 * No memory. Threads: the step thread, while no run is in progress. */
#include <string.h>

#include "backend/stages_impl.h"
#include "base/assert.h"

enum { OP_RANGES = 2 * PI__MAX_OPERANDS }; /* max number of ranges that the plan of one op adds */

/* ----------------------------------------------------------------------------------------------------------- ranges */

static bool overlaps(const range *r, const char *lo, const char *hi) { return r->lo < hi && r->hi > lo; }
static bool has(const range *r, int32_t i) { return r->has >> i & 1; }

/* Removes lo..hi (host addresses) from all ranges. */
static void forget(stages *s, char *lo, char *hi)
{
    for (int32_t i = 0; i < s->n_ranges;) {
        range *r = &s->range[i], was = *r;
        if (!overlaps(r, lo, hi)) {
            i++;
            continue;
        }
        *r = s->range[--s->n_ranges];
        if (was.lo < lo) {
            s->range[s->n_ranges] = was;
            s->range[s->n_ranges++].hi = lo;
        }
        if (was.hi > hi) {
            s->range[s->n_ranges] = was;
            s->range[s->n_ranges++].lo = hi;
        }
    }
}

void pi__stages_forget(stages *s, char *lo, char *hi)
{
    if (s->n_ranges > MAX_RANGES - OP_RANGES) pi__stages_level(s);
    forget(s, lo, hi);
}

/* Copies range r to host memory, if the host lacks it, and waits for its writer; a captured step's copy may still be
 * running. No run is in progress. */
static void bring_out(stages *s, range *r)
{
    pi__backend *be = s->be.at[r->writer];
    pi_error err = {0};
    if (has(r, IN_HOST) && !s->queued) return;
    s->whole = false;
    if (!has(r, IN_HOST)) pi__stages_copy(s, r->writer, r->lo, r->hi, true);
    if (be->dev->finish(be, &err)) pi__stages_fail(s, &err);
    r->has |= 1u << IN_HOST;
}

void pi__stages_fetch(stages *s, char *lo, char *hi)
{
    for (int32_t i = 0; i < s->n_ranges; i++)
        if (overlaps(&s->range[i], lo, hi)) bring_out(s, &s->range[i]);
}

void pi__stages_level(stages *s)
{
    for (int32_t i = 0; i < s->n_ranges; i++) {
        range *r = &s->range[i];
        bring_out(s, r);
        s->whole = false;
        for (int32_t k = 0; k < s->n; k++)
            if (!has(r, k)) pi__stages_copy(s, k, r->lo, r->hi, false);
    }
    s->n_ranges = 0;
}

/* Adds a copy of range r at this segment. out: from the segment's stage to the host, after it; else to the stage,
 * before it. */
static void add_move(stages *s, const range *r, int32_t segment, bool out)
{
    pi__assert(s->n_moves < MAX_MOVES);
    s->move[s->n_moves++] = (move) {r->lo, r->hi, segment, out, r->t};
}

/* Called before an op on the stage of the last segment reads lo..hi: provides the bytes that the stage lacks. Bytes
 * from an earlier run are copied now; for bytes of this run moves are added. row: 0 for a read; for an op that is about
 * to write some columns of rows, the distance between these rows in bytes. Ranges with rows of another length are then
 * skipped: they are from an earlier use of the memory, and are not needed any more. */
static void reads(stages *s, char *lo, char *hi, size_t row)
{
    const int32_t k = s->n_segments - 1, to = s->segment[k].stage;
    for (int32_t i = 0; i < s->n_ranges; i++) {
        range *r = &s->range[i];
        if (!overlaps(r, lo, hi) || has(r, to) || (row && r->t.row && r->t.row != row)) continue;
        if (r->segment < 0) {
            bring_out(s, r);
            s->whole = false;
            pi__stages_copy(s, to, r->lo, r->hi, false);
        } else {
            if (!has(r, IN_HOST)) add_move(s, r, r->segment, true);
            r->has |= 1u << IN_HOST;
            add_move(s, r, k, false);
        }
        r->has |= 1u << to;
    }
}

/* Rows of activations (host addresses): n rows, `ld` bytes apart; `width` bytes of a row are used. */
typedef struct rows {
    char *p;
    size_t n, ld, width;
} rows;

static rows rows_of(const void *args, const pi__operand *o)
{
    return (rows) {pi__operand_get(args, o), (size_t) o->n, (size_t) o->ld * 4, (size_t) o->width * 4};
}
static char *end_of(const rows *r) { return r->p + (r->n - 1) * r->ld + r->width; }

/* Called before an op on the stage of the last segment writes w: adds a range. If the stage wrote other columns of the
 * same rows in this run, both become one range. n_tokens: tokens of the step if the rows are its tokens, else 0. */
static void writes(stages *s, const rows *w, size_t n_tokens)
{
    const int32_t k = s->n_segments - 1, stage = s->segment[k].stage;
    range own = {w->p, end_of(w), 1u << stage, stage, k, {w->p, n_tokens ? w->n / n_tokens * w->ld : 0}};
    if (w->n > 1 && w->ld != w->width) {
        reads(s, own.lo, own.hi, own.t.row);
        for (int32_t i = 0; i < s->n_ranges;) {
            const range r = s->range[i];
            const bool near = r.t.base < own.t.base + w->ld && own.t.base < r.t.base + w->ld;
            if (!overlaps(&r, own.lo, own.hi) || !near || r.t.row != own.t.row || !has(&r, stage) || r.segment < 0) {
                i++;
                continue;
            }
            own.lo = r.lo < own.lo ? r.lo : own.lo;
            own.hi = r.hi > own.hi ? r.hi : own.hi;
            own.t.base = r.t.base < own.t.base ? r.t.base : own.t.base;
            s->range[i] = s->range[--s->n_ranges];
            i = 0;
        }
    }
    forget(s, own.lo, own.hi);
    pi__assert(s->n_ranges < MAX_RANGES);
    s->range[s->n_ranges++] = own;
}

/* -------------------------------------------------------------------------------------------------------- the calls */

/* Returns true if operand o, which lies at r, is a result of the call in columns of the same rows as `first`. */
static bool is_beside(const pi__operand *o, const rows *r, const rows *first)
{
    const size_t apart = (size_t) (r->p > first->p ? r->p - first->p : first->p - r->p);
    return o->kind == PI__WRITE && r->n == first->n && r->ld == first->ld && apart < first->ld;
}

/* *w: the rows of operand i, a result of the call. If this operand and later results in the same rows together fill the
 * rows (for example q, k and v of a layer), *w becomes the complete rows, and done[] is set for these operands. */
static void join_columns(const pi__operands *o, const void *args, int32_t i, bool *done, rows *w)
{
    const rows first = *w;
    size_t width = 0;
    char *lo = first.p;
    for (int32_t k = i; k < o->n; k++) {
        const rows r = rows_of(args, &o->op[k]);
        if (is_beside(&o->op[k], &r, &first)) width += r.width, lo = r.p < lo ? r.p : lo;
    }
    if (width != first.ld) return;
    for (int32_t k = i; k < o->n; k++) {
        const rows r = rows_of(args, &o->op[k]);
        if (is_beside(&o->op[k], &r, &first)) done[k] = true;
    }
    *w = (rows) {lo, first.n, first.ld, first.ld};
}

/* Plans the copies for a call on the stage of the last segment, and adds the ranges that the call writes. */
static void plan_call(stages *s, const call *c)
{
    const size_t n_tokens = c->cut ? (size_t) s->given->n_tokens : 0;
    bool done[PI__MAX_OPERANDS] = {false};
    pi__operands o;
    rows r;
    pi__operands_of(c->op.id, c->op.b, &c->op.args, &o);
    for (int32_t i = 0; i < o.n; i++) {
        r = rows_of(&c->op.args, &o.op[i]);
        if ((o.op[i].kind == PI__READ || o.op[i].kind == PI__UPDATE) && r.n) reads(s, r.p, end_of(&r), 0);
    }
    for (int32_t i = 0; i < o.n; i++) {
        r = rows_of(&c->op.args, &o.op[i]);
        if ((o.op[i].kind != PI__WRITE && o.op[i].kind != PI__UPDATE) || !r.n || done[i]) continue;
        if (o.op[i].kind == PI__WRITE && r.n > 1 && r.ld > r.width) join_columns(&o, &c->op.args, i, done, &r);
        writes(s, &r, n_tokens);
    }
}

/* Returns true if the call needs the step's batch, or an array that the device's begin translates. */
static bool in_step(const stages *s, const call *c)
{
    pi__operands o;
    if (c->op.b || c->cut) return true;
    pi__operands_of(c->op.id, c->op.b, &c->op.args, &o);
    for (int32_t i = 0; i < o.n && s->given; i++) {
        const void *p = pi__operand_get(&c->op.args, &o.op[i]);
        if (o.op[i].kind == PI__TOKENS && (p == s->given->logits_indices || p == s->given->hidden_row)) return true;
    }
    return false;
}

/* Returns true if the call writes rows of another length to memory that this run copies between stages. Then the
 * rows of one microbatch would overwrite rows of another one that still have to be copied. This happens with layers
 * of two widths that have their queries in the same buffer. */
static bool is_in_the_way(const stages *s, const call *c)
{
    pi__operands o;
    pi__operands_of(c->op.id, c->op.b, &c->op.args, &o);
    for (int32_t i = 0; i < o.n && c->cut; i++) {
        const rows r = rows_of(&c->op.args, &o.op[i]);
        if ((o.op[i].kind != PI__WRITE && o.op[i].kind != PI__UPDATE) || !r.n) continue;
        for (int32_t k = 0; k < s->n_moves; k++)
            if (r.p < s->move[k].hi && end_of(&r) > s->move[k].lo &&
                s->move[k].t.row != r.n / (size_t) s->given->n_tokens * r.ld)
                return true;
    }
    return false;
}

int32_t pi__stages_plan(stages *s, int32_t first)
{
    const bool cut = s->calls[first].cut;
    int32_t i = first;
    for (int32_t k = 0; k < s->n_ranges; k++) s->range[k].segment = -1;
    s->n_segments = s->n_moves = 0;
    if (s->n_ranges > MAX_RANGES - OP_RANGES) pi__stages_level(s);
    for (; i < s->n_calls && s->calls[i].cut == cut; i++) {
        const call *c = &s->calls[i];
        if (s->n_ranges > MAX_RANGES - OP_RANGES || s->n_moves + 2 * s->n_ranges > MAX_MOVES || is_in_the_way(s, c))
            break;
        if (!s->n_segments || s->segment[s->n_segments - 1].stage != c->stage) {
            if (s->n_segments == MAX_SEGMENTS) break;
            s->segment[s->n_segments++] = (segment) {.stage = c->stage, .first = i};
        }
        segment *k = &s->segment[s->n_segments - 1];
        k->n++;
        k->in_step |= in_step(s, c);
        plan_call(s, c);
    }
    s->n_runs_of = cut ? s->n_micro : 1;
    return i;
}

/* ----------------------------------------------------------------------------------------------------- microbatches */

/* A microbatch has one integer per token and four per sequence, plus one more entry in two of its arrays. A sequence
 * that is in two microbatches is counted twice. */
size_t pi__stages_cut_numbers(int32_t max_tokens, int32_t max_seqs)
{
    return (size_t) max_tokens + 4 * ((size_t) max_seqs + 2 * MAX_MICRO);
}

/* Returns true if sequence q of b has drafts: all its tokens must then be in one microbatch. */
static bool has_drafts(const pi__batch *b, int32_t q)
{
    return b->n_verified[q] != b->seq_start[q + 1] - b->seq_start[q];
}

/* Returns the first token of a microbatch that should begin at token t: t, or if the sequence of t has drafts, the
 * start of that sequence. */
static int32_t cut_at(const pi__batch *b, int32_t t)
{
    const int32_t q = b->seq[t];
    return has_drafts(b, q) ? b->seq_start[q] : t;
}

/* Fills in m for tokens from..to - 1 of b. Takes memory for its arrays from *at, and advances *at. */
static void make_micro(micro *m, const pi__batch *b, int32_t from, int32_t to, int32_t **at)
{
    const int32_t q0 = b->seq[from], n_tokens = to - from, n_seqs = b->seq[to - 1] - q0 + 1;
    int32_t *seq = *at, *start = seq + n_tokens, *len = start + n_seqs + 1, *verified = len + n_seqs,
            *save = verified + n_seqs;
    *at = save + n_seqs + 1;
    for (int32_t t = 0; t < n_tokens; t++) seq[t] = b->seq[from + t] - q0;
    for (int32_t i = 0; i < n_seqs; i++) {
        const int32_t q = q0 + i, lo = b->seq_start[q] > from ? b->seq_start[q] : from;
        const int32_t hi = b->seq_start[q + 1] < to ? b->seq_start[q + 1] : to;
        const bool whole = hi - lo == b->seq_start[q + 1] - b->seq_start[q];
        start[i] = lo - from, start[i + 1] = hi - from;
        len[i] = b->pos[hi - 1] + 1;
        verified[i] = whole ? b->n_verified[q] : hi - lo;
        int32_t k = b->save_start[q]; /* the range of snapshots at this microbatch's tokens */
        while (k < b->save_start[q + 1] && b->save[k].pos <= b->pos[lo]) k++;
        if (i == 0 || k > save[i]) save[i] = k;
        while (k < b->save_start[q + 1] && b->save[k].pos <= b->pos[hi - 1] + 1) k++;
        save[i + 1] = k;
    }
    m->first = from;
    m->b = *b;
    m->b.n_tokens = n_tokens, m->b.n_seqs = n_seqs, m->b.n_rows = 0;
    m->b.token += from, m->b.pos += from, m->b.seq = seq;
    if (b->rope_pos) m->b.rope_pos += 3 * (ptrdiff_t) from;
    if (b->see_to) m->b.see_to += from;
    m->b.input_row = NULL; /* op place_rows has its own list */
    m->b.seq_start = start, m->b.seq_len = len, m->b.n_verified = verified, m->b.state_slot += q0,
    m->b.save_start = save;
    m->b.logits_batch = NULL;
    m->b.top = (pi__step_top) {0};
    for (int32_t g = 0; g < b->n_groups; g++) {
        if (m->b.kv[g].slot) m->b.kv[g].slot += from;
        if (m->b.kv[g].block_table) m->b.kv[g].block_table += (size_t) q0 * (size_t) b->kv[g].table_stride;
    }
}

void pi__stages_cut(stages *s, const pi__batch *b, int kind)
{
    int32_t n = b->n_tokens / s->least, from = 0, *at = s->arrays;
    s->n_micro = 1;
    if ((kind != PI__STEP_ANY && kind != PI__STEP_DECODE) || b->runs.n || b->hidden_row || b->embd_row ||
        b->lora.n_runs)
        return;
    if (b->n_tokens > s->max_tokens || b->n_seqs > s->max_seqs || s->draw.row) return;
    if (n > 2 * s->n) n = 2 * s->n;
    int32_t made = 0;
    for (int32_t i = 1; i <= n && n > 1; i++) {
        const int32_t to = i < n ? cut_at(b, (int32_t) ((int64_t) b->n_tokens * i / n)) : b->n_tokens;
        if (to <= from) continue;
        make_micro(&s->micro[made++], b, from, to, &at);
        from = to;
    }
    pi__assert(!made || (size_t) (at - s->arrays) <= s->n_arrays);
    if (made > 1) s->n_micro = made;
}
