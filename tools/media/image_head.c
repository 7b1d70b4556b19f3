/* Headers of image files: sizes, and the orientation of EXIF data (see image.h). Reads within the given bytes only;
 * allocates nothing. */
#include <string.h>

#include "media/image_impl.h"

/* ------------------------------------------------------------------------------------------------------------ EXIF */

/* Returns the orientation in EXIF data, a small TIFF file: tag 0x112 of its first directory. 1 = not given. */
static int exif_orientation(const uint8_t *p, size_t n)
{
    if (n >= 6 && !memcmp(p, "Exif\0\0", 6)) p += 6, n -= 6;
    if (n < 8) return 1;
    const bool little = !memcmp(p, "II*\0", 4);
    if (!little && memcmp(p, "MM\0*", 4) != 0) return 1;
    const size_t at = little ? image_le32(p + 4) : image_be32(p + 4);
    if (at > n || n - at < 2) return 1;
    const size_t count = little ? image_le16(p + at) : image_be16(p + at);
    for (size_t i = 0; i < count && n - at - 2 >= 12 * (i + 1); i++) {
        const uint8_t *e = p + at + 2 + 12 * i;
        const uint32_t tag = little ? image_le16(e) : image_be16(e);
        const uint32_t type = little ? image_le16(e + 2) : image_be16(e + 2);
        const uint32_t value = little ? image_le16(e + 8) : image_be16(e + 8);
        if (tag == 0x112) return type == 3 && value >= 1 && value <= 8 ? (int) value : 1;
    }
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------- PNG */

/* Chunks: length (4), type (4), data, checksum (4). eXIf may follow the pixels. */
bool image_png_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation)
{
    if (n < 33 || memcmp(p + 12, "IHDR", 4) != 0) return false;
    *w = image_be32(p + 16);
    *h = image_be32(p + 20);
    for (size_t at = 8; n - at >= 12;) {
        const size_t size = image_be32(p + at);
        if (size > n - at - 12) break;
        if (!memcmp(p + at + 4, "eXIf", 4)) *orientation = exif_orientation(p + at + 8, size);
        at += size + 12;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ JPEG */

static bool is_frame(uint8_t marker) /* SOF0 to SOF15 without DHT, JPG and DAC */
{
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/* Segments: 0xFF, marker, length (2), data. The frame header has the sizes; EXIF data are in APP1 before it. */
bool image_jpeg_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation)
{
    bool seen = false;
    for (size_t at = 2; n - at >= 4;) {
        if (p[at] != 0xFF) {
            at++; /* bytes between segments: decoders skip them */
            continue;
        }
        const uint8_t marker = p[at + 1];
        if (marker == 0xFF || marker == 0 || marker == 1 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += marker == 0xFF ? 1 : 2;
            continue;
        }
        if (marker == 0xD9 || marker == 0xDA) return false; /* the end or a scan before any frame */
        const size_t size = image_be16(p + at + 2);
        if (size < 2 || size > n - at - 2) return false;
        const uint8_t *data = p + at + 4;
        if (is_frame(marker)) {
            if (size < 8) return false;
            *h = image_be16(data + 1);
            *w = image_be16(data + 3);
            return true;
        }
        if (marker == 0xE1 && !seen && size >= 8 && !memcmp(data, "Exif\0\0", 6)) {
            *orientation = exif_orientation(data, size - 2);
            seen = true;
        }
        at += 2 + size;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ WebP */

static bool vp8_size(const uint8_t *d, size_t size, uint32_t *w, uint32_t *h)
{
    if (size < 10 || memcmp(d + 3, "\x9d\x01\x2a", 3) != 0) return false;
    *w = image_le16(d + 6) & 0x3FFF;
    *h = image_le16(d + 8) & 0x3FFF;
    return true;
}

static bool vp8l_size(const uint8_t *d, size_t size, uint32_t *w, uint32_t *h)
{
    if (size < 5 || d[0] != 0x2F) return false;
    const uint32_t bits = image_le32(d + 1);
    *w = (bits & 0x3FFF) + 1;
    *h = (bits >> 14 & 0x3FFF) + 1;
    return true;
}

/* RIFF chunks: type (4), length (4), data, a padding byte after odd lengths. */
bool image_webp_head(const uint8_t *p, size_t n, uint32_t *w, uint32_t *h, int *orientation)
{
    bool found = false;
    for (size_t at = 12; at <= n && n - at >= 8;) {
        const uint8_t *d = p + at + 8;
        const size_t left = n - at - 8, size = image_le32(p + at + 4);
        const size_t have = size < left ? size : left;
        if (at == 12 && !memcmp(p + at, "VP8X", 4) && have >= 10) {
            *w = image_le24(d + 4) + 1;
            *h = image_le24(d + 7) + 1;
            found = true;
        } else if (!found && !memcmp(p + at, "VP8 ", 4)) {
            return vp8_size(d, have, w, h);
        } else if (!found && !memcmp(p + at, "VP8L", 4)) {
            return vp8l_size(d, have, w, h);
        } else if (!memcmp(p + at, "EXIF", 4)) {
            *orientation = exif_orientation(d, have);
        }
        if (size > left) break;
        at += 8 + size + (size & 1);
    }
    return found;
}
