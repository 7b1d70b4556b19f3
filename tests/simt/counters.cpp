/* Counts the work of launches (counters.h). The lanes' accesses are combined into requests of the warp at each
 * collective.
 *
 * Memory: the marks of a footprint take address space for the whole region, and pages only where it is touched; lists
 * of one launch. Threads: the threads of simt::run, one at a time. */
#include "counters.h"

#include <algorithm>
#include <sys/mman.h>
#include <unordered_map>

#include "simt_impl.h"

namespace simt {

enum { SECTOR = 32, MOST_PROBES = 4096 };
enum { MOST_SAMPLED = 32 /* sampled blocks: bits of a mark */ };

/* An access of one lane. */
struct event {
    const void *code;
    uint64_t at;          /* address, global or shared */
    uint32_t to;          /* destination of cp.async: shared address */
    uint16_t size;        /* bytes */
    uint8_t from_global;  /* bytes that cp.async reads */
    uint8_t what;         /* enum counted */
};

/* Accesses of a warp's lanes that form one instruction. */
struct request {
    int what;
    unsigned n;
    unsigned lane[32];
    uint64_t at[32];
    uint32_t to[32], size[32], from_global[32];
};

static std::vector<event> events[1024]; /* by thread, since its last collective */
static launch_counts *now;              /* the running launch; NULL = not counted */

/* ------------------------------------------------------------------------------------------------------ footprints */

/* Sectors touched by sampled blocks, one bit of the mark per block. Launches that are not sampled use one bit for all
 * blocks. */
struct footprint {
    uint32_t *mark;
    std::vector<size_t> touched; /* sectors */
};
static footprint reads, writes;
static uint32_t block_bit;

static void touch(footprint &f, const void *p, size_t size)
{
    if (!in_device_region(p) || !size) return;
    if (!f.mark) {
        void *m = mmap(nullptr, DEVICE_REGION / SECTOR * sizeof *f.mark, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) {
            fail(nullptr, 0, "no address space to count in");
            return;
        }
        f.mark = static_cast<uint32_t *>(m);
    }
    size_t first = device_offset(p) / SECTOR, last = (device_offset(p) + size - 1) / SECTOR;
    for (size_t i = first; i <= last; i++) {
        if (!f.mark[i]) f.touched.push_back(i);
        f.mark[i] |= block_bit;
    }
}

static void forget(footprint &f)
{
    for (size_t i : f.touched) f.mark[i] = 0;
    f.touched.clear();
}

/* --------------------------------------------------------------------------------------------------------- samples */

/* Sampling of one dimension of the grid. */
struct axis {
    unsigned size;               /* blocks */
    std::vector<unsigned> picks; /* blocks that run */
    double scale;                /* number of blocks with work that each pick represents */
    double working;              /* number of blocks with work */
};
static axis axes[3];
static bool sampled;
static double block_scale;
static bool trial_worked; /* the probed block did something */
static bool ended;        /* a sampled block has taken the path of the last-arriving block */
static bool once;         /* the running block does work that only one block of the launch does */
static launch_counts before_once;

static unsigned &of_axis(dim3 &d, int i) { return i == 0 ? d.x : i == 1 ? d.y : d.z; }

/* The i-th of n positions below `size`, one in each n-th part. Positions are not equidistant, since kernels have
 * patterns, for example an empty block before each sequence. */
static unsigned place(unsigned size, unsigned n, unsigned i)
{
    const double within = 0.5 + i * 0.6180339887498949;
    return n >= size ? i : (unsigned) ((i + within - (double) (unsigned) within) * size / n);
}

/* Selects the blocks of an axis. If the probe finds no work at all, every block counts as working. */
static void pick(axis &a, int which, unsigned most, bool (*probe)(dim3))
{
    std::vector<unsigned> found;
    const unsigned n_probes = min(a.size, (unsigned) MOST_PROBES);
    for (unsigned i = 0; i < n_probes; i++) {
        dim3 idx(0, 0, 0);
        const unsigned at = of_axis(idx, which) = place(a.size, n_probes, i);
        if (a.size <= most || probe(idx)) found.push_back(at);
    }
    if (found.empty())
        for (unsigned i = 0; i < n_probes; i++) found.push_back(place(a.size, n_probes, i));
    a.working = (double) a.size * found.size() / n_probes;
    a.picks.clear();
    const unsigned n = min(most, (unsigned) found.size());
    for (unsigned i = 0; i < n; i++) a.picks.push_back(found[place((unsigned) found.size(), n, i)]);
    a.scale = a.working / n;
}

std::vector<uint64_t> count_blocks(bool (*probe)(dim3))
{
    std::vector<uint64_t> which;
    unsigned most = options.count->sample;
    const unsigned size[3] = {here.grid.x, here.grid.y, here.grid.z};
    const dim3 grid = here.grid;
    now->blocks = (double) size[0] * size[1] * size[2];
    sampled = most && now->blocks > 2 * most && !(options.count->whole && options.count->whole(now->kernel));
    if (!sampled) return which;
    launch_counts before = *now;
    ended = false;
    for (int i = 0; i < 3; i++) {
        axes[i].size = size[i];
        pick(axes[i], i, i ? min(most, 2u) : most, probe);
    }
    *now = before;
    forget(reads);
    forget(writes);
    for (std::vector<event> &e : events) e.clear();
    for (unsigned z : axes[2].picks)
        for (unsigned y : axes[1].picks)
            for (unsigned x : axes[0].picks) which.push_back(x + (uint64_t) grid.x * (y + (uint64_t) grid.y * z));
    block_scale = axes[0].scale * axes[1].scale * axes[2].scale;
    now->empty = now->blocks - axes[0].working * axes[1].working * axes[2].working;
    return which;
}

bool count_trial()
{
    bool worked = trial_worked;
    for (const event &e : events[0]) worked |= e.what == DO_STG;
    return worked || events[0].size() > 64; /* a block needs some accesses to find out if it has work */
}

/* Number of sectors of the launch that one sector with this mark represents. The number is multiplied by the scale of
 * each dimension in which only one sampled position touched the sector. */
static double stands_for(uint32_t mark)
{
    const size_t nx = axes[0].picks.size(), ny = axes[1].picks.size();
    uint32_t seen[3] = {0, 0, 0};
    for (unsigned i = 0; i < MOST_SAMPLED; i++) {
        if (!(mark >> i & 1)) continue;
        seen[0] |= 1u << (i % nx);
        seen[1] |= 1u << (i / nx % ny);
        seen[2] |= 1u << (i / nx / ny);
    }
    double f = 1;
    for (int i = 0; i < 3; i++)
        if (!(seen[i] & (seen[i] - 1))) f *= axes[i].scale;
    return f;
}

static double whole(const footprint &f)
{
    double sum = 0;
    if (!sampled) return (double) f.touched.size();
    std::unordered_map<uint32_t, double> known;
    for (size_t i : f.touched) {
        auto added = known.emplace(f.mark[i], 0);
        if (added.second) added.first->second = stands_for(f.mark[i]);
        sum += added.first->second;
    }
    return sum;
}

/* -------------------------------------------------------------------------------------------------------- launches */

bool counting() { return now; }

bool sampling() { return now && sampled; }

bool ends_sample()
{
    if (!sampling() || ended) return false;
    for (unsigned w = 0; w * 32 < block_threads(); w++) count_meet(w, ~0u);
    ended = once = true;
    before_once = *now;
    block_bit = ~0u;
    return true;
}

/* Divides the counts since `before_once` by the scale, since only one block of the launch does this work. */
static void end_once()
{
    const launch_counts &b = before_once;
    for (int i = 0; i < N_COUNTED; i++) now->op[i] = b.op[i] + (now->op[i] - b.op[i]) / block_scale;
    const auto part = [](double &n, double was) { n = was + (n - was) / block_scale; };
    part(now->wavefronts, b.wavefronts);
    part(now->least, b.least);
    part(now->read, b.read);
    part(now->written, b.written);
    part(now->bulk, b.bulk);
    once = false;
}

void count_launch(const void *kernel, dim3 grid, dim3 block, size_t shared)
{
    launch_counts c = {};
    c.kernel = kernel;
    c.grid = grid;
    c.block = block;
    c.shared = shared;
    c.part = options.count->part;
    options.count->launches.push_back(c);
    now = &options.count->launches.back();
    block_bit = 1;
}

void count_block(dim3)
{
    for (std::vector<event> &e : events) e.clear();
    trial_worked = false;
    block_bit = sampled ? 1u << (now->ran % MOST_SAMPLED) : 1;
}

void count_block_end()
{
    for (unsigned w = 0; w * 32 < block_threads(); w++) count_meet(w, ~0u);
    if (once) end_once();
    now->ran++;
}

void count_end()
{
    now->touched_read = whole(reads);
    now->touched_written = whole(writes);
    forget(reads);
    forget(writes);
    if (sampled) {
        for (double &n : now->op) n *= block_scale;
        for (double *n : {&now->wavefronts, &now->least, &now->read, &now->written, &now->bulk}) *n *= block_scale;
    }
    now = nullptr;
    sampled = false;
}

void add_counts(launch_counts *sum, const launch_counts &more)
{
    for (int i = 0; i < N_COUNTED; i++) sum->op[i] += more.op[i];
    sum->ran += more.ran;
    sum->blocks += more.blocks;
    sum->empty += more.empty;
    sum->wavefronts += more.wavefronts;
    sum->least += more.least;
    sum->read += more.read;
    sum->written += more.written;
    sum->bulk += more.bulk;
    sum->touched_read += more.touched_read;
    sum->touched_written += more.touched_written;
}

/* -------------------------------------------------------------------------------------------------------- requests */

/* Number of wavefronts for the words of one phase: the max number of different words in one bank. */
static unsigned conflicts(const uint32_t *word, unsigned n)
{
    uint32_t seen[32][32];
    uint8_t in_bank[32] = {0};
    unsigned most = 0;
    for (unsigned i = 0; i < n; i++) {
        const unsigned bank = word[i] % 32;
        unsigned k = 0;
        while (k < in_bank[bank] && seen[bank][k] != word[i]) k++;
        if (k < in_bank[bank]) continue;
        if (k == 32) return 32;
        seen[bank][k] = word[i];
        most = max(most, (unsigned) ++in_bank[bank]);
    }
    return most;
}

static void shared_request(const request &r, const uint32_t *address)
{
    uint32_t widest = 4, word[32 * 4];
    for (unsigned i = 0; i < r.n; i++) widest = max(widest, r.size[i]);
    const unsigned phase = 32 / (widest > 8 ? 4 : widest > 4 ? 2 : 1); /* lanes */
    for (unsigned first = 0, i = 0; first < 32; first += phase) {
        unsigned k = 0;
        for (; i < r.n && r.lane[i] < first + phase; i++)
            for (uint32_t b = address[i] / 4; b * 4 < address[i] + r.size[i] && k < 128; b++) word[k++] = b;
        if (!k) continue;
        now->wavefronts += conflicts(word, k);
        now->least++;
    }
}

static unsigned sectors(const request &r, const uint32_t *size)
{
    uint64_t all[64];
    unsigned n = 0;
    for (unsigned i = 0; i < r.n; i++) {
        if (!size[i]) continue;
        for (uint64_t k = r.at[i] / SECTOR; k * SECTOR < r.at[i] + size[i] && n < 64; k++)
            if (!n || all[n - 1] != k) all[n++] = k;
    }
    if (!std::is_sorted(all, all + n)) std::sort(all, all + n);
    return (unsigned) (std::unique(all, all + n) - all);
}

static void finish(const request &r)
{
    uint32_t address[32];
    now->op[r.what]++;
    if (r.what == DO_LDG) now->read += sectors(r, r.size);
    if (r.what == DO_STG) now->written += sectors(r, r.size);
    if (r.what == DO_CP_ASYNC) now->read += sectors(r, r.from_global);
    if (r.what == DO_LDG || r.what == DO_STG) return;
    for (unsigned i = 0; i < r.n; i++) address[i] = r.what == DO_CP_ASYNC ? r.to[i] : (uint32_t) r.at[i];
    shared_request(r, address);
}

/* Adjacent words within 16 aligned bytes that a lane accesses in sequence become one access. */
static void join(std::vector<event> &list)
{
    size_t n = 0;
    for (const event &e : list) {
        event *last = n ? &list[n - 1] : nullptr;
        if (last && last->what == e.what && e.what != DO_CP_ASYNC && last->code != e.code &&
            e.at == last->at + last->size && last->at % 16 + last->size + e.size <= 16) {
            last->size = (uint16_t) (last->size + e.size);
        } else {
            list[n++] = e;
        }
    }
    list.resize(n);
}

static void put(request &r, unsigned lane, const event &e)
{
    r.what = e.what;
    r.lane[r.n] = lane;
    r.at[r.n] = e.at;
    r.to[r.n] = e.to;
    r.size[r.n] = e.size;
    r.from_global[r.n++] = e.from_global;
}

/* True if both lanes took the same path, so that their n-th accesses belong together. */
static bool same_way(const std::vector<event> &a, const std::vector<event> &b)
{
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); i++)
        if (a[i].code != b[i].code) return false;
    return true;
}

/* Combines the accesses of lanes that took different paths. */
static void meet_apart(const std::vector<event> *list, unsigned mask)
{
    static std::vector<request> requests;
    static std::unordered_map<const void *, std::vector<size_t>> by_code; /* requests by code address, n-th access */
    static std::unordered_map<const void *, size_t> times;
    requests.clear();
    by_code.clear();
    for (unsigned l = 0; l < 32; l++) {
        if (!(mask >> l & 1)) continue;
        times.clear();
        for (const event &e : list[l]) {
            std::vector<size_t> &at = by_code[e.code];
            const size_t time = times[e.code]++;
            if (time == at.size()) {
                at.push_back(requests.size());
                requests.emplace_back();
                requests.back().n = 0;
            }
            put(requests[at[time]], l, e);
        }
    }
    for (const request &r : requests) finish(r);
}

void count_meet(unsigned warp, unsigned mask)
{
    std::vector<event> *list = &events[warp * 32];
    const std::vector<event> *first = nullptr;
    bool same = true;
    for (unsigned l = 0; l < 32; l++) {
        if (!(mask >> l & 1) || list[l].empty()) continue;
        join(list[l]);
        if (!first) first = &list[l];
        else same = same && same_way(*first, list[l]);
    }
    if (!first) return;
    if (!same) meet_apart(list, mask);
    for (size_t i = 0; i < first->size() && same; i++) {
        request r;
        r.n = 0;
        for (unsigned l = 0; l < 32; l++)
            if ((mask >> l & 1) && !list[l].empty()) put(r, l, list[l][i]);
        finish(r);
    }
    for (unsigned l = 0; l < 32; l++)
        if (mask >> l & 1) list[l].clear();
}

void count_op(int what, double n)
{
    if (!now) return;
    now->op[what] += n;
    trial_worked = true;
}

void count_access(unsigned lin, const void *p, size_t size, int what, const void *code)
{
    const bool shared = what == DO_LDS || what == DO_STS;
    const uint64_t first = shared ? shared_address(p) : (uint64_t) (uintptr_t) p;
    for (size_t at = 0; at < size; at += 16) {
        const uint16_t n = (uint16_t) min(size - at, (size_t) 16);
        events[lin].push_back({code, first + at, 0, n, 0, (uint8_t) what});
    }
    if (!shared) touch(what == DO_STG ? writes : reads, p, size);
}

void count_copy(unsigned lin, uint32_t dst, const void *src, unsigned size, unsigned n, const void *code)
{
    events[lin].push_back({code, (uint64_t) (uintptr_t) src, dst, (uint16_t) size, (uint8_t) n, DO_CP_ASYNC});
    touch(reads, src, n);
    trial_worked = true;
}

void count_bulk(const void *src, unsigned size)
{
    count_op(DO_BULK);
    now->read += (size + SECTOR - 1) / SECTOR;
    now->bulk += (size + SECTOR - 1) / SECTOR;
    touch(reads, src, size);
}

void count_rows(const uint32_t *address, int n)
{
    for (int m = 0; m < n; m++) {
        uint32_t word[32];
        for (unsigned i = 0; i < 32; i++) word[i] = address[8 * m + (int) i / 4] / 4 + i % 4;
        now->wavefronts += conflicts(word, 32);
        now->least++;
    }
}

} // namespace simt
