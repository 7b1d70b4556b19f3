/* A model's weights as packed for the backend, in memory that processes share: an image.
 *
 *     0        header, a page
 *     4096     what lies in the host's memory, placement by placement, each from a page on (weights.c has what lies in them)
 *
 *     [weights of the device ........|mark]    on each device that the backend is, a piece of memory of its own
 *
 * An image lives in memory without a name, which whoever made it passes on through a Unix socket (weights_socket.h), or in a
 * file of a directory, where the next start finds it. Either is mapped read-only by who uses it; memory without a name is
 * sealed before it is passed on, so that nobody can cut or change it under its users. A device's memory has a descriptor that
 * is passed on beside (arena_share of device.h); it cannot be sealed, and files have none of it. What a device and the CPU
 * both have of a model that lies on both is small, and in no image: each process loads it.
 *
 * The key is the hash of everything that the bytes follow from: version of the library and of the packed layout, backend and
 * devices, the place, type and shape of each tensor, factors and orders of rows, size and time of the files, and some bytes
 * of each tensor. How products are made (matmul, fp4-mode) changes no byte, and is not in it. Who asks for another key gets
 * nothing. Files carry a checksum, which is verified as they are mapped; a device's memory has a mark, made of the key.
 * The CPU can use images where it is one device, others where they export memory of arenas.
 * Memory: the mapping. Opening thread. */
#ifndef PI__WEIGHTS_IMAGE_H
#define PI__WEIGHTS_IMAGE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

struct pi__model;

/* Where weights come from other than the model's file; strings are the caller's, NULL or "": not from there. */
typedef struct pi__weights_source {
    const char *from;   /* socket of an owner: they come from there, or opening fails */
    const char *cache;  /* directory of images; what is not there is packed, and left there */
    bool keep;          /* they are packed into memory whose descriptor stays in the image */
    pi__log log;        /* that an image could not be written */
} pi__weights_source;

enum { PI__WEIGHTS_PARTS = 16 /* devices of a backend */ };

typedef struct pi__weights_image {
    pi__weights_source source;
    pi__digest key;     /* see above */
    char target[800];   /* what it is packed for: backends, and which devices */
    int fd;             /* with keep; else -1 once it is mapped */
    int part[PI__WEIGHTS_PARTS]; /* of each device's memory; the same */
    int32_t n_parts;    /* devices; 0: all of it is the host's */
    char *map;          /* [size] NULL: there is no image */
    size_t size;        /* bytes of the host's memory */
    bool complete;      /* it is mapped read-only; else load fills it */
    char temp[280];     /* in the directory: its name while it is written */
} pi__weights_image;

/* Bumped when any backend's packed layout changes: test_weights_image notices. */
enum { PI__PACKED_LAYOUT = 1 };

/* Maps the image that the source has, complete or to be filled; none where the source names none. Addresses of regions
 * follow from map (pi__weights_image_at). PI_EUNSUPPORTED: this backend has none. */
int pi__weights_image_open(struct pi__model *m, pi_error *err);
/* Which part of the image a placement's region is. */
enum { PI__PART_NONE, PI__PART_HOST /* of map */, PI__PART_DEVICE /* of the devices' memory */ };
int pi__weights_image_part(const struct pi__model *m, int32_t placement);
/* Region of a placement, of the host's. */
char *pi__weights_image_at(const struct pi__model *m, int32_t placement);
/* Of a device's: bytes with the mark, whole pages; and memory for all of them at base, complete or to be filled. */
size_t pi__weights_image_bytes(const struct pi__model *m, int32_t placement);
int pi__weights_image_map(struct pi__model *m, int32_t placement, char *base, pi_error *err);
/* All weights are in it: it gets its header, and is shared from now on. */
int pi__weights_image_finish(struct pi__model *m, pi_error *err);
/* Unmaps it; what was not finished is removed. */
void pi__weights_image_close(struct pi__model *m);

#endif
