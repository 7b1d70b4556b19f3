/* The emulated runtime as tests see it: what was asked of it, and how to make it fail. */
#ifndef RUNTIME_EMU_H
#define RUNTIME_EMU_H

#include <atomic>
#include <cstddef>

namespace simt {

/* Of all devices together. Calls are those of runtime.h that give a code, and launches of kernels. */
struct runtime_watch {
    std::atomic<long> fail_at{-1};   /* the call that fails, from 0; negative: none */
    std::atomic<bool> dead{false};   /* and so do all that come later */
    std::atomic<bool> idle{false};   /* kernels are counted, but not run */
    std::atomic<bool> hasty{false};  /* a wait for a fence runs all that is behind it, too, as a device may that is ahead of others */
    std::atomic<bool> apart{false};  /* kernels reach the memory of their own device alone: another's ends the program */
    std::atomic<size_t> memory{(size_t) 1 << 35}; /* bytes of a device; all devices share them */
    std::atomic<int> n_sm{4};        /* multiprocessors that a device has */
    std::atomic<bool> shares{false}; /* device memory is the host's, which writes to it (pi__rt_info.shares) */
    std::atomic<bool> exports{true}; /* its memory can be passed to other processes */
    std::atomic<int> board{1};       /* of which devices are: other boards have other devices */
    std::atomic<size_t> graph_bytes{0}; /* that graphs may take: each takes 1 KiB for each thing that it has */
    std::atomic<bool> thorough{false};  /* all that a device tries out when it opens */
    std::atomic<const char *> broken{nullptr}; /* kernels of files with this in their name do nothing */
    std::atomic<long> broken_after{0};  /* but the first so many of them */
    std::atomic<bool> broken_replay{false};    /* graphs do nothing */
    std::atomic<int> late_graphs{0};    /* milliseconds that the graph of a device but the first takes at most until an exchange waits */
    std::atomic<bool> lazy{false};   /* devices say that they load kernels as they are launched */
    std::atomic<bool> no_library{false};     /* there is none for products (blas.h) */
    std::atomic<bool> wrong_products{false}; /* it multiplies wrongly */
    std::atomic<long> n_products{0}; /* that it was asked for */
    std::atomic<long> n_calls{0};    /* so far */
    std::atomic<long> n_allocs{0};   /* of them, for memory of device or host */
    std::atomic<long> n_launched{0}; /* of them, kernels that were queued by themselves */
    std::atomic<long> n_recorded{0}; /* of them, captures that were begun */
    std::atomic<long> n_replayed{0}; /* of them, graphs that were replayed */
    std::atomic<long> n_waits{0};    /* of them, waits for the whole queue while there was something in it */
    std::atomic<long> n_ahead{0};    /* of them, waits for a fence, which came to it and left something in the queue behind it */
    std::atomic<long> n_down{0};     /* bytes that downloads were for */
    std::atomic<long> n_up{0};       /* and uploads */
    std::atomic<long> n_waiting{0};  /* exchanges between devices that have begun and not ended */
    std::atomic<long> n_risky{0};    /* graphs that were made while there was one: on a device they might wait for it */
    std::atomic<long> live{0};       /* devices, memory and graphs not given back */
};
extern runtime_watch watch;

/* Dependent launches so far. */
extern unsigned long n_dependent;

/* As device_map (simt.h), of memory that processes share: that of a descriptor which share gave, of device number index, is mapped
 * by import, to be read, and is not among device_bytes. */
bool device_share(void *p, size_t size, int index, int *fd);
bool device_import(void *p, size_t size, int index, int fd);
size_t device_imported(); /* bytes */

/* Memory of host_alloc: bytes in all, and making it unreachable, or reachable again. */
size_t host_bytes();
void host_hide(bool hidden);

} // namespace simt

#endif
