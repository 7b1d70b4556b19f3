/* Op topk, the largest values of rows of logits: requests are uploaded, and the results come back in one copy.
 *
 * In a step that stays in flight (mark of device.h), one token per row may be drawn from these values on the device
 * (opt->draw). Then the values stay on the device, and only the tokens are copied to the host.
 *
 * Memory: scratch + at.picks, [indices to skip][requests][results of topk][drawn tokens][work]. Requests that are known
 * when the step begins are in its batch instead. The step thread. Invariant: the region [indices to skip] has a copy of
 * the host array c->skip. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_draw.h"

#include <string.h>

static size_t aligned(size_t n) { return (n + 255) & ~(size_t) 255; }

enum { SKIP_BYTES = PI__MAX_SKIP * sizeof(int32_t) };

/* Byte offsets of the regions from at.picks; the indices to skip are at offset 0. */
typedef struct parts {
    size_t request, found, drawn, work, end;
} parts;
static parts parts_of(const pi__limits *lim)
{
    const size_t rows = (size_t) lim->max_rows;
    parts p = {.request = SKIP_BYTES};
    p.found = p.request + aligned(rows * sizeof(pi__topk_request));
    p.drawn = p.found + aligned(rows * (2 + PI__MAX_TOP) * sizeof(uint64_t));
    p.work = p.drawn + aligned(rows * 3 * sizeof(uint64_t));
    p.end = p.work + aligned(pi__k_top_scratch(lim->max_rows, lim->n_vocab));
    return p;
}

size_t pi__cuda_top_bytes(const pi__limits *lim) { return parts_of(lim).end; }

/* Returns the device addresses of topk's results; of the drawn tokens. */
static uint64_t *found_of(const pi__cuda *c)
{
    return (uint64_t *) (void *) (c->scratch + c->at.picks + parts_of(&c->f.lim).found);
}

static uint64_t *drawn_of(const pi__cuda *c)
{
    return (uint64_t *) (void *) (c->scratch + c->at.picks + parts_of(&c->f.lim).drawn);
}

void pi__cuda_draw(pi__backend *be, const pi__draws *draws) { ((pi__cuda *) be)->draw = *draws; }

void pi__cuda_feed(pi__backend *be, const uint64_t *found, int32_t n_rows)
{
    pi__cuda *c = (pi__cuda *) be;
    c->fed = found;
    c->n_fed = n_rows;
}

/* If another device has found the results (c->fed), they are copied over this device's results. So the kernel always
 * reads the same address. */
void pi__cuda_chain(pi__cuda *c, int32_t n, bool drawn)
{
    const cuda_batch *d = &c->batch[0];
    if (c->fed) pi__cuda_upload(c, found_of(c), c->fed, (size_t) c->n_fed * 3 * sizeof *c->fed);
    const uint64_t *from = drawn ? drawn_of(c) : found_of(c);
    PI__QUEUE(c, pi__k_top_tokens(pi__rt_stream(c->rt), from, d->hidden_row, n, (int32_t *) d->token));
}

void pi__cuda_download_topk(pi__cuda *c, uint64_t *to, int32_t n)
{
    if (n) PI__QUEUE(c, pi__rt_download(c->rt, to, c->draws ? drawn_of(c) : found_of(c), (size_t) n * 3 * sizeof *to));
}

void pi__cuda_skip(pi__cuda *c, const int32_t *skip, int32_t n)
{
    if (n > PI__MAX_SKIP) c->no_room = true;
    else if (skip != c->skip) pi__cuda_upload(c, c->scratch + c->at.picks, skip, (size_t) n * sizeof *skip);
    c->skip = skip;
}

/* Uploads the requests of op topk to device address `to`, if they did not come with the batch, and sets them in k. Ends
 * the step's capture first. */
static void upload_requests(pi__cuda *c, const pi__topk *a, char *to, pi__k_top *k)
{
    pi__cuda_end_segment(c, true);
    if (a->n_rows > c->f.lim.max_rows) {
        c->no_room = true;
        return;
    }
    for (int32_t r = 0; r < a->n_rows; r++) {
        if (a->request[r].k > k->k) k->k = a->request[r].k;
        k->sum |= a->request[r].sum;
    }
    pi__cuda_skip(c, a->skip, a->n_skip);
    pi__cuda_upload(c, to, a->request, (size_t) a->n_rows * sizeof *a->request);
    k->request = (const int32_t *) (void *) to;
}

/* Requests of the step's batch are captured with the step, and so is the copy of the results to the host. Other
 * requests are queued after the captured part of the step. */
void pi__cuda_topk(pi__backend *be, const pi__batch *b, const pi__topk *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__step_top *top = b && b->top.request == a->request ? &b->top : NULL;
    const parts at = parts_of(&c->f.lim);
    char *all = c->scratch + c->at.picks;
    pi__k_top k = {.x = a->x, .n_rows = a->n_rows, .n = a->n, .skip = (const int32_t *) (void *) all,
                   .scratch = all + at.work, .out = found_of(c)};
    if (top) k.k = top->k, k.sum = top->sum, k.request = pi__cuda_batch_of(c, b)->request;
    else upload_requests(c, a, all + at.request, &k);
    c->no_room |= a->n_rows > c->f.lim.max_rows || a->n > c->f.lim.n_vocab || a->n > PI__MAX_TOP_ROW;
    PI__QUEUE(c, pi__k_top_run(pi__rt_stream(c->rt), &k));
    if (top && c->draws) {
        const cuda_batch *here = pi__cuda_batch_of(c, b);
        const pi__k_draw d = {.found = k.out,
                              .request = k.request,
                              .draw = (const pi__draw *) (const void *) here->draw,
                              .seen = (const uint32_t *) here->seen,
                              .token = here->token,
                              .index = here->logits_indices,
                              .n_rows = k.n_rows,
                              .k = k.k,
                              .out = drawn_of(c),
                              .x = c->draw_rows ? a->x : NULL,
                              .n = a->n};
        PI__QUEUE(c, pi__k_draw_run(pi__rt_stream(c->rt), &d));
        return;
    }
    PI__QUEUE(c, pi__rt_download(c->rt, a->out, found_of(c), (size_t) a->n_rows * (size_t) (2 + k.k) * sizeof *a->out));
}