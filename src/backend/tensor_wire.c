/* The recorded calls of a run as bytes (see tensor_wire.h).
 *
 *     begin     the step's properties, and its batch: all arrays; block tables only up to the end of each sequence
 *     an op     its struct of arguments, then the target of each host pointer in it; adapters of the batch, or of its
 *               logits batch, were already sent with the batch
 *     download  no data: only rank 0 downloads; worker ranks only end their capture
 *
 * Device pointers are sent as rank 0's addresses: each rank looks up its own address (pi__tensor_at), as ranks of one
 * process do. All data is aligned to 8 bytes, so that received data is used in place. Only the batch is copied, because
 * it outlives the run: later runs may belong to the same step.
 *
 * All ranks have the same build and kind of device (checked by PI__ORDER_OPEN), so their structs have the same layout.
 * Sizes and pointers are checked nevertheless. Memory: buffers allocated at reserve(). On worker ranks, the memory for
 * block tables and constant host memory grows in the first steps. One thread. */
#include "backend/tensor_wire.h"

#include <string.h>

#include "backend/tensor_check.h"
#include "base/alloc.h"

/* Kinds of calls. */
enum { OP, BEGIN, DOWNLOAD };
/* Kinds of fixes: the value that replaces a host pointer in an op's arguments. WEIGHT, CACHE, STATE, INLINE, LORA: data
 * after the fix. KEPT: constant host memory, by rank 0's address. LOGITS_INDICES, HIDDEN_ROW, TOP_REQUEST: the array of
 * the batch. BATCH_LORA, ROWS_LORA: the adapters of the batch, of its logits batch. NOTHING: NULL. */
enum {
    NOTHING,
    WEIGHT,
    CACHE,
    STATE,
    INLINE,
    KEPT,
    LOGITS_INDICES,
    HIDDEN_ROW,
    TOP_REQUEST,
    LORA,
    BATCH_LORA,
    ROWS_LORA
};
/* Batch of an op: none, the step's, or its logits batch. */
enum { NO_BATCH, WHOLE, ROWS };

typedef struct head {
    int32_t what;       /* kind of call: OP, BEGIN, DOWNLOAD */
    int32_t id, batch;  /* op: PI__OP_*; its batch: NO_BATCH, WHOLE or ROWS */
    int32_t n_fix;      /* number of fixes that follow the op's arguments */
} head;
typedef struct fix {
    uint32_t at, what;  /* byte offset of the pointer in the arguments; kind of fix: NOTHING to ROWS_LORA */
    uint64_t n;         /* INLINE: bytes; KEPT: address on rank 0 */
} fix;
/* A call of kind BEGIN. */
typedef struct begin {
    int32_t kind, replays;
    int64_t embd_rows;            /* rows of a sharded embedding per rank */
    int32_t n_tokens, n_rows, n_seqs; /* of the devices' batch, including padding */
    int32_t row_tokens;           /* tokens of the logits batch, including padding */
    int32_t has_rows;             /* nonzero = there is a logits batch */
    int32_t unused;
    pi__batch batch;              /* numbers are valid; a pointer that is not NULL only means that its array follows */
} begin;

static size_t align8(size_t n) { return (n + 7) & ~(size_t) 7; }

/* ----------------------------------------------------------------------------------------------------------- memory */

/* MOST_OF_CALL: max bytes of one call without its arrays. MOST_BLOCK_SIZES: tokens of the smallest block. */
enum { MOST_OF_CALL = 2560, MOST_BLOCK_SIZES = 16 };

/* Returns the max bytes of a batch with all arrays, plus MAX_CALLS calls. */
static size_t most_bytes(const pi__limits *lim)
{
    const size_t T = (size_t) lim->max_tokens, S = (size_t) lim->max_seqs,
                 blocks = (size_t) lim->max_ctx / MOST_BLOCK_SIZES + 2;
    const size_t words = T * (13 + PI__MAX_GROUPS) + S * (16 + PI__MAX_GROUPS * blocks) +
                         (T / MOST_BLOCK_SIZES + S) * 2;
    const size_t top = (size_t) lim->max_rows * sizeof(pi__topk_request) + PI__MAX_SKIP * sizeof(int32_t);
    const size_t runs = 3 * (size_t) pi__max_runs(lim->max_seqs, lim->max_tokens);
    const size_t lora = sizeof(pi__lora_rows) + PI__MAX_LORA * (S * sizeof(pi__lora_run) + (T + 2) * sizeof(int32_t));
    return align8((words + runs) * sizeof(int32_t) + top + sizeof(begin) + 3 * lora + 4096) +
           (size_t) MAX_CALLS * MOST_OF_CALL;
}

pi__wire *pi__wire_create(const pi__limits *lim)
{
    pi__wire *w = pi__calloc(1, sizeof *w);
    if (!w) return NULL;
    w->cap = most_bytes(lim);
    w->bytes = pi__calloc(1, w->cap);
    w->held = pi__calloc(1, w->cap);
    if (w->bytes && w->held) return w;
    pi__wire_free(w);
    return NULL;
}

void pi__wire_free(pi__wire *w)
{
    if (!w) return;
    for (int32_t i = 0; i < w->n_kept; i++) pi__free(w->kept[i].copy);
    pi__free(w->table);
    pi__free(w->held);
    pi__free(w->bytes);
    pi__free(w);
}

static const pi__kept *kept_at(const pi__wire *w, const void *at)
{
    for (int32_t i = 0; i < w->n_kept; i++)
        if (w->kept[i].at == at) return &w->kept[i];
    return NULL;
}

bool pi__wire_keep(pi__wire *w, const void *at, const void *bytes, size_t size)
{
    if (w->n_kept == PI__MOST_KEPT) return false;
    void *copy = bytes ? pi__malloc(size ? size : 1) : NULL;
    if (bytes && !copy) return false;
    if (bytes) memcpy(copy, bytes, size);
    w->kept[w->n_kept++] = (pi__kept) {at, size, copy};
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- writing */

typedef struct writer {
    pi__wire *w;
    const pi__tensor *t;
    bool (*keep)(const pi__tensor *t, const void *at, size_t size); /* from pi__wire_write */
    bool good; /* false = the bytes do not fit, or keep failed: nothing more is written */
} writer;

static void put(writer *o, const void *p, size_t n)
{
    pi__wire *w = o->w;
    if (!o->good || align8(n) > w->cap - w->n) {
        o->good = false;
        return;
    }
    memcpy(w->bytes + w->n, p, n);
    memset(w->bytes + w->n + n, 0, align8(n) - n);
    w->n += align8(n);
}

static void put_ints(writer *o, const int32_t *p, int32_t n)
{
    if (p) put(o, p, (size_t) n * sizeof *p);
}

/* Returns the number of blocks of sequence q, from the first, that a step may read in this cache group. */
static int32_t n_blocks_of(const pi__batch *b, int32_t q, const pi__kv_batch *kv)
{
    const int32_t n = (b->seq_len[q] + kv->block_size - 1) / kv->block_size;
    return n < kv->table_stride ? n : kv->table_stride;
}

static void put_group(writer *o, const pi__batch *b, const pi__kv_batch *kv)
{
    put_ints(o, kv->slot, b->n_tokens);
    for (int32_t q = 0; kv->block_table && q < b->n_seqs; q++)
        put_ints(o, kv->block_table + (size_t) q * (size_t) kv->table_stride, n_blocks_of(b, q, kv));
}

static void put_lora(writer *o, const pi__lora_rows *r)
{
    put(o, r, sizeof *r);
    put(o, r->run, (size_t) r->n_runs * sizeof *r->run);
    put(o, r->row, (size_t) r->n * sizeof *r->row);
}

static void put_batch(writer *o, const pi__batch *b)
{
    const int32_t T = b->n_tokens, S = b->n_seqs;
    put_ints(o, b->token, T), put_ints(o, b->pos, T), put_ints(o, b->seq, T);
    put_ints(o, b->seq_start, S + 1), put_ints(o, b->seq_len, S);
    put_ints(o, b->logits_indices, b->n_rows), put_ints(o, b->hidden_row, T);
    put_ints(o, b->rope_pos, 3 * T), put_ints(o, b->see_to, T);
    put_ints(o, b->n_verified, S), put_ints(o, b->state_slot, S);
    put_ints(o, b->save_start, S + 1);
    if (b->save_start && b->save) put(o, b->save, (size_t) b->save_start[S] * sizeof *b->save);
    if (b->top.request) put(o, b->top.request, (size_t) b->n_rows * sizeof *b->top.request);
    if (b->top.request) put_ints(o, b->top.skip, b->top.n_skip);
    for (int32_t g = 0; g < b->n_groups; g++) put_group(o, b, &b->kv[g]);
    if (b->runs.n)
        put_ints(o, b->runs.start, b->runs.n + 1), put_ints(o, b->runs.seq, b->runs.n),
            put_ints(o, b->runs.block, b->runs.n);
    if (b->lora.n_runs) put_lora(o, &b->lora);
    if (!b->logits_batch) return;
    const pi__batch *r = b->logits_batch; /* all other arrays are shared with b */
    put_ints(o, r->token, r->n_tokens), put_ints(o, r->pos, r->n_tokens), put_ints(o, r->seq, r->n_tokens);
    put_ints(o, r->seq_start, S + 1), put_ints(o, r->see_to, r->n_tokens);
    if (b->lora.n_runs) put_lora(o, &r->lora);
}

static void put_begin(writer *o)
{
    const pi__tensor *t = o->t;
    put(o, &(head) {.what = BEGIN}, sizeof(head));
    begin b = {.kind = t->kind,
               .replays = t->replays,
               .embd_rows = t->embd_rows[t->kind],
               .n_tokens = t->b.n_tokens,
               .n_rows = t->b.n_rows,
               .n_seqs = t->b.n_seqs,
               .has_rows = t->given->logits_batch != NULL,
               .batch = *t->given};
    if (b.has_rows) b.row_tokens = t->logits_batch.n_tokens;
    put(o, &b, sizeof b);
    put_batch(o, t->given);
}

/* Returns the fix for operand p of a call: how the receiver replaces the pointer. *bytes and *n: data to send after the
 * fix; *n 0 = no data. first_rank: only rank 0 runs the op. */
static fix fix_of(writer *o, const pi__op_record *r, const pi__operand *p, bool first_rank, const void **bytes,
                  size_t *n)
{
    const pi__tensor *t = o->t;
    const void *at = pi__operand_get(&r->args, p);
    fix f = {.at = (uint32_t) p->at};
    *bytes = at, *n = 0;
    switch (p->kind) {
    case PI__WEIGHT: f.what = WEIGHT, *n = sizeof(pi__weight); break;
    case PI__CACHE: f.what = CACHE, *n = sizeof(pi__kv_layer); break;
    case PI__STATE: f.what = STATE, *n = sizeof(pi__state_layer); break;
    case PI__TOKENS:
        if (at == t->b.logits_indices) f.what = LOGITS_INDICES;
        else if (at == t->b.hidden_row) f.what = HIDDEN_ROW;
        else f.what = INLINE, f.n = *n = pi__operand_bytes(p);
        break;
    case PI__ADAPTERS: {
        const uint64_t no = ((const pi__lora_rows *) at)->no;
        f.what = no && no == t->b.lora.no ? BATCH_LORA : no && no == t->logits_batch.lora.no ? ROWS_LORA : LORA;
        break;
    }
    default: /* PI__HOST: constant host memory, or topk's host memory, which only rank 0 uses */
        f.what = KEPT, f.n = (uintptr_t) at;
        if (first_rank) f.what = r->b && at == t->b.top.request ? TOP_REQUEST : NOTHING;
        else if (!kept_at(o->w, at)) o->good = o->good && pi__wire_keep(o->w, at, NULL, pi__operand_bytes(p)) &&
                                               o->keep(t, at, pi__operand_bytes(p));
    }
    return f;
}

static void put_op(writer *o, const pi__op_record *r)
{
    const pi__tensor *t = o->t;
    pi__operands list;
    pi__operands_of(r->id, r->b, &r->args, &list);
    head h = {.what = OP, .id = r->id, .batch = !r->b ? NO_BATCH : r->b == &t->b ? WHOLE : ROWS};
    for (int32_t i = 0; i < list.n; i++) h.n_fix += list.op[i].kind > PI__VECTOR;
    put(o, &h, sizeof h);
    put(o, &r->args, pi__op_size(r->id));
    for (int32_t i = 0; i < list.n; i++) {
        if (list.op[i].kind <= PI__VECTOR) continue;
        const void *bytes;
        size_t n;
        const fix f = fix_of(o, r, &list.op[i], list.first_rank, &bytes, &n);
        put(o, &f, sizeof f);
        put(o, bytes, n);
        if (f.what == LORA) put_lora(o, bytes);
    }
}

bool pi__wire_write(pi__wire *w, const pi__tensor *t, bool (*keep)(const pi__tensor *t, const void *at, size_t size))
{
    writer o = {w, t, keep, true};
    w->n = 0;
    for (int32_t i = 0; i < t->n_calls && o.good; i++) {
        const call *c = &t->calls[i];
        if (c->run == pi__tensor_run_begin) put_begin(&o);
        else if (c->run == pi__tensor_run_download) put(&o, &(head) {.what = DOWNLOAD}, sizeof(head));
        else put_op(&o, &c->op);
    }
    return o.good;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

typedef struct reader {
    char *p;
    size_t n, at; /* bytes received; bytes read so far */
    bool good;    /* false = the bytes are not valid: nothing more is read */
} reader;

/* Returns the address of the next n bytes, and advances past them; NULL = fewer than n bytes are left. */
static void *take(reader *i, size_t n)
{
    if (!i->good || n > i->n || align8(n) > i->n - i->at) {
        i->good = false;
        return NULL;
    }
    char *p = i->p + i->at;
    i->at += align8(n);
    return p;
}

/* Returns the next n integers; NULL if `theirs` is NULL, because rank 0 does not have the array. */
static const int32_t *ints(reader *i, const int32_t *theirs, int32_t n)
{
    if (n < 0) i->good = false;
    return theirs && n >= 0 ? take(i, (size_t) n * sizeof *theirs) : NULL;
}

/* Reads adapter runs. Returns NULL if they are not valid; pi__valid_call checks the addresses of their pairs. */
static const pi__lora_rows *read_lora(reader *i, int32_t max_tokens)
{
    pi__lora_rows *r = take(i, sizeof *r);
    if (!r || r->n_runs < 0 || r->n < 0 || r->n_runs > INT16_MAX) return NULL;
    pi__lora_run *run = take(i, (size_t) r->n_runs * sizeof *run);
    int32_t *row = take(i, (size_t) r->n * sizeof *row);
    for (int32_t k = 0, at = 0; k < r->n_runs && i->good; k++) {
        run[k].rank = NULL; /* the sender's value is an address on rank 0 */
        i->good = run[k].first == at && run[k].n >= 0 && run[k].n <= r->n - at && !run[k].expert;
        at += run[k].n;
    }
    for (int32_t k = 0; k < r->n && i->good; k++) i->good = row[k] >= 0 && row[k] < max_tokens;
    r->run = run, r->row = row;
    return i->good ? r : NULL;
}

static bool read_group(pi__wire *w, reader *i, const pi__batch *b, pi__kv_batch *kv, size_t *table)
{
    kv->slot = ints(i, kv->slot, b->n_tokens);
    if (!kv->block_table) return i->good;
    const size_t stride = (size_t) kv->table_stride, first = *table;
    if (kv->block_size < 1 || kv->table_stride < 0 || !b->seq_len) return false;
    *table += stride * (size_t) b->n_seqs;
    kv->block_table = w->table + first;
    if (*table > w->n_table) return false;
    for (int32_t q = 0; q < b->n_seqs; q++) {
        const int32_t n = n_blocks_of(b, q, kv);
        const int32_t *row = take(i, (size_t) (n < 0 ? 0 : n) * sizeof *row);
        if (!row || n < 0) return false;
        int32_t *to = w->table + first + (size_t) q * stride;
        memcpy(to, row, (size_t) n * sizeof *row);
        memset(to + n, 0xff, (stride - (size_t) n) * sizeof *row); /* -1 in the entries of blocks that were not sent */
    }
    return i->good;
}

/* Allocates memory for the block tables of the batch, if the current memory is too small. */
static bool grow_tables(pi__wire *w, const pi__batch *b)
{
    size_t n = 0;
    for (int32_t g = 0; g < b->n_groups; g++)
        if (b->kv[g].block_table && b->kv[g].table_stride > 0) n += (size_t) b->kv[g].table_stride * (size_t) b->n_seqs;
    if (!pi__grow(&w->table, &w->cap_table, n, sizeof *w->table)) return false;
    w->n_table = n;
    return true;
}

static bool read_batch(pi__wire *w, reader *i, int32_t max_tokens)
{
    pi__batch *b = &w->batch;
    const int32_t T = b->n_tokens, S = b->n_seqs;
    if (T < 0 || S < 0 || b->n_rows < 0 || b->n_rows > T || b->n_groups < 0 || b->n_groups > PI__MAX_GROUPS)
        return false;
    b->token = ints(i, b->token, T), b->pos = ints(i, b->pos, T), b->seq = ints(i, b->seq, T);
    b->seq_start = ints(i, b->seq_start, S + 1), b->seq_len = ints(i, b->seq_len, S);
    b->logits_indices = ints(i, b->logits_indices, b->n_rows), b->hidden_row = ints(i, b->hidden_row, T);
    b->rope_pos = ints(i, b->rope_pos, 3 * (int64_t) T), b->see_to = ints(i, b->see_to, T);
    b->input_row = NULL; /* op place_rows has its own list */
    b->n_verified = ints(i, b->n_verified, S), b->state_slot = ints(i, b->state_slot, S);
    b->save_start = ints(i, b->save_start, S + 1);
    if (!i->good || (b->save_start && b->save_start[S] < 0)) return false;
    if (b->save_start && b->save) b->save = take(i, (size_t) b->save_start[S] * sizeof *b->save);
    if (b->top.request) {
        b->top.request = take(i, (size_t) b->n_rows * sizeof *b->top.request);
        b->top.skip = ints(i, b->top.skip, b->top.n_skip);
    }
    size_t table = 0;
    if (!grow_tables(w, b)) return false;
    for (int32_t g = 0; g < b->n_groups; g++)
        if (!read_group(w, i, b, &b->kv[g], &table)) return false;
    pi__runs *r = &b->runs;
    if (r->n)
        r->start = ints(i, r->start, r->n + 1), r->seq = ints(i, r->seq, r->n), r->block = ints(i, r->block, r->n);
    if (b->lora.n_runs) {
        const pi__lora_rows *lora = read_lora(i, max_tokens);
        if (!lora) return false;
        b->lora = *lora;
    }
    return i->good;
}

/* Reads the logits batch into w->rows. It shares all arrays with the batch, except for its tokens and adapters. */
static void read_rows(pi__wire *w, reader *i, int32_t max_tokens)
{
    pi__batch *r = &w->rows;
    const int32_t n = w->batch.n_rows, S = w->batch.n_seqs;
    *r = w->batch;
    r->n_tokens = n;
    r->token = take(i, (size_t) n * sizeof *r->token), r->pos = take(i, (size_t) n * sizeof *r->pos);
    r->seq = take(i, (size_t) n * sizeof *r->seq), r->seq_start = take(i, ((size_t) S + 1) * sizeof *r->seq_start);
    r->see_to = ints(i, r->see_to, n);
    r->rope_pos = NULL;
    r->n_rows = 0;
    r->logits_indices = NULL;
    r->logits_batch = NULL;
    r->runs = (pi__runs) {0};
    for (int32_t g = 0; g < r->n_groups; g++) r->kv[g].slot = NULL;
    const pi__lora_rows *lora = r->lora.n_runs ? read_lora(i, max_tokens) : &r->lora;
    i->good = i->good && lora;
    if (lora) r->lora = *lora;
    w->batch.logits_batch = r;
}

/* Returns true if the batch is valid, and the counts with padding are not below its own counts. */
static bool sound_batch(pi__wire *w, const pi__limits *lim, const begin *head)
{
    const pi__batch *b = &w->batch, *rows = b->logits_batch;
    int32_t ignored[PI__MAX_GROUPS];
    pi__fix_flag(&w->batch.top.sum), pi__fix_flag(&w->rows.top.sum);
    return pi__valid_batch(b, lim, w->n_blocks) && (!rows || pi__valid_batch(rows, lim, ignored)) &&
           head->n_tokens >= b->n_tokens && head->n_seqs >= b->n_seqs && head->n_rows >= b->n_rows &&
           head->n_rows <= head->n_tokens && (!rows || head->row_tokens >= rows->n_tokens);
}

/* Reads the beginning of a step, and sets t's fields as note_begin does on rank 0. */
static bool read_begin(pi__wire *w, reader *from, pi__tensor *t)
{
    const begin *b = take(from, sizeof *b);
    if (!b || b->kind < 0 || b->kind >= MAX_KINDS || b->n_tokens > t->lim.max_tokens ||
        b->row_tokens > t->lim.max_tokens)
        return false;
    if (b->embd_rows < 0 || b->embd_rows > INT32_MAX || b->n_seqs > t->lim.max_seqs) return false;
    t->given = NULL; /* until a valid batch was read */
    const size_t rest = from->n - from->at;
    reader i = {w->held, rest, 0, true};
    memcpy(w->held, from->p + from->at, rest);
    w->batch = b->batch;
    if (!read_batch(w, &i, t->lim.max_tokens)) return false;
    if (b->has_rows) read_rows(w, &i, t->lim.max_tokens);
    else w->batch.logits_batch = NULL;
    if (!i.good || !sound_batch(w, &t->lim, b)) return false;
    from->at += i.at;
    t->kind = b->kind;
    t->replays = b->replays;
    t->embd_rows[b->kind] = b->embd_rows;
    t->given = &w->batch;
    t->n_met = 0;
    t->b = w->batch;
    t->b.n_tokens = b->n_tokens, t->b.n_rows = b->n_rows, t->b.n_seqs = b->n_seqs;
    if (b->has_rows) {
        t->logits_batch = w->rows;
        t->logits_batch.n_tokens = b->row_tokens, t->logits_batch.n_seqs = b->n_seqs;
        t->b.logits_batch = &t->logits_batch;
    }
    return i.good;
}

/* Returns the pointer that replaces the host pointer of fix f, an operand of this kind. Sets *bytes to the bytes at it.
 * Clears i->good if the data is missing or of another kind. */
static const void *fixed(pi__wire *w, reader *i, const pi__tensor *t, const fix *f, pi__operand_kind kind,
                         size_t *bytes)
{
    static const pi__operand_kind kind_of[] = {
        [WEIGHT] = PI__WEIGHT, [CACHE] = PI__CACHE,           [STATE] = PI__STATE,
        [INLINE] = PI__TOKENS, [LOGITS_INDICES] = PI__TOKENS, [HIDDEN_ROW] = PI__TOKENS,
        [KEPT] = PI__HOST,     [TOP_REQUEST] = PI__HOST,      [NOTHING] = PI__HOST,
        [LORA] = PI__ADAPTERS, [BATCH_LORA] = PI__ADAPTERS,   [ROWS_LORA] = PI__ADAPTERS};
    const pi__kept *k;
    *bytes = 0;
    i->good = i->good && f->what < sizeof kind_of / sizeof *kind_of && kind_of[f->what] == kind;
    if (!i->good) return NULL;
    switch (f->what) {
    case WEIGHT: return take(i, sizeof(pi__weight));
    case CACHE: return take(i, sizeof(pi__kv_layer));
    case STATE: return take(i, sizeof(pi__state_layer));
    case INLINE: *bytes = (size_t) f->n; return take(i, (size_t) f->n);
    case KEPT:
        k = kept_at(w, (const void *) (uintptr_t) f->n);
        i->good = k;
        *bytes = k ? k->size : 0;
        return k ? k->copy : NULL;
    case LOGITS_INDICES: *bytes = (size_t) t->b.n_rows * sizeof(int32_t); return t->b.logits_indices;
    case HIDDEN_ROW: *bytes = (size_t) t->b.n_tokens * sizeof(int32_t); return t->b.hidden_row;
    case TOP_REQUEST: return t->b.top.request;
    case LORA: return read_lora(i, t->lim.max_tokens);
    case BATCH_LORA: return &t->b.lora;
    case ROWS_LORA: return &t->logits_batch.lora;
    default: return NULL;
    }
}

static bool read_op(pi__wire *w, reader *i, pi__tensor *t, const head *h, call *c)
{
    pi__sent sent[PI__MAX_OPERANDS];
    if (h->id < 0 || h->id >= PI__N_OPS || h->n_fix < 0 || h->n_fix > PI__MAX_OPERANDS) return false;
    if (h->batch != NO_BATCH && (!t->given || t->replays || (h->batch == ROWS && !t->given->logits_batch)))
        return false;
    const size_t size = pi__op_size((pi__op_id) h->id);
    const void *args = take(i, size);
    if (!args) return false;
    c->run = pi__tensor_run_of((pi__op_id) h->id);
    c->op.id = (pi__op_id) h->id;
    c->op.b = h->batch == WHOLE ? &t->b : h->batch == ROWS ? t->b.logits_batch : NULL;
    memcpy(&c->op.args, args, size);
    pi__clear_host_pointers(c->op.id, &c->op.args);
    for (int32_t k = 0; k < h->n_fix; k++) {
        const fix *f = take(i, sizeof *f);
        if (!f) return false;
        const void *p = fixed(w, i, t, f, pi__host_pointer_kind(c->op.id, f->at), &sent[k].bytes);
        if (!i->good) return false;
        sent[k].at = f->at;
        memcpy((char *) &c->op.args + f->at, &p, sizeof p);
    }
    return i->good && pi__valid_call(t, &c->op, sent, h->n_fix, w->n_blocks);
}

bool pi__wire_read(pi__wire *w, pi__tensor *t)
{
    reader i = {w->bytes, w->n, 0, true};
    t->n_calls = 0;
    while (i.good && i.at < i.n) {
        const head *h = take(&i, sizeof *h);
        if (!h || h->what < OP || h->what > DOWNLOAD || t->n_calls == MAX_CALLS) return false;
        call *c = &t->calls[t->n_calls++];
        if (h->what == OP && !read_op(w, &i, t, h, c)) return false;
        if (h->what == BEGIN && !read_begin(w, &i, t)) return false;
        if (h->what == BEGIN) c->run = pi__tensor_run_begin;
        if (h->what == DOWNLOAD) c->run = pi__tensor_run_download;
    }
    return i.good;
}
