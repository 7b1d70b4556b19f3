/* WebP by libwebp: lossy and lossless, the first frame of animations (see image.h). Alpha is dropped. */
#include "media/image_impl.h"

#ifndef PI_HAVE_WEBP
int image_decode_webp(const image_job *j) { return image_damaged(j, "this build has no libwebp"); }
#else

#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static void drop_alpha(const image_job *j, const uint8_t *rgba)
{
    const size_t n = (size_t) j->width * j->height;
    for (size_t i = 0; i < n; i++) memcpy(j->out + 3 * i, rgba + 4 * i, 3);
}

static int first_frame(const image_job *j, const WebPData *data)
{
    WebPAnimDecoderOptions options;
    uint8_t *rgba = NULL;
    int time, rc = PI_OK;
    if (!WebPAnimDecoderOptionsInit(&options)) return image_damaged(j, "the library has another version");
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *d = WebPAnimDecoderNew(data, &options);
    if (!d || !WebPAnimDecoderGetNext(d, &rgba, &time) || !rgba) rc = image_damaged(j, "its first frame is cut");
    else drop_alpha(j, rgba);
    WebPAnimDecoderDelete(d);
    return rc;
}

int image_decode_webp(const image_job *j)
{
    WebPBitstreamFeatures f;
    const WebPData data = {j->p, j->n};
    if (WebPGetFeatures(j->p, j->n, &f) != VP8_STATUS_OK) return image_damaged(j, "its header is not valid");
    if ((uint32_t) f.width != j->width || (uint32_t) f.height != j->height)
        return image_damaged(j, "its header changed");
    if (f.has_animation) return first_frame(j, &data);
    const size_t n = (size_t) j->width * j->height * 3;
    if (!WebPDecodeRGBInto(j->p, j->n, j->out, n, (int) j->width * 3)) return image_damaged(j, "its data are damaged");
    return PI_OK;
}
#endif
