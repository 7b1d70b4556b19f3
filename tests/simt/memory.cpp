/* Device memory of the emulator. Allocations and mapped pages are in one reserved region of addresses; after each
 * comes a page that faults, unless another mapping follows.
 *
 * Memory: the pages of allocations; the region stays reserved. Threads: any, under the launch lock. */
#include "runtime_emu.h"
#include "simt_impl.h"

#include <csignal>
#include <cstdio>
#include <map>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace simt {

enum { PAGE = 64 << 10 /* a multiple of every system's page size */ };

struct allocation {
    size_t size;  /* requested bytes */
    char *map;    /* first page */
    size_t pages; /* bytes mapped */
    bool mapped;  /* from device_map */
    enum { OWN, HOST, SHARED, IMPORTED } from; /* kind of memory; imported memory is only read */
    int device;   /* number of its device: the current device of the allocating thread */
};

/* Trailer after the bytes of shared memory. */
struct shared_end {
    char magic[8];
    int64_t device;
};
static const char shared_magic[8] = {'e', 'm', 'u', ' ', 'v', 'm', 'm', 0};
static std::map<char *, allocation> allocations; /* by first byte */
static std::map<char *, size_t> reservations; /* size in bytes, by first byte */
static char *region;        /* reserved address space */
static char *last_begin, *last_end; /* bounds of the allocation found last */
static size_t region_used;  /* bytes handed out; starts at 0 again when nothing is allocated or reserved */

static bool have_region()
{
    if (region) return true;
    void *p = mmap(nullptr, DEVICE_REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    region = static_cast<char *>(p);
    return true;
}

void *device_alloc(size_t size)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    if (!have_region()) return nullptr;
    if (!size || size > DEVICE_REGION || (options.fail_alloc >= 0 && options.fail_alloc-- == 0)) return nullptr;
    size_t used = (size + 255) / 256 * 256, pages = (used + PAGE - 1) / PAGE * PAGE;
    if (region_used + pages + PAGE > DEVICE_REGION) return nullptr;
    char *map = region + region_used;
    if (mprotect(map, pages, PROT_READ | PROT_WRITE)) return nullptr;
    region_used += pages + PAGE;
    char *p = map + pages - used;
    if (!options.untouched) std::memset(p, 0xff, used);
    allocations[p] = {size, map, pages, false, allocation::OWN, current_device};
    return p;
}

static void give_back(std::map<char *, allocation>::iterator it)
{
    char *map = it->second.map;
    const size_t pages = it->second.pages;
    if (it->second.from != allocation::OWN) {
        mmap(map, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    } else {
        madvise(map, pages, MADV_DONTNEED);
        mprotect(map, pages, PROT_NONE);
    }
    allocations.erase(it);
    last_begin = last_end = nullptr;
    if (allocations.empty() && reservations.empty()) region_used = 0;
}

void device_free(void *p)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    auto it = allocations.find(static_cast<char *>(p));
    if (it != allocations.end() && !it->second.mapped) give_back(it);
}

void *device_reserve(size_t size)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    const size_t page = options.page;
    if (!page || !size || size % page || size > DEVICE_REGION || !have_region()) return nullptr;
    char *p = region + region_used;
    p += (page - (uintptr_t) p % page) % page;
    size_t end = (size_t) (p - region) + size + PAGE;
    if (end > DEVICE_REGION) return nullptr;
    region_used = end;
    reservations[p] = size;
    return p;
}

/* The first allocation that overlaps the `size` bytes from p, or the end. */
static std::map<char *, allocation>::iterator first_in(char *p, size_t size)
{
    auto it = allocations.upper_bound(p);
    if (it != allocations.begin() && std::prev(it)->first + std::prev(it)->second.size > p) return std::prev(it);
    return it != allocations.end() && it->first < p + size ? it : allocations.end();
}

bool device_unreserve(void *p)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    auto it = reservations.find(static_cast<char *>(p));
    if (it == reservations.end() || first_in(it->first, it->second) != allocations.end()) return false;
    reservations.erase(it);
    if (allocations.empty() && reservations.empty()) region_used = 0;
    return true;
}

/* True if the bytes are full pages of a reservation without mappings. */
static bool can_map(char *c, size_t size)
{
    auto it = reservations.upper_bound(c);
    if (it == reservations.begin() || !size || (uintptr_t) c % options.page || size % options.page) return false;
    --it;
    size_t at = (size_t) (c - it->first);
    return at <= it->second && size <= it->second - at && first_in(c, size) == allocations.end();
}

bool device_map(void *p, size_t size, bool host)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    char *c = static_cast<char *>(p);
    if (!can_map(c, size) || (options.fail_alloc >= 0 && options.fail_alloc-- == 0)) return false;
    if (mprotect(c, size, PROT_READ | PROT_WRITE)) return false;
    allocations[c] = {size, c, size, true, host ? allocation::HOST : allocation::OWN, current_device};
    return true;
}

bool device_share(void *p, size_t size, int index, int *fd)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    char *c = static_cast<char *>(p);
    shared_end end = {{0}, index};
    std::memcpy(end.magic, shared_magic, sizeof end.magic);
    *fd = -1;
    if (!can_map(c, size) || (options.fail_alloc >= 0 && options.fail_alloc-- == 0)) return false;
    const int memory = memfd_create("emulated device memory", MFD_CLOEXEC);
    if (memory >= 0 && ftruncate(memory, (off_t) (size + sizeof end)) == 0 &&
        pwrite(memory, &end, sizeof end, (off_t) size) == (ssize_t) sizeof end &&
        mmap(c, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0) != MAP_FAILED) {
        allocations[c] = {size, c, size, true, allocation::SHARED, current_device};
        *fd = memory;
        return true;
    }
    if (memory >= 0) close(memory);
    return false;
}

bool device_import(void *p, size_t size, int index, int fd)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    char *c = static_cast<char *>(p);
    struct stat st;
    shared_end end;
    if (!can_map(c, size) || fstat(fd, &st) || !S_ISREG(st.st_mode) || (size_t) st.st_size != size + sizeof end)
        return false;
    if (pread(fd, &end, sizeof end, (off_t) size) != (ssize_t) sizeof end || end.device != index) return false;
    if (std::memcmp(end.magic, shared_magic, sizeof end.magic)) return false;
    if (mmap(c, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) return false;
    allocations[c] = {size, c, size, true, allocation::IMPORTED, current_device};
    return true;
}

bool device_unmap(void *p, size_t size)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    auto it = allocations.find(static_cast<char *>(p));
    if (it == allocations.end() || !it->second.mapped || it->second.size != size) return false;
    give_back(it);
    return true;
}

/* Returns the bytes of allocations that fit. */
template <class F> static size_t bytes_of(const F &fits)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    size_t n = 0;
    for (const auto &a : allocations)
        if (fits(a.second.from)) n += a.second.size;
    return n;
}
void device_each(const std::function<void(char *p, size_t size)> &fn)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    for (const auto &a : allocations) fn(a.first, a.second.size);
}

size_t device_bytes()
{
    return bytes_of([](int from) { return from != allocation::IMPORTED && from != allocation::HOST; });
}
size_t device_imported() { return bytes_of([](int from) { return from == allocation::IMPORTED; }); }
size_t device_host_bytes() { return bytes_of([](int from) { return from == allocation::HOST; }); }

static void protect(const allocation &a, int prot)
{
    mprotect(a.map, a.pages, a.from == allocation::IMPORTED ? prot & ~PROT_WRITE : prot);
}
static void device_protect(int prot)
{
    for (const auto &a : allocations)
        if (a.second.from != allocation::HOST) protect(a.second, prot);
}
visible::visible()
{
    if (options.hide) device_protect(PROT_READ | PROT_WRITE);
}
visible::~visible()
{
    if (options.hide) device_protect(PROT_NONE);
}

static void protect_others(int device, int prot)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    for (const auto &a : allocations)
        if (a.second.device != device) protect(a.second, prot);
}

static std::mutex alone_lock; /* held while some device memory is hidden */
static volatile int alone_is; /* the device that runs meanwhile */

/* Ends the program at the first access to another device's memory, since a real device's behavior is undefined. */
static void tell_other_device(int, siginfo_t *info, void *)
{
    char text[200];
    int owner = -1;
    for (const auto &a : allocations)
        if (info->si_addr >= a.second.map && info->si_addr < a.second.map + a.second.pages) owner = a.second.device;
    const int n = owner < 0 || owner == alone_is
                      ? std::snprintf(text, sizeof text, "an access to %p, where nothing is\n", info->si_addr)
                      : std::snprintf(text, sizeof text,
                                      "a kernel of device %d reaches the memory of device %d at %p\n", (int) alone_is,
                                      owner, info->si_addr);
    if (write(2, text, (size_t) n) < 0) _exit(2);
    _exit(1);
}

static void watch_accesses()
{
    struct sigaction how = {};
    how.sa_sigaction = tell_other_device;
    how.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &how, nullptr); /* again each time: test programs install their own handler */
}

alone::alone(int device)
{
    alone_lock.lock();
    watch_accesses();
    alone_is = device;
    protect_others(device, PROT_NONE);
}
alone::~alone()
{
    protect_others(alone_is, PROT_READ | PROT_WRITE);
    alone_lock.unlock();
}
together::together() { alone_lock.lock(); }
together::~together() { alone_lock.unlock(); }

bool in_device_region(const void *p)
{
    const char *c = static_cast<const char *>(p);
    return region && c >= region && c < region + DEVICE_REGION;
}

bool in_device_memory(const void *p, size_t size)
{
    char *c = const_cast<char *>(static_cast<const char *>(p));
    if (c < last_begin || c >= last_end) {
        auto it = allocations.upper_bound(c);
        if (it == allocations.begin()) return false;
        --it;
        if (c >= it->first + it->second.size) return false;
        last_begin = it->first;
        last_end = it->first + it->second.size;
    }
    return size <= (size_t) (last_end - c);
}

bool device_holds(const void *p, size_t size)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    return in_device_memory(p, size);
}
bool device_holds(const void *p, size_t size, int device)
{
    std::lock_guard<std::mutex> guard(launch_lock);
    return in_device_memory(p, size) && std::prev(allocations.upper_bound((char *) p))->second.device == device;
}

size_t device_offset(const void *p) { return (size_t) (static_cast<const char *>(p) - region); }

} // namespace simt
