/* The draft head around its block (see nextn.h). */
#include "model/nextn.h"

void pi__nextn_declare(pi__model *m, pi__nextn *h, int32_t layer)
{
    const int64_t E = m->n_embd, V = m->n_vocab;
    pi__declare_weight(m, &h->proj, 2 * E, E, "nextn.eh_proj.weight", layer);
    pi__declare_vec(m, &h->embd_norm, E, "nextn.enorm.weight", layer);
    pi__declare_vec(m, &h->hidden_norm, E, "nextn.hnorm.weight", layer);
    pi__declare_vec_or_not(m, &h->out_norm, E, "nextn.shared_head_norm.weight", layer);
    pi__declare_weight_or_not(m, &h->tok_embd, E, V, "nextn.embed_tokens.weight", layer);
    pi__declare_weight_or_not(m, &h->output, E, V, "nextn.shared_head_head.weight", layer);
}

void pi__nextn_layout(const pi__model *m, pi__nextn *h, const pi__limits *lim, pi__arena *a)
{
    const size_t T = (size_t) lim->max_tokens, row = (size_t) m->n_embd * sizeof(float);
    h->pair = pi__arena_take(a, T * 2 * row);
    h->x = pi__arena_take(a, T * row);
    h->rows = pi__arena_take(a, (size_t) lim->max_rows * row);
}

/* out = norm of n rows of x with weight w and the head's eps; ldo: floats between rows of out. */
static void norm(pi__model *m, const pi__head *head, const float *x, const float *w, int32_t n, float *out, int64_t ldo)
{
    pi__op_norm(m->be, NULL,
                &(pi__norm) {.out = out, .ldo = ldo, .x = x, .w = w, .eps = head->eps, .n_rows = n, .n = m->n_embd});
}

void pi__nextn_input(pi__model *m, const pi__nextn *h, const pi__head *head, const pi__batch *b, const float *states,
                     bool chained, float *y)
{
    const int32_t E = m->n_embd, n = b->n_tokens;
    pi__op_embed(
        m->be, b,
        &(pi__embed) {.w = h->tok_embd.n_out ? &h->tok_embd : &head->tok_embd, .scale = head->embd_scale, .out = y});
    pi__place_images(m, b, y);
    norm(m, head, y, h->embd_norm, n, h->pair, 2 * E);
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->hidden_row, .n_rows = n, .n = E,
                                                        .x = chained ? h->rows : states, .out = chained ? y : h->x});
    if (!chained) norm(m, head, h->x, head->output_norm, n, y, E);
    norm(m, head, y, h->hidden_norm, n, h->pair + E, 2 * E);
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = h->pair, .ldx = 2 * E};
    pi__matmul(m, &in, n, &h->proj, h->x, E);
}

void pi__nextn_logits(pi__model *m, const pi__nextn *h, const pi__head *head, const float *x, int32_t n, float *out)
{
    norm(m, head, x, h->out_norm ? h->out_norm : head->output_norm, n, h->rows, m->n_embd);
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = h->rows, .ldx = m->n_embd};
    pi__matmul(m, &in, n, h->output.n_out ? &h->output : pi__head_output(head), out, m->n_vocab);
}
