/* A fixture for the gated delta rule, Mamba-2 and Kimi delta attention: sequences with random inputs, and slots and
 * snapshots full of NaN. Its runner executes steps with drafts that are accepted or rejected. Used by test_gdn.c. */
#ifndef GDN_FIXTURE_H
#define GDN_FIXTURE_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gdn.h"
#include "base/alloc.h"

enum { GDN_SEQS = 16, GDN_SNAPS = 24, GDN_GAP = 192 };

typedef struct gdn_config {
    int isa, n_threads;
    int32_t n_k, n_v, dim, n_draft, n_conv;
    bool grouped;
    int32_t dim_v, ssd, kda; /* as in pi__state_layer */
    float min_decay;         /* as in pi__gdn */
} gdn_config;
/* Returns the values per value head. */
static inline int32_t gdn_values(const gdn_config *c) { return c->dim_v ? c->dim_v : c->dim; }
/* Return the values of alpha, and of alpha and beta, per token. */
static inline size_t gdn_alphas(const gdn_config *c) { return (size_t) (c->n_v * (c->kda ? c->dim : 1)); }
static inline size_t gdn_ab(const gdn_config *c) { return gdn_alphas(c) + (size_t) c->n_v; }

typedef struct gdn_sequence {
    int len, done, slot;        /* length; tokens already in the state; state slot */
    float *qkv, *z, *ab, *out;  /* inputs and outputs, `len` rows each */
} gdn_sequence;

/* Tokens of one sequence in a step: its next n tokens, the `right` following ones as drafts, then `wrong` wrong
 * drafts. */
typedef struct gdn_turn {
    int n, right, wrong;
    int n_save;
    pi__save save[GDN_SNAPS];
} gdn_turn;

typedef struct gdn_fixture {
    gdn_config c;
    pi__cpu cpu;
    pi__state_layer st;
    size_t channels, slots_size, snaps_size;
    float *conv, *dt, *a, *norm;
    float *bias, *skip; /* with ssd */
    gdn_sequence seq[GDN_SEQS];
    int n_seqs;
    double seconds; /* duration of the last step's op */
    double (*clock)(void); /* NULL = steps are not timed */
} gdn_fixture;

static uint64_t gdn_rng = 1;

static double gdn_uniform(void)
{
    gdn_rng = gdn_rng * 6364136223846793005u + 1442695040888963407u;
    return (double) (gdn_rng >> 11) / 9007199254740992.0;
}

static float gdn_normal(void)
{
    double s = gdn_uniform() + gdn_uniform() + gdn_uniform();
    return (float) (2 * s - 3);
}

static void *gdn_must(void *p)
{
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

static float *gdn_floats(size_t n) { return gdn_must(malloc(n * sizeof(float))); }

static void *gdn_nans(size_t size)
{
    void *p = gdn_must(aligned_alloc(64, (size + 63) & ~(size_t) 63));
    memset(p, 0xff, size);
    return p;
}

/* Writes one token's inputs. Inputs of a wrong draft are out of range, and some are NaN. */
static void gdn_token(const gdn_fixture *w, float *qkv, float *z, float *ab, bool wrong)
{
    size_t nv = (size_t) w->c.n_v;
    for (size_t i = 0; i < w->channels; i++) qkv[i] = wrong ? 50 * gdn_normal() : gdn_normal();
    for (size_t i = 0; i < nv * (size_t) gdn_values(&w->c); i++) z[i] = gdn_normal();
    for (size_t i = 0; i < gdn_ab(&w->c); i++) ab[i] = 2 * gdn_normal();
    if (!wrong || gdn_uniform() < 0.7) return;
    qkv[(size_t) (gdn_uniform() * (double) w->channels)] = gdn_uniform() < 0.5 ? NAN : INFINITY;
}

/* Creates weights, and inputs of sequence i that depend only on shape and i. */
static void gdn_init(gdn_fixture *w, const gdn_config *c, int n_seqs, const int *lens)
{
    memset(w, 0, sizeof *w);
    w->c = *c;
    w->n_seqs = n_seqs;
    w->cpu.isa = c->isa;
    w->cpu.gdn = pi__cpu_gdn_kernels_of(c->isa);
    if (pi__pool_create(&w->cpu.pool, c->n_threads, 0, 50, NULL)) gdn_must(NULL);
    w->st = (pi__state_layer){.n_k = c->n_k, .n_v = c->n_v, .dim = c->dim, .n_conv = c->n_conv, .n_draft = c->n_draft,
                               .dim_v = c->dim_v, .ssd = c->ssd, .kda = c->kda};
    size_t dim = (size_t) gdn_values(c), nv = (size_t) c->n_v, channels = (size_t) pi__state_channels(&w->st);
    const size_t n_norm = c->ssd ? nv * dim : dim;
    w->channels = channels;
    w->st.stride = pi__cpu_state_bytes(NULL, &w->st) + GDN_GAP;
    w->st.snap_stride = pi__cpu_snapshot_bytes(NULL, &w->st) + GDN_GAP;
    w->slots_size = w->st.stride * (GDN_SEQS + 1);
    w->snaps_size = w->st.snap_stride * GDN_SNAPS;
    w->st.base = gdn_nans(w->slots_size);
    w->st.snap = gdn_nans(w->snaps_size);
    gdn_rng = 77 + (uint64_t) c->dim;
    w->conv = gdn_floats(channels * (size_t) c->n_conv);
    w->dt = gdn_floats(gdn_alphas(c));
    w->a = gdn_floats(nv);
    w->norm = gdn_floats(n_norm);
    for (size_t i = 0; i < channels * (size_t) c->n_conv; i++) w->conv[i] = 0.7f * gdn_normal();
    for (size_t i = 0; i < nv; i++) w->dt[i] = gdn_normal() - 2, w->a[i] = -(float) exp(2 * gdn_normal() - 1);
    for (size_t i = 0; i < gdn_alphas(c) && c->kda; i++) w->dt[i] = gdn_normal() - 2;
    for (size_t i = 0; i < nv && c->min_decay < 0; i++) w->a[i] = -w->a[i];
    for (size_t i = 0; i < n_norm; i++) w->norm[i] = 1 + 0.2f * gdn_normal();
    w->bias = c->ssd ? gdn_floats(channels) : NULL;
    w->skip = c->ssd ? gdn_floats(nv) : NULL;
    for (size_t i = 0; c->ssd && i < channels; i++) w->bias[i] = 0.3f * gdn_normal();
    for (size_t i = 0; c->ssd && i < nv; i++) w->skip[i] = gdn_normal();
    int most = 1;
    for (int i = 0; i < n_seqs; i++) {
        gdn_sequence *s = &w->seq[i];
        size_t n = (size_t) lens[i];
        s->len = lens[i];
        s->slot = (i * 5 + 3) % GDN_SEQS;
        s->qkv = gdn_floats(n * channels);
        s->z = gdn_floats(n * nv * dim);
        s->ab = gdn_floats(n * gdn_ab(c));
        s->out = gdn_floats(n * nv * dim);
        memset(s->out, 0xff, n * nv * dim * 4);
        gdn_rng = 1000 + (uint64_t) i;
        for (size_t t = 0; t < n; t++)
            gdn_token(w, s->qkv + t * channels, s->z + t * nv * dim, s->ab + t * gdn_ab(c), false);
        most += s->len + c->n_draft;
    }
    pi__limits lim = {.max_tokens = most, .max_seqs = GDN_SEQS, .state = w->st};
    w->cpu.scratch_size = pi__cpu_gdn_scratch(&w->cpu, &lim);
    w->cpu.scratch = gdn_nans(w->cpu.scratch_size);
}

static void gdn_free(gdn_fixture *w)
{
    for (int i = 0; i < w->n_seqs; i++) {
        gdn_sequence *s = &w->seq[i];
        free(s->qkv);
        free(s->z);
        free(s->ab);
        free(s->out);
    }
    free(w->st.base);
    free(w->st.snap);
    free(w->conv);
    free(w->dt);
    free(w->a);
    free(w->norm);
    free(w->bias);
    free(w->skip);
    free(w->cpu.scratch);
    pi__pool_destroy(w->cpu.pool);
}

/* Arrays of one step. */
typedef struct gdn_room {
    float *qkv, *z, *ab, *out;
    int32_t *pos;
} gdn_room;

static gdn_room gdn_take(const gdn_fixture *w, size_t n)
{
    size_t vd = (size_t) w->c.n_v * (size_t) gdn_values(&w->c);
    gdn_room r = {gdn_floats(n * w->channels), gdn_floats(n * vd), gdn_floats(n * gdn_ab(&w->c)),
                  gdn_floats(n * vd), gdn_must(malloc(n * sizeof(int32_t)))};
    return r;
}

static void gdn_drop(gdn_room *r)
{
    free(r->qkv);
    free(r->z);
    free(r->ab);
    free(r->out);
    free(r->pos);
}

static void gdn_fill(const gdn_fixture *w, const gdn_sequence *s, const gdn_turn *t, gdn_room *r, size_t at)
{
    const size_t nab = gdn_ab(&w->c), vd = (size_t) w->c.n_v * (size_t) gdn_values(&w->c);
    for (int i = 0; i < t->n + t->right + t->wrong; i++, at++) {
        size_t p = (size_t) (s->done + i);
        r->pos[at] = (int32_t) p;
        if (i >= t->n + t->right) {
            gdn_token(w, r->qkv + at * w->channels, r->z + at * vd, r->ab + at * nab, true);
            continue;
        }
        memcpy(r->qkv + at * w->channels, s->qkv + p * w->channels, w->channels * 4);
        memcpy(r->z + at * vd, s->z + p * vd, vd * 4);
        memcpy(r->ab + at * nab, s->ab + p * nab, nab * sizeof(float));
    }
}

/* Runs one step of all sequences that have tokens in `turn`; outputs of their accepted tokens go to seq[].out. */
static void gdn_step(gdn_fixture *w, const gdn_turn *turn)
{
    size_t vd = (size_t) w->c.n_v * (size_t) gdn_values(&w->c), total = 0;
    int32_t start[GDN_SEQS + 1] = {0}, verified[GDN_SEQS], slot[GDN_SEQS], save_start[GDN_SEQS + 1] = {0};
    pi__save save[GDN_SEQS * GDN_SNAPS];
    int n_seqs = 0, who[GDN_SEQS];
    for (int i = 0; i < w->n_seqs; i++) total += (size_t) (turn[i].n + turn[i].right + turn[i].wrong);
    if (!total) return;
    gdn_room r = gdn_take(w, total);
    for (int i = 0; i < w->n_seqs; i++) {
        const gdn_turn *t = &turn[i];
        int n = t->n + t->right + t->wrong;
        if (!n) continue;
        gdn_fill(w, &w->seq[i], t, &r, (size_t) start[n_seqs]);
        verified[n_seqs] = t->n;
        slot[n_seqs] = w->seq[i].slot;
        save_start[n_seqs + 1] = save_start[n_seqs] + t->n_save;
        memcpy(save + save_start[n_seqs], t->save, sizeof *save * (size_t) t->n_save);
        start[n_seqs + 1] = start[n_seqs] + n;
        who[n_seqs++] = i;
    }
    pi__batch b = {.n_tokens = (int32_t) total,
                   .n_seqs = n_seqs,
                   .pos = r.pos,
                   .seq_start = start,
                   .n_verified = verified,
                   .state_slot = slot,
                   .save_start = save_start,
                   .save = save};
    pi__gdn a = {.st = &w->st,
                 .qkv = r.qkv,
                 .ld_qkv = (int64_t) w->channels,
                 .z = r.z,
                 .ld_z = (int64_t) vd,
                 .alpha = r.ab,
                 .beta = w->c.ssd ? NULL : r.ab + gdn_alphas(&w->c),
                 .ld_ab = (int64_t) gdn_ab(&w->c),
                 .min_decay = w->c.min_decay,
                 .conv = w->conv,
                 .dt_bias = w->dt,
                 .a = w->a,
                 .conv_bias = w->bias,
                 .skip = w->skip,
                 .norm = w->norm,
                 .eps = 1e-6f,
                 .out = r.out,
                 .ldo = (int64_t) vd,
                 .grouped = w->c.grouped};
    double t0 = w->clock ? w->clock() : 0;
    pi__cpu_gdn(&w->cpu.be, &b, &a);
    w->seconds = w->clock ? w->clock() - t0 : 0;
    for (int k = 0; k < n_seqs; k++) {
        gdn_sequence *s = &w->seq[who[k]];
        size_t n = (size_t) (turn[who[k]].n + turn[who[k]].right);
        memcpy(s->out + (size_t) s->done * vd, r.out + (size_t) start[k] * vd, n * vd * 4);
        s->done += (int) n;
    }
    gdn_drop(&r);
}

#endif
