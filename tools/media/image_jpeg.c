/* JPEG by libjpeg-turbo: baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK (see image.h).
 *
 * CMYK is read as Adobe's programs write it, inverted, and converted as Pillow does. A progressive file can have very
 * many scans, each over the entire image, so their number is limited. libjpeg reports errors by longjmp: everything
 * that must survive it is in struct reader. */
#include "media/image_impl.h"

#ifndef PI_HAVE_JPEG
int image_decode_jpeg(const image_job *j) { return image_damaged(j, "this build has no libjpeg"); }
#else

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

enum { MAX_SCANS = 200, ROWS_PER_CHECK = 64, CHANNELS_MAX = 4 };

typedef struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const image_job *j;
    uint8_t *row;             /* [width, 4] a row of CMYK; NULL otherwise */
    char why[JMSG_LENGTH_MAX]; /* libjpeg's text of an error */
    bool stopped;             /* the work budget has ended */
    jmp_buf out;
} reader;

static void on_error(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    if (!*r->why) jpeg->err->format_message(jpeg, r->why);
    longjmp(r->out, 1);
}

/* Warnings are ignored, except that the file ended early: libjpeg would fill the rest with grey. */
static void on_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    reader *r = jpeg->client_data;
    r->stopped = pi_work_check(r->j->work) != PI_OK;
    if (r->jpeg.input_scan_number > MAX_SCANS) snprintf(r->why, sizeof r->why, "too many scans");
    if (r->stopped || *r->why) longjmp(r->out, 1);
}

static int muldiv255(int a, int b)
{
    const int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

/* Converts a row of inverted CMYK (255 = no ink). */
static void from_cmyk(const uint8_t *in, uint8_t *out, uint32_t n)
{
    for (uint32_t x = 0; x < n; x++, in += 4, out += 3) {
        const int light = in[3]; /* 255 - black */
        for (int c = 0; c < 3; c++) out[c] = (uint8_t) (light - muldiv255(255 - in[c], light));
    }
}

static int decode(reader *r)
{
    const image_job *j = r->j;
    const size_t row = (size_t) j->width * 3;
    if (setjmp(r->out)) return r->stopped ? pi_work_check(j->work) : image_damaged(j, r->why);
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.client_data = r;
    r->jpeg.progress = &r->progress;
    r->progress.progress_monitor = on_progress;
    jpeg_mem_src(&r->jpeg, j->p, (unsigned long) j->n);
    jpeg_read_header(&r->jpeg, TRUE);
    if (r->jpeg.image_width != j->width || r->jpeg.image_height != j->height)
        return image_damaged(j, "its header changed");
    const bool cmyk = r->jpeg.num_components == CHANNELS_MAX;
    r->jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    if (cmyk && !(r->row = malloc((size_t) j->width * CHANNELS_MAX)))
        return image_fail(j->err, PI_ENOMEM, "out of memory for an image");
    jpeg_start_decompress(&r->jpeg);
    if (r->jpeg.output_components != (cmyk ? CHANNELS_MAX : 3)) return image_damaged(j, "unexpected channels");
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        const uint32_t y = r->jpeg.output_scanline;
        JSAMPROW to = cmyk ? r->row : j->out + y * row;
        jpeg_read_scanlines(&r->jpeg, &to, 1);
        if (cmyk) from_cmyk(r->row, j->out + y * row, j->width);
    }
    return PI_OK;
}

int image_decode_jpeg(const image_job *j)
{
    reader *r = calloc(1, sizeof *r);
    if (!r) return image_fail(j->err, PI_ENOMEM, "out of memory for an image");
    r->j = j;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    const int rc = decode(r);
    if (!setjmp(r->out)) jpeg_destroy_decompress(&r->jpeg);
    free(r->row);
    free(r);
    return rc;
}
#endif
