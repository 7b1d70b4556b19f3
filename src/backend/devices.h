/* The kinds of devices of this build, and the creation of the devices that the options name.
 *
 * A backend is added by its params in pi__device_params and one row in pi__devices. No memory except the backends',
 * any thread. */
#ifndef PI__DEVICES_H
#define PI__DEVICES_H

#include "backend/cuda/params.h"
#include "backend/device.h"
#include "backend/link.h"

/* Options of all kinds of devices. Each kind reads its own. */
typedef struct pi__device_params {
    pi__cpu_params cpu;
    pi__cuda_params cuda;  /* n_threads is ignored: it is cpu.n_threads */
} pi__device_params;

typedef struct pi__device {
    const char *name; /* value of the option "device" */
    int (*create)(pi__backend **out, int32_t index, const pi__device_params *p, const pi__log *log, pi_error *err);
    /* Describes device `index` of this kind. Returns false if it does not exist; for index 0 it still fills in the
     * reason. */
    bool (*tell)(int32_t index, pi__device_info *out);
    /* For ranks in separate processes. rank_id makes the id by which the devices find each other, on rank 0.
     * join_rank links this process's device; all processes call it at the same time. */
    int (*rank_id)(char id[PI__RANK_ID_BYTES], pi_error *err);
    int (*join_rank)(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err);
    /* Replaces modes that each device chooses by itself, for devices that must compute alike. Returns true if p
     * changed. NULL = there are no such modes. */
    bool (*fix_modes)(pi__device_params *p);
    /* Normalizes the params of this kind that another process sent. Returns false if no option gives them. */
    bool (*check_params)(pi__device_params *p);
} pi__device;
/* Best first. Ends with the CPU, which every build has and which can always be created. */
extern const pi__device pi__devices[];
extern const int pi__n_devices;
enum { PI__MAX_DEVICES = 16 }; /* devices that act as one */
enum { PI__SPLIT_NONE, PI__SPLIT_TENSOR /* tensor.h */, PI__SPLIT_LAYER /* stages.h */ };
/* Parses a list of devices: "cuda", "cuda1", "cuda0,cuda1". A name without a number is the next device of its
 * kind. "" and "auto" (the best kind) and "none" (the CPU) are names too. Returns the number of devices; 0 = a
 * name is not in this build. */
int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES]);
/* Returns the kind with exactly this name; NULL = not in this build. */
const pi__device *pi__device_kind(const char *name);

/* ---- device_create.c */

/* Creates the backend of `names`; "auto" takes the first device that can be opened. split (PI__SPLIT_*): combines
 * all named devices, or all devices of the one named kind, in one backend. */
int pi__device_create(pi__backend **out, const char *names, int split, const pi__device_params *p, const pi__log *log,
                      pi_error *err);
/* Creates the device of this process, which is one of several ranks (ranks.h). It is of the named kind, with the
 * process's number on its machine as index. If threads are not configured, the processes of a machine
 * share its cores. */
int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__device_params *p,
                           const pi__log *log, pi_error *err);

#endif
