/* The emulated runtime for tests: counters of its calls, and ways to make it fail. */
#ifndef RUNTIME_EMU_H
#define RUNTIME_EMU_H

#include <atomic>
#include <cstddef>

namespace simt {

/* For all devices together. Calls are functions of runtime.h that return a code, and kernel launches. */
struct runtime_watch {
    std::atomic<long> fail_at{-1};   /* index of the call that fails, from 0; negative = none */
    std::atomic<bool> dead{false};   /* all later calls fail, too */
    std::atomic<bool> idle{false};   /* kernels are counted, but not run */
    /* a wait for a fence also runs the work after it, like a device that is ahead of others */
    std::atomic<bool> hasty{false};
    /* kernels may access only their own device's memory; other accesses end the program */
    std::atomic<bool> apart{false};
    std::atomic<size_t> memory{(size_t) 1 << 35}; /* bytes of device memory, shared by all devices */
    std::atomic<int> n_sm{4};        /* multiprocessors per device */
    /* each engine has this many places for waiting blocks, or n_sm / 2 if that is more, however many engines a device
     * has; 0 = they divide the places, as on a device (places.h) */
    std::atomic<int> places{8};
    std::atomic<bool> shares{false}; /* device memory is host memory, which the host writes to (pi__rt_info.shares) */
    std::atomic<bool> exports{true}; /* device memory can be passed to other processes */
    std::atomic<int> board{1};       /* board number; other boards have other devices */
    std::atomic<size_t> graph_bytes{0}; /* memory limit for graphs, at 1 KiB per graph node; 0 = no limit */
    std::atomic<bool> thorough{false};  /* run the full self-test when a device opens */
    std::atomic<const char *> broken{nullptr}; /* kernels of files with this string in their name do nothing */
    std::atomic<long> broken_after{0};  /* number of these kernels that still work first */
    std::atomic<bool> broken_replay{false};    /* graph replays do nothing */
    /* except on the first device, the end of a capture waits up to this many milliseconds for an exchange to begin */
    std::atomic<int> late_graphs{0};
    std::atomic<bool> lazy{false};   /* devices report that they load kernels at their first launch */
    std::atomic<bool> no_library{false};     /* no BLAS library is available (blas.h) */
    std::atomic<bool> wrong_products{false}; /* the BLAS library computes wrong results */
    std::atomic<long> n_products{0}; /* products computed by the library */
    std::atomic<long> n_calls{0};    /* calls so far */
    std::atomic<long> n_allocs{0};   /* calls that allocate device or host memory */
    std::atomic<long> n_launched{0}; /* calls that queue a kernel outside of graphs */
    std::atomic<long> n_recorded{0}; /* calls that begin a capture */
    std::atomic<long> n_replayed{0}; /* calls that replay a graph */
    std::atomic<long> n_waits{0};    /* calls that wait for the whole queue while it is not empty */
    std::atomic<long> n_ahead{0};    /* waits for a fence that was not reached yet, with more work queued after it */
    /* each launch sets the limit of shared memory of its kernel to its own bytes, which lowers it for other queues */
    std::atomic<bool> own_limits{false};
    std::atomic<long> n_set{0};      /* calls of set_attribute() that changed a value */
    std::atomic<long> n_splits{0};   /* dependent launches with another carve-out than the launch before */
    std::atomic<long> n_large{0};    /* launches with more than 48 KiB of shared memory, or their captures */
    std::atomic<long> n_shared{0};   /* bytes allocated that the host may write, too */
    std::atomic<long> n_prefetched{0}; /* bytes prefetched */
    std::atomic<long> n_down{0};     /* bytes downloaded */
    std::atomic<long> n_up{0};       /* bytes uploaded */
    std::atomic<long> n_waiting{0};  /* exchanges between devices that have begun and not ended */
    std::atomic<long> n_risky{0};    /* graphs created during an exchange: on a real device they might wait for it */
    std::atomic<long> live{0};       /* devices, allocations and graphs that are not freed */
};
extern runtime_watch watch;

/* Attributes of a kernel (cudaFuncSetAttribute):
 * MAX_SHARED  max bytes of dynamic shared memory per block; SIZE_MAX = the device's maximum. Initially 48 KiB.
 * CARVEOUT    shared memory's percentage of the L1 cache of a multiprocessor; SIZE_MAX = the driver selects it. A
 *             multiprocessor changes its percentage only while it is idle: a dependent launch with another one does not
 *             begin early. Initially SIZE_MAX. */
enum attribute { MAX_SHARED, CARVEOUT, N_ATTRIBUTES };
/* Sets an attribute on a device. It belongs to the kernel: all queues of the process have the same. mark: of the
 * kernel's file; kernel NULL = all kernels of the file. Returns false if the attribute was set before, and the new
 * value is lower (MAX_SHARED) or different (CARVEOUT): another queue may rely on the old one. */
bool set_attribute(int device, const void *mark, const void *kernel, attribute what, size_t value);
void reset_attributes(); /* as before kernels are loaded */

/* Number of dependent launches so far. */
extern unsigned long n_dependent;

/* Like device_map (simt.h), for memory that processes share. device_share returns a descriptor. device_import maps
 * such a descriptor's memory of device `index` for reading; device_bytes does not count it. */
bool device_share(void *p, size_t size, int index, int *fd);
bool device_import(void *p, size_t size, int index, int fd);
size_t device_imported(); /* bytes imported */

/* Host memory from host_alloc: its total size, and a switch that makes it unreachable or reachable. */
size_t host_bytes();
void host_hide(bool hidden);

} // namespace simt

#endif
