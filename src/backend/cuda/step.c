/* Steps: the batch and its copy in device memory, captured steps (CUDA graphs), and the result of finish().
 *
 * A batch's arrays are stored one after another in an image, which exists twice: in pinned host memory, where begin()
 * gathers them, and in device memory, filled by one copy. Ops get the batch with the host arrays of the image. The
 * image has only the columns of block tables that the longest sequence needs.
 *
 * CAPTURED STEPS. Decode steps (per sequence one token, and an equal number of drafts, if any) and a drafter's steps
 * have few shapes after padding:
 *
 *     sequences   padded to a power of two
 *     keys        padded to a power of two minus 1
 *     sampling    one value per row, or lists; part of the step, up to the copy of the results
 *     adapters    number of groups of rows with an adapter, rounded up; which matrices, with which ranks
 *
 * The ops of a shape queue the same work in every step: all data that differs is read from the image, at the same
 * address. So the work of a shape is captured as a graph in its second step. (The first one copies frequencies, which
 * a capture cannot contain.) From then on a step is one copy and one launch:
 *
 *     3 sequences, 700 keys ->  [a b c -]  4 sequences, 1023 keys ->  captured? replayed : captured, then replayed
 *
 * Padding sequences have tokens at position -1, which see no key and are not stored. Ops are batch-invariant, and no
 * row depends on the KV splits, so results are bitwise identical with and without capture.
 *
 * SEGMENTS. If a device shares a step with the CPU (backend/split.c), its work between two parts of the CPU is a
 * segment (graph_segment of device.h; kind SEGMENTS). Each segment, with its copies to and from the host, is captured
 * as a separate graph. The CPU has to compute its part in every step, so all ops are called in every step; they do
 * nothing while their segment is replayed. A pipeline stage, a device with some of the layers (backend/stages.c), also
 * captures segments. Its complete steps are replayed segment by segment, without calls of ops.
 *
 * SEVERAL DEVICES that work as one (backend/tensor.c) each capture their own stream, all-gathers included. They get
 * the same steps, so all of them have the same captures and replay them in the same steps. No device replays before
 * all have made their graphs. Making a graph takes device memory and may wait for work on other devices, which could
 * be an all-gather that waits for this device (make_graph of device.h).
 *
 * OVERLAPPED STEPS. A step may begin before the last one is finished. Drafts do so, as their tokens never leave the
 * device, and so do decode steps that take their tokens from the device's last results, before the host has them. The
 * step's part of the host image comes after that of the last step, which may still be in flight. At the end of the
 * image it wraps to the start, which belongs to completed steps; if these are too small, the host waits. On the device
 * the step overwrites the last one's image, after that step has completed. The results of a step, which the host
 * reads while the next one runs, alternate between two buffers:
 *
 *     stream   .. replay n | found 0 | mark 0 | image n+1 | tokens n+1 | replay n+1 | found 1 | mark 1 ..
 *     host                                                waits for mark 0, reads found 0, queues n+2
 *
 * Memory: c->image on the host and c->scratch on the device, both from reserve(); the runtime owns the graphs.
 * Threads: as device.h says. Invariant: a part of the image is written only when no queued work reads it. */
#include <string.h>

#include "backend/cuda/impl.h"
#include "backend/top_shape.h"
#include "base/error.h"

/* MIN_BLOCK: smallest block size, in tokens. MIN_KEYS: smallest padded number of keys. *_INTS: sizes of structs in
 * int32. */
enum { MIN_BLOCK = 16, SAVE_INTS = sizeof(pi__save) / sizeof(int32_t), MIN_KEYS = 255,
       REQUEST_INTS = sizeof(pi__topk_request) / sizeof(int32_t), DRAW_INTS = sizeof(pi__draw) / sizeof(int32_t) };

/* Returns the size in int32 of the image of a batch within these limits, with n_groups cache groups and without
 * adapters. */
static size_t image_ints(const pi__limits *lim, int32_t n_groups)
{
    size_t tokens = (size_t) lim->max_tokens, seqs = (size_t) lim->max_seqs;
    size_t table = seqs * ((size_t) lim->max_ctx / MIN_BLOCK + 2), saves = tokens / MIN_BLOCK + seqs;
    /* a run takes three int32, here counted as two saves */
    if (lim->key_blocks) saves += (size_t) pi__max_runs(lim->max_seqs, lim->max_tokens) * 2 + 1;
    return 20 * tokens + (6 + DRAW_INTS + PI__MAX_SEEN) * seqs + 3 + saves * SAVE_INTS +
           (size_t) n_groups * (tokens + table);
}

size_t pi__cuda_image_ints(const pi__limits *lim)
{
    return image_ints(lim, PI__MAX_GROUPS) + pi__cuda_lora_most_ints(lim);
}

/* -------------------------------------------------------------------------------------------------------------
 * image */

/* Copies *array (n values) to the image and appends `more` padding values: fill, fill + step, ... Sets *array to the
 * copy and returns its device address. Does nothing and returns NULL if *array is NULL. */
static const int32_t *put(pi__cuda *c, const int32_t **array, int32_t n, int32_t more, int32_t fill, int32_t step)
{
    int32_t *p = *array ? pi__cuda_take_ints(c, (size_t) n + (size_t) more) : NULL;
    if (p) memcpy(p, *array, (size_t) n * sizeof *p);
    for (int32_t i = 0; p && i < more; i++) p[n + i] = fill + i * step;
    *array = p;
    return pi__cuda_on_device(c, p);
}

/* Copies the block tables of n sequences to the image, of each row only the entries for `keys` keys, and appends `more`
 * rows of -1. Sets kv to the copy and returns its device address. */
static const int32_t *put_table(pi__cuda *c, pi__kv_batch *kv, int32_t n, int32_t more, int32_t keys)
{
    int32_t width = keys / kv->block_size + 1;
    if (width > kv->table_stride) width = kv->table_stride;
    int32_t *p = pi__cuda_take_ints(c, (size_t) (n + more) * (size_t) width);
    for (int32_t s = 0; p && s < n; s++)
        memcpy(p + (size_t) s * (size_t) width, kv->block_table + (size_t) s * (size_t) kv->table_stride,
               (size_t) width * sizeof *p);
    for (int32_t i = 0; p && i < more * width; i++) p[n * width + i] = -1;
    kv->block_table = p;
    kv->table_stride = width;
    return pi__cuda_on_device(c, p);
}

/* Copies the token arrays and seq_start to the image; appends `more` padding sequences of `each` tokens at position
 * -1. */
static void put_tokens(pi__cuda *c, cuda_batch *d, const pi__batch *b, int32_t more, int32_t each)
{
    pi__batch *h = &d->host;
    const int32_t n = b->n_tokens, added = more * each;
    d->token = put(c, &h->token, n, added, 0, 0);
    d->pos = put(c, &h->pos, n, added, -1, 0);
    d->seq = put(c, &h->seq, n, added, 0, 0);
    for (int32_t i = 0; h->seq && i < added; i++) c->image[h->seq - c->image + n + i] = b->n_seqs + i / each;
    d->seq_start = put(c, &h->seq_start, b->n_seqs + 1, more, n + each, each);
    d->embd_row = put(c, &h->embd_row, n, added, 0, 0);
    d->owner = put(c, &h->owner, n, added, n, 1);
    d->hidden_row = put(c, &h->hidden_row, n, added, -1, 0);
    d->rope_pos = put(c, &h->rope_pos, 3 * n, 3 * added, -1, 0);
    d->see_to = put(c, &h->see_to, n, added, -1, 0);
    h->n_tokens = n + added;
}

/* Copies logits_indices to the image. The last `rows` tokens of each padding sequence get a logits row. */
static void put_rows(pi__cuda *c, cuda_batch *d, const pi__batch *b, int32_t more, int32_t each, int32_t rows)
{
    pi__batch *h = &d->host;
    d->logits_indices = put(c, &h->logits_indices, b->n_rows, more * rows, 0, 0);
    for (int32_t i = 0; h->logits_indices && i < more * rows; i++)
        c->image[h->logits_indices - c->image + b->n_rows + i] = b->n_tokens + (i / rows + 1) * each - rows + i % rows;
    h->n_rows = b->n_rows + more * rows;
}

/* Fills c->batch[0]: copies all arrays of b to the image, with `more` padding sequences, each of `each` tokens and
 * `rows` logits rows. keys: max keys that a token sees, for the width of block tables. */
static void put_batch(pi__cuda *c, const pi__batch *b, int32_t more, int32_t each, int32_t rows, int32_t keys)
{
    cuda_batch *d = &c->batch[0];
    pi__batch *h = &d->host;
    int32_t n = b->n_seqs, saves = b->save && b->save_start ? b->save_start[n] : 0;
    const int32_t *save = (const int32_t *) b->save, *request = (const int32_t *) b->top.request;
    const int32_t *draw = c->draws ? (const int32_t *) c->draw.row : NULL;
    const int32_t *seen = c->draws ? (const int32_t *) c->draw.seen : NULL;
    *h = *b;
    put_tokens(c, d, b, more, each);
    d->request = put(c, &request, REQUEST_INTS * b->n_rows, REQUEST_INTS * more * rows, 0, 0);
    d->draw = put(c, &draw, DRAW_INTS * b->n_rows, DRAW_INTS * more * rows, 0, 0);
    d->seen = put(c, &seen, PI__MAX_SEEN * b->n_rows, PI__MAX_SEEN * more * rows, 0, 0);
    put_rows(c, d, b, more, each, rows);
    d->seq_len = put(c, &h->seq_len, n, more, 0, 0);
    d->n_verified = put(c, &h->n_verified, n, more, each, 0);
    d->state_slot = put(c, &h->state_slot, n, more, -1, 0);
    d->save_start = put(c, &h->save_start, n + 1, more, saves, 0);
    d->save = (const pi__save *) put(c, &save, saves * SAVE_INTS, 0, 0, 0);
    h->save = (const pi__save *) save;
    for (int32_t g = 0; g < b->n_groups; g++) {
        d->slot[g] = put(c, &h->kv[g].slot, b->n_tokens, more * each, -1, 0);
        d->table[g] = put_table(c, &h->kv[g], n, more, keys);
    }
    d->run_start = d->run_seq = d->run_block = NULL;
    if (b->runs.n) {
        d->run_start = put(c, &h->runs.start, b->runs.n + 1, 0, 0, 0);
        d->run_seq = put(c, &h->runs.seq, b->runs.n, 0, 0, 0);
        d->run_block = put(c, &h->runs.block, b->runs.n, 0, 0, 0);
    }
    h->n_seqs = n + more;
}

/* Fills c->batch[1] from w, the batch of logits rows: tokens of the same sequences, which write nothing to caches. all:
 * every token has a logits row; then c->batch[1] shares the token arrays of c->batch[0]. */
static void put_logits_batch(pi__cuda *c, const pi__batch *w, int32_t more, int32_t each, bool all)
{
    cuda_batch *d = &c->batch[1];
    pi__batch *h = &d->host;
    *d = c->batch[0];
    d->hidden_row = h->hidden_row = NULL;
    if (!all) {
        h->token = w->token, h->pos = w->pos, h->seq = w->seq, h->seq_start = w->seq_start;
        h->embd_row = w->embd_row, h->owner = w->owner, h->rope_pos = w->rope_pos, h->see_to = w->see_to;
        put_tokens(c, d, w, more, each);
    }
    h->logits_indices = d->logits_indices = NULL;
    h->n_rows = 0;
    h->runs = (pi__runs) {0};
    h->lora = w->lora;
    h->logits_batch = NULL;
    for (int32_t g = 0; g < w->n_groups; g++) h->kv[g].slot = d->slot[g] = NULL;
    c->batch[0].host.logits_batch = h;
}

/* Copies groups and rows of adapters to the image, at an even offset in int32, as groups contain 8-byte pointers. */
static void put_adapters(pi__cuda *c, const pi__lora_rows *rows)
{
    const size_t n = pi__cuda_lora_ints(rows), odd = (c->n_ints - c->first_int) % 2;
    int32_t *p = pi__cuda_take_ints(c, n + odd);
    if (p) pi__cuda_lora_fill(c, rows, p + odd, pi__cuda_on_device(c, p + odd));
}

/* --------------------------------------------------------------------------------------------------- captured
 * steps */

/* Returns the number of tokens of the longest sequence. */
static int32_t most_keys(const pi__batch *b)
{
    int32_t most = 0;
    for (int32_t s = 0; s < b->n_seqs; s++) most = b->seq_len[s] > most ? b->seq_len[s] : most;
    return most;
}

/* True if the step has adapters and is a step of the target model (not of a drafter) that can be captured. */
static bool has_adapters(const pi__batch *b, int kind)
{
    return b->lora.n_runs && (kind == PI__STEP_DECODE || kind == PI__STEP_FED || kind == PI__STEP_SEGMENTS);
}

/* Returns the shape under which the step is captured: sequences and keys are padded as far as the limits allow. */
static cuda_shape shape_of(const pi__cuda *c, const pi__batch *b, int kind)
{
    cuda_shape s = {kind, 1, b->n_tokens / b->n_seqs, b->n_rows / b->n_seqs, MIN_KEYS, 0, 0};
    s.top = pi__top_shape(&b->top, &c->draw);
    const int32_t most = most_keys(b);
    if (has_adapters(b, kind)) s.lora = pi__cuda_lora_shape(&c->f.lim, &b->lora);
    if (kind == PI__STEP_CHAINED) s.kind = PI__STEP_DRAFT_NEXT;
    if (kind == PI__STEP_FED) s.kind = PI__STEP_DECODE;
    while (s.keys < most) s.keys = 2 * s.keys + 1;
    while (s.n_seqs < b->n_seqs) s.n_seqs *= 2;
    if (s.n_seqs > c->f.lim.max_seqs) s.n_seqs = c->f.lim.max_seqs;
    if (s.n_seqs > c->f.lim.max_tokens / s.each) s.n_seqs = c->f.lim.max_tokens / s.each;
    /* other kinds compute all logits rows in one pass, at most max_rows */
    const bool decodes = s.kind == PI__STEP_DECODE || s.kind == PI__STEP_SEGMENTS;
    if (!decodes && s.n_seqs * s.rows > c->f.lim.max_rows) s.n_seqs = c->f.lim.max_rows / s.rows;
    return s;
}

/* Queues the called ops, and ends the segment. */
static void end_segment(pi__cuda *c)
{
    pi__cuda_flush(c);
    pi__cuda_end_segment(c, true);
}

bool pi__cuda_graph_lookup(pi__backend *be, const pi__batch *b, int kind, int32_t *n_seqs)
{
    pi__cuda *c = (pi__cuda *) be;
    if (!c->records) return false;
    const cuda_shape s = shape_of(c, b, kind);
    if (!s.lora && has_adapters(b, kind)) return false;
    const cuda_captured *r = pi__cuda_find_shape(c, &s);
    *n_seqs = s.n_seqs;
    return r && r->n_graphs && r->n_graphs == r->n_segments;
}

void pi__cuda_graph_segment(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    end_segment(c);
    pi__cuda_begin_segment(c);
}

bool pi__cuda_make_graph(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    const bool recorded = c->becomes;
    pi__cuda_flush(c);
    pi__cuda_keep_graph(c, true);
    return !c->error && !(recorded && c->no_room);
}

/* Running out of space is a failure only with a capture. Without one, the work that other ranks wait for has been
 * queued. */
bool pi__cuda_end_capture(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    const bool recorded = c->becomes || c->made;
    end_segment(c);
    return !c->error && !(recorded && c->no_room);
}

void pi__cuda_graph_reset(pi__backend *be)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    pi__cuda_end_segment(c, false);
    pi__cuda_free_graphs(c);
}

/* -------------------------------------------------------------------------------------------------------------
 * steps */

const pi__batch *pi__cuda_begin(pi__backend *be, const pi__batch *b, int kind)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_shape as_it_is = {kind, b->n_seqs, 1, 0, most_keys(b), 0, 0};
    cuda_shape s = kind != PI__STEP_ANY && c->records ? shape_of(c, b, kind) : as_it_is;
    const bool captures = kind != PI__STEP_ANY && c->records && (s.lora || !has_adapters(b, kind));
    if (!captures) s = as_it_is;
    const int32_t more = s.n_seqs - b->n_seqs;
    pi__cuda_flush(c);
    const bool fed = kind == PI__STEP_FED || c->fed, drawn = c->draws && kind == PI__STEP_FED;
    c->draws = c->draw.row && b->top.request;
    c->draw_rows = c->draws && c->draw.rows;
    const pi__limits size = {.max_tokens = b->n_tokens + more * s.each, .max_seqs = s.n_seqs, .key_blocks = b->runs.n,
                             .max_ctx = s.keys < c->f.lim.max_ctx ? s.keys : c->f.lim.max_ctx};
    memset(c->batch, 0, sizeof c->batch);
    pi__cuda_open_image(c, image_ints(&size, b->n_groups) + (s.lora ? pi__cuda_lora_ints(&b->lora) + 1 : 0));
    c->n_segments = 0;
    c->adapters = (cuda_adapters) {0};
    c->now = NULL;
    c->segmented = kind == PI__STEP_SEGMENTS;
    c->batch[0].keys = c->f.keys = captures ? s.keys : 0;
    c->f.adapters = b->lora.n_runs;
    pi__batch given = *b;
    if (fed) given.hidden_row = NULL;
    put_batch(c, &given, more, s.each, s.rows, s.keys);
    if (b->logits_batch) put_logits_batch(c, b->logits_batch, more, s.rows, b->logits_batch->n_tokens == b->n_tokens);
    if (s.lora) put_adapters(c, &b->lora);
    if (fed) { /* last, as all other arrays must be at the offsets of a DECODE step */
        const int32_t *row = b->hidden_row;
        c->batch[0].hidden_row = put(c, &row, b->n_tokens, 0, 0, 0);
    }
    c->draw = (pi__draws) {0};
    const int32_t *image = c->image + c->first_int;
    pi__cuda_upload(c, c->scratch + c->at.batch, image, (c->n_ints - c->first_int) * sizeof *image);
    if (kind == PI__STEP_CHAINED || fed) pi__cuda_chain(c, b->n_tokens, drawn);
    c->fed = NULL;
    if (b->top.request) pi__cuda_skip(c, b->top.skip, b->top.n_skip);
    if (captures) pi__cuda_look_up(c, &s);
    if (!captures || kind == PI__STEP_SEGMENTS) return &c->batch[0].host;
    pi__cuda_begin_segment(c);
    const bool whole = c->replayed;
    c->replayed = false;
    return whole ? NULL : &c->batch[0].host;
}

void pi__cuda_download(pi__backend *be, void *dst, const void *src, size_t n)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    if (!c->segmented) pi__cuda_end_segment(c, true);
    if (pi__cuda_queues(c)) pi__cuda_record_error(c, pi__rt_download(c->rt, dst, src, n));
}

int pi__cuda_finish(pi__backend *be, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    end_segment(c);
    unsigned long long counts[2] = {0, 0}; /* sparse prefill, since reserve(): attended to; possible */
    if (c->counts && !pi__cuda_failed(c))
        pi__cuda_record_error(c, pi__rt_download(c->rt, counts, c->scratch + c->at.counts, sizeof counts));
    int code = pi__rt_wait(c->rt); /* also after an error: work queued before it may still run */
    bool no_room = c->no_room;
    if (c->error) code = c->error;
    if (c->counts && !code) be->n_attended = counts[0], be->n_possible = counts[1];
    c->counts = false;
    c->error = 0;
    c->open = false;
    c->no_room = false;
    memset(c->marks, 0, sizeof c->marks);
    if (code) return pi__fail(err, PI_EDEVICE, "%s failed: %.400s", c->info.name, pi__rt_text(code));
    if (no_room) return pi__fail(err, PI_ENOMEM, "%s: out of memory for a step's inputs: lower ubatch-size",
                                 c->info.name);
    return PI_OK;
}

void pi__cuda_mark(pi__backend *be, int i, uint64_t *found, int32_t n_rows)
{
    pi__cuda *c = (pi__cuda *) be;
    end_segment(c);
    pi__cuda_download_topk(c, found, n_rows);
    if (!c->error) pi__cuda_record_error(c, pi__rt_fence(c->rt, i));
    /* after wait(), the device has read the image up to here */
    c->marks[i] = (cuda_mark) {c->open ? c->n_ints : 0, c->no_room};
    c->no_room = false; /* the next step has its own flag */
}

int pi__cuda_wait(pi__backend *be, int i, pi_error *err)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_mark *m = &c->marks[i];
    int code = c->error ? c->error : pi__rt_fence_wait(c->rt, i);
    if (c->wraps && m->end <= c->n_ints) c->wraps = false;
    c->first_live = m->end;
    if (code) return pi__fail(err, PI_EDEVICE, "%s failed: %.400s", c->info.name, pi__rt_text(code));
    if (m->no_room) return pi__fail(err, PI_ENOMEM, "%s: out of memory for a step's inputs: lower ubatch-size",
                                    c->info.name);
    return PI_OK;
}

void pi__cuda_follow(pi__backend *be, pi__backend *first)
{
    pi__cuda *c = (pi__cuda *) be;
    pi__cuda_flush(c);
    if (pi__cuda_queues(c)) pi__cuda_record_error(c, pi__rt_follow(c->rt, ((pi__cuda *) first)->rt));
}