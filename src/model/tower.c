/* Opens a vision model and runs it image by image (see tower.h, tower_impl.h).
 *
 * A call of pi__tower_step computes pieces until their work exceeds a bound, so that the time of a call is bounded.
 * Each piece is a step of its own on the backend, because ops with a batch need its begin(). */
#include "model/tower.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/tower_impl.h"

static const pi__tower_kind *const kinds[] = {&pi__tower_gemma3, &pi__tower_gemma4, &pi__tower_gemma4u,
                                              &pi__tower_qwen3vl, &pi__tower_pixtral, &pi__tower_qwen25vl,
                                              &pi__tower_qwen2vl};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Rows of a piece: all ops are efficient with these, and scratch memory stays small. */
enum { MIN_PIECE = 64, PIECE = 512, DISCRETE_PIECE = 2048 };
/* Patches of the smallest piece with max_work: fewer rows read the weights too often. */
enum { LEAST_ROWS = 16 };

/* Multiply-adds per call of pi__tower_step without max_work, on the CPU and on other devices. */
#define WORK_CPU 1e10
#define WORK_DEVICE 1e12

/* ---- open */

/* Returns the kind of the file, or NULL with the error. */
static const pi__tower_kind *kind_of(const pi__gguf *g, pi_error *err)
{
    pi__str arch, name = {0};
    bool vision;
    if (pi__gguf_get_str(g, "general.architecture", &arch, err)) return NULL;
    if (!arch.p || arch.n != 4 || memcmp(arch.p, "clip", 4)) {
        pi__fail(err, PI_EINVAL, "the mmproj file has architecture \"%.*s\", expected \"clip\": give the file with "
                 "mmproj in its name", (int) (arch.n < 40 ? arch.n : 40), arch.p ? arch.p : "");
        return NULL;
    }
    if (pi__gguf_get_bool(g, "clip.has_vision_encoder", &vision, false, err)) return NULL;
    if (!vision) {
        pi__fail(err, PI_EUNSUPPORTED, "the mmproj file has no vision encoder: audio input is not supported");
        return NULL;
    }
    if (pi__gguf_get_str(g, "clip.vision.projector_type", &name, err)) return NULL;
    if (!name.n && pi__gguf_get_str(g, "clip.projector_type", &name, err)) return NULL;
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(kinds[i]->projector) == name.n && !memcmp(kinds[i]->projector, name.p, name.n)) return kinds[i];
    pi__fail(err, PI_EUNSUPPORTED, "the mmproj file has projector \"%.*s\", which is not supported: docs/MODELS.md "
             "lists the supported ones", (int) (name.n < 40 ? name.n : 40), name.p ? name.p : "");
    return NULL;
}

static void describe(pi__tower *t)
{
    pi__model *m = t->m;
    for (size_t i = 0; i < pi__gguf_n_tensors(t->g); i++) {
        const pi__tensor *w = pi__gguf_tensor_at(t->g, i);
        m->n_params += (uint64_t) w->ne[0] * (uint64_t) w->ne[1] * (uint64_t) w->ne[2] * (uint64_t) w->ne[3];
        m->file_bytes += w->size;
    }
    snprintf(m->desc, sizeof m->desc, "clip %s %.0fM", t->kind->projector, (double) m->n_params * 1e-6);
}

/* Returns the blocks of the pool: all patches of an image, or one block per window of a piece. */
static int32_t pool_blocks(const pi__tower *t)
{
    const int32_t n = t->max_patches / PI__TOWER_BLOCK + 1;
    return t->kind->window_end && n < PI__TOWER_WINDOWS ? PI__TOWER_WINDOWS : n;
}

/* Checks the sizes that the kind has read, and derives the others. */
static void check(pi__tower *t)
{
    pi__model *m = t->m;
    const int64_t most = (int64_t) t->rules.max_tokens * t->rules.merge * t->rules.merge;
    if (!pi__model_ok(m)) return;
    if (most > INT32_MAX / 4) pi__model_refuse(m, PI_EFORMAT, "metadata clip.vision: %lld patches", (long long) most);
    t->max_patches = (int32_t) most;
    t->n_out = t->text.n_embd;
    const int64_t pixels = 3 * (int64_t) t->rules.patch * t->rules.patch;
    t->stage_width = pixels > t->vit.n_embd ? pixels : t->vit.n_embd;
    pi__tower_need(t, t->n_out, 0);
    pi__pixel_values_init(&t->values, &t->rules);
    if (t->kv.stride) t->pool_bytes = (size_t) pool_blocks(t) * t->kv.stride;
}

extern const pi__arch pi__arch_clip;

int pi__tower_open(pi__tower **out, const char *path, pi__backend *be, const pi__tower_text *text,
                   const pi__tower_use *use, pi_error *err)
{
    *out = NULL;
    pi__tower *t = pi__calloc(1, sizeof *t);
    pi__model *m = pi__calloc(1, sizeof *m);
    int rc = PI_OK;
    if (!t || !m) {
        pi__free(t);
        pi__free(m);
        return pi__fail_mem(err, "the vision model");
    }
    t->m = m; /* field by field: the rules are hashed with their padding, which is zero */
    t->text = *text;
    t->wish = use->max_tokens;
    *m = (pi__model) {.arch = &pi__arch_clip, .arch_data = t, .be = be, .pooling = "", .want_digest = true};
    if ((rc = pi__gguf_open(&t->g, path, use->load_mode, err))) goto out;
    m->g = t->g;
    pi_error why = {.code = PI_EFORMAT};
    if (!(t->kind = kind_of(t->g, &why))) {
        rc = pi__fail(err, why.code, "%s", why.msg);
        goto out;
    }
    t->own = pi__model_calloc(m, 1, t->kind->size, "the vision model");
    if (pi__model_ok(m)) t->kind->declare(t);
    check(t);
    /* a tensor that nothing reads would make the rows wrong; tensors of audio encoders begin with a. and mm.a. */
    if (pi__model_ok(m)) pi__refuse_others(m, "v.", NULL);
    if (pi__model_ok(m)) pi__refuse_others(m, "mm.", "mm.a.");
    if (!pi__model_ok(m)) {
        rc = pi__fail(err, m->error.code, "%s", m->error.msg);
        goto out;
    }
    describe(t);
    *out = t;
    return PI_OK;
out:
    pi__tower_free(t);
    return rc;
}

void pi__tower_free(pi__tower *t)
{
    if (!t) return;
    pi__picture_release(t->picture);
    if (t->pool) {
        pi__backend *be = pi__backend_at(t->m->be, t->kv.placement);
        be->dev->free(be, t->pool, t->pool_bytes);
    }
    pi__model_free(t->m);
    pi__gguf_close(t->g);
    pi__free(t);
}

pi__model *pi__tower_model(pi__tower *t) { return t->m; }
const pi__image_rules *pi__tower_rules(const pi__tower *t) { return &t->rules; }
const pi__image_frame *pi__tower_frame(const pi__tower *t) { return &t->frame; }
int32_t pi__tower_width(const pi__tower *t) { return t->width; }
const pi__digest *pi__tower_digest(const pi__tower *t) { return &t->digest; }
size_t pi__tower_pool_bytes(const pi__tower *t) { return t->pool_bytes; }

/* ---- load */

size_t pi__tower_scratch(pi__tower *t, pi__limits *lim)
{
    if (lim->max_ctx < t->max_patches) lim->max_ctx = t->max_patches;
    if (t->kind->window_end && lim->max_seqs < PI__TOWER_WINDOWS) lim->max_seqs = PI__TOWER_WINDOWS;
    return pi__model_scratch(t->m, lim);
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    pi__tower *t = m->arch_data;
    const pi__vit *v = &t->vit;
    int32_t piece = m->be->discrete ? DISCRETE_PIECE : PIECE;
    if (piece > lim->max_tokens) piece = lim->max_tokens;
    if (piece < MIN_PIECE) piece = MIN_PIECE;
    t->piece = piece -= piece % (t->rules.merge * t->rules.merge);
    t->max_windows = lim->max_seqs < PI__TOWER_WINDOWS ? lim->max_seqs : PI__TOWER_WINDOWS;
    const size_t P = (size_t) piece, N = (size_t) t->max_patches, E = (size_t) v->n_embd, f = sizeof(float),
                 HD = (size_t) v->n_head * (size_t) v->dim;
    t->x = pi__arena_take(a, N * E * f);
    t->q = pi__arena_take(a, N * HD * f);
    t->rope = pi__arena_take(a, v->rope ? N * (size_t) v->d * f : 0);
    t->k = pi__arena_take(a, P * HD * f);
    t->v = pi__arena_take(a, P * HD * f);
    t->att = pi__arena_take(a, P * HD * f);
    t->h = pi__arena_take(a, P * (HD > E ? HD : E) * f);
    t->y = pi__arena_take(a, P * (size_t) t->max_y * f);
    t->ff = pi__arena_take(a, P * (size_t) t->max_ff * f);
    t->up = pi__arena_take(a, v->gated ? P * (size_t) t->max_ff * f : 0);
    t->clamped = pi__arena_take(a, v->clips ? P * (size_t) (v->n_ff > v->n_embd ? v->n_ff : v->n_embd) * f : 0);
    t->patches = pi__arena_take(a, P * 3 * (size_t) t->rules.patch * (size_t) t->rules.patch * f);
    if (t->kind->layout) t->kind->layout(t, a);
}

/* Allocates the pool and host arrays, and closes the file. */
static void loaded(pi__model *m)
{
    pi__tower *t = m->arch_data;
    const size_t P = (size_t) t->piece, n_table = (size_t) t->max_patches / PI__TOWER_BLOCK + 1;
    int32_t **const list[] = {&t->row, &t->row2, &t->zero, &t->token, &t->pos, &t->seq, &t->slot};
    pi__backend *be = pi__backend_at(m->be, t->kv.placement);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        *list[i] = pi__model_calloc(m, P, sizeof(int32_t), "arrays of patches");
    t->table = pi__model_calloc(m, n_table, sizeof *t->table, "arrays of patches");
    t->stage = pi__model_calloc(m, P * (size_t) t->stage_width, sizeof *t->stage, "pixels of patches");
    if (pi__model_ok(m) && t->pool_bytes) t->pool = be->dev->alloc(be, t->pool_bytes);
    if (pi__model_ok(m) && t->pool_bytes && !t->pool)
        pi__model_refuse(m, PI_ENOMEM, "no memory for %zu MiB of keys and values of images: lower image-max-tokens",
                         t->pool_bytes >> 20);
    if (!pi__model_ok(m)) return;
    for (size_t i = 0; i < n_table; i++) t->table[i] = (int32_t) i;
    t->kv.base = t->pool;
    t->digest = pi__hash_chain(PI__HASH_TOWER, &m->digest, &t->rules, sizeof t->rules);
    m->g = NULL;
    pi__gguf_close(t->g);
    t->g = NULL;
}

const pi__arch pi__arch_clip = {.name = "clip", .layout = layout, .loaded = loaded};

/* ---- run */

void pi__tower_cancel(pi__tower *t)
{
    pi__picture_release(t->picture);
    t->picture = NULL;
    t->phase = PI__TOWER_IDLE;
}

void pi__tower_begin(pi__tower *t, pi__picture *p)
{
    pi__picture_ref(p);
    pi__tower_cancel(t);
    t->picture = p;
    t->n_patches = p->grid.patch_cols * p->grid.patch_rows;
    t->phase = PI__TOWER_EMBED;
    t->layer = t->first = 0;
}

/* Returns a batch of n patches with n_seqs sequences, from the arrays of t. The first entries of t->zero stand for
 * states and snapshots, which a tower has not. */
static pi__batch *batch_with(pi__tower *t, int32_t n, int32_t n_seqs, pi__kv_batch kv)
{
    for (int32_t i = 0; i < n_seqs; i++) t->n_verified[i] = t->seq_start[i + 1] - t->seq_start[i];
    t->batch = (pi__batch) {.n_tokens = n, .n_seqs = n_seqs, .n_groups = 1, .token = t->token, .pos = t->pos,
                            .seq = t->seq, .seq_start = t->seq_start, .seq_len = t->seq_len,
                            .n_verified = t->n_verified, .state_slot = t->zero, .save_start = t->zero};
    t->batch.kv[0] = kv;
    return &t->batch;
}

/* Returns the batch of the patches first .. first + n - 1: one sequence, with all patches of the image as keys. */
static const pi__batch *batch_of(pi__tower *t, int32_t first, int32_t n)
{
    for (int32_t i = 0; i < n; i++) t->pos[i] = t->slot[i] = first + i, t->seq[i] = 0;
    t->seq_start[0] = 0;
    t->seq_start[1] = n;
    t->seq_len[0] = t->n_patches;
    return batch_with(t, n, 1, (pi__kv_batch) {.block_size = PI__TOWER_BLOCK,
                                               .table_stride = t->max_patches / PI__TOWER_BLOCK + 1,
                                               .block_table = t->table,
                                               .slot = t->slot});
}

/* Returns the end of the windows from patch `first` on that fit in a piece of `piece` patches, at least of one window.
 * Sets the sequences of the batch: one per window. */
static int32_t windows_from(pi__tower *t, int32_t first, int32_t piece, int32_t *n_windows)
{
    int32_t at = first, n = 0;
    while (at < t->n_patches && n < t->max_windows) {
        const int32_t end = t->kind->window_end(t, t->layer, at);
        if (n && end - first > piece) break;
        t->seq_start[n] = at - first;
        t->seq_len[n] = end - at;
        t->window[n] = n;
        for (int32_t i = at; i < end; i++) {
            t->pos[i - first] = i - at;
            t->seq[i - first] = n;
            t->slot[i - first] = n * PI__TOWER_BLOCK + i - at;
        }
        n++;
        at = end;
    }
    t->seq_start[n] = at - first;
    *n_windows = n;
    return at;
}

/* Returns the batch of the n patches from `first` on, which are whole windows. */
static const pi__batch *batch_of_windows(pi__tower *t, int32_t first, int32_t n)
{
    int32_t n_windows;
    windows_from(t, first, n, &n_windows);
    return batch_with(t, n, n_windows, (pi__kv_batch) {.block_size = PI__TOWER_BLOCK, .table_stride = 1,
                                                       .block_table = t->window, .slot = t->slot});
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const pi__vit *v = &t->vit;
    if (t->kind->angles) {
        t->kind->angles(t, first, n, t->stage);
        t->m->be->dev->upload(t->m->be, t->rope + (int64_t) first * v->d, t->stage,
                              (size_t) n * (size_t) v->d * sizeof(float));
    }
    t->kind->embed(t, first, n);
}

/* Runs the next piece: n rows, which are tokens in phase PROJECT. */
static int run_piece(pi__tower *t, int32_t n, float *rows, pi_error *err)
{
    pi__backend *be = t->m->be;
    const int32_t each = t->rules.merge * t->rules.merge;
    const pi__batch *own = t->phase == PI__TOWER_IN_WINDOWS
                               ? batch_of_windows(t, t->first, n)
                               : batch_of(t, t->first, t->phase == PI__TOWER_PROJECT ? n * each : n);
    const pi__batch *b = be->dev->begin(be, own, PI__STEP_ANY);
    switch (t->phase) {
    case PI__TOWER_EMBED: embed(t, t->first, n); break;
    case PI__TOWER_KEYS: pi__vit_keys(t, b, t->layer, t->first, n); break;
    case PI__TOWER_IN_WINDOWS:
        pi__vit_keys(t, b, t->layer, t->first, n);
        pi__vit_rest(t, b, t->layer, t->first, n);
        break;
    case PI__TOWER_REST:
        pi__vit_rest(t, b, t->layer, t->first, n);
        if (t->kind->after) t->kind->after(t, t->layer, t->first, n, rows);
        break;
    default: t->kind->project(t, t->first, n, rows); break;
    }
    return be->dev->finish(be, err);
}

/* Returns an estimate of the multiply-adds of the piece. */
static double work_of(const pi__tower *t, int32_t n)
{
    const pi__vit *v = &t->vit;
    const double E = v->n_embd, rows = n;
    const bool windows = t->phase == PI__TOWER_IN_WINDOWS;
    if (t->phase == PI__TOWER_KEYS) return rows * 3 * E * E;
    if (t->phase == PI__TOWER_REST || windows)
        return rows * ((windows ? 4 : 1) * E * E + (v->gated ? 3 : 2) * E * v->n_ff +
                       2.0 * (windows ? PI__TOWER_BLOCK : t->n_patches) * v->n_head * v->dim +
                       v->layer[t->layer].after_work / (t->rules.merge * t->rules.merge));
    if (t->phase == PI__TOWER_PROJECT) return rows * (t->project_work > 0 ? t->project_work : E * t->n_out);
    return rows * E * 3 * t->rules.patch * t->rules.patch;
}

/* Returns the phase in which layer t->layer begins. */
static int32_t first_phase(const pi__tower *t)
{
    if (t->layer == t->vit.n_layer) return PI__TOWER_PROJECT;
    return t->kind->window_end && t->kind->window_end(t, t->layer, 0) ? PI__TOWER_IN_WINDOWS : PI__TOWER_KEYS;
}

/* Advances to the next piece of the image. */
static void advance(pi__tower *t, int32_t n, int32_t all)
{
    t->first += n;
    if (t->first < all) return;
    t->first = 0;
    if (t->phase == PI__TOWER_EMBED) t->phase = first_phase(t);
    else if (t->phase == PI__TOWER_KEYS) t->phase = PI__TOWER_REST;
    else if (t->phase != PI__TOWER_PROJECT) t->layer++, t->phase = first_phase(t);
    else t->phase = PI__TOWER_IDLE;
}

/* Returns the number of rows of the next piece, of `all` rows in this phase. most: multiply-adds; 0 = no limit. */
static int32_t next_piece(pi__tower *t, int32_t all, double most)
{
    const int32_t each = t->rules.merge * t->rules.merge, left = all - t->first;
    const bool tokens = t->phase == PI__TOWER_PROJECT;
    int32_t piece = tokens ? t->piece / each : t->piece, n_windows;
    if (most > 0) {
        const double rows = most / work_of(t, 1);
        const int32_t least = tokens ? 1 : (LEAST_ROWS + each - 1) / each * each;
        if (rows < piece) piece = rows < least ? least : tokens ? (int32_t) rows : (int32_t) rows / each * each;
    }
    if (t->phase == PI__TOWER_IN_WINDOWS) return windows_from(t, t->first, piece, &n_windows) - t->first;
    return left < piece ? left : piece;
}

int pi__tower_step(pi__tower *t, float *rows, pi__image_part *p, pi_error *err)
{
    const double most = p->max_work > 0 ? p->max_work : t->m->be->discrete ? WORK_DEVICE : WORK_CPU;
    const int32_t each = t->rules.merge * t->rules.merge;
    p->work = 0;
    p->done = false;
    while (t->phase != PI__TOWER_IDLE && p->work < most) {
        const int32_t all = t->phase == PI__TOWER_PROJECT ? t->n_patches / each : t->n_patches;
        const int32_t n = next_piece(t, all, p->max_work > 0 ? most - p->work : 0);
        const double work = work_of(t, n);
        if (p->max_work > 0 && p->work > 0 && p->work + work > most) break;
        const int rc = run_piece(t, n, rows, err);
        if (rc) {
            pi__tower_cancel(t);
            return rc;
        }
        p->work += work;
        advance(t, n, all);
    }
    if (t->phase != PI__TOWER_IDLE) return PI_OK;
    p->done = true;
    pi__tower_cancel(t);
    return PI_OK;
}
