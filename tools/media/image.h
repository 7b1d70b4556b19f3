/* Image files as pixels: PNG, JPEG, WebP, GIF (first frame) and BMP.
 *
 *     bytes  --image_head-->  format, sizes       reads headers only, allocates nothing
 *            --image_decode-> RGB pixels          upright, without alpha, as Pillow's convert("RGB")
 *
 * Files are hostile. image_head finds the sizes first, so that limits and token budgets are checked before any pixel
 * is decoded; image_decode then fails if the file's data disagree with its header. PNG, JPEG and WebP need libraries
 * (CMake options PAGEDINFER_PNG, PAGEDINFER_JPEG, PAGEDINFER_WEBP); a build without one refuses the format by name.
 *
 * Memory: the result and the decoder's own, all freed before the return except the result. Threads: any. */
#ifndef PAGEDINFER_MEDIA_IMAGE_H
#define PAGEDINFER_MEDIA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

enum image_format { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP, IMAGE_GIF, IMAGE_BMP };

/* Limits of one file. */
typedef struct image_limits {
    size_t max_bytes;     /* of the encoded file */
    uint64_t max_pixels;  /* width * height */
} image_limits;
enum { IMAGE_MAX_SIDE = 65535 };
image_limits image_default_limits(void); /* 32 MiB, 64 megapixels */

typedef struct image_head {
    enum image_format format;
    uint32_t width, height;         /* of the result, after the orientation was applied */
    uint32_t coded_width, coded_height; /* as stored */
    int orientation;                /* EXIF, 1 to 8; 1 = stored upright */
} image_head;

/* Reads the format, sizes and orientation of a file of n bytes. Returns PI_OK, PI_EINVAL (not an image, or damaged),
 * PI_EUNSUPPORTED (a known format that this build does not read; err names it) or PI_ETOOBIG (beyond the limits). */
int image_head_read(const void *bytes, size_t n, const image_limits *limits, image_head *out, pi_error *err);
/* Decodes the file of a head to *rgb, [height, width, 3], which the caller frees with free. work: checked during the
 * decoding; NULL = no limit. Returns PI_OK, PI_EINVAL (damaged), PI_EUNSUPPORTED, PI_ENOMEM or the code of work. */
int image_decode(const void *bytes, size_t n, const image_head *head, pi_work *work, uint8_t **rgb, pi_error *err);
/* Reads a file from disk with these limits; *bytes is freed with free. PI_ENOENT, PI_EIO, PI_ETOOBIG, PI_ENOMEM. */
int image_read_file(const char *path, const image_limits *limits, uint8_t **bytes, size_t *n, pi_error *err);
/* Returns the names of the formats that this build reads: "PNG, JPEG, GIF, BMP". Static. */
const char *image_formats(void);

#endif
