/* Kimi delta attention as a block of model graphs (block_kda.c). Symbols in shapes: as in blocks.h; H heads of D
 * values, R values between the two matrices of a low-rank product. */
#ifndef PI__BLOCK_KDA_H
#define PI__BLOCK_KDA_H

#include "model/blocks.h"

typedef struct pi__kda {
    pi__state_layer shape;   /* n_v 0 = no Kimi delta attention */
    float eps;               /* epsilon of the norm before the gate */
    float min_decay;         /* as in pi__gdn */
    /* tensors */
    float *norm;             /* [E] RMSNorm before the block; the architecture declares it */
    pi__weight q, k, v;      /* [HD, E] each */
    /* decays and gates: [HD, E]; or [R, E], and [HD, R] for the second product; n_out 0 = no second product */
    pi__weight decay, decay_up, gate, gate_up;
    pi__weight beta;         /* [H, E] */
    float *conv;             /* [3 HD, taps] convolutions of q, k and v */
    float *dt_bias, *a;      /* [HD], [H] see pi__gdn */
    float *head_norm;        /* [D] RMSNorm of each head's result */
    pi__weight out;          /* [E, HD] */
    int32_t state;           /* index of the layer's state in the model's states */
} pi__kda;
/* Reads the shape from attention.head_count, kda.* and ssm.conv_kernel. eps: see the field. */
void pi__kda_read(pi__model *m, pi__kda *a, float eps);
/* Declares a layer's tensors and its state, and raises the widths of w. */
void pi__kda_declare(pi__model *m, pi__kda *a, int32_t layer, pi__work *w);
/* Returns the number of values in a row of the block's result. */
int64_t pi__kda_width(const pi__kda *a);
/* s->att [n, HD] = the recurrence for the normed residual. Updates the sequences' states. Overwrites s->qkv and
 * s->ff. */
void pi__kda_scan(pi__model *m, const pi__kda *a, const pi__stream *s);
/* y [n, E] = out s->att. */
void pi__kda_result(pi__model *m, const pi__kda *a, const pi__stream *s, float *y);

#endif
