/* Instructions that move data: asynchronous copies, bulk copies with the mbarriers that count them, and matrix loads.
 *
 * An asynchronous copy may complete at any moment between its issue and the wait for it. The emulator runs both
 * extremes. A copy as late as possible shows old bytes if a wait is missing. An immediate copy (simt::options.eager)
 * overwrites a buffer that is still in use. */
#include "ptx.h"

#include <algorithm>

#include "counters.h"
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
        if (counting()) count_copy(self->lin, dst, src, size, n, SIMT_CODE);
        between_access(src, n, access::read, SIMT_CODE, file, line);
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

/* --------------------------------------------------------------------------------------- mbarriers and bulk copies */

struct mbarrier {
    uint32_t at;             /* shared address */
    unsigned owner;          /* thread that initialized it */
    bool fenced;             /* visible to bulk copies */
    unsigned count, pending; /* arrivals per phase; arrivals still missing in this phase */
    int64_t tx;              /* bytes expected minus bytes arrived, in this phase */
    uint64_t phase;          /* number of completed phases */
    uint64_t arrived[32];    /* by warp: time of its last arrival */
    uint64_t ended[32];      /* `arrived` at the end of the last phase */
    std::vector<size_t> coming, landed; /* its copies: in flight; complete, but not yet seen by a thread */
};
struct transfer {
    async_copy c;    /* group is unused */
    size_t barrier;  /* index of its mbarrier */
    uint64_t phase;  /* phase in which it completed */
    uint32_t seen;   /* 1 + the block's barrier count when a thread first saw it complete; 0 = not seen */
    uint64_t read[32]; /* by warp: time of its last read of the copied data */
};
struct bulk_state { /* per block */
    std::vector<mbarrier> barriers;
    std::vector<transfer> transfers;
    uint64_t time; /* arrivals so far */
};
static bulk_state bulk_states[MOST_PLACES], *bulk = bulk_states;
static const uint64_t magic = UINT64_C(0x6d62617272696572);
enum : int64_t { MOST_TX = (1 << 20) - 1 };

void bulk_select(unsigned resident) { bulk = &bulk_states[resident]; }

void bulk_begin()
{
    bulk->barriers.clear();
    bulk->transfers.clear();
    bulk->time = 1;
}

void bulk_end()
{
    for (const transfer &t : bulk->transfers) {
        if (!t.seen) fail(nullptr, 0, "a bulk copy of %u bytes is under way when its block ends", t.c.size);
    }
}

bool bulk_visible(unsigned lin, size_t copy, uint32_t block_epoch)
{
    const transfer &t = bulk->transfers[copy];
    const std::vector<uint64_t> &seen = thread_of(lin)->seen;
    return (t.barrier < seen.size() && seen[t.barrier] > t.phase) || (t.seen && t.seen <= block_epoch);
}

uint64_t bulk_time() { return bulk->time; }
bool bulk_knows(unsigned lin, unsigned warp, uint64_t time)
{
    const std::vector<uint64_t> &knows = thread_of(lin)->knows;
    return !knows.empty() && knows[warp] > time;
}

/* The data of a copy may be overwritten once every reader has arrived at an mbarrier that the writer waited for.
 * There must be at least one reader. */
void bulk_read(unsigned lin, size_t copy) { bulk->transfers[copy].read[lin / 32] = bulk->time; }
bool bulk_let_go(unsigned lin, size_t copy)
{
    bool any = false;
    for (unsigned w = 0; w < 32; w++) {
        const uint64_t read = bulk->transfers[copy].read[w];
        if (read && !bulk_knows(lin, w, read)) return false;
        any |= read != 0;
    }
    return any;
}

/* Index of the mbarrier at an address. After an error, which ends the block, returns 0. */
static size_t find(uint32_t at, const char *file, int line)
{
    size_t i = 0;
    uint64_t word;
    while (i < bulk->barriers.size() && bulk->barriers[i].at != at) i++;
    if (i == bulk->barriers.size()) {
        fail(file, line, "no mbarrier at shared address %u", at);
        return 0;
    }
    shadow_access(self->lin, shared_pointer(at), 8, access::atomic, file, line);
    std::memcpy(&word, shared_pointer(at), 8);
    if (word != magic) fail(file, line, "the mbarrier at shared address %u was overwritten", at);
    return i;
}

void mbarrier_init(uint32_t at, unsigned count, const char *file, int line)
{
    if (at % 8) fail(file, line, "misaligned: mbarrier at shared address %u", at);
    if (!count || count >= 1 << 20) fail(file, line, "an mbarrier of %u arrivals", count);
    shadow_access(self->lin, shared_pointer(at), 8, access::write, file, line);
    std::memcpy(shared_pointer(at), &magic, 8);
    bulk->barriers.push_back({at, self->lin, false, count, count, 0, 0, {}, {}, {}, {}});
}

void fence_async()
{
    current()->async_fences++;
    for (mbarrier &b : bulk->barriers) b.fenced |= b.owner == self->lin;
}

static void end_phase(size_t i)
{
    mbarrier &b = bulk->barriers[i];
    if (b.pending || b.tx) return;
    b.phase++;
    b.pending = b.count;
    std::copy(b.arrived, b.arrived + 32, b.ended);
    for (unsigned l = 0; l < block_threads(); l++) {
        fiber *f = thread_of(l);
        if (f->st == state::at_mbarrier && f->waits_for == i) f->st = state::runs;
    }
}

static void count_bytes(size_t i, int64_t n, const char *file, int line)
{
    mbarrier &b = bulk->barriers[i];
    b.tx += n;
    if (b.tx > MOST_TX || b.tx < -MOST_TX) fail(file, line, "an mbarrier cannot count %lld bytes", (long long) b.tx);
}

static void bring(size_t k, const char *file, int line)
{
    transfer &t = bulk->transfers[k];
    land(t.c);
    shadow_arrival(t.c.dst, t.c.size, k);
    t.phase = bulk->barriers[t.barrier].phase;
    bulk->barriers[t.barrier].landed.push_back(k);
    count_bytes(t.barrier, -(int64_t) t.c.size, file, line);
}

/* Performs late copies: a thread waits and only they are missing. */
static void bring_all(size_t i, const char *file, int line)
{
    std::vector<size_t> &coming = bulk->barriers[i].coming;
    if (bulk->barriers[i].pending) return;
    for (; !coming.empty(); coming.pop_back()) bring(coming.back(), file, line);
    end_phase(i);
}

static bool awaited(size_t i)
{
    for (unsigned l = 0; l < block_threads(); l++) {
        if (thread_of(l)->st == state::at_mbarrier && thread_of(l)->waits_for == i) return true;
    }
    return false;
}

void mbarrier_arrive_expect(uint32_t at, unsigned bytes, const char *file, int line)
{
    size_t i = find(at, file, line);
    if (!bulk->barriers[i].pending)
        fail(file, line, "phase overflow: more arrivals than the mbarrier's %u", bulk->barriers[i].count);
    count_bytes(i, bytes, file, line);
    bulk->barriers[i].pending--;
    bulk->barriers[i].arrived[self->lin / 32] = ++bulk->time;
    end_phase(i);
    if (awaited(i)) bring_all(i, file, line);
}

void bulk_copy(uint32_t dst, const void *src, unsigned size, uint32_t at, const char *file, int line)
{
    size_t i = find(at, file, line);
    unsigned char *d = shared_pointer(dst);
    if (!bulk->barriers[i].fenced) {
        fail(file, line, "a bulk copy counted by an mbarrier that no fence has made visible to it");
    } else if (!size || size % 16 || dst % 16 || (uintptr_t) src % 16) {
        fail(file, line, "misaligned: bulk copy of %u bytes from %p to shared address %u", size, src, dst);
    } else if (in_device_region(src) && !in_device_memory(src, size)) {
        fail(file, line, "out of bounds: bulk copy of %u bytes from %p, in no allocation", size, src);
    }
    if (counting()) count_bulk(src, size);
    between_access(src, size, access::read, SIMT_CODE, file, line);
    shadow_access(self->lin, d, size, access::copy_issued, file, line);
    const size_t copy = bulk->transfers.size();
    bulk->transfers.push_back({{d, src, size, size, 0}, i, 0, 0, {}});
    if (options.eager) bring(copy, file, line);
    else bulk->barriers[i].coming.push_back(copy);
    end_phase(i);
    if (awaited(i)) bring_all(i, file, line);
}

void mbarrier_wait(uint32_t at, unsigned parity, const char *file, int line)
{
    fiber *me = current();
    size_t i = find(at, file, line);
    if (me->seen.size() < bulk->barriers.size()) me->seen.resize(bulk->barriers.size());
    while ((bulk->barriers[i].phase & 1) == (parity & 1)) {
        bring_all(i, file, line);
        if ((bulk->barriers[i].phase & 1) != (parity & 1)) break;
        me->st = state::at_mbarrier;
        me->waits_for = i;
        me->file = file;
        me->line = line;
        wait();
        if (bulk->barriers[i].phase > me->seen[i] + 1) break;
    }
    if (bulk->barriers[i].phase > me->seen[i] + 1)
        fail(file, line, "phase overflow: a phase that this thread waits for has passed");
    me->seen[i] = bulk->barriers[i].phase;
    me->knows.resize(32);
    for (int w = 0; w < 32; w++) me->knows[w] = std::max(me->knows[w], bulk->barriers[i].ended[w]);
    std::vector<size_t> &landed = bulk->barriers[i].landed;
    landed.erase(std::remove_if(landed.begin(), landed.end(), [me, i](size_t copy) {
        transfer &t = bulk->transfers[copy];
        if (t.phase >= me->seen[i]) return false;
        t.seen = shadow_epoch() + 1;
        return true;
    }), landed.end());
}

/* -------------------------------------------------------------------------------------------------------- ldmatrix */

struct load {
    uint32_t *r;      /* result */
    int n;            /* matrices */
    bool trans;
    uint32_t address; /* address of row lane % 8 of matrix lane / 8 */
    unsigned lin;     /* thread */
};

/* Row i of matrix m, `size` bytes; NULL after an error. Several lanes read the row. Two of them are recorded, so that
 * it counts as read by several lanes. */
static const unsigned char *row(load *const *all, int m, int i, unsigned size, const char *file, int line)
{
    uint32_t address = all[8 * m + i]->address;
    const unsigned char *p = shared_pointer(address);
    if (address % 16) fail(file, line, "misaligned: ldmatrix row at shared address %u", address);
    for (int l = 0; l < 2; l++) shadow_access(all[4 * i + l]->lin, p, size, access::read, file, line);
    return p;
}

static void count_load(load *const *all)
{
    uint32_t address[32];
    for (int i = 0; i < 8 * all[0]->n; i++) address[i] = all[i]->address;
    count_op(DO_LDMATRIX);
    if (counting()) count_rows(address, all[0]->n);
}

static void do_ldmatrix(void **arg, const char *file, int line)
{
    load *const *all = reinterpret_cast<load *const *>(arg);
    count_load(all);
    for (int m = 0; m < all[0]->n; m++) {
        uint16_t half[8][8];
        for (int i = 0; i < 8; i++) std::memcpy(half[i], row(all, m, i, 16, file, line), 16);
        for (int l = 0; l < 32; l++) {
            const int g = l >> 2, t = 2 * (l & 3);
            const uint16_t low = all[0]->trans ? half[t][g] : half[g][t],
                           high = all[0]->trans ? half[t + 1][g] : half[g][t + 1];
            all[l]->r[m] = low | (uint32_t) high << 16;
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
    count_load(all);
    for (int m = 0; m < all[0]->n; m++) {
        const unsigned char *rows[8];
        for (int i = 0; i < 8; i++) rows[i] = row(all, m, i, 8, file, line);
        for (int l = 0; l < 32; l++) {
            const unsigned char *p = rows[l >> 2] + 2 * (l & 3);
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
