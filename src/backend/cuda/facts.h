/* Facts about a device and its current step, and answers that follow from them alone: which activation format a matrix
 * reads, and what its launch can also do. The planner (plan.h) and the functions that queue launches (ops*.c) use the
 * same answers.
 *
 * No memory; any thread. Nothing here calls the device or its kernels, so it works on a machine without one. */
#ifndef PI__CUDA_FACTS_H
#define PI__CUDA_FACTS_H

#include "backend/cuda/kernels_mixed.h"
#include "backend/device.h"

/* Activation format of packed input: 15-bit integers, floats, FP4, terms of 16-bit floats, hi and lo rows for cuBLAS,
 * 16-bit floats, FP8. All except the first two also depend on the matrix type. */
enum { PI__FORM_INTEGERS, PI__FORM_FLOATS, PI__FORM_FP4, PI__FORM_MMA16, PI__FORM_HILO, PI__FORM_W16, PI__FORM_W4A8 };
enum { PI__CUDA_FEW_ROWS = 32 /* max rows of the small-batch kernels */ };
enum { PI__CUDA_BLAS_ROWS = 64 /* min rows for cuBLAS */ };
enum { PI__CUDA_HEAD_ROWS = 128 /* max rows per pass of op head_linear */ };
enum {
    PI__WAY_FP4 = 1,   /* FP4 matrices with FP4 activations */
    PI__WAY_MMA16 = 2, /* 16-bit matrices on 16-bit tensor cores; else as floats */
    PI__WAY_W16 = 4,   /* packed matrices on 16-bit tensor cores, where a kernel exists */
    PI__WAY_W4A8 = 8,  /* MXFP4 matrices with FP8 activations */
    PI__WAY_W4A16 = 16, /* FP4 matrices as W16; no other types */
};

/* Features disabled by the start-up self-test because their results were wrong (selftest.c, selftest_ops.c). A field's
 * comment gives the feature, then the effect of `true`. */
typedef struct cuda_disabled {
    bool packed;    /* int8 tensor core products: weights in quantized types are refused */
    /* products with more than PI__CUDA_FEW_ROWS rows: op linear computes larger inputs in pieces of that many rows */
    bool many_rows;
    bool experts;   /* routed experts: MoE layers are refused */
    bool attention; /* attention: caches are refused */
    bool splits;    /* KV splits: attention's keys are not divided among blocks */
    bool wgmma_attention; /* wgmma attention: prompts use mma.sync on sm_90, too */
    bool slices;    /* split-K: one block computes the complete sum of an output tile */
    bool delta;     /* delta nets: recurrent states are refused */
    bool tails;     /* epilogues: every op has its own launch */
    bool glu;       /* fused gate and up: the activation has its own launch */
    bool key_blocks; /* sparse prefill: query blocks attend to all keys */
    bool topk;      /* topk on the device: rows of logits are copied to the host */
} cuda_disabled;

/* A set of matrix types: bit t is type t. */
typedef uint64_t pi__type_set;

typedef struct pi__facts {
    /* the device; constant after creation */
    int matmul_modes;       /* PI__WAY_*: enabled matmul modes */
    bool wgmma;             /* W16 products with many rows use wgmma */
    bool blas;              /* cuBLAS multiplies F16 and BF16 matrices by many rows */
    bool fuses;             /* several ops may share a launch */
    uint32_t rules_off;     /* PI__RULE_*: rules of the planner that are disabled */
    cuda_disabled disabled; /* features disabled by the self-test */
    int32_t places;         /* blocks of a launch that may wait for others (places.h) */
    int32_t gdn_few;        /* max tokens of a sequence in a delta net's one launch, whatever the number of drafts */
    pi__type_set w16;       /* types with kernels in 16-bit floats (pi__k_w16_has) */
    pi__type_set w16_bf16;  /* of these, types that read BF16; the others read F16 (pi__k_w16_input) */
    pi__type_set wgmma_glu; /* types with gate and up in one launch of wgmma (pi__k_wgmma_has_glu) */
    /* from reserve() */
    pi__limits lim;         /* limits passed to reserve() */
    size_t prepared_bytes;  /* bytes of scratch for a packed input */
    /* the current step */
    /* captured steps: upper bound of the keys that a token sees; 0 = computed from the batch's host arrays */
    int32_t keys;
    bool adapters;          /* tokens of the step have adapters */
} pi__facts;

static inline bool pi__type_in(pi__type_set set, int32_t type) { return set >> type & 1; }

/* Max rows of an epilogue: two per block that may wait for the others (places.h), so 32 from 16 places on. */
int32_t pi__tail_rows(const pi__facts *f);
/* Returns the packed 16-bit format that matrices of this (packed) type read: 0 = F16, 1 = BF16. */
static inline int32_t pi__w16_input(const pi__facts *f, int32_t type) { return pi__type_in(f->w16_bf16, type); }

/* Returns the activation format (PI__FORM_*) for matrices of this packed type with n_in columns; for the matrices of a
 * linear. */
int pi__form(const pi__facts *f, int32_t type, int64_t n_in);
int pi__linear_form(const pi__facts *f, int32_t type, const pi__linear *a);
/* Returns the activation format of the linear's matrix i. */
int pi__form_of(const pi__facts *f, const pi__linear *a, int32_t i);
/* True if x itself can be read in this format, without packing. */
bool pi__reads_in_place(int form, const pi__lin_in *in, int32_t n_rows, int64_t n_in);
bool pi__same_input(const pi__lin_in *a, const pi__lin_in *b);

/* The formats in which an epilogue packs an input: at most one of integers, halves and fp4, in one region of scratch;
 * and floats or terms, in another one. */
typedef struct pi__targets {
    bool integers, halves, fp4, floats, terms;
    int32_t bf16;                 /* of halves: 1 = BF16, 0 = F16 */
    int32_t fp4_type, terms_type; /* of fp4 and terms: type of the matrices */
    bool fp8;                     /* of fp4: FP8 */
} pi__targets;
/* Returns the formats that the matrices of `next` read, as far as epilogue kernels support them. */
pi__targets pi__targets_of(const pi__facts *f, const pi__linear *next);
static inline bool pi__has_targets(const pi__targets *t)
{
    return t->integers || t->halves || t->fp4 || t->floats || t->terms;
}
/* True if one of the linear's matrices reads its input in FP4 or FP8. */
bool pi__reads_fp4(const pi__facts *f, const pi__linear *a);
/* True if one of the linear's matrices reads the input of the first matrix of `next` in the same format. */
bool pi__reads_same(const pi__facts *f, const pi__linear *a, const pi__linear *next);

/* Launches of a linear. run_of_mixed: number of matrices, from i on, that fit into one launch of several types.
 * run_of_type: likewise, of one type. */
int32_t pi__run_of_mixed(const pi__facts *f, const pi__linear *a, int32_t i);
int32_t pi__run_of_type(const pi__facts *f, const pi__linear *a, int32_t i);
/* True if the linear is the mixing matrix of residual streams. One kernel (hyper_kernels.cuh) computes it for any
 * number of rows, with sums in its own order. */
bool pi__is_mix(const pi__facts *f, const pi__linear *a);

/* has_tail: true if the launch of the linear's last matrices can have an epilogue. has_routes: true if that epilogue
 * can compute the MoE routes of the linear's rows, with n_expert experts. has_latent: true if the linear is one launch,
 * which can also process latent-attention inputs. has_streams: true if the launch can also add the linear's results to
 * residual streams. fits_down: true if the linear can share a launch with the experts' down. */
bool pi__has_tail(const pi__facts *f, const pi__linear *a);
bool pi__has_routes(const pi__facts *f, const pi__linear *a, int32_t n_expert);
bool pi__has_latent(const pi__facts *f, const pi__linear *a);
bool pi__has_streams(const pi__facts *f, const pi__linear *a);
bool pi__fits_down(const pi__facts *f, const pi__linear *a);
/* True if the product of a linear of many rows can add its results to the residual of `add` itself. */
bool pi__adds_itself(const pi__facts *f, const pi__linear *a, const pi__add_norm *add);
/* True if gate and up (linear a) can be one launch with their activation, which packs the input of `next`. */
bool pi__has_glu(const pi__facts *f, const pi__linear *a, const pi__linear *next);
/* True if gate, up and activation of the experts are one launch, which packs the input of down. */
bool pi__experts_have_glu(const pi__facts *f, const pi__moe *a);
/* Returns a linear with the input and the gate matrices of op moe. */
pi__linear pi__moe_reads(const pi__moe *a);
/* Returns matrices first to first + n - 1 of a linear, as a linear. */
pi__linear pi__linear_part(const pi__linear *a, int32_t first, int32_t n);

/* True if the products of op head_linear use 16-bit floats. is_apart: true if each matrix is a separate product.
 * takes_groups: true if op sparse can write the op's packed input. */
bool pi__heads_in_16(const pi__facts *f, const pi__head_linear *a);
bool pi__heads_apart(const pi__head_linear *a);
bool pi__heads_take_groups(const pi__facts *f, const pi__head_linear *a);

/* Returns the max over sequences of the number of keys from the first one that any of its tokens in the step sees to
 * its last token. window 0 = unlimited. */
int32_t pi__max_keys(const pi__batch *b, int32_t window);
/* Returns an upper bound of the number of keys that a token of the step sees; equal for all steps of a captured
 * shape. */
int32_t pi__most_seen(const pi__facts *f, const pi__batch *b);
/* True if no token of the step sees more than n_top entries. Then all are picked, and op indexer does nothing. */
bool pi__picks_all(const pi__facts *f, const pi__batch *b, const pi__kv_layer *entries, int32_t n_top);
/* True if the last launch of op gdn can have an epilogue: Mamba-2, or a delta net that is one launch. */
bool pi__gdn_has_tail(const pi__facts *f, const pi__batch *b, const pi__gdn *a);

#endif
