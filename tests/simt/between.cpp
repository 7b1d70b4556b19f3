/* Races in global memory between blocks of one launch, in instrumented kernels.
 *
 * Every word of device memory has a record of its readers and writers in this launch: for each block, its last read
 * and its last write since the last write that is no atomic. Two blocks access a word, and at least one writes. These
 * accesses are ordered by a release and an acquire:
 *
 *     release  the earlier thread, or a thread of its block after a barrier, calls __threadfence(), then an atomic; or
 *              it performs an atomic with release semantics
 *     acquire  the later thread, or a thread of its block before a barrier, reads that word by an atomic, then calls
 *              __threadfence(); or the atomic has acquire semantics
 *
 * Otherwise the accesses are a race, in any actual order of the blocks: the kernel may be right on one device and
 * wrong on another.
 *
 *     writer block:  data = ..  __syncthreads()  thread 0: __threadfence()  atomicAdd(flag)
 *     reader block:  thread 0: atomicAdd(flag, 0)  __threadfence()  __syncthreads()  .. = data
 *
 *     writer block:  data = ..  __syncthreads()  thread 0: arrive(flag)
 *     reader block:  thread 0: load_acquire(flag)  __syncthreads()  .. = data
 *
 * A fence releases by every later atomic of its thread, an atomic only by itself.
 *
 * The last accesses of up to MAX_OTHERS further blocks to a word are in a list. Accesses that find no place in it are
 * not judged.
 *
 * Memory: address space for all records, with pages only where device memory is in use; lists of one launch, at most
 * MAX_LISTED entries. Threads: the threads of simt::run, one at a time. */
#include "simt_impl.h"

#include <cstdio>
#include <sys/mman.h>
#include <unordered_map>

namespace simt {

enum { WORD = 4, MAX_OTHERS = 64, MAX_LISTED = 8 << 20 };
/* In mark::lin: other lanes of the warp, or other warps, have accessed the word since the same barriers. */
enum : uint16_t { MANY_LANES = 1 << 14, MANY_WARPS = 1 << 15, LIN = MANY_LANES - 1 };

/* The last access of a block to a word. Barriers and fences are counted before the access. */
struct mark {
    uint32_t block;          /* block + 1; 0 = no access */
    uint16_t lin, fence;     /* thread, MANY_LANES, MANY_WARPS; the thread's fences */
    uint16_t epoch, warp;    /* barriers of the block, of the warp */
    uint32_t code;           /* source location, index into `spots` */
};
struct word {
    uint32_t launch;         /* launch of this record */
    uint8_t written, read;   /* bit mask of the word's bytes */
    bool atomic;             /* the last write was atomic */
    mark writer, reader;     /* the last ones */
    uint32_t writers, readers; /* other blocks: index + 1 in `lists`; 0 = none. Several writers are atomic */
};

static word *words;                                          /* of the device region */
static std::vector<std::vector<mark>> lists;                 /* the first n_lists are in use */
static uint32_t n_lists;
static size_t n_listed;                                      /* entries of the lists */
static uint32_t launch_number;
static bool active;                                          /* this launch is checked */
static unsigned long n_fences;                               /* fences and ordering atomics in this launch */
static std::unordered_map<const void *, std::vector<released>> heard_at; /* releases by the word of the atomic */
static std::vector<released> block_has[MOST_PLACES];       /* releases acquired before the block's last barrier */

/* A source location. */
struct spot {
    const void *code; /* NULL = file and line */
    const char *file;
    int line;
};
static std::vector<spot> spots;
static std::unordered_map<uint64_t, uint32_t> spot_numbers;

static uint32_t spot_number(const void *code, const char *file, int line)
{
    static uint64_t last_key;
    static uint32_t last;
    const uint64_t key = code ? (uint64_t) (uintptr_t) code : (uint64_t) (uintptr_t) file << 20 ^ (uint64_t) line;
    if (key == last_key && last < spots.size()) return last;
    auto added = spot_numbers.emplace(key, (uint32_t) spots.size());
    if (added.second) spots.push_back({code, file, line});
    last_key = key;
    return last = added.first->second;
}

static const char *text_of(uint32_t number, char *text, size_t size)
{
    const spot &s = spots[number];
    if (s.code) snprintf(text, size, "%s", source_of(s.code));
    else snprintf(text, size, "%s:%d", s.file, s.line);
    return text;
}

static bool have_words()
{
    if (words) return true;
    void *p = mmap(nullptr, DEVICE_REGION / WORD * sizeof(word), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    words = static_cast<word *>(p);
    return true;
}

void between_begin(uint64_t blocks)
{
    active = instrumented() && options.check && options.between && blocks > 1;
    if (!active) return;
    if (!have_words()) {
        active = false;
        fail(nullptr, 0, "no address space for what is known of device memory");
        return;
    }
    launch_number++;
    n_fences = 0;
    n_listed = n_lists = 0;
    heard_at.clear();
}

void between_block() { block_has[resident()].clear(); }

/* After a barrier, every thread of the block has acquired the releases of all its threads. */
void between_barrier()
{
    if (!active || !n_fences) return;
    std::vector<released> &all = block_has[resident()];
    for (unsigned i = 0; i < block_threads(); i++) {
        std::vector<released> &own = thread_of(i)->order.acquired;
        all.insert(all.end(), own.begin(), own.end());
        own.clear();
    }
}

void fence()
{
    if (!self || !active) return;
    between_thread &t = current()->order;
    n_fences++;
    t.fence = ++t.fences;
    t.block = (uint16_t) shadow_epoch();
    t.warp = (uint16_t) shadow_warp_epoch(self->lin / 32);
    t.acquired.insert(t.acquired.end(), t.heard.begin(), t.heard.end());
    t.heard.clear();
}

static void add(std::vector<released> &to, const released &r)
{
    for (released &o : to) {
        if (o.block_id != r.block_id || o.lin != r.lin) continue;
        if (r.fence > o.fence) o = r; /* a thread's later release covers its earlier ones */
        return;
    }
    to.push_back(r);
}

/* The word of an atomic passes on the releases of its thread, and the thread receives the releases of others. */
void between_atomic(const void *p, semantics order)
{
    if (!active) return;
    n_fences += order != semantics::relaxed;
    if (!n_fences) return;
    between_thread &t = current()->order;
    std::vector<released> &at = heard_at[p];
    for (const released &r : at) add(order == semantics::relaxed ? t.heard : t.acquired, r);
    released own = {block_number(), t.block, t.warp, t.fence, (uint16_t) self->lin};
    if (order == semantics::acq_rel) {
        own.block = (uint16_t) shadow_epoch();
        own.warp = (uint16_t) shadow_warp_epoch(self->lin / 32);
        own.fence = ++t.fences;
    }
    if (order == semantics::acquire || !own.fence) return;
    for (const released &r : block_has[resident()]) add(at, r);
    for (const released &r : t.acquired) add(at, r);
    add(at, own);
}

static bool covers(const released &r, const mark &m)
{
    if (r.block_id + 1 != m.block) return false;
    if (m.epoch < r.block) return true;
    if (m.lin & MANY_WARPS) return false;
    if ((m.lin & LIN) / 32 == r.lin / 32 && m.warp < r.warp) return true;
    return m.lin == r.lin && m.fence < r.fence; /* never with MANY_LANES */
}

/* True if the recorded access happens before this thread's access. */
static bool ordered(const mark &m)
{
    if (!m.block || m.block == block_number() + 1) return true;
    if (!n_fences) return false;
    for (const released &r : current()->order.acquired)
        if (covers(r, m)) return true;
    for (const released &r : block_has[resident()])
        if (covers(r, m)) return true;
    return false;
}

static void tell(const void *p, const mark &m, bool reads, bool read, const mark &now)
{
    char here_text[300], there[300];
    fail(nullptr, -1,
         "race between blocks in %s: %s global memory %p at %s, which thread %u of block %u %s at %s, and nothing "
         "orders them",
         source_of(kernel()), reads ? "reads" : "writes", p, text_of(now.code, here_text, sizeof here_text),
         m.lin & LIN, m.block - 1, read ? "reads" : "writes", text_of(m.code, there, sizeof there));
}

/* Returns the mark of both accesses of a block: what is ordered after it is ordered after both. */
static mark joined(const mark &old, mark now)
{
    const bool same_warp = (old.lin & LIN) / 32 == now.lin / 32;
    if (old.epoch < now.epoch || (old.lin == now.lin && old.fence <= now.fence && old.warp <= now.warp)) return now;
    if (!same_warp || old.lin & MANY_WARPS) now.lin |= MANY_WARPS;
    else if (old.warp >= now.warp) now.lin |= MANY_LANES;
    return now;
}

/* Records an access of this block as the last one; the last one of another block goes to the list. */
static void record(mark &last, uint32_t &list, const mark &now)
{
    if (!last.block || last.block == now.block) {
        last = last.block ? joined(last, now) : now;
        return;
    }
    if (!list) {
        if (n_lists == lists.size()) lists.emplace_back();
        lists[n_lists].clear();
        list = ++n_lists;
    }
    std::vector<mark> &others = lists[list - 1];
    mark own = now;
    for (mark &m : others) {
        if (m.block != now.block) continue;
        own = joined(m, now);
        m = last;
        last = own;
        return;
    }
    if (others.size() < MAX_OTHERS && n_listed < MAX_LISTED) {
        others.push_back(last);
        n_listed++;
    }
    last = own;
}

/* Reports the first of the recorded accesses that is not ordered before this one. */
static void judge_all(const mark &last, uint32_t list, const char *p, bool reads, bool read, const mark &now)
{
    if (!ordered(last)) tell(p, last, reads, read, now);
    if (!list) return;
    for (const mark &m : lists[list - 1])
        if (!ordered(m)) tell(p, m, reads, read, now);
}

static void judge(word &w, const char *p, access kind, uint8_t bytes, const mark &now)
{
    const bool reads = kind == access::read, atomic = kind == access::atomic;
    if (w.launch != launch_number) {
        w = word();
        w.launch = launch_number;
    }
    if ((w.written & bytes) && !(atomic && w.atomic)) judge_all(w.writer, w.writers, p, reads, false, now);
    if (!reads && (w.read & bytes)) judge_all(w.reader, w.readers, p, false, true, now);
    if (reads) {
        record(w.reader, w.readers, now);
        w.read |= bytes;
        return;
    }
    if (w.writer.block != now.block && !(atomic && w.atomic)) w.written = 0, w.writers = 0, w.writer = mark();
    record(w.writer, w.writers, now);
    w.written |= bytes;
    w.atomic = atomic;
    if (w.read & bytes) w.read = 0, w.readers = 0, w.reader = mark();
}

void between_access(const void *p, size_t size, access kind, const void *code, const char *file, int line)
{
    if (!size || !in_device_region(p)) return;
    overlap_access(p, size, kind != access::read, code, file, line);
    if (!active) return;
    const mark now = {block_number() + 1, (uint16_t) self->lin, current()->order.fences, (uint16_t) shadow_epoch(),
                      (uint16_t) shadow_warp_epoch(self->lin / 32), spot_number(code, file, line)};
    const size_t at = device_offset(p), end = at + size;
    for (size_t w = at / WORD; w * WORD < end; w++) {
        uint8_t bytes = 15;
        if (w * WORD < at) bytes = (uint8_t) (bytes & 15u << (at - w * WORD));
        if ((w + 1) * WORD > end) bytes = (uint8_t) (bytes & 15u >> ((w + 1) * WORD - end));
        judge(words[w], static_cast<const char *>(p) + (w * WORD > at ? w * WORD - at : 0), kind, bytes, now);
    }
}

} // namespace simt
