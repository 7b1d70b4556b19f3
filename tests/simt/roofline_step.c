/* Runs steps of a model on the emulated device without the engine: builds the batches that the engine would pass to
 * the model's graph, for given numbers of sequences and cached tokens. Used by roofline.cpp; opened once per process.
 *
 * Activations begin as random values: in a sampled launch most rows keep them, and routers read them. */
#include "roofline.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/impl.h"
#include "backend/devices.h"
#include "base/alloc.h"
#include "formats/formats.h"
#include "model/model.h"

enum { BLOCK = 16, CTX = 131072 };

typedef struct setup {
    pi__gguf *g;
    pi__backend *be;
    pi__model *m;
    pi__limits lim;
    float *logits;                       /* [MAX_ROWS, n_vocab] on the device */
    char *pool[PI__MAX_GROUPS];          /* NULL = no layer keeps blocks in this group */
    size_t block_bytes[PI__MAX_GROUPS];  /* sum over all layers of the group */
    size_t slot_bytes;                   /* sum over all recurrent layers */
    size_t max_blocks;                   /* blocks per pool */
    int32_t *ints;                       /* memory of a batch's arrays */
} setup;
static setup s;

static int32_t block_of(int32_t group) { return s.m->group[group].block > BLOCK ? s.m->group[group].block : BLOCK; }

static size_t kv_bytes(const pi__kv_layer *kv)
{
    const int32_t block = block_of(kv->group);
    if (!kv->ratio) return s.be->dev->kv_bytes(s.be, kv->type_k, kv->type_v, kv->n_head_kv, kv->head_dim, block);
    return s.be->opt->row_bytes(s.be, kv->type_k, kv->head_dim, block / kv->ratio);
}

/* The layer of a matrix; the number of layers for a matrix outside of layers; -1 for a part of a file tensor, which
 * never comes first in a layer. */
static int32_t layer_of(const pi__weight *w)
{
    int32_t layer = s.m->n_layer;
    for (size_t i = 0; i < s.m->n_want; i++) {
        if (s.m->want[i].weight != w) continue;
        sscanf(s.m->want[i].tensor->name.p, "blk.%d.", &layer);
        return layer;
    }
    return -1;
}

/* Reports the layer of a launch with op i: that of the last matrices up to this op. */
static void tell_launch(const pi__op_record *r, int32_t i)
{
    int32_t layer = -1;
    for (; i >= 0 && layer < 0; i--)
        if (r[i].id == PI__OP_linear) layer = layer_of(r[i].args.linear.lin[0].w);
    if (layer >= 0) roofline_layer(layer);
}

/* Allocates F16 caches for max_blocks blocks in each group, and a state for each sequence. */
static int caches(pi_error *err)
{
    size_t at[PI__MAX_GROUPS] = {0};
    for (int32_t i = 0; i < s.m->n_kv; i++) {
        pi__kv_layer *kv = &s.m->kv[i];
        kv->type_k = kv->type_v = kv->f32 ? PI__F32 : PI__F16;
        s.block_bytes[kv->group] += kv_bytes(kv);
    }
    for (int32_t g = 0; g < s.m->n_groups; g++) {
        if (!s.block_bytes[g]) continue;
        s.pool[g] = s.be->dev->alloc(s.be, s.block_bytes[g] * s.max_blocks);
        if (!s.pool[g]) return pi__fail_mem(err, "a cache");
    }
    for (int32_t i = 0; i < s.m->n_kv; i++) {
        pi__kv_layer *kv = &s.m->kv[i];
        kv->base = s.pool[kv->group] + at[kv->group];
        kv->stride = s.block_bytes[kv->group];
        at[kv->group] += kv_bytes(kv);
    }
    for (int32_t i = 0; i < s.m->n_state; i++) s.slot_bytes += s.be->dev->state_bytes(s.be, &s.m->state[i]);
    char *slots = s.slot_bytes ? s.be->dev->alloc(s.be, s.slot_bytes * (size_t) s.lim.max_seqs) : NULL;
    if (s.slot_bytes && !slots) return pi__fail_mem(err, "states");
    for (int32_t i = 0; i < s.m->n_state; i++) {
        s.m->state[i].base = slots;
        s.m->state[i].stride = s.slot_bytes;
        slots += s.be->dev->state_bytes(s.be, &s.m->state[i]);
    }
    return PI_OK;
}

static void fill_scratch(void)
{
    uint64_t rng = 1;
    float *p = (float *) (void *) s.m->scratch;
    for (size_t i = 0; i < s.m->scratch_size / sizeof *p; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float) (int32_t) (rng >> 32) / 2147483648.0f;
    }
}

int roofline_open(const char *path, int32_t max_tokens, int32_t max_seqs, size_t cache_tokens)
{
    const pi__device_params p = {.cpu = {.n_threads = 1, .poll = 1}};
    const pi__log log = {0};
    pi_error err = {0};
    s.lim = (pi__limits) {
        .max_tokens = max_tokens, .max_seqs = max_seqs, .max_rows = pi__rows_per_pass(max_seqs), .max_ctx = CTX};
    s.max_blocks = cache_tokens / BLOCK + (size_t) max_seqs;
    int rc = pi__device_create(&s.be, "emu", true, &p, &log, &err);
    if (!rc) ((pi__cuda *) s.be)->ops->before = tell_launch;
    if (!rc) rc = pi__gguf_open(&s.g, path, PI__LOAD_MMAP, &err);
    if (!rc) rc = pi__model_declare(&s.m, s.g, s.be, &(pi__model_use) {0}, &err);
    if (!rc) {
        (void) pi__model_scratch(s.m, &s.lim);
        s.lim.n_vocab = s.m->n_vocab;
        rc = s.be->dev->reserve(s.be, &s.lim, &err);
    }
    if (!rc) rc = pi__model_load(s.m, &s.lim, NULL, &err);
    if (!rc) rc = caches(&err);
    if (!rc) {
        s.logits = s.be->dev->alloc(s.be, (size_t) s.lim.max_rows * (size_t) s.m->n_vocab * sizeof(float));
        s.ints = pi__calloc(1, ((size_t) max_tokens * 6 + (size_t) max_seqs * 12 + 64 + s.max_blocks * 2) *
                                   sizeof *s.ints * PI__MAX_GROUPS);
        if (!s.logits || !s.ints) rc = pi__fail_mem(&err, "logits");
    }
    if (!rc) rc = s.be->dev->finish(s.be, &err);
    if (rc) fprintf(stderr, "%s: %s\n", path, err.msg);
    else fill_scratch();
    return rc;
}

void roofline_close(void)
{
    pi__free(s.ints);
    pi__model_free(s.m);
    pi__gguf_close(s.g);
    for (int32_t g = 0; g < PI__MAX_GROUPS; g++)
        if (s.pool[g]) s.be->dev->free(s.be, s.pool[g], s.block_bytes[g] * s.max_blocks);
    if (s.m && s.m->n_state) s.be->dev->free(s.be, s.m->state[0].base, s.slot_bytes * (size_t) s.lim.max_seqs);
    if (s.logits) s.be->dev->free(s.be, s.logits, (size_t) s.lim.max_rows * (size_t) s.m->n_vocab * sizeof(float));
    if (s.be) s.be->dev->destroy(s.be);
}

static int32_t *take(int32_t **at, int32_t n)
{
    int32_t *p = *at;
    *at += n;
    return p;
}

/* Fills the tables of a group: blocks of the sequences in order; -1 for blocks before the window. */
static void group(pi__batch *b, int32_t g, int32_t **at, int32_t ctx)
{
    const int32_t block = block_of(g), keep = s.m->group[g].keep, window = keep ? keep : s.m->group[g].window;
    const int32_t width = ctx / block + 1, each = b->n_tokens / b->n_seqs;
    int32_t *table = take(at, b->n_seqs * width), *slot = take(at, b->n_tokens);
    for (int32_t i = 0; i < b->n_seqs; i++) {
        for (int32_t k = 0; k < width; k++) {
            const bool seen = !window || (k + 1) * block > ctx - each - window;
            table[i * width + k] = seen && k * block < ctx ? i * width + k : -1;
        }
        for (int32_t k = 0; k < each; k++) {
            const int32_t pos = ctx - each + k;
            slot[i * each + k] = table[i * width + pos / block] * block + pos % block;
        }
    }
    b->kv[g] = (pi__kv_batch) {block, width, table, slot};
}

/* The logits rows as a separate batch: the last token of each sequence. */
static void fill_rows(pi__batch *rows, const pi__batch *b, int32_t **at)
{
    int32_t *token = take(at, b->n_rows), *pos = take(at, b->n_rows), *seq = take(at, b->n_rows),
            *start = take(at, b->n_seqs + 1);
    for (int32_t i = 0; i <= b->n_seqs; i++) start[i] = i;
    for (int32_t i = 0; i < b->n_rows; i++) {
        token[i] = b->token[b->logits_indices[i]];
        pos[i] = b->pos[b->logits_indices[i]];
        seq[i] = i;
    }
    *rows = *b;
    rows->token = token, rows->pos = pos, rows->seq = seq, rows->seq_start = start;
    rows->n_tokens = b->n_rows;
    rows->n_rows = 0;
    rows->logits_indices = NULL;
    for (int32_t g = 0; g < b->n_groups; g++) rows->kv[g].slot = NULL;
}

static void fill_batch(pi__batch *b, pi__batch *last, int32_t n_seqs, int32_t each, int32_t ctx)
{
    const int32_t n = n_seqs * each, rows = each == 1 ? n_seqs : 1;
    int32_t *at = s.ints, *token = take(&at, n), *pos = take(&at, n), *seq = take(&at, n),
            *start = take(&at, n_seqs + 1), *len = take(&at, n_seqs), *index = take(&at, rows),
            *verified = take(&at, n_seqs), *slot = take(&at, n_seqs), *save = take(&at, n_seqs + 1);
    for (int32_t i = 0; i < n; i++) token[i] = i % 64, seq[i] = i / each, pos[i] = ctx - each + i % each;
    for (int32_t i = 0; i <= n_seqs; i++) start[i] = i * each, save[i] = 0;
    for (int32_t i = 0; i < n_seqs; i++) len[i] = ctx, verified[i] = each, slot[i] = i;
    for (int32_t i = 0; i < rows; i++) index[i] = each == 1 ? i : n - 1;
    *b = (pi__batch) {.n_tokens = n,
                      .n_seqs = n_seqs,
                      .n_rows = rows,
                      .n_groups = s.m->n_groups,
                      .token = token,
                      .pos = pos,
                      .seq = seq,
                      .seq_start = start,
                      .seq_len = len,
                      .logits_indices = index,
                      .n_verified = verified,
                      .state_slot = slot,
                      .save_start = save};
    for (int32_t g = 0; g < b->n_groups; g++) group(b, g, &at, ctx);
    fill_rows(last, b, &at);
    b->logits_batch = last;
}

/* Sets states to the last chunk boundary before the step (kernels/gdn.cuh: `base` is the first field of a slot). */
static void set_states(int32_t n_seqs, int32_t pos)
{
    for (int32_t i = 0; i < s.m->n_state; i++) {
        const pi__state_layer *st = &s.m->state[i];
        for (int32_t k = 0; k < n_seqs; k++) {
            int32_t *base = (int32_t *) (void *) (st->base + (size_t) k * st->stride);
            for (int32_t h = 0; h < st->n_v * (st->dim / 32); h++) base[h] = pos / PI__STATE_CHUNK * PI__STATE_CHUNK;
        }
    }
}

int roofline_step(int32_t n_seqs, int32_t each, int32_t ctx)
{
    pi__batch b, last;
    pi_error err = {0};
    if (n_seqs * each > s.lim.max_tokens || n_seqs > s.lim.max_seqs || each > ctx || ctx > CTX ||
        (size_t) n_seqs * (size_t) (ctx / BLOCK + 1) > s.max_blocks) {
        fprintf(stderr, "a step of %d sequences with %d tokens each of %d is more than was asked for\n", n_seqs, each,
                ctx);
        return 1;
    }
    fill_batch(&b, &last, n_seqs, each, ctx);
    set_states(n_seqs, ctx - each);
    const pi__batch *own = s.be->dev->begin(s.be, &b, each == 1 ? PI__STEP_DECODE : PI__STEP_ANY);
    roofline_layer(-1);
    s.m->arch->forward(s.m, own, s.m->n_trunk);
    for (int32_t i = 0; i < b.n_rows; i += s.lim.max_rows) {
        const int32_t left = b.n_rows - i;
        s.m->arch->logits(s.m, i, left < s.lim.max_rows ? left : s.lim.max_rows, s.logits);
    }
    const int rc = s.be->dev->finish(s.be, &err);
    if (rc) fprintf(stderr, "%s\n", err.msg);
    return rc;
}
