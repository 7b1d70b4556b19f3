/* Weights image: a model's weights, packed for the backend, in memory that processes share.
 *
 *     0        header, one page
 *     4096     regions in host memory, by placement, each page-aligned (contents: weights.c)
 *
 *     [weights of the device ........|mark]    one separate allocation on each device of the backend
 *
 * An image is in anonymous memory (memfd), which its owner passes to other processes through a Unix socket
 * (weights_socket.h), or in a file of a cache directory, which the next start maps. Readers map both read-only.
 * Anonymous memory is sealed before it is passed on, so no process can change or truncate it. Device memory is passed
 * as a descriptor of its own (arena_share of device.h); it cannot be sealed, and cache files do not contain it. If a
 * model is on a device and the CPU, the small tensors that both hold are in no image: each process loads them.
 *
 * The key is a hash of all inputs that determine the bytes: library version, packed layout version, backend and
 * devices; placement, type and shape of each tensor; factors and row orders; size and time of the files; sample bytes
 * of each tensor. Matmul options (matmul, fp4-mode) do not change the bytes and are not part of the key. A request
 * with another key is refused. Files carry a checksum, verified when they are mapped. Device memory carries a mark
 * derived from the key. The CPU supports images if it is a single device; other backends, if they export arena
 * memory. Memory: the mapping. Threads: the opening thread. */
#ifndef PI__WEIGHTS_IMAGE_H
#define PI__WEIGHTS_IMAGE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

struct pi__model;

/* Source of the weights other than the model's file. Strings are owned by the caller; NULL or "" = not used. */
typedef struct pi__weights_source {
    const char *from;   /* socket of an owner process; opening fails if it does not provide the weights */
    const char *cache;  /* directory of images; a missing image is packed and stored there */
    bool keep;          /* pack into memory and keep its descriptor (for an owner process) */
    pi__log log;        /* logs a failure to write an image */
} pi__weights_source;

enum { PI__WEIGHTS_PARTS = 16 /* devices of a backend */ };

typedef struct pi__weights_image {
    pi__weights_source source;
    pi__digest key;     /* see above */
    char target[800];   /* target description: backends and devices */
    int fd;             /* descriptor, with keep; else -1 once mapped */
    int part[PI__WEIGHTS_PARTS]; /* descriptors of the devices' memory; likewise */
    int32_t n_parts;    /* devices with memory of their own; 0 = all in host memory */
    char *map;          /* [size]; NULL = no image */
    size_t size;        /* bytes in host memory */
    bool complete;      /* true: mapped read-only; false: load fills it */
    char temp[280];     /* temporary file name in the directory while it is written */
} pi__weights_image;

/* Bump it when any backend's packed layout changes; test_weights_image detects a change. */
enum { PI__PACKED_LAYOUT = 1 };

/* Maps the source's image, complete or to be filled. No effect if the source names none. Region addresses follow from
 * map (pi__weights_image_at). Returns PI_EUNSUPPORTED if the backend does not support images. */
int pi__weights_image_open(struct pi__model *m, pi_error *err);
/* Part of the image that holds a placement's region. */
enum { PI__PART_NONE, PI__PART_HOST /* in map */, PI__PART_DEVICE /* of the devices' memory */ };
int pi__weights_image_part(const struct pi__model *m, int32_t placement);
/* Returns the address of a placement's region in host memory. */
char *pi__weights_image_at(const struct pi__model *m, int32_t placement);
/* For a device's region: `_bytes` returns its size with the mark, in whole pages. `_map` maps memory for all of it at
 * base, complete or to be filled. */
size_t pi__weights_image_bytes(const struct pi__model *m, int32_t placement);
int pi__weights_image_map(struct pi__model *m, int32_t placement, char *base, pi_error *err);
/* Called when all weights are written: writes the header and shares the image. */
int pi__weights_image_finish(struct pi__model *m, pi_error *err);
/* Unmaps the image. Removes an unfinished file. */
void pi__weights_image_close(struct pi__model *m);

#endif
