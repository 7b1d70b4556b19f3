/* The kinds of devices of this build, and the creation of the devices that the options name.
 *
 * To add a backend, add its params to pi__device_params and one row to pi__devices. Allocates only backends. All
 * functions may be called from any thread. */
#ifndef PI__DEVICES_H
#define PI__DEVICES_H

#include "backend/cuda/params.h"
#include "backend/device.h"
#include "backend/link.h"

/* Options of all kinds of devices. Each kind reads its own member, and cpu.n_threads. */
typedef struct pi__device_params {
    pi__cpu_params cpu;
    pi__cuda_params cuda;  /* n_threads is ignored: it is cpu.n_threads */
} pi__device_params;

/* A kind of device: its name and functions. */
typedef struct pi__device {
    const char *name; /* value of the option "device" */
    int (*create)(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log, pi_error *err);
    /* Describes device `index` of this kind in *out. Returns false if the device does not exist; for index 0,
     * out->lacks then has the reason. */
    bool (*tell)(int32_t index, pi__device_info *out);
    /* For ranks in separate processes; NULL = not supported. rank_id runs on rank 0 and creates the id by which the
     * devices find each other. join_rank links this process's device; all processes call it at the same time. */
    int (*rank_id)(char id[PI__RANK_ID_BYTES], pi_error *err);
    int (*join_rank)(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err);
    /* Replaces modes that each device would choose by itself ("auto") with fixed ones, for devices that must compute
     * identical results. Returns true if p changed. NULL = the kind has no modes like that. */
    bool (*fix_modes)(pi__device_params *p);
    /* Normalizes bools and checks the params of this kind that another process sent. Returns false if no option can
     * produce them. */
    bool (*check_params)(pi__device_params *p);
} pi__device;
/* The kinds of this build, best first. The last one is the CPU, which every build has and which can always be
 * created. */
extern const pi__device pi__devices[];
extern const int pi__n_devices;
enum { PI__MAX_DEVICES = 16 }; /* max devices in a list of names */
/* How several devices act as one: not at all; every layer is sharded over all (tensor.h); each has some layers
 * (stages.h). */
enum { PI__SPLIT_NONE, PI__SPLIT_TENSOR, PI__SPLIT_LAYER };
/* Parses a list of devices into dev and index: "cuda", "cuda1", "cuda0,cuda1". A name without a number is the next
 * device of its kind. "" and "auto" are the best kind, "none" is the CPU. Returns the number of devices; 0 = a name is
 * not in this build. */
int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES]);
/* Returns the kind with exactly this name; NULL = not in this build. */
const pi__device *pi__device_kind(const char *name);

/* ---- device_create.c */

/* Creates the backend for the device list `names`. "auto" is the best kind, or the CPU if that device cannot be opened.
 * With split (PI__SPLIT_*), all named devices become one backend; a kind without a number then stands for all its
 * usable devices. */
int pi__device_create(pi__backend **out, const char *names, int split, const pi__device_params *p, const pi__log *log,
                      pi_error *err);
/* Creates the device of this process, which is one of several ranks (ranks.h), and its backend. The i-th process of a
 * machine gets the i-th device of `names`, or device i of the named kind. If threads are not configured, processes that
 * may use all cores of their machine share them evenly. */
int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__device_params *p,
                           const pi__log *log, pi_error *err);

#endif
