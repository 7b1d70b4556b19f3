/* The runtime of the CUDA backend: one device, one stream (see runtime.h).
 *
 * Memory: a small object; the caller owns device memory. Threads: one at a time, as device.h requires. The opening
 * thread may differ from the step thread, and pinning has its own thread, so every call sets its device. */
#include "backend/cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/places.h"
#include "backend/cuda/queue.h"
#include "base/alloc.h"
#include "base/system_memory.h"

/* N_MARKS: events for asynchronous copies. GRAPH_BYTES: max device memory of all captured graphs. */
enum { N_MARKS = 8, GRAPH_BYTES = 64 << 20 };

/* The build's targets, as CMake names them. */
#ifndef PI_CUDA_ARCHITECTURES
#define PI_CUDA_ARCHITECTURES "unknown"
#endif

/* Error code after a write to rt->stuck; no code of CUDA. */
enum { STUCK = 1 << 20 };

struct pi__rt_graph {
    cudaGraphExec_t exec;
    size_t size; /* bytes of device memory that creating it took */
};

/* A section with the address of one kernel of each launch_NAME.cu (device.cuh). The linker defines these symbols as its
 * start and end. */
extern const void *const __start_pi__kernel_files[] __attribute__((visibility("hidden")));
extern const void *const __stop_pi__kernel_files[] __attribute__((visibility("hidden")));

/* Driver functions, loaded at run time: the library does not link to the driver, so that it starts without one. NULL
 * = the driver does not have the function. */
typedef struct driver {
    PFN_cuDeviceGet_v2000 device;
    PFN_cuDeviceGetAttribute_v2000 attribute;
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
    PFN_cuMemExportToShareableHandle_v10020 export_memory;
    PFN_cuMemImportFromShareableHandle_v10020 import_memory;
    PFN_cuFuncGetModule_v11000 module_of;
    PFN_cuModuleGetFunctionCount_v12040 count_functions;
    PFN_cuModuleEnumerateFunctions_v12040 list_functions;
    PFN_cuFuncLoad_v12040 load_function;
    PFN_cuFuncGetAttribute_v2020 function_attribute;
    PFN_cuFuncSetAttribute_v9000 set_function_attribute;
} driver;

struct pi__rt {
    int device;                 /* CUDA device number */
    int32_t places;             /* places of pi__places_take() */
    volatile uint32_t *stuck;   /* pi__rt_info.stuck, pinned memory */
    cudaStream_t stream;        /* all work except asynchronous copies */
    pi__queue queue;            /* the stream with device properties, as launch functions receive it */
    cudaStream_t copies;        /* stream of asynchronous copies */
    cudaEvent_t fence[PI__RT_FENCES]; /* fences, recorded in `stream` */
    cudaEvent_t order;          /* recorded in `stream` before each asynchronous copy, which waits for it */
    cudaEvent_t passed;         /* recorded in `stream`; streams of other devices wait for it (pi__rt_follow) */
    cudaEvent_t stamp[2];       /* time stamps; NULL = not used yet */
    cudaEvent_t mark[N_MARKS];  /* ring of events in the stream `copies` */
    uint64_t mark_at[N_MARKS];  /* value of n_copies when each event was recorded */
    int first_mark, n_marks;    /* oldest event of the ring that may not have passed; number of these events */
    uint64_t n_copies, n_ended; /* number of copies queued; number known to be complete */
    driver fn;                  /* constant after pi__rt_open() */
    size_t page;                /* page size of mapped memory; 0 = mapping is not supported */
};

const char *const pi__rt_kind = "cuda";

/* Returns CUDA's text, except for codes that need a remedy. */
const char *pi__rt_text(int code)
{
    if (code == STUCK)
        return "blocks of a kernel waited too long for each other: set cuda-waiting-blocks to 1, or open fewer engines "
               "on this GPU";
    switch ((cudaError_t) code) {
    case cudaErrorInsufficientDriver: return "no NVIDIA driver, or one too old for this build: update it";
    case cudaErrorNoDevice: return "the NVIDIA driver finds no GPU";
    case cudaErrorNoKernelImageForDevice:
        return "this build has no kernels for its architecture, only for " PI_CUDA_ARCHITECTURES
               " (CMAKE_CUDA_ARCHITECTURES); 80 is the oldest";
    case cudaErrorInvalidDevice: return "no device has this number";
    default: return cudaGetErrorString((cudaError_t) code);
    }
}

int pi__rt_tell(int32_t index, pi__rt_info *info)
{
    struct cudaDeviceProp prop;
    *info = (pi__rt_info) {0};
    cudaError_t e = cudaGetDeviceProperties(&prop, index);
    if (e) {
        cudaGetLastError(); /* clear the error: the next launch must not report it */
        return (int) e;
    }
    snprintf(info->name, sizeof info->name, "%.60s, sm_%d%d", prop.name, prop.major, prop.minor);
    info->memory = prop.totalGlobalMem;
    info->n_sm = prop.multiProcessorCount;
    info->arch = prop.major * 10 + prop.minor;
    info->integrated = prop.integrated;
    info->graph_bytes = GRAPH_BYTES;
    info->shares = prop.integrated && prop.managedMemory && prop.concurrentManagedAccess;
    memcpy(info->uuid, prop.uuid.bytes, sizeof info->uuid);
    return prop.major < 8 ? (int) cudaErrorNoKernelImageForDevice : 0;
}

/* Sets *to to the driver function `name` of this version of the driver API (12040 is CUDA 12.4), or to NULL. */
static void find(void **to, const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *to = NULL;
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, to, version, cudaEnableDefault, &found);
    if (e) cudaGetLastError(); /* clear the error: the next launch must not report it */
    if (e || found != cudaDriverEntryPointSuccess) *to = NULL;
}

static void find_all(driver *d)
{
    find((void **) &d->device, "cuDeviceGet", 2000);
    find((void **) &d->attribute, "cuDeviceGetAttribute", 2000);
    find((void **) &d->granularity, "cuMemGetAllocationGranularity", 10020);
    find((void **) &d->reserve, "cuMemAddressReserve", 10020);
    find((void **) &d->unreserve, "cuMemAddressFree", 10020);
    find((void **) &d->create, "cuMemCreate", 10020);
    find((void **) &d->release, "cuMemRelease", 10020);
    find((void **) &d->map, "cuMemMap", 10020);
    find((void **) &d->unmap, "cuMemUnmap", 10020);
    find((void **) &d->set_access, "cuMemSetAccess", 10020);
    find((void **) &d->export_memory, "cuMemExportToShareableHandle", 10020);
    find((void **) &d->import_memory, "cuMemImportFromShareableHandle", 10020);
    find((void **) &d->module_of, "cuFuncGetModule", 11000);
    find((void **) &d->count_functions, "cuModuleGetFunctionCount", 12040);
    find((void **) &d->list_functions, "cuModuleEnumerateFunctions", 12040);
    find((void **) &d->load_function, "cuFuncLoad", 12040);
    find((void **) &d->function_attribute, "cuFuncGetAttribute", 2020);
    find((void **) &d->set_function_attribute, "cuFuncSetAttribute", 9000);
}

/* Returns the properties of mapped memory. shared: it can be exported to other processes. */
static CUmemAllocationProp memory_of(const pi__rt *rt, bool shared)
{
    return (CUmemAllocationProp) {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = shared ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                                 : CU_MEM_HANDLE_TYPE_NONE,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rt->device}};
}

/* Returns the granularity of mapped device memory in bytes; 0 = mapping is not supported. */
static size_t find_page(pi__rt *rt)
{
    const driver *d = &rt->fn;
    const CUmemAllocationProp prop = memory_of(rt, false);
    CUdevice device;
    size_t page = 0;
    int can = 0;
    if (!d->device || !d->attribute || !d->granularity || !d->reserve || !d->unreserve || !d->create || !d->release ||
        !d->map || !d->unmap || !d->set_access) return 0;
    CUresult e = d->device(&device, rt->device);
    if (!e) e = d->attribute(&can, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (!e && can) e = d->granularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return e || (page & (page - 1)) ? 0 : page;
}

/* Returns the location of host memory: the NUMA node that is closest to the device. */
static CUmemLocation host_of(const pi__rt *rt)
{
    CUdevice device;
    int node = -1;
    if (rt->fn.device(&device, rt->device) || rt->fn.attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device))
        node = -1;
    return (CUmemLocation) {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node < 0 ? 0 : node};
}

/* Returns the properties of mapped host memory. */
static CUmemAllocationProp host_memory_of(const pi__rt *rt)
{
    CUmemAllocationProp prop = memory_of(rt, false);
    prop.location = host_of(rt);
    return prop;
}

/* True if host memory can be mapped in units of the page. */
static bool can_map_host(const pi__rt *rt, size_t page)
{
    const driver *d = &rt->fn;
    const CUmemAllocationProp prop = host_memory_of(rt);
    CUdevice device;
    size_t unit = 0;
    int can = 0;
    if (!page || d->device(&device, rt->device) ||
        d->attribute(&can, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device))
        return false;
    return can && !d->granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) && unit && page % unit == 0;
}

/* True if the driver can export memory of this page size as descriptors. */
static bool can_export(const pi__rt *rt)
{
    const driver *d = &rt->fn;
    const CUmemAllocationProp prop = memory_of(rt, true);
    CUdevice device;
    size_t page = 0;
    int can = 0;
    if (!rt->page || !d->export_memory || !d->import_memory) return false;
    CUresult e = d->device(&device, rt->device);
    if (!e) e = d->attribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    if (!e && can) e = d->granularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    return !e && can && page && rt->page % page == 0;
}

/* Sets rt->queue once, so that launches do not query the driver. late_shared stays set until pi__rt_load_kernels() has
 * set the limit for all kernels. */
static cudaError_t describe_queue(pi__rt *rt)
{
    int major = 0, version = 0, shared = 0;
    cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, rt->device);
    if (!e) e = cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, rt->device);
    if (!e) e = cudaDriverGetVersion(&version);
    rt->queue = (pi__queue) {rt->stream, rt->device, major >= 9 && version >= 12030, shared};
    return e;
}

int pi__rt_open(pi__rt **out, int32_t index, pi__rt_info *info)
{
    *out = NULL;
    cudaError_t e = (cudaError_t) pi__rt_tell(index, info);
    if (!e && index >= PI__RT_MAX) e = cudaErrorInvalidDevice;
    if (e) return (int) e;
    pi__rt *rt = pi__calloc(1, sizeof *rt);
    if (!rt) return (int) cudaErrorMemoryAllocation;
    rt->device = index;
    info->places = rt->places = pi__places_take(index, info->n_sm);
    e = cudaSetDevice(index);
    if (!e) find_all(&rt->fn);
    if (!e) info->page = rt->page = find_page(rt);
    if (!e) info->exports = can_export(rt), info->maps_host = can_map_host(rt, rt->page);
    if (!e) e = cudaStreamCreateWithFlags(&rt->stream, cudaStreamNonBlocking);
    if (!e) e = cudaStreamCreateWithFlags(&rt->copies, cudaStreamNonBlocking);
    if (!e) e = cudaEventCreateWithFlags(&rt->order, cudaEventDisableTiming);
    if (!e) e = cudaEventCreateWithFlags(&rt->passed, cudaEventDisableTiming);
    for (int i = 0; i < PI__RT_FENCES && !e; i++) e = cudaEventCreateWithFlags(&rt->fence[i], cudaEventDisableTiming);
    for (int i = 0; i < N_MARKS && !e; i++) e = cudaEventCreateWithFlags(&rt->mark[i], cudaEventDisableTiming);
    if (!e) e = describe_queue(rt);
    if (!e) e = cudaHostAlloc((void **) &info->stuck, sizeof *info->stuck, cudaHostAllocMapped);
    if (!e) *info->stuck = 0, rt->stuck = info->stuck;
    if (e) {
        pi__rt_close(rt);
        return (int) e;
    }
    *out = rt;
    return 0;
}

void pi__rt_close(pi__rt *rt)
{
    if (!rt) return;
    cudaSetDevice(rt->device);
    for (int i = 0; i < N_MARKS; i++)
        if (rt->mark[i]) cudaEventDestroy(rt->mark[i]);
    for (int i = 0; i < PI__RT_FENCES; i++)
        if (rt->fence[i]) cudaEventDestroy(rt->fence[i]);
    for (int i = 0; i < 2; i++)
        if (rt->stamp[i]) cudaEventDestroy(rt->stamp[i]);
    if (rt->order) cudaEventDestroy(rt->order);
    if (rt->passed) cudaEventDestroy(rt->passed);
    if (rt->copies) cudaStreamDestroy(rt->copies);
    if (rt->stream) cudaStreamDestroy(rt->stream);
    if (rt->stuck) cudaFreeHost((void *) rt->stuck);
    pi__places_return(rt->device, rt->places);
    pi__free(rt);
}

void pi__rt_in_order(pi__rt *rt) { rt->queue.overlaps = false; }

/* On integrated devices, memory that the host can free (page cache) counts as free. */
int pi__rt_free_memory(pi__rt *rt, uint64_t *bytes)
{
    int integrated = 0;
    size_t left = 0, all = 0, host;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaMemGetInfo(&left, &all);
    if (!e) e = cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, rt->device);
    host = integrated ? pi__available_memory() : 0;
    if (host != SIZE_MAX && host > left) left = host < all ? host : all;
    *bytes = e ? 0 : left;
    return (int) e;
}

int pi__rt_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = NULL;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaMalloc(out, size);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* clear the error: the next launch must not report it */
        *out = NULL;
        return 0;
    }
    if (!e) e = cudaMemsetAsync(*out, 0, size, rt->stream);
    if (e) {
        cudaFree(*out);
        *out = NULL;
    }
    return (int) e;
}

int pi__rt_alloc_shared(pi__rt *rt, void **out, size_t size)
{
    *out = NULL;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaMallocManaged(out, size, cudaMemAttachGlobal);
    if (e) *out = NULL;
    if (e != cudaErrorMemoryAllocation) return (int) e;
    cudaGetLastError(); /* clear the error, as above */
    return 0;
}

bool pi__rt_is_shared(pi__rt *rt, const void *p)
{
    struct cudaPointerAttributes a;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaPointerGetAttributes(&a, p);
    if (e) cudaGetLastError(); /* clear the error: the next launch must not report it */
    return !e && a.type == cudaMemoryTypeManaged;
}

/* A driver that cannot prefetch maps pages at their first access. */
int pi__rt_prefetch(pi__rt *rt, void *p, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    if (e) return (int) e;
#if CUDART_VERSION >= 13000
    const struct cudaMemLocation to = {.type = cudaMemLocationTypeDevice, .id = rt->device};
    e = cudaMemPrefetchAsync(p, n, to, 0, rt->stream);
#else
    e = cudaMemPrefetchAsync(p, n, rt->device, rt->stream);
#endif
    if (e != cudaErrorInvalidDevice && e != cudaErrorNotSupported) return (int) e;
    cudaGetLastError(); /* clear the error, as above */
    return 0;
}

void pi__rt_free(pi__rt *rt, void *p)
{
    if (!p) return;
    cudaSetDevice(rt->device);
    cudaFree(p);
}

int pi__rt_reserve(pi__rt *rt, void **out, size_t size)
{
    CUdeviceptr p = 0;
    int e = (int) cudaSetDevice(rt->device);
    if (!e) e = (int) rt->fn.reserve(&p, size, rt->page, 0, 0);
    *out = e ? NULL : (void *) (uintptr_t) p;
    return e == CUDA_ERROR_OUT_OF_MEMORY ? 0 : e;
}

void pi__rt_unreserve(pi__rt *rt, void *p, size_t size)
{
    if (!p) return;
    cudaSetDevice(rt->device);
    rt->fn.unreserve((CUdeviceptr) (uintptr_t) p, size);
}

/* Maps `size` bytes of `memory` at p, with this access, and releases the handle: from then on the mapping alone keeps
 * the memory alive. After an error nothing is mapped. */
static int map_memory(pi__rt *rt, void *p, size_t size, CUmemGenericAllocationHandle memory, CUmemAccess_flags flags,
                      const CUmemLocation *host)
{
    const driver *d = &rt->fn;
    const CUmemAccessDesc access[2] = {{.location = memory_of(rt, false).location, .flags = flags},
                                       {.location = host ? *host : (CUmemLocation) {0}, .flags = flags}};
    const CUdeviceptr at = (CUdeviceptr) (uintptr_t) p;
    CUresult e = d->map(at, size, 0, memory, 0);
    d->release(memory);
    if (e) return (int) e;
    e = d->set_access(at, size, access, host ? 2 : 1);
    if (e) d->unmap(at, size);
    return (int) e;
}

/* Sets *fd to a new close-on-exec descriptor of the memory; -1 after an error. */
static int export_memory(const driver *d, CUmemGenericAllocationHandle memory, int *fd)
{
    const CUresult e = d->export_memory(fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (e) *fd = -1;
    else (void) fcntl(*fd, F_SETFD, FD_CLOEXEC);
    return (int) e;
}

/* Maps new zeroed memory at p. *fd receives its descriptor; fd NULL = not exported. */
static int map_new(pi__rt *rt, void *p, size_t size, int *fd, bool *done)
{
    const driver *d = &rt->fn;
    const CUmemAllocationProp prop = memory_of(rt, fd != NULL);
    CUmemGenericAllocationHandle memory;
    int e = (int) cudaSetDevice(rt->device);
    *done = false;
    if (!e) e = (int) d->create(&memory, size, &prop, 0);
    if (e) return e == CUDA_ERROR_OUT_OF_MEMORY ? 0 : e;
    if (fd) e = export_memory(d, memory, fd);
    if (e) d->release(memory);
    else e = map_memory(rt, p, size, memory, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, NULL);
    if (!e) {
        e = (int) cudaMemsetAsync(p, 0, size, rt->stream);
        if (e) d->unmap((CUdeviceptr) (uintptr_t) p, size);
    }
    *done = !e;
    if (e && fd && *fd >= 0) {
        (void) close(*fd);
        *fd = -1;
    }
    return e == CUDA_ERROR_OUT_OF_MEMORY ? 0 : e;
}

int pi__rt_map(pi__rt *rt, void *p, size_t size, bool *done) { return map_new(rt, p, size, NULL, done); }

int pi__rt_map_host(pi__rt *rt, void *p, size_t size, bool *done)
{
    const CUmemAllocationProp prop = host_memory_of(rt);
    CUmemGenericAllocationHandle memory;
    int e = (int) cudaSetDevice(rt->device);
    *done = false;
    if (!e) e = (int) rt->fn.create(&memory, size, &prop, 0);
    if (!e) e = map_memory(rt, p, size, memory, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &prop.location);
    *done = !e;
    return e == CUDA_ERROR_OUT_OF_MEMORY ? 0 : e;
}
int pi__rt_map_shared(pi__rt *rt, void *p, size_t size, int *fd, bool *done)
{
    *fd = -1;
    return map_new(rt, p, size, fd, done);
}

static int import_as(pi__rt *rt, void *p, size_t size, int fd, CUmemAccess_flags flags)
{
    CUmemGenericAllocationHandle memory;
    const CUresult e = rt->fn.import_memory(&memory, (void *) (intptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return e ? (int) e : map_memory(rt, p, size, memory, flags, NULL);
}

/* Some drivers have no read-only mappings; then the memory is mapped writable. The backend's kernels do not write to
 * weights. */
int pi__rt_map_import(pi__rt *rt, void *p, size_t size, int fd)
{
    int e = (int) cudaSetDevice(rt->device);
    if (!e) e = import_as(rt, p, size, fd, CU_MEM_ACCESS_FLAGS_PROT_READ);
    if (e == CUDA_ERROR_NOT_SUPPORTED || e == CUDA_ERROR_INVALID_VALUE)
        e = import_as(rt, p, size, fd, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return e;
}

/* Waits for all work first: unlike cudaFree, unmapping does not wait for work that uses the memory. */
void pi__rt_unmap(pi__rt *rt, void *p, size_t size)
{
    cudaSetDevice(rt->device);
    cudaStreamSynchronize(rt->stream);
    cudaStreamSynchronize(rt->copies);
    rt->fn.unmap((CUdeviceptr) (uintptr_t) p, size);
}

int pi__rt_host_alloc(pi__rt *rt, void **out, size_t size)
{
    *out = NULL;
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaHostAlloc(out, size, cudaHostAllocDefault);
    if (e) *out = NULL;
    if (e != cudaErrorMemoryAllocation) return (int) e;
    cudaGetLastError();
    return 0;
}

void pi__rt_host_free(pi__rt *rt, void *p)
{
    if (!p) return;
    cudaSetDevice(rt->device);
    cudaFreeHost(p);
}

int pi__rt_upload(pi__rt *rt, void *dst, const void *src, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaMemcpyAsync(dst, src, n, cudaMemcpyHostToDevice, rt->stream));
}

int pi__rt_download(pi__rt *rt, void *dst, const void *src, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToHost, rt->stream));
}

int pi__rt_fence(pi__rt *rt, int i)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaEventRecord(rt->fence[i], rt->stream));
}

/* Returns e, or STUCK if a block has waited too long. */
static int or_stuck(const pi__rt *rt, cudaError_t e) { return e ? (int) e : *rt->stuck ? STUCK : 0; }

/* A fence that was never recorded counts as passed. */
int pi__rt_fence_wait(pi__rt *rt, int i)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return or_stuck(rt, e ? e : cudaEventSynchronize(rt->fence[i]));
}

int pi__rt_follow(pi__rt *rt, pi__rt *other)
{
    cudaError_t e = cudaSetDevice(other->device);
    if (!e) e = cudaEventRecord(other->passed, other->stream);
    if (!e) e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaStreamWaitEvent(rt->stream, other->passed, 0));
}

/* Queues a copy in the stream `copies`, after all work that has been queued in `stream`. */
static int copy_beside(pi__rt *rt, void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaEventRecord(rt->order, rt->stream);
    if (!e) e = cudaStreamWaitEvent(rt->copies, rt->order, 0);
    if (!e) e = cudaMemcpyAsync(dst, src, n, kind, rt->copies);
    rt->n_copies += !e;
    return (int) e;
}

int pi__rt_copy_out(pi__rt *rt, void *dst, const void *src, size_t n)
{
    return copy_beside(rt, dst, src, n, cudaMemcpyDeviceToHost);
}
int pi__rt_copy_in(pi__rt *rt, void *dst, const void *src, size_t n)
{
    return copy_beside(rt, dst, src, n, cudaMemcpyHostToDevice);
}

/* Records an event for the copies queued since the last event, if the ring has a free one. Then removes the passed
 * events, and sets n_ended to the copy number of the last one. */
int pi__rt_copies(pi__rt *rt, int wait, uint64_t *ended)
{
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e && wait) {
        e = cudaStreamSynchronize(rt->copies);
        rt->n_marks = 0;
        if (!e) rt->n_ended = rt->n_copies;
    }
    int last = (rt->first_mark + rt->n_marks) % N_MARKS;
    uint64_t marked = rt->n_marks ? rt->mark_at[(last + N_MARKS - 1) % N_MARKS] : rt->n_ended;
    if (!e && rt->n_marks < N_MARKS && marked < rt->n_copies) {
        e = cudaEventRecord(rt->mark[last], rt->copies);
        rt->mark_at[last] = rt->n_copies;
        rt->n_marks += !e;
    }
    for (; !e && rt->n_marks; rt->n_marks--, rt->first_mark = (rt->first_mark + 1) % N_MARKS) {
        e = cudaEventQuery(rt->mark[rt->first_mark]);
        if (e) break;
        rt->n_ended = rt->mark_at[rt->first_mark];
    }
    if (e == cudaErrorNotReady) {
        cudaGetLastError(); /* clear the error: the next launch must not report it */
        e = cudaSuccess;
    }
    *ended = rt->n_ended;
    return (int) e;
}

int pi__rt_pin(pi__rt *rt, void *p, size_t n)
{
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e) e = cudaHostRegister(p, n, cudaHostRegisterPortable);
    if (e) cudaGetLastError(); /* clear the error: the next launch must not report it */
    return (int) e;
}

void pi__rt_unpin(pi__rt *rt, void *p)
{
    cudaSetDevice(rt->device);
    cudaHostUnregister(p);
}

int pi__rt_wait(pi__rt *rt)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return or_stuck(rt, e ? e : cudaStreamSynchronize(rt->stream));
}

/* Sets the attributes of a loaded kernel, which belong to the kernel and not to a launch: up to `shared` bytes of
 * shared memory per block, and the smallest L1 cache. An SM must be empty to change the split of its memory between
 * L1 and shared memory, so a dependent launch with another split would not begin early. */
static CUresult set_attributes(const driver *d, CUfunction f, int shared)
{
    int fixed = 0; /* bytes of static shared memory */
    CUresult e = d->function_attribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
    if (!e) e = d->set_function_attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared - fixed);
    if (!e) e = d->set_function_attribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                          CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    return e;
}

/* Loads all kernels of the module that contains kernel `one`, and sets their attributes. The device linker joins most
 * files to one module, which the first file (launch_attention.cu) is in: *linked, not loaded again. Returns a code. */
static CUresult load_module(const driver *d, CUfunction one, int shared, CUmodule *linked)
{
    CUmodule module;
    unsigned n = 0;
    CUresult e = d->module_of(&module, one);
    if (!e && module == *linked) return CUDA_SUCCESS;
    if (!e) e = d->count_functions(&n, module);
    CUfunction *f = e ? NULL : pi__calloc(n + 1, sizeof *f);
    if (!e && !f) e = CUDA_ERROR_OUT_OF_MEMORY;
    if (!e) e = d->list_functions(f, n, module);
    for (unsigned i = 0; i < n && !e; i++) e = d->load_function(f[i]);
    for (unsigned i = 0; i < n && !e; i++) e = set_attributes(d, f[i], shared);
    pi__free(f);
    if (!e && !*linked) *linked = module;
    return e;
}

/* True if the runtime's kernel has the limit that load_module() has set with the driver's handle. */
static bool has_limit(const void *kernel, int shared)
{
    struct cudaFuncAttributes a;
    if (!cudaFuncGetAttributes(&a, kernel)) return a.maxDynamicSharedSizeBytes + (int) a.sharedSizeBytes >= shared;
    cudaGetLastError(); /* clear the error: the next launch must not report it */
    return false;
}

/* Fails if a file has no code for the device. If the file's kernels cannot be listed or loaded in advance, sets *lazy
 * to the reason: then the first launch of each kernel loads the kernel, and each launch sets its limit of shared
 * memory. */
int pi__rt_load_kernels(pi__rt *rt, const char **lazy)
{
    const driver *d = &rt->fn;
    const bool can = d->module_of && d->count_functions && d->list_functions && d->load_function &&
                     d->function_attribute && d->set_function_attribute;
    const int shared = rt->queue.late_shared;
    CUmodule linked = NULL;
    bool limited = can;
    cudaError_t e = cudaSetDevice(rt->device);
    *lazy = can ? NULL : "the driver is older than CUDA 12.4: update it";
    for (const void *const *k = __start_pi__kernel_files; k < __stop_pi__kernel_files && !e; k++) {
        cudaFunction_t f;
        e = cudaGetFuncBySymbol(&f, *k);
        const CUresult code = e || *lazy ? CUDA_SUCCESS : load_module(d, (CUfunction) f, shared, &linked);
        if (code) *lazy = cudaGetErrorString((cudaError_t) code); /* driver and runtime use the same codes */
        limited = limited && !e && !*lazy && has_limit(*k, shared);
    }
    if (*lazy) cudaGetLastError(); /* clear the error: the next launch must not report it */
    if (limited) rt->queue.late_shared = 0;
    return (int) e;
}

int32_t pi__rt_index(const pi__rt *rt) { return rt->device; }

/* An error of cudaSetDevice is reported by the launch that follows. */
void *pi__rt_stream(pi__rt *rt)
{
    cudaSetDevice(rt->device);
    return &rt->queue;
}

int pi__rt_stamp(pi__rt *rt, int i)
{
    cudaError_t e = cudaSetDevice(rt->device);
    if (!e && !rt->stamp[i]) e = cudaEventCreateWithFlags(&rt->stamp[i], cudaEventDefault);
    return (int) (e ? e : cudaEventRecord(rt->stamp[i], rt->stream));
}

int pi__rt_stamped(pi__rt *rt, float *ms)
{
    cudaError_t e = cudaSetDevice(rt->device);
    *ms = 0;
    if (!e) e = cudaEventSynchronize(rt->stamp[1]);
    return (int) (e ? e : cudaEventElapsedTime(ms, rt->stamp[0], rt->stamp[1]));
}

int pi__rt_tell_facts(pi__rt *rt, pi__rt_facts *out)
{
    int ecc = 0, khz = 0, memory_khz = 0, l2 = 0, concurrent = 0;
    const struct { int *to; enum cudaDeviceAttr what; } asked[] = {
        {&khz, cudaDevAttrClockRate}, {&memory_khz, cudaDevAttrMemoryClockRate}, {&l2, cudaDevAttrL2CacheSize},
        {&out->bus, cudaDevAttrGlobalMemoryBusWidth}, {&out->block_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin},
        {&ecc, cudaDevAttrEccEnabled}, {&concurrent, cudaDevAttrConcurrentManagedAccess}};
    *out = (pi__rt_facts) {0};
    cudaError_t e = cudaDriverGetVersion(&out->driver);
    if (!e) e = cudaRuntimeGetVersion(&out->runtime);
    for (size_t i = 0; i < sizeof asked / sizeof *asked && !e; i++) {
        /* clear the error; the value stays 0, unknown */
        if (cudaDeviceGetAttribute(asked[i].to, asked[i].what, rt->device)) cudaGetLastError();
    }
    out->clock = khz / 1000, out->memory_clock = memory_khz / 1000, out->l2 = l2 / 1024;
    out->ecc = ecc, out->concurrent = concurrent;
    return (int) e;
}

/* Mode ThreadLocal: other threads may allocate during the capture. */
int pi__rt_capture(pi__rt *rt)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaStreamBeginCapture(rt->stream, cudaStreamCaptureModeThreadLocal));
}

int pi__rt_capture_end(pi__rt *rt, pi__rt_graph **out)
{
    cudaGraph_t graph = NULL;
    size_t before = 0, after = 0, all;
    pi__rt_graph *g = *out = NULL;
    cudaSetDevice(rt->device); /* the capture must end even after an error */
    cudaError_t e = cudaStreamEndCapture(rt->stream, &graph);
    if (!e) g = pi__calloc(1, sizeof *g);
    if (!e && !g) e = cudaErrorMemoryAllocation;
    if (!e) e = cudaMemGetInfo(&before, &all);
    if (!e) e = cudaGraphInstantiateWithFlags(&g->exec, graph, 0);
    if (!e) e = cudaGraphUpload(g->exec, rt->stream); /* so that the first replay takes no memory */
    if (!e) e = cudaMemGetInfo(&after, &all);
    if (graph) cudaGraphDestroy(graph);
    if (e) {
        pi__rt_graph_free(rt, g);
        return (int) e;
    }
    g->size = before > after ? before - after : 0;
    *out = g;
    return 0;
}

size_t pi__rt_graph_size(const pi__rt_graph *g) { return g->size; }

int pi__rt_replay(pi__rt *rt, pi__rt_graph *g)
{
    cudaError_t e = cudaSetDevice(rt->device);
    return (int) (e ? e : cudaGraphLaunch(g->exec, rt->stream));
}

void pi__rt_graph_free(pi__rt *rt, pi__rt_graph *g)
{
    if (!g) return;
    cudaSetDevice(rt->device);
    if (g->exec) cudaGraphExecDestroy(g->exec);
    pi__free(g);
}