/* Repeat, presence and frequency penalties, and the map from token to number (pi__idmap).
 *
 * pi__sampler_accept (sampler.c) updates the counts as tokens enter and leave the window. Applying penalties to a row
 * takes one step per distinct token of the window. The map's memory is allocated once, for a window of distinct
 * tokens. */
#include "base/alloc.h"
#include "sampler/sampler_impl.h"

bool pi__idmap_init(pi__idmap *m, int32_t cap)
{
    uint32_t slots = 4;
    while (slots / 2 < (uint32_t) cap) slots *= 2;
    m->entry = pi__calloc((size_t) cap, sizeof *m->entry);
    m->slot = pi__calloc(slots, sizeof *m->slot);
    m->mask = slots - 1;
    m->cap = cap;
    m->n = 0;
    if (!m->entry || !m->slot) {
        pi__idmap_free(m);
        return false;
    }
    memset(m->slot, 0xff, slots * sizeof *m->slot);
    return true;
}

void pi__idmap_free(pi__idmap *m)
{
    pi__free(m->entry);
    pi__free(m->slot);
    memset(m, 0, sizeof *m);
}

static uint32_t home(const pi__idmap *m, int32_t id)
{
    uint32_t h = (uint32_t) id * 0x9E3779B1u;
    return (h ^ h >> 15) & m->mask;
}

/* Returns the slot of id, or the empty slot where it would be inserted. */
static uint32_t find(const pi__idmap *m, int32_t id)
{
    uint32_t i = home(m, id);
    while (m->slot[i] >= 0 && m->entry[m->slot[i]].id != id) i = (i + 1) & m->mask;
    return i;
}

int32_t *pi__idmap_get(const pi__idmap *m, int32_t id)
{
    int32_t e = m->slot[find(m, id)];
    return e < 0 ? NULL : &m->entry[e].val;
}

int32_t *pi__idmap_put(pi__idmap *m, int32_t id)
{
    uint32_t i = find(m, id);
    if (m->slot[i] < 0) {
        m->entry[m->n].id = id;
        m->entry[m->n].val = 0;
        m->slot[i] = m->n++;
    }
    return &m->entry[m->slot[i]].val;
}

void pi__idmap_del(pi__idmap *m, int32_t id)
{
    uint32_t i = find(m, id);
    int32_t e = m->slot[i];
    if (e < 0) return;
    /* Move the last entry to the index of the deleted one. */
    if (e != m->n - 1) {
        m->slot[find(m, m->entry[m->n - 1].id)] = e;
        m->entry[e] = m->entry[m->n - 1];
    }
    m->n--;
    /* Move later slots of the same run back, so that no search stops early at the empty slot. */
    for (uint32_t j = (i + 1) & m->mask; m->slot[j] >= 0; j = (j + 1) & m->mask) {
        uint32_t h = home(m, m->entry[m->slot[j]].id);
        if (((j - h) & m->mask) < ((j - i) & m->mask)) continue;
        m->slot[i] = m->slot[j];
        i = j;
    }
    m->slot[i] = -1;
}

void pi__idmap_clear(pi__idmap *m)
{
    for (int32_t e = 0; e < m->n; e++) {
        /* Empty the run of slots from every token's home slot on. It may contain other tokens, but all are removed. */
        for (uint32_t i = home(m, m->entry[e].id); m->slot[i] >= 0; i = (i + 1) & m->mask) m->slot[i] = -1;
    }
    m->n = 0;
}

static float penalised(const pi__sampling *p, float x, int32_t count)
{
    /* Dividing a negative logit would make its token more likely. */
    x = x <= 0 ? x * p->repeat_penalty : x / p->repeat_penalty;
    return pi__logit_clamp(x - ((float) count * p->frequency_penalty + p->presence_penalty));
}

void pi__stage_penalties(pi__cands *v, const pi__sampler *s)
{
    const pi__idmap *m = &s->counts;
    if (!v->list) {
        for (int32_t i = 0; i < m->n; i++) {
            float *x = &v->row[m->entry[i].id];
            *x = penalised(&s->p, *x, m->entry[i].val);
        }
        return;
    }
    for (size_t i = 0; i < v->n; i++) {
        uint64_t *k = &v->w->key[i];
        int32_t *count = pi__idmap_get(m, pi__key_id(*k));
        if (count) *k = pi__logit_key(penalised(&s->p, pi__key_logit(*k), *count), pi__key_id(*k));
    }
}
