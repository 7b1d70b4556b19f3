/* Writes the drafts and logits of a model's draft head along a sequence, for checks against a reference:
 *
 *     tool_draft MODEL ROWS DRAFTS START STEP [DRAFTER] < IDS
 *
 * IDS are token ids as text. The file ROWS receives the drafter's logits for positions 1, 2, ... (float32, [n - 1,
 * vocabulary]). Standard output receives one line for each of the positions START, START + STEP, ...: the DRAFTS
 * tokens drafted after it. DRAFTER is a draft head's own file.
 *
 * A block drafter ignores START and STEP. Its logits are those of one block of DRAFTS + 1 tokens that starts with the
 * last of IDS. Standard output then has one line. The cache is one block table over one sequence, of minimal size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "engine/draft_select.h"
#include "sampler/sampler.h"
#include "formats/formats.h"
#include "gguf/gguf.h"
#include "model/model.h"

enum { MOST = 4096, BLOCK = 64, PART = 32 };

typedef struct tool {
    pi__backend *be;
    pi__gguf *g, *draft_g;
    pi__model *m, *drafter;
    int32_t token[MOST], pos[MOST], seq[MOST], row[MOST], slot[MOST], hidden[MOST], table[MOST / BLOCK];
    int32_t n;        /* ids */
    float *logits;    /* [PART, n_vocab] */
} tool;

static void die(const char *what, const pi_error *err)
{
    fprintf(stderr, "tool_draft: %s: %s\n", what, err->msg);
    exit(1);
}

/* Returns the tokens per block of group i. */
static int32_t block_of(const tool *t, int32_t i)
{
    return t->m->group[i].block > BLOCK ? t->m->group[i].block : BLOCK;
}

/* Returns a batch that contains only tokens [from, from + n) of the sequence. */
static pi__batch batch_of(tool *t, int32_t start[2], int32_t len[1], int32_t from, int32_t n)
{
    static const int32_t zero[2];
    start[0] = 0;
    start[1] = n;
    len[0] = from + n;
    pi__batch b = {.n_tokens = n,
                   .n_seqs = 1,
                   .n_groups = t->m->n_groups,
                   .token = t->token + from,
                   .pos = t->pos + from,
                   .seq = t->seq,
                   .seq_start = start,
                   .seq_len = len,
                   .n_verified = start + 1,
                   .state_slot = zero,
                   .save_start = zero,
                   .logits_indices = t->row};
    for (int32_t i = 0; i < b.n_groups; i++)
        b.kv[i] = (pi__kv_batch){block_of(t, i), MOST / BLOCK, t->table, t->slot + from};
    return b;
}

static size_t layer_bytes(const tool *t, const pi__kv_layer *kv)
{
    const int32_t block = block_of(t, kv->group);
    if (kv->ratio) return t->be->opt->row_bytes(t->be, PI__F32, kv->head_dim, block / kv->ratio);
    return t->be->dev->kv_bytes(t->be, PI__F32, PI__F32, kv->n_head_kv, kv->head_dim, block);
}

static void open_drafter(tool *t, const char *path)
{
    pi_error err = {0};
    t->drafter = t->m;
    if (!path) return;
    if (pi__gguf_open(&t->draft_g, path, PI__LOAD_MMAP, &err)) die(path, &err);
    if (pi__model_declare(&t->drafter, t->draft_g, t->be, &(pi__model_use) {.n_draft = 1, .target = t->m}, &err))
        die(path, &err);
}

static void open_model(tool *t, const char *path, const char *drafter)
{
    pi_error err = {0};
    pi__limits lim = {.max_tokens = MOST, .max_seqs = 1, .max_rows = PART, .max_ctx = MOST};
    if (pi__cpu_create(&t->be, &(pi__cpu_params){.poll = 50}, &(pi__log){0}, &err)) die("cpu", &err);
    if (pi__gguf_open(&t->g, path, PI__LOAD_MMAP, &err)) die(path, &err);
    if (pi__model_declare(&t->m, t->g, t->be, &(pi__model_use) {.n_draft = 1, .with_head = true}, &err))
        die(path, &err);
    open_drafter(t, drafter);
    (void) pi__model_scratch(t->m, &lim);
    (void) pi__model_scratch(t->drafter, &lim);
    if (t->be->dev->reserve(t->be, &lim, &err) || pi__model_load(t->m, &lim, NULL, &err)) die(path, &err);
    if (drafter && pi__model_load(t->drafter, &lim, NULL, &err)) die(drafter, &err);
    for (int32_t i = 0; i < t->m->n_kv; i++) {
        pi__kv_layer *kv = &t->m->kv[i];
        kv->type_k = kv->type_v = PI__F32;
        kv->stride = layer_bytes(t, kv);
        kv->base = t->be->dev->alloc(t->be, kv->stride * (MOST / BLOCK));
    }
    for (int32_t i = 0; i < t->m->n_state; i++) {
        pi__state_layer *st = &t->m->state[i];
        st->stride = t->be->dev->state_bytes(t->be, st);
        st->base = t->be->dev->alloc(t->be, st->stride);
    }
    t->logits = malloc((size_t) PART * (size_t) t->m->n_vocab * sizeof *t->logits);
}

/* Runs the target over all tokens, then the drafter over positions 1.., and writes the drafter's rows to the file. */
static void run_all(tool *t, FILE *out)
{
    int32_t start[2], len[1];
    pi_error err = {0};
    pi__batch b = batch_of(t, start, len, 0, t->n);
    t->be->dev->begin(t->be, &b, PI__STEP_ANY);
    t->m->arch->forward(t->m, &b, t->m->n_trunk);
    for (int32_t from = 1; from < t->n; from += PART) {
        int32_t n = t->n - from < PART ? t->n - from : PART;
        b = batch_of(t, start, len, from, n);
        b.n_rows = n;
        for (int32_t i = 0; i < n; i++) t->hidden[i] = from + i - 1;
        b.hidden_row = t->hidden;
        t->drafter->arch->draft(t->drafter, &b, false, t->logits);
        if (t->be->dev->finish(t->be, &err)) die("step", &err);
        fwrite(t->logits, sizeof *t->logits, (size_t) n * (size_t) t->m->n_vocab, out);
    }
}

/* Drafts after position p; the cache entries that this writes are after p, too. */
static void run_from(tool *t, int32_t p, int32_t n_drafts)
{
    int32_t start[2], len[1], saved[MOST];
    memcpy(saved, t->token, sizeof saved);
    for (int32_t i = 0; i < n_drafts; i++) {
        pi__batch b = batch_of(t, start, len, p + i, 1);
        b.n_rows = 1;
        t->hidden[0] = i ? 0 : p - 1;
        b.hidden_row = t->hidden;
        t->drafter->arch->draft(t->drafter, &b, i > 0, t->logits);
        t->token[p + i + 1] = pi__argmax(t->logits, t->m->n_vocab);
        printf("%d%c", t->token[p + i + 1], i + 1 < n_drafts ? ' ' : '\n');
    }
    memcpy(t->token, saved, sizeof saved);
}

/* Selects the drafts of the block after token, from rows 1.. of its logits. */
static void choose(tool *t, int32_t token, int32_t *drafts, int32_t n)
{
    const int32_t width = t->drafter->block.n_out;
    pi__selector s;
    pi_error err = {0};
    if (pi__selector_init(&s, t->drafter, t->be, PART, MOST, &err)) die("selector", &err);
    if (s.n) pi__selector_copy(&s, n + 1);
    for (int32_t i = 0; i <= n && s.n; i++)
        pi__selector_row(&s, i, t->logits + (size_t) i * (size_t) width, NULL, i == 1 ? token : -1);
    if (s.n && pi__selector_read(&s, n + 1, &err)) die("selector", &err);
    for (int32_t i = 1, from = -1; i <= n; i++) {
        double p;
        if (s.n) from = pi__selector_best(&s, i, from, &p);
        drafts[i - 1] = s.n ? pi__selector_token(&s, i, from)
                            : pi__argmax(t->logits + (size_t) i * (size_t) width, width);
    }
    pi__selector_destroy(&s);
}

/* Runs the target over all ids except the last, then the block that starts with the last. */
static void run_block(tool *t, FILE *out, int32_t n_drafts)
{
    int32_t start[2], len[1];
    const int32_t last = t->n - 1;
    pi_error err = {0};
    pi__batch b = batch_of(t, start, len, 0, last);
    t->be->dev->begin(t->be, &b, PI__STEP_ANY);
    t->m->arch->forward(t->m, &b, t->m->n_trunk);
    t->drafter->arch->inject(t->drafter, &b, t->row);
    for (int32_t i = 1; i <= n_drafts; i++) t->token[last + i] = t->drafter->block.mask;
    b = batch_of(t, start, len, last, n_drafts + 1);
    b.n_rows = n_drafts + 1;
    t->drafter->arch->forward(t->drafter, &b, t->drafter->n_layer);
    t->drafter->arch->logits(t->drafter, 0, b.n_rows, t->logits);
    if (t->be->dev->finish(t->be, &err)) die("step", &err);
    fwrite(t->logits, sizeof *t->logits, (size_t) b.n_rows * (size_t) t->drafter->block.n_out, out);
    int32_t drafts[PART];
    choose(t, t->token[last], drafts, n_drafts);
    for (int32_t i = 0; i < n_drafts; i++) printf("%d%c", drafts[i], i + 1 < n_drafts ? ' ' : '\n');
}

int main(int argc, char **argv)
{
    static tool t;
    if (argc != 6 && argc != 7) return 64;
    int32_t n_drafts = atoi(argv[3]), first = atoi(argv[4]), step = atoi(argv[5]);
    while (t.n < MOST - 64 && scanf("%d", &t.token[t.n]) == 1) t.n++;
    for (int32_t i = 0; i < MOST; i++) {
        t.pos[i] = t.slot[i] = t.row[i] = i;
        t.table[i / BLOCK] = i / BLOCK;
    }
    open_model(&t, argv[1], argc > 6 ? argv[6] : NULL);
    FILE *out = fopen(argv[2], "wb");
    if (!out || t.n < 2 || step < 1) return 1;
    if (t.drafter->arch->inject) {
        run_block(&t, out, n_drafts);
        return fclose(out) != 0;
    }
    run_all(&t, out);
    int32_t last = first;
    while (last + step < t.n) last += step;
    /* descending, because each run overwrites the entries after its position */
    for (; last >= first; last -= step) run_from(&t, last, n_drafts);
    return fclose(out) != 0;
}
