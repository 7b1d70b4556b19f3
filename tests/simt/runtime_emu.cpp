/* The CUDA backend's runtime on the emulator.
 *
 * Queued work runs as late as possible: when a caller waits for it, and it reads its memory then. With
 * simt::options.eager work runs when it is queued. During a capture nothing runs, and everything that a real capture
 * refuses is an error. An error of queued work persists: every later call for the device returns it.
 *
 * As in CUDA's runtime, a thread has a current device. The calls of runtime.h make their device the current one,
 * except the end of a capture. A launch goes to the current device; it is an error if its queue belongs to another
 * device.
 *
 * Asynchronous copies outside of the queue behave as badly as allowed: half of the bytes move immediately, the other
 * half when the copy is reported complete, several queries later. */
#include "runtime_emu.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/places.h"
#include "backend/cuda/runtime.h"
#include "simt_impl.h"
#include "slots.h"

namespace simt {
runtime_watch watch;
}

const char *const pi__rt_kind = "emu";

enum { KERNEL_FAILED = 1, CALL_FAILED, NOT_IN_RECORDING, BAD_ADDRESS, NO_DEVICE, NOT_LOADED, OTHER_DEVICE, NOT_SHARED,
       TOO_MUCH_SHARED /* cudaErrorInvalidValue */, STUCK, CHANGED };

typedef std::function<int()> work;

struct pi__rt_graph {
    std::shared_ptr<std::vector<work>> list; /* in launch order */
};

/* Counts a call. Returns its error code if it is selected to fail, else 0. */
static int counted()
{
    long n = simt::watch.n_calls++, at = simt::watch.fail_at;
    return at >= 0 && (n == at || (simt::watch.dead && n > at)) ? CALL_FAILED : 0;
}

static char not_loaded[300]; /* message for NOT_LOADED */
static char too_much[300];   /* message for TOO_MUCH_SHARED */

/* Attributes of kernels by device and kernel, or mark of a file. Any thread: engines share the kernels. */
static std::mutex attribute_lock;
static std::map<std::pair<int, const void *>, size_t> attributes[simt::N_ATTRIBUTES];

/* Returns the address of the value, which is set for the kernel or for its file; NULL = never set. Under the lock. */
static const size_t *find_attribute(int device, const void *mark, const void *kernel, simt::attribute what)
{
    for (const void *of : {kernel, mark}) {
        const auto it = attributes[what].find({device, of});
        if (it != attributes[what].end()) return &it->second;
    }
    return nullptr;
}

bool simt::set_attribute(int device, const void *mark, const void *kernel, attribute what, size_t value)
{
    std::lock_guard<std::mutex> guard(attribute_lock);
    const size_t *old = find_attribute(device, mark, kernel, what);
    const bool relied_on = old && (what == MAX_SHARED ? value < *old : value != *old);
    watch.n_set += !old || value != *old;
    attributes[what][{device, kernel ? kernel : mark}] = value;
    return !relied_on;
}

void simt::reset_attributes()
{
    std::lock_guard<std::mutex> guard(attribute_lock);
    for (auto &a : attributes) a.clear();
}

static size_t attribute_of(int device, const void *mark, const void *kernel, simt::attribute what)
{
    std::lock_guard<std::mutex> guard(attribute_lock);
    const size_t *value = find_attribute(device, mark, kernel, what);
    return value ? *value : what == simt::MAX_SHARED ? 48 << 10 : SIZE_MAX;
}

/* The open queues. A queue's waiting blocks take multiprocessors from the other queues of its device (slots.h). */
static std::mutex queue_lock;
static std::set<pi__rt *> open_queues;

thread_local int simt::current_device;

/* Returns an error code unless the device is the thread's current one. */
static int wrong_device(int index) { return index == simt::current_device ? 0 : OTHER_DEVICE; }

struct copy {
    char *dst;
    const char *src;
    size_t n;      /* bytes of the second half */
    unsigned left; /* number of queries that still find it in flight */
};

/* Copies, but does not write zeros over zeros, so that untouched pages take no memory (config::untouched). */
static void copy_touching_little(char *dst, const char *src, size_t n)
{
    static const char zeros[4096] = {0};
    for (size_t at = 0, part; at < n; at += part) {
        part = n - at < sizeof zeros ? n - at : sizeof zeros;
        if (std::memcmp(src + at, zeros, part) || std::memcmp(dst + at, zeros, part))
            std::memcpy(dst + at, src + at, part);
    }
}

/* A copy between device and host. */
static int move(void *dst, const void *src, size_t n)
{
    simt::visible all;
    std::unique_ptr<simt::together> reached(simt::watch.apart ? new simt::together : nullptr);
    if (simt::options.untouched) copy_touching_little(static_cast<char *>(dst), static_cast<const char *>(src), n);
    else std::memcpy(dst, src, n);
    return 0;
}

struct pi__rt : simt::stream {
    std::deque<copy> copies;                         /* asynchronous copies in flight, outside of the queue */
    uint64_t n_copies = 0;                           /* copies queued so far */
    uint64_t rng = 1;                                /* for the duration of copies */
    std::deque<work> queue;                          /* work that has not run */
    uint64_t n_run = 0;                              /* amount of queued work that has run */
    uint64_t fence[PI__RT_FENCES] = {};              /* amount of work queued before the fence */
    std::shared_ptr<std::vector<work>> recording;    /* NULL = no open capture */
    bool spoiled = false;                            /* the capture is invalid after a call that cannot be captured */
    int failed = 0;                                  /* code of queued work that failed; 0 = none */
    int32_t index = 0;                               /* device number */
    int32_t places = 0;                              /* places of pi__places_take() */
    int32_t max_waiting = 0;                         /* pi__rt_info.places */
    uint32_t stuck = 0;                              /* pi__rt_info.stuck */
    bool in_order = false;                           /* no dependent launches */
    bool broken = false;                             /* the next kernel does nothing (simt::watch.broken) */
    /* the next work is a kernel, not an exchange or a library product */
    bool is_kernel = false;
    long n_intact = 0;                               /* kernels so far that match simt::watch.broken */
    std::map<const char *, size_t> shared;           /* memory of pi__rt_alloc_shared: size by first byte */
    std::set<const void *> loaded;                   /* marks of files with loaded kernels */
    size_t late_shared = 0;                          /* as in pi__queue */
    simt::launch_chain chain;                        /* dependent launches, in the order in which they run */
    size_t carveout = 0;                             /* simt::CARVEOUT of the last kernel; 0 = none was launched */
    size_t next_carveout = SIZE_MAX;                 /* of the next launch */

    int device() const override { return index; }
    /* Counts a call. now: the call cannot be captured. */
    int call(bool now)
    {
        int code = counted();
        simt::current_device = index;
        if (!code) code = failed;
        if (!code && now && recording) {
            code = NOT_IN_RECORDING;
            spoiled = true;
        }
        return code;
    }
    /* Runs queued work up to number n; after an error, drops it. */
    void run_to(uint64_t n)
    {
        for (; n_run < n; n_run++) {
            if (!failed) failed = queue.front()();
            queue.pop_front();
        }
    }
    void run_all() { run_to(n_run + queue.size()); }
    /* Returns the error of the work that has run. */
    int ended()
    {
        if (stuck && !failed) failed = STUCK;
        return failed;
    }
    /* The host waits for all queued work. */
    void settle()
    {
        run_all();
        chain.fresh = true;
    }
    int add(work w)
    {
        if (recording) recording->push_back(std::move(w));
        else queue.push_back(std::move(w));
        if (!recording && simt::options.eager) run_all();
        return failed;
    }
    int need(simt::kernel_file from, const void *kernel, size_t shared) override
    {
        const char *name = simt::watch.broken;
        simt::watch.n_large += shared > 48 << 10;
        const bool own = simt::watch.own_limits;
        is_kernel = true;
        broken = name && std::strstr(from.name, name) && n_intact++ >= simt::watch.broken_after;
        if (((late_shared && shared > 48 << 10) || own) &&
            !simt::set_attribute(index, from.mark, kernel, simt::MAX_SHARED, own ? shared : late_shared))
            return CHANGED;
        const size_t limit = attribute_of(index, from.mark, kernel, simt::MAX_SHARED);
        next_carveout = attribute_of(index, from.mark, kernel, simt::CARVEOUT);
        if (loaded.count(from.mark) && shared <= limit) return 0;
        if (loaded.count(from.mark)) {
            std::snprintf(too_much, sizeof too_much,
                          "invalid value: a kernel of %.100s is launched with %zu bytes of shared memory, but may have "
                          "%zu: the limit is set when kernels are loaded",
                          from.name, shared, limit);
            return TOO_MUCH_SHARED;
        }
        std::snprintf(not_loaded, sizeof not_loaded,
                      "a kernel of %.100s is launched that was not loaded before: the backend "
                      "loads all when it opens, of files that have an entry (kernels/device.cuh)",
                      from.name);
        return NOT_LOADED;
    }
    /* Multiprocessors in which blocks of other queues of the device may wait, in the worst case: all waiting blocks of
     * a queue except one. */
    unsigned busy() const
    {
        unsigned n = 0;
        std::lock_guard<std::mutex> guard(queue_lock);
        for (const pi__rt *o : open_queues) n += o != this && o->index == index ? (unsigned) o->max_waiting - 1 : 0;
        return n;
    }
    int take(std::function<int()> w, bool dependent) override
    {
        int code = wrong_device(index);
        dependent = dependent && !in_order;
        if (!code) code = call(false);
        simt::watch.n_launched += !recording;
        if (simt::watch.idle || broken) w = [] { return 0; };
        const bool apart = simt::watch.apart && is_kernel;
        if (is_kernel) simt::watch.n_splits += dependent && carveout && carveout != next_carveout;
        if (is_kernel) carveout = next_carveout;
        is_kernel = false;
        return code ? code : add([this, dependent, apart, run = std::move(w)] {
            std::unique_ptr<simt::alone> own(apart ? new simt::alone(index) : nullptr);
            chain.fresh |= !dependent;
            simt::next_launch = {dependent, &chain};
            simt::busy_multiprocessors = busy();
            const int failed_with = run();
            simt::busy_multiprocessors = 0;
            simt::next_launch = {};
            return failed_with;
        });
    }
};

static std::mutex host_lock;
static std::map<char *, size_t> host_memory; /* from host_alloc: size by first byte */

static bool in_host_memory(const void *p)
{
    std::lock_guard<std::mutex> guard(host_lock);
    char *c = const_cast<char *>(static_cast<const char *>(p));
    auto it = host_memory.upper_bound(c);
    return it != host_memory.begin() && c < (--it)->first + it->second;
}

size_t simt::host_bytes()
{
    std::lock_guard<std::mutex> guard(host_lock);
    size_t n = 0;
    for (const auto &m : host_memory) n += m.second;
    return n;
}

void simt::host_hide(bool hidden)
{
    std::lock_guard<std::mutex> guard(host_lock);
    for (const auto &m : host_memory) mprotect(m.first, m.second, hidden ? PROT_NONE : PROT_READ | PROT_WRITE);
}

const char *pi__rt_text(int code)
{
    switch (code) {
    case CALL_FAILED: return "a call was made to fail";
    case NOT_IN_RECORDING: return "what cannot be recorded was asked for while the queue is";
    case BAD_ADDRESS: return "a copy leaves device memory";
    case NO_DEVICE: return "no such device";
    case NOT_LOADED: return not_loaded;
    case TOO_MUCH_SHARED: return too_much;
    case CHANGED: return "a launch changes an attribute of a kernel that another queue may rely on";
    case STUCK: return "blocks of a kernel waited too long for each other";
    case NOT_SHARED: return "it is no memory of this device, or of another size";
    case OTHER_DEVICE: return "a launch, or the end of a capture, for a device that is not the thread's current one";
    default: return simt::last_error();
    }
}

int pi__rt_tell(int32_t index, pi__rt_info *info)
{
    *info = pi__rt_info();
    if (index) return NO_DEVICE;
    snprintf(info->name, sizeof info->name, "emu");
    info->memory = simt::watch.memory;
    info->n_sm = simt::watch.n_sm;
    info->arch = simt::watch.idle ? 0 : simt::options.arch;
    info->slow = !simt::watch.thorough;
    info->graph_bytes = simt::watch.graph_bytes;
    info->integrated = info->shares = simt::watch.shares;
    return counted();
}

int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info)
{
    int code = index < PI__RT_MAX ? pi__rt_tell(0, info) : (int) NO_DEVICE; /* all devices are like device 0 */
    if (!code) code = counted(); /* for the query of the page size */
    *out = code ? nullptr : new pi__rt;
    if (code) return code;
    info->page = simt::options.page;
    info->exports = info->page && simt::watch.exports;
    info->maps_host = info->page;
    info->uuid[0] = (uint8_t) simt::watch.board, info->uuid[15] = (uint8_t) index;
    (*out)->index = simt::current_device = index;
    info->places = (*out)->places = pi__places_take(index, info->n_sm);
    if (simt::watch.places) info->places = std::max((int) simt::watch.places, info->n_sm / 2);
    (*out)->max_waiting = info->places;
    info->stuck = &(*out)->stuck;
    std::lock_guard<std::mutex> guard(queue_lock);
    open_queues.insert(*out);
    simt::watch.live++;
    return 0;
}

void pi__rt_close(pi__rt *rt)
{
    if (rt) simt::watch.live--;
    if (!rt) return;
    pi__places_return(rt->index, rt->places);
    {
        std::lock_guard<std::mutex> guard(queue_lock);
        open_queues.erase(rt);
    }
    delete rt;
}

void pi__rt_in_order(pi__rt *rt) { rt->in_order = true; }

/* Device number over all boards. */
static int board_of(int32_t index) { return simt::watch.board * PI__RT_MAX + index; }

static size_t free_bytes()
{
    const size_t all = simt::watch.memory, used = simt::device_bytes();
    return all > used ? all - used : 0;
}

int pi__rt_free_memory(pi__rt *rt, uint64_t *bytes)
{
    int code = rt->call(true);
    *bytes = code ? 0 : free_bytes();
    return code;
}

int pi__rt_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = nullptr;
    simt::watch.n_allocs++;
    int code = rt->call(true);
    if (code) return code;
    simt::visible all;
    std::unique_ptr<simt::together> reached(simt::watch.apart ? new simt::together : nullptr);
    if (size <= free_bytes()) *out = simt::device_alloc(size);
    if (!*out) return 0;
    if (!simt::options.untouched) std::memset(*out, 0, size);
    simt::watch.live++;
    return 0;
}

/* Must not be used with config::hide, since the host cannot reach the memory. */
int pi__rt_alloc_shared(pi__rt *rt, void **out, size_t size)
{
    *out = nullptr;
    int code = rt->call(true);
    if (code) return code;
    if (size <= free_bytes()) *out = simt::device_alloc(size);
    simt::watch.live += *out != nullptr;
    simt::watch.n_shared += *out ? (long) size : 0;
    if (*out) rt->shared[static_cast<const char *>(*out)] = size;
    return 0;
}

bool pi__rt_is_shared(pi__rt *rt, const void *p)
{
    const char *c = static_cast<const char *>(p);
    auto it = rt->shared.upper_bound(c);
    return it != rt->shared.begin() && c < (--it)->first + it->second;
}

int pi__rt_prefetch(pi__rt *rt, void *p, size_t n)
{
    const int code = rt->call(true);
    if (code) return code;
    if (!pi__rt_is_shared(rt, p) || !pi__rt_is_shared(rt, static_cast<char *>(p) + n - 1)) return BAD_ADDRESS;
    simt::watch.n_prefetched += (long) n;
    return 0;
}

void pi__rt_free(pi__rt *rt, void *p)
{
    if (!p) return;
    rt->settle();
    rt->shared.erase(static_cast<const char *>(p));
    simt::device_free(p);
    simt::watch.live--;
}

/* Memory that is freed wrongly or twice raises watch.live, so that it is found at the end. */
int pi__rt_reserve(pi__rt *rt, void **out, size_t size)
{
    *out = nullptr;
    int code = rt->call(true);
    if (code) return code;
    *out = simt::device_reserve(size);
    simt::watch.live += *out != nullptr;
    return 0;
}

void pi__rt_unreserve(pi__rt *rt, void *p, size_t)
{
    if (!p) return;
    rt->settle();
    simt::watch.live += simt::device_unreserve(p) ? -1 : 1;
}

int pi__rt_map(pi__rt *rt, void *p, size_t size, bool *done)
{
    *done = false;
    simt::watch.n_allocs++;
    int code = rt->call(true);
    if (code) return code;
    *done = size <= free_bytes() && simt::device_map(p, size);
    simt::watch.live += *done;
    return 0;
}

int pi__rt_map_host(pi__rt *rt, void *p, size_t size, bool *done)
{
    *done = false;
    simt::watch.n_allocs++;
    int code = rt->call(true);
    if (code) return code;
    *done = simt::device_map(p, size, true);
    if (*done) std::memset(p, 0xa5, size);
    simt::watch.live += *done;
    return 0;
}

int pi__rt_map_shared(pi__rt *rt, void *p, size_t size, int *fd, bool *done)
{
    *done = false;
    *fd = -1;
    simt::watch.n_allocs++;
    int code = rt->call(true);
    if (code) return code;
    *done = size <= free_bytes() && simt::device_share(p, size, board_of(rt->index), fd);
    simt::watch.live += *done;
    return 0;
}

int pi__rt_map_import(pi__rt *rt, void *p, size_t size, int fd)
{
    int code = rt->call(true);
    if (code) return code;
    if (!simt::device_import(p, size, board_of(rt->index), fd)) return NOT_SHARED;
    simt::watch.live++;
    return 0;
}

void pi__rt_unmap(pi__rt *rt, void *p, size_t size)
{
    rt->settle();
    simt::watch.live += simt::device_unmap(p, size) ? -1 : 1;
}

int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = nullptr;
    simt::watch.n_allocs++;
    int code = rt->call(true);
    if (code) return code;
    void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 0;
    *out = p;
    simt::watch.live++;
    std::lock_guard<std::mutex> guard(host_lock);
    host_memory[static_cast<char *>(*out)] = size;
    return 0;
}

void pi__rt_host_free(pi__rt *rt, void *p)
{
    if (!p) return;
    rt->run_all();
    std::lock_guard<std::mutex> guard(host_lock);
    auto it = host_memory.find(static_cast<char *>(p));
    munmap(p, it->second);
    host_memory.erase(it);
    simt::watch.live--;
}

int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n)
{
    bool now = !in_host_memory(src);
    simt::watch.n_up += (long) n;
    int code = rt->call(now);
    if (!code && !simt::device_holds(dst, n, rt->index)) code = BAD_ADDRESS;
    if (code) return code;
    code = rt->add([=] {
        rt->chain.fresh = true;
        return move(dst, src, n);
    });
    if (now) rt->run_all();
    return code ? code : rt->failed;
}

int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n)
{
    int code = rt->call(!in_host_memory(dst));
    simt::watch.n_down += (long) n;
    if (!code && !simt::device_holds(src, n, rt->index)) code = BAD_ADDRESS;
    if (code) return code;
    return rt->add([=] {
        rt->chain.fresh = true;
        return move(dst, src, n);
    });
}

int pi__rt_fence(pi__rt *rt, int i)
{
    int code = rt->call(true);
    if (!code) rt->fence[i] = rt->n_run + rt->queue.size();
    return code;
}

int pi__rt_fence_wait(pi__rt *rt, int i)
{
    int code = rt->call(true);
    if (code) return code;
    simt::watch.n_ahead += rt->n_run < rt->fence[i] && rt->n_run + rt->queue.size() > rt->fence[i];
    if (simt::watch.hasty) rt->run_all();
    else rt->run_to(rt->fence[i]);
    return rt->ended();
}

int pi__rt_follow(pi__rt *rt, pi__rt *other)
{
    int code = rt->call(true);
    if (code) return code;
    return rt->add([rt, other, n = other->n_run + other->queue.size()] {
        rt->chain.fresh = true;
        other->run_to(n);
        return 0;
    });
}

static int copy_beside(pi__rt *rt, void *dst, const void *src, size_t n)
{
    int code = rt->call(true);
    if (!code && simt::options.fail_copy >= 0 && simt::options.fail_copy-- == 0) code = CALL_FAILED;
    if (code) return code;
    rt->run_all(); /* work queued before the copy */
    rt->rng = rt->rng * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(dst, src, n / 2);
    rt->copies.push_back({static_cast<char *>(dst) + n / 2, static_cast<const char *>(src) + n / 2, n - n / 2,
                          rt->rng >> 62 ? 0 : 1 + (unsigned) (rt->rng >> 60 & 1)});
    rt->n_copies++;
    return 0;
}
int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n) { return copy_beside(rt, dst, src, n); }
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n) { return copy_beside(rt, dst, src, n); }

int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended)
{
    int code = rt->call(true);
    while (!code && !rt->copies.empty() && (wait || rt->copies.front().left-- == 0)) {
        const copy &c = rt->copies.front();
        std::memcpy(c.dst, c.src, c.n);
        rt->copies.pop_front();
    }
    *ended = rt->n_copies - rt->copies.size();
    return code;
}

int pi__rt_pin(pi__rt *, void *, size_t)
{
    int code = counted();
    return code ? code : simt::options.fail_pin ? CALL_FAILED : 0;
}
void pi__rt_unpin(pi__rt *, void *) {}

int pi__rt_wait(pi__rt *rt)
{
    int code = rt->call(true);
    if (code) return code;
    simt::watch.n_waits += !rt->queue.empty();
    rt->settle();
    return rt->ended();
}

extern "C" const void *const __start_pi__kernel_files[], *const __stop_pi__kernel_files[];

int pi__rt_load_kernels(pi__rt *rt, const char **lazy)
{
    *lazy = simt::watch.lazy ? "the driver is older than CUDA 12.4" : nullptr;
    int code = rt->call(true);
    if (code) return code;
    rt->loaded.insert(__start_pi__kernel_files, __stop_pi__kernel_files);
    rt->late_shared = *lazy ? SIZE_MAX : 0;
    for (const void *const *k = __start_pi__kernel_files; k < __stop_pi__kernel_files && !*lazy && !code; k++) {
        if (!simt::set_attribute(rt->index, *k, nullptr, simt::MAX_SHARED, SIZE_MAX) ||
            !simt::set_attribute(rt->index, *k, nullptr, simt::CARVEOUT, 100))
            code = CHANGED;
    }
    return code;
}

int32_t pi__rt_index(const pi__rt *rt) { return rt->index; }
void *pi__rt_stream(pi__rt *rt)
{
    simt::current_device = rt->index;
    return static_cast<simt::stream *>(rt);
}

int pi__rt_stamp(pi__rt *rt, int) { return rt->call(true); }

int pi__rt_stamped(pi__rt *rt, float *ms)
{
    *ms = 0;
    return rt->call(true);
}

int pi__rt_tell_facts(pi__rt *rt, pi__rt_facts *out)
{
    *out = pi__rt_facts();
    out->block_shared = (int32_t) simt::options.max_shared;
    out->concurrent = true;
    return rt->call(true);
}

int pi__rt_capture(pi__rt *rt)
{
    simt::watch.n_recorded++;
    int code = rt->call(true);
    if (code) return code;
    rt->recording = std::make_shared<std::vector<work>>();
    rt->spoiled = false;
    return 0;
}

int pi__rt_capture_end(pi__rt *rt, pi__rt_graph **out)
{
    *out = nullptr;
    std::shared_ptr<std::vector<work>> list;
    list.swap(rt->recording); /* the capture ends even if the call fails */
    for (int i = 0; rt->index && i < simt::watch.late_graphs && !simt::watch.n_waiting; i++) usleep(1000);
    simt::watch.n_risky += simt::watch.n_waiting > 0;
    int code = wrong_device(rt->index);
    if (!code) code = rt->call(false);
    if (!code && (!list || rt->spoiled)) code = NOT_IN_RECORDING;
    if (code) return code;
    *out = new pi__rt_graph{list};
    simt::watch.live++;
    return 0;
}

size_t pi__rt_graph_size(const pi__rt_graph *g) { return simt::watch.graph_bytes ? g->list->size() * 1024 : 0; }

int pi__rt_replay(pi__rt *rt, pi__rt_graph *g)
{
    simt::watch.n_replayed++;
    int code = rt->call(true);
    if (code) return code;
    return rt->add([list = g->list] {
        int failed = 0;
        if (simt::watch.broken_replay) return 0;
        for (size_t i = 0; i < list->size() && !failed; i++) failed = (*list)[i]();
        return failed;
    });
}

void pi__rt_graph_free(pi__rt *, pi__rt_graph *g)
{
    if (g) simt::watch.live--;
    delete g;
}
