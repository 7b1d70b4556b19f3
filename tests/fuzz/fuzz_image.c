/* Fuzzes the image decoders: any bytes give an image of the size in their header, or a refusal with a reason. */
#include <stdint.h>
#include <stdlib.h>

#include "media/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const image_limits limits = {.max_bytes = 1 << 20, .max_pixels = 1 << 18};
    image_head head;
    uint8_t *rgb = NULL;
    pi_error err = {0};
    pi_work *work = pi_work_new(0, 0, 2000);
    int rc = image_head_read(data, size, &limits, &head, &err);
    if (!rc) {
        if ((uint64_t) head.width * head.height > limits.max_pixels) __builtin_trap();
        rc = image_decode(data, size, &head, work, &rgb, &err);
        if (!rc && !rgb) __builtin_trap();
        volatile uint8_t last = rc ? 0 : rgb[(size_t) head.width * head.height * 3 - 1];
        (void) last;
    }
    if (rc && !*err.msg) __builtin_trap();
    free(rgb);
    pi_work_free(work);
    return 0;
}
