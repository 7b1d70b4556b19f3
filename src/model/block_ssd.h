/* The Mamba-2 mixer as a block of model graphs (block_ssd.c). Symbols in shapes: as in blocks.h; G key heads (groups of
 * B and C), N values of a key head (state size), H value heads of P values. */
#ifndef PI__BLOCK_SSD_H
#define PI__BLOCK_SSD_H

#include "model/blocks.h"

typedef struct pi__ssd {
    pi__state_layer shape;   /* n_v 0 = no Mamba-2 mixer */
    float eps;               /* epsilon of the norm before the output matrix */
    bool norm_optional;      /* a file without this norm is accepted */
    /* file row of each row of `in`, file channel of each channel of the convolution and of each of its values, file
     * head of each head: files order value heads by key head, the op interleaves them (pi__gdn) */
    int32_t *row, *channel, *tap, *head;
    /* tensors */
    pi__weight in;           /* [2GN + 2HP + H, E] queries (C), keys (B), values (x), gates (z), time steps (dt) */
    float *conv, *conv_bias; /* [2GN + HP, taps], [2GN + HP]; bias NULL = none */
    float *dt_bias, *a, *skip; /* [H] see pi__gdn */
    float *norm;             /* [HP] RMSNorm of the gated output, by key head; NULL = none */
    pi__weight out;          /* [E, HP] */
    int32_t state;           /* index of the layer's state in the model's states */
} pi__ssd;
/* Reads the shape from ssm.*, and makes the orders. eps: see the field. */
void pi__ssd_read(pi__model *m, pi__ssd *s, float eps);
/* Declares a layer's tensors and its state, and raises the widths of w. */
void pi__ssd_declare(pi__model *m, pi__ssd *s, int32_t layer, pi__work *w);
/* Returns the number of values in a row of the mixer's result. */
int64_t pi__ssd_width(const pi__ssd *s);
/* s->att [n, HP] = the recurrence for the input `in`. Updates the sequences' states. Overwrites s->qkv. */
void pi__ssd_scan(pi__model *m, const pi__ssd *a, const pi__lin_in *in, const pi__stream *s);
/* y [n, E] = out s->att. */
void pi__ssd_result(pi__model *m, const pi__ssd *a, const pi__stream *s, float *y);

#endif
