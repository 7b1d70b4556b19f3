/* Building a batch (see batch.h). */
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

pi__batch_shape pi__batch_shape_of(const pi__group_spec *spec, int32_t n_groups, int32_t max_tokens, int32_t max_seqs,
                                   int32_t max_ctx, int32_t max_rows)
{
    pi__batch_shape s = {.max_tokens = max_tokens, .max_seqs = max_seqs, .n_groups = n_groups, .max_rows = max_rows};
    for (int32_t i = 0; i < n_groups; i++) {
        s.block_size[i] = spec[i].block_size;
        s.stride[i] = pi__cache_stride(&spec[i], max_ctx);
    }
    return s;
}

static int32_t *take_ints(pi__arena *a, size_t n) { return pi__arena_take(a, n * sizeof(int32_t)); }

/* Takes all arrays of bb from the arena. If the arena has no memory, only adds up their bytes in a->used. */
static void lay_out(pi__batch_builder *bb, const pi__batch_shape *s, pi__arena *a)
{
    const size_t T = (size_t) s->max_tokens, S = (size_t) s->max_seqs;
    bb->token = take_ints(a, T), bb->pos = take_ints(a, T), bb->seq = take_ints(a, T), bb->row = take_ints(a, T);
    bb->seq_start = take_ints(a, S + 1), bb->save_start = take_ints(a, S + 1);
    bb->seq_len = take_ints(a, S), bb->n_verified = take_ints(a, S), bb->state_slot = take_ints(a, S);
    for (int32_t i = 0; i < s->n_groups; i++) {
        bb->slot[i] = take_ints(a, T);
        bb->table[i] = take_ints(a, S * (size_t) s->stride[i]);
    }
    const size_t R = (size_t) pi__max_runs(s->max_seqs, s->max_tokens);
    if (s->runs) bb->run_start = take_ints(a, R + 1), bb->run_seq = take_ints(a, R), bb->run_block = take_ints(a, R);
    if (s->mrope) bb->rope_pos = take_ints(a, 3 * T);
    if (s->images) bb->input_row = take_ints(a, T), bb->see_to = take_ints(a, T);
    if (!s->max_rows) return;
    if (s->images) bb->row_input = take_ints(a, T), bb->row_see = take_ints(a, T);
    const size_t A = S * PI__MAX_LORA;
    bb->lora = pi__arena_take(a, A * sizeof *bb->lora);
    bb->lora_run = pi__arena_take(a, A * sizeof *bb->lora_run),
    bb->row_lora_run = pi__arena_take(a, A * sizeof *bb->lora_run);
    bb->lora_row = take_ints(a, T * PI__MAX_LORA), bb->row_lora_row = take_ints(a, T * PI__MAX_LORA);
    const size_t P = (size_t) s->max_rows * PI__MAX_LORA;
    bb->piece = pi__arena_take(a, (size_t) s->max_rows * sizeof *bb->piece);
    bb->piece_run = pi__arena_take(a, P * sizeof *bb->piece_run);
    bb->piece_row = take_ints(a, P);
    bb->row_token = take_ints(a, T), bb->row_pos = take_ints(a, T), bb->row_seq = take_ints(a, T);
    bb->row_start = take_ints(a, S + 1);
}

size_t pi__batch_bytes(const pi__batch_shape *shape)
{
    pi__batch_builder bb;
    pi__arena a = {0};
    lay_out(&bb, shape, &a);
    return a.used;
}

int pi__batch_init(pi__batch_builder *bb, const pi__batch_shape *s, pi_error *err)
{
    pi__arena a = {.size = pi__batch_bytes(s)};
    *bb = (pi__batch_builder) {.max_tokens = s->max_tokens, .max_seqs = s->max_seqs, .max_rows = s->max_rows,
                               .memory = a.base = pi__calloc(1, a.size)};
    if (!a.base) return pi__fail_mem(err, "a step's batch");
    lay_out(bb, s, &a);
    bb->b = (pi__batch) {.n_groups = s->n_groups,
                         .token = bb->token,
                         .pos = bb->pos,
                         .seq = bb->seq,
                         .logits_indices = bb->row,
                         .seq_start = bb->seq_start,
                         .seq_len = bb->seq_len,
                         .n_verified = bb->n_verified,
                         .state_slot = bb->state_slot,
                         .save_start = bb->save_start,
                         .rope_pos = bb->rope_pos,
                         .logits_batch = s->max_rows ? &bb->rows : NULL};
    for (int32_t i = 0; i < s->n_groups; i++)
        bb->b.kv[i] = (pi__kv_batch) {.block_size = s->block_size[i], .table_stride = s->stride[i],
                                      .block_table = bb->table[i], .slot = bb->slot[i]};
    return PI_OK;
}

void pi__batch_destroy(pi__batch_builder *bb)
{
    pi__free(bb->memory);
    memset(bb, 0, sizeof *bb);
}

void pi__batch_clear(pi__batch_builder *bb)
{
    bb->b.n_tokens = bb->b.n_seqs = bb->b.n_rows = bb->n_lora = 0;
    bb->b.input_row = bb->b.see_to = NULL;
    pi__batch_drop_lora_rows(bb);
    bb->b.runs = (pi__runs) {.start = bb->run_start, .seq = bb->run_seq, .block = bb->run_block};
}

/* Appends a run of n tokens of sequence q; no-op for n <= 0. is_block: the run is a query block of sparse prefill. */
static void add_run(pi__batch_builder *bb, int32_t q, int32_t n, bool is_block)
{
    pi__runs *r = &bb->b.runs;
    if (n <= 0) return;
    if (!r->n) bb->run_start[0] = 0;
    bb->run_seq[r->n] = q;
    bb->run_block[r->n] = is_block ? r->n_blocks++ : -1;
    bb->run_start[r->n + 1] = bb->run_start[r->n] + n;
    r->n++;
}

/* Splits tokens pos..end of sequence q into runs: the tokens before its sparse span, each query block within it, the
 * tokens after it. */
static void add_runs(pi__batch_builder *bb, const pi__sparse_span *span, int32_t q, int32_t pos, int32_t end)
{
    const int32_t lo = pos > span->from ? pos : span->from, hi = end < span->end ? end : span->end;
    if (lo >= hi) {
        add_run(bb, q, end - pos, false);
        return;
    }
    pi__assert(lo % PI__SPARSE_BLOCK == 0 && hi % PI__SPARSE_BLOCK == 0);
    add_run(bb, q, lo - pos, false);
    for (int32_t at = lo; at < hi; at += PI__SPARSE_BLOCK) add_run(bb, q, PI__SPARSE_BLOCK, true);
    add_run(bb, q, end - hi, false);
}

/* Fills the slot mapping of the n tokens from position pos on in group i; all -1 if cache row `row` does not use the
 * group. Copies the block table of the row to sequence q. */
static void add_group(pi__batch_builder *bb, const pi__cache *c, int32_t i, int32_t q, int32_t row, int32_t pos,
                      int32_t n)
{
    const pi__cache_group *g = &c->group[i];
    const int32_t *table = g->table + (size_t) row * (size_t) g->stride;
    const int32_t bs = g->spec.block_size;
    int32_t *slot = bb->slot[i] + bb->b.n_tokens;
    if (!pi__cache_has(c, row, i)) {
        for (int32_t k = 0; k < n; k++) slot[k] = -1;
        return;
    }
    pi__assert((pos + n - 1) / bs < c->seq[row].n_blocks[i]);
    for (int32_t k = 0; k < n; k++) {
        /* -1: the block left the window and was freed; a late drafter needs no keys there */
        const int32_t block = table[(pos + k) / bs];
        slot[k] = block < 0 ? -1 : block * bs + (pos + k) % bs;
    }
    memcpy(bb->table[i] + (size_t) q * (size_t) g->stride, table, (size_t) c->seq[row].n_blocks[i] * sizeof *table);
}

int32_t pi__batch_add(pi__batch_builder *bb, const pi__cache *c, int32_t row, const int32_t *tokens, int32_t pos,
                      int32_t n, int32_t n_committed)
{
    pi__batch *b = &bb->b;
    pi__assert(b->n_seqs < bb->max_seqs && n > 0 && n_committed <= n && b->n_tokens + n <= bb->max_tokens);
    const int32_t q = b->n_seqs++, first = b->n_tokens;
    for (int32_t i = 0; i < b->n_groups; i++)
        if (!c->group[i].spec.state) add_group(bb, c, i, q, row, pos, n);
    b->n_tokens += n;
    if (bb->run_start) add_runs(bb, &c->seq[row].sparse, q, pos, pos + n);
    bb->seq_start[q] = first;
    bb->seq_start[q + 1] = b->n_tokens;
    bb->seq_len[q] = pos + n;
    bb->n_verified[q] = n_committed;
    bb->state_slot[q] = row;
    for (int32_t i = 0; i < n; i++) {
        bb->token[first + i] = tokens[i];
        bb->pos[first + i] = pos + i;
        bb->seq[first + i] = q;
    }
    for (int32_t i = 0; bb->rope_pos && i < 3 * n; i++) bb->rope_pos[3 * first + i] = pos + i / 3;
    for (int32_t i = 0; bb->input_row && i < n; i++) bb->input_row[first + i] = bb->see_to[first + i] = -1;
    return q;
}

/* Sets the row of token t, at position pos within image k. whole: the token sees the image's last token in the step. */
static void add_image_token(pi__batch_builder *bb, const pi__seq_images *im, int32_t k, int32_t t, bool whole)
{
    const pi__block_media *at = &im->at[k];
    const int32_t pos = bb->pos[t], last = at->start + at->n - 1, end = bb->seq_len[bb->b.n_seqs - 1] - 1;
    bb->token[t] = 0;
    if (im->image[k].first_row >= 0) bb->input_row[t] = im->image[k].first_row + pos - at->start;
    if (whole) bb->see_to[t] = last < end ? last : end;
    bb->b.input_row = bb->input_row;
    if (whole) bb->b.see_to = bb->see_to;
}

void pi__batch_add_images(pi__batch_builder *bb, const pi__seq_images *im, bool whole)
{
    const int32_t q = bb->b.n_seqs - 1;
    int32_t k = im->n ? pi__images_from(im, bb->pos[bb->seq_start[q]]) : 0;
    for (int32_t t = bb->seq_start[q]; t < bb->seq_start[q + 1] && im->n; t++) {
        if (bb->rope_pos) pi__images_rope(im, bb->pos[t], bb->rope_pos + 3 * (size_t) t);
        while (k < im->n && im->at[k].start + im->at[k].n <= bb->pos[t]) k++;
        if (bb->input_row && k < im->n && im->at[k].start <= bb->pos[t]) add_image_token(bb, im, k, t, whole);
    }
}

void pi__batch_add_row(pi__batch_builder *bb, int32_t t)
{
    pi__assert(t >= 0 && t < bb->b.n_tokens && (!bb->b.n_rows || bb->row[bb->b.n_rows - 1] < t));
    bb->row[bb->b.n_rows++] = t;
}

bool pi__batch_is_even(const pi__batch *b, int32_t most, int32_t most_rows)
{
    const int32_t each = b->n_tokens / b->n_seqs, rows = b->n_rows / b->n_seqs;
    if (each > most || b->n_rows > most_rows || b->n_rows != rows * b->n_seqs) return false;
    for (int32_t q = 0; q < b->n_seqs; q++)
        if (b->seq_start[q + 1] - b->seq_start[q] != each) return false;
    for (int32_t r = 0; r < b->n_rows; r++)
        if (b->seq[b->logits_indices[r]] != r / rows) return false;
    return true;
}

void pi__batch_add_lora(pi__batch_builder *bb, int32_t q, int32_t level, const pi__lora_pair *pair, const int32_t *rank,
                        float scale)
{
    pi__assert(bb->lora && bb->n_lora < bb->max_seqs * PI__MAX_LORA);
    bb->lora[bb->n_lora++] = (pi__lora_note) {pair, rank, scale, level, q};
}

/* Order for qsort: by level, then by adapter and scale, then by sequence. */
static int order_of(const void *pa, const void *pb)
{
    const pi__lora_note *a = pa, *b = pb;
    if (a->level != b->level) return a->level - b->level;
    if (a->pair != b->pair) return (uintptr_t) a->pair < (uintptr_t) b->pair ? -1 : 1;
    if (a->scale != b->scale) return a->scale < b->scale ? -1 : 1;
    return a->seq - b->seq;
}

/* Builds the list of adapter runs from the sorted bb->lora, in the arrays run and row. start[q]..start[q + 1]: rows of
 * sequence q. */
static pi__lora_rows lora_rows(pi__batch_builder *bb, const int32_t *start, pi__lora_run *run, int32_t *row)
{
    pi__lora_rows r = {.run = run, .row = row, .no = ++bb->lora_no};
    for (int32_t i = 0; i < bb->n_lora; i++) {
        const pi__lora_note *n = &bb->lora[i], *before = i ? n - 1 : NULL;
        if (!before || n->level != before->level || n->pair != before->pair || n->scale != before->scale)
            run[r.n_runs++] = (pi__lora_run) {n->pair, n->rank, n->scale, n->level, r.n, 0, 0};
        for (int32_t t = start[n->seq]; t < start[n->seq + 1]; t++) row[r.n++] = t;
        run[r.n_runs - 1].n = r.n - run[r.n_runs - 1].first;
    }
    return r;
}

void pi__batch_drop_lora_rows(pi__batch_builder *bb) { bb->n_piece = bb->n_piece_run = bb->n_piece_row = 0; }

const pi__lora_rows *pi__batch_lora_rows(pi__batch_builder *bb, int32_t first, int32_t n)
{
    const pi__lora_rows *all = &bb->rows.lora;
    if (!bb->b.lora.n_runs || !all->n) return NULL;
    if (!first && n == bb->b.n_rows) return all;
    pi__assert(n <= bb->max_rows && bb->n_piece < bb->max_rows);
    pi__lora_rows *p = &bb->piece[bb->n_piece++];
    pi__lora_run *run = bb->piece_run + bb->n_piece_run;
    int32_t *row = bb->piece_row + bb->n_piece_row;
    *p = (pi__lora_rows) {.run = run, .row = row, .no = ++bb->lora_no};
    for (int32_t k = 0; k < all->n_runs; k++) {
        const pi__lora_run *of = &all->run[k];
        const int32_t before = p->n;
        for (int32_t i = of->first; i < of->first + of->n; i++)
            if (all->row[i] >= first && all->row[i] < first + n) row[p->n++] = all->row[i] - first;
        if (p->n == before) continue;
        run[p->n_runs] = *of;
        run[p->n_runs].first = before, run[p->n_runs].n = p->n - before;
        p->n_runs++;
    }
    bb->n_piece_run += p->n_runs, bb->n_piece_row += p->n;
    pi__assert(bb->n_piece_row <= bb->max_rows * PI__MAX_LORA);
    return p->n ? p : NULL;
}

void pi__batch_end(pi__batch_builder *bb)
{
    pi__batch *b = &bb->b;
    b->lora = (pi__lora_rows) {0};
    if (bb->n_lora) {
        qsort(bb->lora, (size_t) bb->n_lora, sizeof *bb->lora, order_of);
        b->lora = lora_rows(bb, bb->seq_start, bb->lora_run, bb->lora_row);
    }
    if (!b->runs.n_blocks) b->runs = (pi__runs) {0};
    if (!b->logits_batch) return;
    bb->rows = *b; /* shares all other arrays with the batch of all tokens */
    bb->rows.token = bb->row_token, bb->rows.pos = bb->row_pos, bb->rows.seq = bb->row_seq,
    bb->rows.seq_start = bb->row_start;
    bb->rows.n_tokens = b->n_rows;
    bb->rows.n_rows = 0;
    bb->rows.logits_indices = NULL;
    bb->rows.logits_batch = NULL;
    bb->rows.rope_pos = NULL;
    if (b->input_row) bb->rows.input_row = bb->row_input;
    if (b->see_to) bb->rows.see_to = bb->row_see;
    bb->rows.runs = (pi__runs) {0};
    for (int32_t i = 0; i < b->n_groups; i++) bb->rows.kv[i].slot = NULL;
    for (int32_t r = 0; r < b->n_rows; r++) {
        bb->row_token[r] = b->token[b->logits_indices[r]];
        bb->row_pos[r] = b->pos[b->logits_indices[r]];
        bb->row_seq[r] = b->seq[b->logits_indices[r]];
        if (b->input_row) bb->row_input[r] = b->input_row[b->logits_indices[r]];
        if (b->see_to) bb->row_see[r] = b->see_to[b->logits_indices[r]];
    }
    for (int32_t q = 0, r = 0; q <= b->n_seqs; q++) { /* rows are in the order of sequences */
        while (r < b->n_rows && bb->row_seq[r] < q) r++;
        bb->row_start[q] = r;
    }
    if (bb->n_lora) bb->rows.lora = lora_rows(bb, bb->row_start, bb->row_lora_run, bb->row_lora_row);
}
