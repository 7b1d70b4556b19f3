/* The index of the disk tier (see tier_impl.h): a hash table of entries and two lists through them.
 *
 *   LRU     every entry, most recently used first; eviction starts at the tail.
 *   DIRTY   entries with a time of last use that is not yet written to their file, and cleared
 *           entries with a file to remove.
 *
 * Memory: arrays of the tier. The caller holds the tier's lock. */
#include <string.h>

#include "base/clock.h"
#include "cache/tier_impl.h"

static void list_remove(pi__tier_index *x, int which, int32_t slot)
{
    int32_t prev = x->entry[slot].link[which].prev, next = x->entry[slot].link[which].next;
    if (prev) x->entry[prev].link[which].next = next;
    else x->list[which].head = next;
    if (next) x->entry[next].link[which].prev = prev;
    else x->list[which].tail = prev;
}

static void list_push(pi__tier_index *x, int which, int32_t slot)
{
    int32_t head = x->list[which].head;
    x->entry[slot].link[which].prev = 0;
    x->entry[slot].link[which].next = head;
    if (head) x->entry[head].link[which].prev = slot;
    else x->list[which].tail = slot;
    x->list[which].head = slot;
}

/* Returns the hash bucket of an entry. The digest is uniformly distributed, so its first word is used without
 * mixing. */
static int32_t *bucket_of(const pi__tier_index *x, const pi__digest *hash, int32_t group)
{
    return &x->bucket[(pi__digest_word(hash) + (uint32_t) group * 0x9E3779B9u) & (x->n_buckets - 1)];
}

int32_t pi__tier_find(const pi__tier_index *x, const pi__digest *hash, int32_t group)
{
    for (int32_t i = *bucket_of(x, hash, group); i; i = x->entry[i].chain) {
        const pi__tier_entry *e = &x->entry[i];
        if (pi__digest_equal(&e->name.hash, hash) && e->name.group == group && e->space == 0) return i;
    }
    return 0;
}

int32_t pi__tier_add(pi__tier_index *x, int32_t space, const pi__tier_name *name, uint32_t pages, int64_t used)
{
    int32_t slot = x->free;
    if (slot) x->free = x->entry[slot].chain;
    else if (x->n_touched < x->capacity) slot = ++x->n_touched;
    else return 0;
    int32_t *at = bucket_of(x, &name->hash, name->group);
    x->entry[slot] = (pi__tier_entry) {.name = *name, .used = used, .space = space, .pages = pages, .chain = *at};
    *at = slot;
    list_push(x, PI__TIER_LRU, slot);
    x->n_entries++;
    x->n_own += space == 0;
    x->n_pages += pages;
    return slot;
}

/* Removes the entry from the hash table, so that pi__tier_find no longer returns it. */
static void hide(pi__tier_index *x, int32_t slot)
{
    const pi__tier_entry *e = &x->entry[slot];
    int32_t *at = bucket_of(x, &e->name.hash, e->name.group);
    while (*at != slot) at = &x->entry[*at].chain;
    *at = e->chain;
    x->n_own -= e->space == 0;
}

void pi__tier_erase(pi__tier_index *x, int32_t slot)
{
    pi__tier_entry *e = &x->entry[slot];
    pi__tier_set_dirty(x, slot, false);
    list_remove(x, PI__TIER_LRU, slot);
    if (e->cleared) x->n_cleared--;
    else hide(x, slot);
    x->n_entries--;
    x->n_pages -= e->pages;
    e->chain = x->free;
    x->free = slot;
}

void pi__tier_set_dirty(pi__tier_index *x, int32_t slot, bool dirty)
{
    if (x->entry[slot].dirty == dirty) return;
    x->entry[slot].dirty = dirty;
    if (dirty) list_push(x, PI__TIER_DIRTY, slot);
    else list_remove(x, PI__TIER_DIRTY, slot);
}

void pi__tier_mark_cleared(pi__tier_index *x, int32_t slot)
{
    if (x->entry[slot].cleared) return;
    hide(x, slot);
    x->entry[slot].cleared = true;
    x->n_cleared++;
    if (!x->entry[slot].staged) pi__tier_set_dirty(x, slot, true);
}

int64_t pi__tier_tick(pi__tier_index *x)
{
    int64_t now = pi__wall_ns();
    x->clock = now > x->clock ? now : x->clock + 1;
    return x->clock;
}

void pi__tier_used(pi__tier_index *x, int32_t slot, int64_t used)
{
    list_remove(x, PI__TIER_LRU, slot);
    list_push(x, PI__TIER_LRU, slot);
    x->entry[slot].used = used;
}

void pi__tier_use(pi__tier_index *x, int32_t slot)
{
    pi__tier_used(x, slot, pi__tier_tick(x));
    if (!x->entry[slot].staged) pi__tier_set_dirty(x, slot, true);
}
