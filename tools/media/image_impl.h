/* Internals of the image decoders (image*.c). */
#ifndef PAGEDINFER_MEDIA_IMAGE_IMPL_H
#define PAGEDINFER_MEDIA_IMAGE_IMPL_H

#include "media/image.h"

/* The file being decoded. out: [coded_height, coded_width, 3], zeroed, filled by the decoder. */
typedef struct image_job {
    const uint8_t *p;
    size_t n;
    uint32_t width, height; /* as stored */
    uint8_t *out;
    pi_work *work;
    pi_error *err;
} image_job;

/* Fills err and returns code. */
int image_fail(pi_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* PI_EINVAL: the file is damaged or cut. */
int image_damaged(const image_job *j, const char *why);
/* Decode the pixels. Each format has one function; the file's sizes must equal the job's. */
int image_decode_png(const image_job *j);
int image_decode_jpeg(const image_job *j);
int image_decode_webp(const image_job *j);
int image_decode_gif(const image_job *j);
int image_decode_bmp(const image_job *j);
/* Read sizes and orientation from headers. false = damaged. *orientation is 1 at first. */
bool image_png_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation);
bool image_jpeg_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation);
bool image_webp_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation);
bool image_gif_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h);
bool image_bmp_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h);

static inline uint32_t image_be16(const uint8_t *p) { return (uint32_t) p[0] << 8 | p[1]; }
static inline uint32_t image_be32(const uint8_t *p) { return image_be16(p) << 16 | image_be16(p + 2); }
static inline uint32_t image_le16(const uint8_t *p) { return (uint32_t) p[1] << 8 | p[0]; }
static inline uint32_t image_le24(const uint8_t *p) { return (uint32_t) p[2] << 16 | image_le16(p); }
static inline uint32_t image_le32(const uint8_t *p) { return image_le16(p + 2) << 16 | image_le16(p); }

#endif
