/* The largest values of rows of logits (op topk): what is asked goes to the device, what is found comes back in one copy.
 *
 * From what is found in the rows of a step that stays in flight a token each may be drawn (dev->draw); then what was found stays,
 * and only the tokens come back.
 *
 * Memory: scratch + at.picks, [indices to skip][what each row asks][what is found][tokens drawn][work]; what the rows of a step
 * ask may be in its batch. The step thread. Invariant: the indices of c->skip are there. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_draw.h"

#include <string.h>

static size_t aligned(size_t n) { return (n + 255) & ~(size_t) 255; }

enum { SKIP_BYTES = PI__MAX_SKIP * sizeof(int32_t), REQUEST_BYTES = (PI__MAX_ROWS * sizeof(pi__topk_request) + 255) / 256 * 256,
       OUT_BYTES = PI__MAX_ROWS * (2 + PI__MAX_TOP) * sizeof(uint64_t),
       DRAWN_BYTES = (PI__MAX_ROWS * 3 * sizeof(uint64_t) + 255) / 256 * 256 };

size_t pi__cuda_top_bytes(const pi__limits *lim)
{
    return SKIP_BYTES + REQUEST_BYTES + OUT_BYTES + DRAWN_BYTES + aligned(pi__k_top_scratch(PI__MAX_ROWS, lim->n_vocab));
}

static uint64_t *found_of(const pi__cuda *c)
{
    return (uint64_t *) (void *) (c->scratch + c->at.picks + SKIP_BYTES + REQUEST_BYTES);
}

static uint64_t *drawn_of(const pi__cuda *c) { return found_of(c) + OUT_BYTES / sizeof(uint64_t); }

void pi__cuda_draw(pi__backend *be, const pi__draws *draws) { ((pi__cuda *) be)->draw = *draws; }

void pi__cuda_feed(pi__backend *be, const uint64_t *found, int32_t n_rows)
{
    pi__cuda *c = (pi__cuda *) be;
    c->fed = found;
    c->n_fed = n_rows;
}

/* What another device found goes where this one's would be: tokens of both are taken alike. */
void pi__cuda_chain(pi__cuda *c, int32_t n, bool drawn)
{
    const cuda_batch *d = &c->batch[0];
    if (c->fed) pi__cuda_upload(&c->be, found_of(c), c->fed, (size_t) c->n_fed * 3 * sizeof *c->fed);
    const uint64_t *from = drawn ? drawn_of(c) : found_of(c);
    PI__QUEUE(c, pi__k_top_tokens(pi__rt_stream(c->rt), from, d->hidden_row, n, (int32_t *) d->token));
}

void pi__cuda_bring_found(pi__cuda *c, uint64_t *to, int32_t n)
{
    if (n) PI__QUEUE(c, pi__rt_download(c->rt, to, c->draws ? drawn_of(c) : found_of(c), (size_t) n * 3 * sizeof *to));
}

void pi__cuda_skip(pi__cuda *c, const int32_t *skip, int32_t n)
{
    if (n > PI__MAX_SKIP) c->no_room = true;
    else if (skip != c->skip) pi__cuda_upload(&c->be, c->scratch + c->at.picks, skip, (size_t) n * sizeof *skip);
    c->skip = skip;
}

/* Sends the requests, where they have not come with the batch. */
static void upload_requests(pi__cuda *c, const pi__topk *a, char *to, pi__k_top *k)
{
    pi__cuda_end_segment(c);
    if (a->n_rows > PI__MAX_ROWS) {
        c->no_room = true;
        return;
    }
    for (int32_t r = 0; r < a->n_rows; r++) {
        if (a->request[r].k > k->k) k->k = a->request[r].k;
        k->sum |= a->request[r].sum;
    }
    pi__cuda_skip(c, a->skip, a->n_skip);
    pi__cuda_upload(&c->be, to, a->request, (size_t) a->n_rows * sizeof *a->request);
    k->request = (const int32_t *) (void *) to;
}

/* Requests that came with the step are captured with it, and so is the copy of what is found. Others are queued behind the
 * step's ops. */
void pi__cuda_topk(pi__backend *be, const pi__batch *b, const pi__topk *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__step_top *top = b && b->top.request == a->request ? &b->top : NULL;
    char *all = c->scratch + c->at.picks, *requested = all + SKIP_BYTES, *found = (char *) found_of(c);
    pi__k_top k = {.x = a->x, .n_rows = a->n_rows, .n = a->n, .skip = (const int32_t *) (void *) all,
                   .scratch = found + OUT_BYTES + DRAWN_BYTES, .out = (uint64_t *) (void *) found};
    if (top) k.k = top->k, k.sum = top->sum, k.request = pi__cuda_batch_of(c, b)->request;
    else upload_requests(c, a, requested, &k);
    c->no_room |= a->n_rows > PI__MAX_ROWS || a->n > c->lim.n_vocab || a->n > PI__MAX_TOP_ROW;
    PI__QUEUE(c, pi__k_top_run(pi__rt_stream(c->rt), &k));
    if (top && c->draws) {
        const cuda_batch *here = pi__cuda_batch_of(c, b);
        const pi__k_draw d = {.found = k.out, .request = k.request, .draw = (const pi__draw *) (const void *) here->draw,
                              .seen = (const uint32_t *) here->seen, .token = here->token, .index = here->logits_indices,
                              .n_rows = k.n_rows, .k = k.k, .out = drawn_of(c), .x = c->draw_rows ? a->x : NULL, .n = a->n};
        PI__QUEUE(c, pi__k_draw_run(pi__rt_stream(c->rt), &d));
        return;
    }
    PI__QUEUE(c, pi__rt_download(c->rt, a->out, found, (size_t) a->n_rows * (size_t) (2 + k.k) * sizeof *a->out));
}
