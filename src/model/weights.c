/* Memory layout of a model's tensors: one region of weights for each placement (see model.h).
 *
 * On a backend without pages, a region is one allocation with consecutive tensors. On a backend with pages, it is an
 * arena: a tensor of at least a page has its own pages, and the smaller tensors follow in shared pages:
 *
 *     [matrix ......|--][matrix ..|---][matrix .........|-][norm, norm, scale, small matrix, norm, ...|--]
 *     own pages, each mapped by itself                      shared pages, mapped as one
 *
 * A stack of experts in host memory has pages of host memory, and then pages of device memory for copies of some
 * experts (pi__weight.n_slot).
 *
 * So a large tensor can be mapped, unmapped and moved on its own. The cost is the unused end of each tensor's last
 * page: half a page on average. With 2 MiB pages and eight matrices a layer, that is 8 MiB a layer. Small tensors
 * share pages and do not add to it.
 *
 * If processes share weights (weights_image.h), a device's region is mapped as one.
 *
 * Memory: owned by the backends. Invariant: the sum of the declared tensors' bytes equals the allocated bytes. */
#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"
#include "model/model.h"

static size_t align64(size_t n) { return (n + 63) & ~(size_t) 63; }

/* Returns n rounded up to whole pages. n and page are at most SIZE_MAX / 2; page 0 = no rounding. */
static size_t in_pages(size_t n, size_t page) { return page ? (n + page - 1) & ~(page - 1) : n; }

int pi__weights_want(pi__model *m, pi__declared *w, pi_error *err)
{
    pi__region *r = &m->weights[w->placement];
    r->page = pi__backend_at(m->be, w->placement)->page;
    const bool fits = w->size <= SIZE_MAX / 8 && w->slots <= SIZE_MAX / 8;
    w->own = r->page && (w->slots || w->size >= r->page);
    size_t *end = w->own ? &r->own : &r->shared;
    w->at = *end;
    const size_t n = fits ? w->own ? in_pages(w->size, r->page) + in_pages(w->slots, r->page) : align64(w->size) : 0;
    if (w->slots && fits) r->host += in_pages(w->size, r->page);
    if (!fits || !pi__add_ok(*end, n, end) || *end > SIZE_MAX / 4)
        return pi__fail(err, PI_EFORMAT, "the tensors are larger than the address space");
    m->weights_size[w->placement] = r->own - r->host + in_pages(r->shared, r->page);
    return PI_OK;
}

static int no_memory(const pi__model *m, int32_t place, pi_error *err)
{
    const pi__backend *be = pi__backend_at(m->be, place);
    return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of weights on %s%s", m->weights_size[place] >> 20,
                    be->dev->describe(be), be->discrete ? ": lower gpu-layers, or give cpu-moe" : "");
}

/* Returns the bytes of the arena for a region; in an image, the mark is included. */
static size_t arena_bytes(const pi__model *m, int32_t place)
{
    const pi__region *r = &m->weights[place];
    return r->part == PI__PART_DEVICE ? pi__weights_image_bytes(m, place) : m->weights_size[place] + r->host;
}

/* Reserves the region's addresses, then maps memory for the parts that need it now. */
static int alloc_region(pi__model *m, int32_t place, pi_error *err)
{
    pi__region *r = &m->weights[place];
    pi__backend *be = pi__backend_at(m->be, place);
    const size_t size = m->weights_size[place], shared = in_pages(r->shared, r->page);
    if (!size) return PI_OK;
    r->part = pi__weights_image_part(m, place);
    if (r->part != PI__PART_NONE && r->host)
        return pi__fail(err, PI_EUNSUPPORTED, "expert-cache: experts in host memory cannot be shared: leave out "
                        "expert-cache, or weights-from and weights-cache");
    r->base = r->part == PI__PART_HOST ? pi__weights_image_at(m, place) :
              r->page ? be->opt->arena_alloc(be, arena_bytes(m, place)) :
              be->opt && be->opt->weights_alloc ? be->opt->weights_alloc(be, size) : be->dev->alloc(be, size);
    if (r->base && r->part == PI__PART_DEVICE) {
        const int rc = pi__weights_image_map(m, place, r->base, err);
        r->mapped = !rc;
        return rc;
    }
    if (r->base && r->page && shared) r->mapped = be->opt->arena_map(be, r->base + r->own, shared);
    return r->base && (r->mapped || !r->page || !shared) ? PI_OK : no_memory(m, place, err);
}

/* Maps the pages of a tensor: device memory, or host memory and then device memory. */
static bool map_tensor(pi__model *m, const pi__declared *w)
{
    pi__backend *be = pi__backend_at(m->be, w->placement);
    char *at = pi__weights_at(m, w);
    const size_t size = in_pages(w->size, be->page);
    if (!w->slots) return be->opt->arena_map(be, at, size);
    if (!be->opt->arena_map_host(be, at, size)) return false;
    if (be->opt->arena_map(be, at + size, in_pages(w->slots, be->page))) return true;
    be->opt->arena_unmap(be, at, size);
    return false;
}

static void unmap_tensor(pi__model *m, const pi__declared *w)
{
    pi__backend *be = pi__backend_at(m->be, w->placement);
    char *at = pi__weights_at(m, w);
    const size_t size = in_pages(w->size, be->page);
    be->opt->arena_unmap(be, at, size);
    if (w->slots) be->opt->arena_unmap(be, at + size, in_pages(w->slots, be->page));
}

int pi__weights_alloc(pi__model *m, pi_error *err)
{
    int rc = pi__weights_image_open(m, err);
    for (int32_t i = 0; i < PI__N_REGIONS && !rc; i++) rc = alloc_region(m, i, err);
    for (size_t i = 0; i < m->n_want && !rc; i++) {
        pi__declared *w = &m->want[i];
        if (!w->own || m->weights[w->placement].part == PI__PART_DEVICE) continue;
        w->mapped = map_tensor(m, w);
        if (!w->mapped) rc = no_memory(m, w->placement, err);
    }
    return rc;
}

int pi__weights_lock(const pi__model *m, size_t *left)
{
    int error = 0;
    *left = 0;
    for (int32_t i = 0; i < PI__N_REGIONS; i++) {
        const pi__region *r = &m->weights[i];
        if (!r->base || r->page || pi__backend_at(m->be, i)->discrete || !mlock(r->base, m->weights_size[i])) continue;
        error = errno;
        *left += m->weights_size[i];
    }
    return error;
}

char *pi__weights_at(const pi__model *m, const pi__declared *w)
{
    const pi__region *r = &m->weights[w->placement];
    if (w->first) return pi__weights_at(m, &m->want[w->first - 1]) + w->part;
    return w->size ? r->base + (w->own ? 0 : r->own) + w->at : NULL;
}

void pi__weights_free(pi__model *m)
{
    for (size_t i = 0; i < m->n_want; i++) {
        pi__declared *w = &m->want[i];
        if (w->mapped) unmap_tensor(m, w);
        w->mapped = false;
    }
    for (int32_t i = 0; i < PI__N_REGIONS; i++) {
        pi__region *r = &m->weights[i];
        pi__backend *be = pi__backend_at(m->be, i);
        const bool one = r->part == PI__PART_DEVICE;
        if (r->mapped && one) be->opt->arena_unmap(be, r->base, arena_bytes(m, i));
        else if (r->mapped) be->opt->arena_unmap(be, r->base + r->own, in_pages(r->shared, r->page));
        if (r->base && r->page) be->opt->arena_free(be, r->base, arena_bytes(m, i));
        else if (r->base && r->part != PI__PART_HOST) be->dev->free(be, r->base, m->weights_size[i]);
        r->base = NULL;
        r->mapped = false;
    }
    pi__weights_image_close(m);
}
