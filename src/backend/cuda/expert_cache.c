/* Copies of experts in device memory (kernels/expert_cache_kernels.cuh). The step thread; slots_bytes: the opening
 * thread. Memory: the second part of each stack of experts in host memory (pi__weight.n_slot):
 *
 *     host memory            device memory
 *     [e0][e1][e2]...[--]    [slot 0][slot 1]...[moved][state]
 *     whole pages            whole pages
 *
 * Each stack has its own table `moved`. The state of the slots belongs to the layer, and is in the stack of gate. */
#include "backend/cuda/impl.h"

/* Byte offsets in the second part, from its start. */
typedef struct slots_layout {
    size_t moved;          /* uint64_t [n_mat] */
    size_t owner, used;    /* int32_t [n_slot], uint32_t [n_slot] */
    size_t missing;        /* int32_t [1 + 2 n_slot] */
    size_t counts, step;   /* uint64_t [2], uint32_t */
    size_t end;
} slots_layout;

static slots_layout layout(const pi__weight *w, size_t mat_bytes)
{
    const size_t n = (size_t) w->n_slot;
    size_t at = n * mat_bytes;
    slots_layout l;
    l.moved = pi__cuda_take(&at, (size_t) w->n_mat * sizeof(uint64_t));
    l.owner = pi__cuda_take(&at, n * sizeof(int32_t));
    l.used = pi__cuda_take(&at, n * sizeof(uint32_t));
    l.missing = pi__cuda_take(&at, (1 + 2 * n) * sizeof(int32_t));
    l.counts = pi__cuda_take(&at, 2 * sizeof(uint64_t));
    l.step = pi__cuda_take(&at, sizeof(uint32_t));
    l.end = at;
    return l;
}

size_t pi__cuda_slots_bytes(const pi__backend *be, const pi__weight *w)
{
    const pi__cuda *c = (const pi__cuda *) be;
    pi__cuda_shape s;
    if (!c->info.maps_host || c->info.integrated || !pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s)) return 0;
    if (s.mat_bytes % 16 || (size_t) w->n_slot > SIZE_MAX / 4 / s.mat_bytes) return 0;
    return layout(w, s.mat_bytes).end;
}

/* Returns the start of the second part. */
static char *slots_of(const pi__cuda *c, const pi__weight *w)
{
    const size_t page = c->be.page;
    return (char *) w->data + ((w->size + page - 1) & ~(page - 1));
}

const uint64_t *pi__cuda_moved(const pi__cuda *c, const pi__weight *w)
{
    pi__cuda_shape s;
    if (!w->n_slot || !pi__cuda_shape_of(w->type, w->n_in, w->n_out, &s)) return NULL;
    return (const uint64_t *) (void *) (slots_of(c, w) + layout(w, s.mat_bytes).moved);
}

void pi__cuda_keep_experts(pi__cuda *c, const pi__moe *a, const pi__k_routes *r)
{
    const pi__weight *const all[] = {a->gate, a->up, a->down};
    const pi__weight *first = a->gate;
    pi__cuda_shape s;
    /* Prompts use most experts: their copies would displace those of other requests, and be read only once. */
    if (!first->n_slot || a->n_rows > PI__K_TAIL_ROWS) return;
    pi__cuda_shape_of(first->type, first->n_in, first->n_out, &s);
    char *at = slots_of(c, first);
    const slots_layout l = layout(first, s.mat_bytes);
    pi__k_expert_cache k = {.n_expert = a->n_expert, .n_slot = first->n_slot, .n_tile = r->n_tile,
                            .owner = (int32_t *) (void *) (at + l.owner), .used = (uint32_t *) (void *) (at + l.used),
                            .step = (uint32_t *) (void *) (at + l.step),
                            .missing = (int32_t *) (void *) (at + l.missing),
                            .counts = (uint64_t *) (void *) (at + l.counts), .n_sm = c->info.n_sm};
    for (int i = 0; i < 3; i++) k.tile[i] = r->tile[i];
    for (int i = 0; i < 3; i++) {
        if (!all[i]) continue;
        pi__cuda_shape_of(all[i]->type, all[i]->n_in, all[i]->n_out, &s);
        k.stack[k.n_stack++] = (pi__k_expert_stack) {
            .data = all[i]->data, .slots = (uint8_t *) slots_of(c, all[i]),
            .moved = (uint64_t *) (void *) (slots_of(c, all[i]) + layout(all[i], s.mat_bytes).moved),
            .bytes = s.mat_bytes};
    }
    PI__QUEUE(c, pi__k_keep_experts(pi__rt_stream(c->rt), &k));
}
