/* Weights image: a model's weights, packed for the backend, in memory that processes share.
 *
 *     0        header, one page
 *     4096     regions in host memory, by placement, each page-aligned (contents: weights.c)
 *
 *     [weights of the device ........|mark]    one separate allocation on each device of the backend
 *
 * An image is in anonymous memory (memfd), which its owner passes to other processes through a Unix socket
 * (weights_socket.h), or in a file of a cache directory, which the next start maps. Readers map both read-only.
 * Anonymous memory is sealed before it is passed on, so no process can change or truncate it. Device memory is
 * passed as a descriptor of its own (arena_share of device.h); it cannot be sealed, and cache files do not contain
 * it. If a model is on a device and the CPU, the small tensors that lie on both (PI__AT_BOTH) are in no image: each
 * process loads them.
 *
 * The key is a hash of all inputs that determine the bytes: library version, packed layout version, backend and
 * devices; placement, type and shape of each tensor; factors and row orders; size and time of the files; sample bytes
 * of each tensor. Matmul options (matmul, fp4-mode) do not change the bytes and are not part of the key. An owner
 * refuses a request with another key. Files carry a checksum, which is verified when they are mapped. Device memory
 * carries a mark derived from the key. Supported by the CPU backend of a single device, and by backends that export
 * arena memory. Memory: the mapping. Threads: the opening thread. */
#ifndef PI__WEIGHTS_IMAGE_H
#define PI__WEIGHTS_IMAGE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

struct pi__model;

/* Sources of the weights other than the model's file. Strings are owned by the caller; NULL or "" = not used. */
typedef struct pi__weights_source {
    const char *from;   /* socket of an owner process; opening fails if it does not provide the weights */
    const char *cache;  /* directory of images; a missing image is packed and stored there */
    bool keep;          /* pack into memory and keep its descriptors open (for an owner process) */
    pi__log log;        /* log for failures to write an image */
} pi__weights_source;

enum { PI__WEIGHTS_PARTS = 16 /* max devices of a backend */ };

/* A model's weights image, while the model uses it. */
typedef struct pi__weights_image {
    pi__weights_source source;
    pi__digest key;     /* hash of all inputs that determine the bytes, see above */
    char target[800];   /* description of the backends and devices, for messages and requests */
    int fd;             /* descriptor of the host part: kept open with `keep`; else -1 once the image is mapped */
    int part[PI__WEIGHTS_PARTS]; /* [n_parts] descriptors of the devices' memory, likewise */
    int32_t n_parts;    /* number of devices with weights in their own memory; 0 = all weights are in host memory */
    char *map;          /* [size] the host part; NULL = the model has no image */
    size_t size;        /* bytes in host memory */
    bool complete;      /* true = the image has all weights and is mapped read-only; false = load writes them */
    char temp[280];     /* name of the file in the cache directory while it is written */
} pi__weights_image;

/* Number of the packed layout, part of the key. Increase it when any backend's packed layout changes;
 * test_weights_image detects a change. */
enum { PI__PACKED_LAYOUT = 1 };

/* Maps the image from m->image.source: complete, or empty and to be filled by load. No effect if there is no
 * source. Region addresses follow from map (pi__weights_image_at). Returns PI_EUNSUPPORTED if the backend does not
 * support images. */
int pi__weights_image_open(struct pi__model *m, pi_error *err);
/* Returns the part of the image (PI__PART_*) that holds the weights region of a placement; NONE = not in the image. */
enum { PI__PART_NONE, PI__PART_HOST /* in map */, PI__PART_DEVICE /* of the devices' memory */ };
int pi__weights_image_part(const struct pi__model *m, int32_t placement);
/* Returns the address of a placement's region in host memory. */
char *pi__weights_image_at(const struct pi__model *m, int32_t placement);
/* For a region in device memory: `_bytes` returns its size with the mark, in whole pages. `_map` maps memory at
 * base for all of it: another process's, or memory that load fills. */
size_t pi__weights_image_bytes(const struct pi__model *m, int32_t placement);
int pi__weights_image_map(struct pi__model *m, int32_t placement, char *base, pi_error *err);
/* Called when load has written all weights: writes the header, and makes the image available to other processes. */
int pi__weights_image_finish(struct pi__model *m, pi_error *err);
/* Unmaps the image and closes its descriptors. Removes a file that is not complete. */
void pi__weights_image_close(struct pi__model *m);

#endif
