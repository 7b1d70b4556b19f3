/* The encoder of images: computes the rows that replace the embeddings of an image's tokens.
 *
 * The engine opens a tower (model/tower.h) from option mmproj as its encoder. The interface is small, so an embedder of
 * the engine can provide another one (pi__config.encoder). All calls come from the thread that runs steps, between
 * steps. */
#ifndef PI__ENCODER_H
#define PI__ENCODER_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/device.h"
#include "image/picture.h"

typedef struct pi__encoder {
    void *ud;                  /* first argument of the functions */
    int32_t width;             /* floats per row: n_embd of the text model * (1 + its DeepStack layers) */
    int32_t max_tokens;        /* rows of the largest image */
    int attention;             /* enum pi__span_attention (model/tower.h): how tokens of an image see each other */
    bool mrope;                /* tokens of an image have two-dimensional rotary positions */
    /* Starts an image; an unfinished one is dropped. */
    void (*begin)(void *ud, pi__picture *p);
    /* Computes the next part of the image: at most p->max_work multiply-adds, or its smallest part. Sets p->work and
     * p->done; done = rows [n_tokens, width] in memory of be are complete. Returns PI_OK, or the device's error: the
     * image is then dropped. */
    int (*step)(void *ud, pi__backend *be, float *rows, pi__image_part *p, pi_error *err);
    /* Drops the image that was started, if any. */
    void (*cancel)(void *ud);
} pi__encoder;

#endif
