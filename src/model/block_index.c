/* The lightning indexer of DeepSeek V3.2 (arXiv 2512.02556) and GLM 5 (see blocks.h):
 *
 *     key of a token       LayerNorm(k x), its first n_rot values rotated
 *     score of row s       sum over heads of w[h] * max(0, q[h] . key[s]) / sqrt(I * J)
 *
 * A token's attention reads the n_top rows with the best scores, or all rows if there are at most n_top. Scores do not
 * depend on the order of a head's values. So the rotated values are moved to the end at load, where op mla_qkv rotates
 * them. The Hadamard rotation of the models' own code does not change a dot product, and is left out. */
#include <math.h>

#include "model/blocks.h"

enum { MAX_DIM = 512 };

/* Returns the file value of value i of a head. */
static int32_t from_file(int32_t i, int32_t dim, int32_t n_rot, bool interleaved)
{
    const int32_t r = i - (dim - n_rot); /* index among the rotated values */
    if (r < 0) return n_rot + i;
    return interleaved ? r : r / 2 + r % 2 * (n_rot / 2);
}

static const int32_t *order_of(pi__model *m, int32_t n_head, int32_t dim, int32_t n_rot, bool interleaved)
{
    int32_t *row = pi__model_calloc(m, (size_t) n_head * (size_t) dim, sizeof *row, "the order of rows");
    for (int32_t i = 0; row && i < n_head * dim; i++)
        row[i] = i / dim * dim + from_file(i % dim, dim, n_rot, interleaved);
    return row;
}

void pi__index_read(pi__model *m, pi__index *a, int32_t n_rot, bool interleaved)
{
    a->n_head = pi__hp_u32(m, "attention.indexer.head_count", 1, PI__MAX_HEADS);
    a->dim = pi__hp_u32(m, "attention.indexer.key_length", 16, MAX_DIM);
    a->n_top = pi__hp_u32(m, "attention.indexer.top_k", 1, 1 << 16);
    a->eps = 1e-6f;
    if (a->dim % 16 || a->dim < n_rot)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.indexer.key_length is %d, expected a multiple of 16, at "
                         "least rope.dimension_count %d", m->arch->name, a->dim, n_rot);
    if (!pi__model_ok(m)) return;
    a->q_row = order_of(m, a->n_head, a->dim, n_rot, interleaved);
    a->k_row = order_of(m, 1, a->dim, n_rot, interleaved);
    m->lim.indexer_head = a->n_head;
    m->lim.indexer_dim = a->dim;
    m->lim.indexer_ratio = 1;
}

void pi__index_declare(pi__model *m, pi__index *a, int32_t layer, int64_t rank_q)
{
    static const pi__row_group full = {.name = "full"};
    const int64_t E = m->n_embd, J = a->dim, IJ = a->n_head * J;
    pi__declare_weight_rows(m, &a->q, rank_q, IJ, a->q_row, "indexer.attn_q_b.weight", layer);
    pi__declare_weight_rows(m, &a->k, E, J, a->k_row, "indexer.attn_k.weight", layer);
    pi__declare_weight(m, &a->w, E, a->n_head, "indexer.proj.weight", layer);
    pi__declare_vec_rows(m, &a->norm, J, a->k_row, "indexer.k_norm.weight", layer);
    pi__declare_vec_rows(m, &a->shift, J, a->k_row, "indexer.k_norm.bias", layer);
    a->rows = pi__declare_rows(m, m, layer, &full, 1, a->dim, false);
}

void pi__index_layout(pi__model *m, const pi__index *a, pi__index_work *w, pi__arena *arena, size_t n_tokens)
{
    const size_t I = (size_t) a->n_head, J = (size_t) a->dim, f = sizeof(float);
    (void) m;
    w->q = pi__arena_take(arena, n_tokens * I * J * f);
    w->k = pi__arena_take(arena, n_tokens * (I ? J : 0) * f);
    w->w = pi__arena_take(arena, n_tokens * I * f);
    w->pick = pi__arena_take(arena, n_tokens * (I ? (size_t) a->n_top : 0) * sizeof *w->pick);
}

void pi__index_select(pi__model *m, const pi__index *a, const pi__batch *b, const float *rope, int32_t n_rot)
{
    const pi__index_work *w = a->work;
    const int64_t IJ = (int64_t) a->n_head * a->dim;
    pi__op_layer_norm(m->be, NULL, &(pi__layer_norm) {.x = w->k, .w = a->norm, .shift = a->shift, .eps = a->eps,
                                                      .n_rows = b->n_tokens, .n = a->dim});
    const pi__mla_qkv prep = {.rows = &m->kv[a->rows], .q = w->q, .ldq = IJ, .n_head = a->n_head, .dim = a->dim,
                              .q_scale = 1.0f, .row = w->k, .ldr = a->dim, .eps = a->eps, .rope = rope,
                              .n_rot = n_rot};
    const pi__indexer index = {.entries = &m->kv[a->rows], .q = w->q, .ldq = IJ, .w = w->w, .ldw = a->n_head,
                               .n_head = a->n_head, .dim = a->dim, .scale = 1.0f / sqrtf((float) IJ),
                               .n_top = a->n_top, .pick = w->pick};
    pi__op_mla_qkv(m->be, b, &prep);
    pi__op_indexer(m->be, b, &index);
}
