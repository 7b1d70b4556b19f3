/* Instructions that move data: asynchronous copies and matrix loads.
 *
 * An asynchronous copy may land at any moment between its issue and the wait that must see it. Both ends are played: as
 * late as possible, so that a wait too few leaves old bytes, or (simt::options.eager) at once, so that a buffer still in
 * use is overwritten under its readers. */
#include "ptx.h"
#include "simt_impl.h"

namespace simt {

static void land(const async_copy &c)
{
    if (c.n) std::memcpy(c.dst, c.src, c.n);
    std::memset(c.dst + c.n, 0, c.size - c.n);
}

void cp_async(uint32_t dst, const void *src, unsigned size, unsigned n, const char *file, int line)
{
    unsigned char *d = shared_pointer(dst);
    if ((size != 4 && size != 8 && size != 16) || n > size) {
        fail(file, line, "cp.async of %u bytes, %u of them copied", size, n);
    } else if (dst % size || (n && (uintptr_t) src % size)) {
        fail(file, line, "misaligned: cp.async of %u bytes from %p to shared address %u", size, src, dst);
    } else if (n && in_device_region(src) && !in_device_memory(src, n)) {
        fail(file, line, "out of bounds: cp.async of %u bytes from %p, in no allocation", n, src);
    } else {
        shadow_access(self->lin, d, size, access::copy_issued, file, line);
        async_copy c = {d, src, size, n, current()->group};
        if (options.eager) land(c);
        current()->async.push_back(c);
    }
}

void cp_async_commit() { current()->group++; }

void cp_async_wait(unsigned n, const char *file, int line)
{
    fiber *me = current();
    size_t i = 0;
    for (; i < me->async.size() && me->async[i].group + n < me->group; i++) {
        const async_copy &c = me->async[i];
        if (!options.eager) land(c);
        shadow_access(me->lin, c.dst, c.size, access::copy_done, file, line);
    }
    me->async.erase(me->async.begin(), me->async.begin() + (ptrdiff_t) i);
}

/* ------------------------------------------------------------------------------------------------------------ ldmatrix */

struct load {
    uint32_t *r;      /* result */
    int n;            /* matrices */
    bool trans;
    uint32_t address; /* of row lane % 8 of matrix lane / 8 */
    unsigned lin;     /* thread */
};

/* Row i of matrix m, size bytes; NULL after an error. */
static const unsigned char *row(load *const *all, int m, int i, unsigned size, unsigned lin, const char *file, int line)
{
    uint32_t address = all[8 * m + i]->address;
    const unsigned char *p = shared_pointer(address);
    if (address % 16) fail(file, line, "misaligned: ldmatrix row at shared address %u", address);
    shadow_access(lin, p, size, access::read, file, line);
    return p;
}

static void do_ldmatrix(void **arg, const char *file, int line)
{
    load *const *all = reinterpret_cast<load *const *>(arg);
    for (int l = 0; l < 32; l++) {
        for (int m = 0; m < all[0]->n; m++) {
            uint16_t half[2];
            for (int i = 0; i < 2; i++) {
                int r = all[0]->trans ? 2 * (l & 3) + i : l >> 2, c = all[0]->trans ? l >> 2 : 2 * (l & 3) + i;
                std::memcpy(&half[i], row(all, m, r, 16, all[l]->lin, file, line) + 2 * c, 2);
            }
            all[l]->r[m] = half[0] | (uint32_t) half[1] << 16;
        }
    }
}

void ldmatrix(uint32_t *r, int n, bool trans, uint32_t address, const char *file, int line)
{
    load x = {r, n, trans, address, self->lin};
    warp_op(~0u, do_ldmatrix, &x, file, line);
}

static void do_ldmatrix_b4(void **arg, const char *file, int line)
{
    load *const *all = reinterpret_cast<load *const *>(arg);
    for (int l = 0; l < 32; l++) {
        for (int m = 0; m < all[0]->n; m++) {
            const unsigned char *p = row(all, m, l >> 2, 8, all[l]->lin, file, line) + 2 * (l & 3);
            all[l]->r[m] = (p[0] & 15u) | (p[0] >> 4) << 8 | (p[1] & 15u) << 16 | (uint32_t) (p[1] >> 4) << 24;
        }
    }
}

void ldmatrix_b4(uint32_t *r, int n, uint32_t address, const char *file, int line)
{
    load x = {r, n, false, address, self->lin};
    warp_op(~0u, do_ldmatrix_b4, &x, file, line);
}

} // namespace simt
