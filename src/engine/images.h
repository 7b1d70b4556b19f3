/* The images of a sequence: their positions in the prompt, their identity, and the rows that replace their tokens'
 * embeddings.
 *
 *     prompt    t t <begin> S S S S S S <end> t t        S = soft token; its id has no meaning
 *     image 0               start, n = 6, rows 2, cols 3
 *
 * With M-RoPE a token has three rotary positions (time, row, column). Text at rotary position p has (p, p, p). A token
 * of an image that begins at p has (p, p + its row, p + its column). The text after the image continues at
 * p + max(rows, cols), which is at most p + n. `shift` keeps the difference. It depends only on the images of the
 * prompt, so it needs no update while the sequence decodes, is preempted or reuses a prefix.
 *
 * Memory: one allocation per sequence with images. Created by the submitting thread, then used by the step thread. */
#ifndef PI__IMAGES_H
#define PI__IMAGES_H

#include "cache/block_pool.h"
#include "engine/job.h"

/* One image. */
typedef struct pi__seq_image {
    int32_t rows, cols;          /* grid of tokens */
    /* rotary position minus position (not above 0): of the image's first token, and of the tokens after the image */
    int32_t shift, shift_after;
    /* media: index of its entry in the encoder cache (media.h), which this sequence holds; -1 = none */
    int32_t entry;
    int32_t first_row;           /* media: first row of the image in the encoder cache; -1 = not encoded, or released */
    struct pi__picture *picture; /* owned reference */
} pi__seq_image;

typedef struct pi__seq_images {
    int32_t n;                   /* images; 0 = none */
    pi__block_media *at;         /* [n] positions and identities, ascending */
    pi__seq_image *image;        /* [n] */
} pi__seq_images;

/* Checks the images of a job against its prompt. Their sizes are checked by the engine. */
int pi__images_check(const pi__job *j, pi_error *err);
/* Copies the images of a checked job and takes a reference of each picture. */
int pi__images_copy(pi__seq_images *to, const pi__job *j, pi_error *err);
/* Releases the pictures and the memory. Entries of the encoder cache were released before. */
void pi__images_free(pi__seq_images *im);
/* Returns the index of the first image that ends after position pos; n = none. */
int32_t pi__images_from(const pi__seq_images *im, int32_t pos);
/* Returns true if position pos is in an image. */
static inline bool pi__images_cover(const pi__seq_images *im, int32_t pos)
{
    if (!im->n) return false;
    const int32_t i = pi__images_from(im, pos);
    return i < im->n && pos >= im->at[i].start;
}
/* Returns the position after the last image; 0 = no image. */
static inline int32_t pi__images_end(const pi__seq_images *im)
{
    return im->n ? im->at[im->n - 1].start + im->at[im->n - 1].n : 0;
}
/* Computes the rotary positions of position pos: time, row, column. */
void pi__images_rope(const pi__seq_images *im, int32_t pos, int32_t out[3]);

#endif
