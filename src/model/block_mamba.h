/* The Mamba mixer, the first version, as a block of model graphs (block_mamba.c). Symbols in shapes: as in blocks.h; C
 * channels with N values each (state size), R values of the low-rank projection of time steps. */
#ifndef PI__BLOCK_MAMBA_H
#define PI__BLOCK_MAMBA_H

#include "model/blocks.h"

typedef struct pi__mamba {
    int32_t n_channel;       /* C; 0 = no Mamba mixer */
    int32_t n_state, n_rank; /* N, R */
    int32_t n_taps;          /* taps of the convolution */
    bool norms;              /* norms of time steps, B and C, with weights in the file */
    bool plain_norms;        /* the same norms without weights */
    float norm_eps;          /* their epsilon */
    const int32_t *order;    /* [N * C] place in the file of each value of `a` */
    /* tensors */
    pi__weight in;           /* [2C, E] values (x), gates (z) */
    float *conv, *conv_bias; /* [C, taps], [C] */
    pi__weight x;            /* [R + 2N, C] time steps, B, C of the convolved values */
    float *norm_dt, *norm_b, *norm_c; /* [R], [N], [N]; NULL = no norm */
    pi__weight dt;           /* [C, R] */
    float *dt_bias, *a, *skip; /* [C], [N, C], [C], see pi__scan */
    pi__weight out;          /* [E, C] */
    int32_t scan_state, conv_state; /* indices in the model's states */
} pi__mamba;
/* Reads the shape from ssm.*. The architecture sets the norms. */
void pi__mamba_read(pi__model *m, pi__mamba *a);
/* Declares a layer's tensors and its states, and raises the widths of w. */
void pi__mamba_declare(pi__model *m, pi__mamba *a, int32_t layer, pi__work *w);
/* s->att [n, C] = the recurrence for the input `in`. Updates the sequences' states. Overwrites s->qkv. */
void pi__mamba_scan(pi__model *m, const pi__mamba *a, const pi__lin_in *in, const pi__stream *s);
/* y [n, E] = out s->att. */
void pi__mamba_result(pi__model *m, const pi__mamba *a, const pi__stream *s, float *y);

#endif
