/* The format of each tensor of a quantized model.
 *
 * A file type ("Q4_K_M") is a mixture: most matrices have one format, more important ones a better format, and small
 * tensors stay unchanged. The rules are llama-quantize's, so that files have the sizes and the layout known under
 * that name. Memory: the compiled patterns. One thread. */
#ifndef PI__QUANTIZE_MIX_H
#define PI__QUANTIZE_MIX_H

#include "base/regex.h"
#include "gguf/gguf.h"

typedef struct pi__ftype {
    const char *name; /* "Q4_K_M" */
    int32_t number;   /* general.file_type; -1 = none: the output keeps the input's value */
    int32_t type;     /* enum pi__type of most matrices; -1 = copy all tensors */
} pi__ftype;

/* Returns file type number i; NULL past the last. */
const pi__ftype *pi__ftype_at(size_t i);
/* Finds a type by name (any case; "Q4_K" means "Q4_K_M") or number ("15"); NULL = unknown. */
const pi__ftype *pi__ftype_find(const char *name);

typedef struct pi__mix_rule { /* tensor-type=REGEX=TYPE */
    pi__regex *pattern; /* searched for in tensor names */
    int32_t type;       /* enum pi__type */
} pi__mix_rule;

typedef struct pi__mix {
    const pi__ftype *ftype; /* requested file type */
    bool pure;              /* one format for all matrices */
    bool leave_output;      /* output.weight stays unchanged */
    int32_t output_type;    /* type of output.weight; -1 = by the mixture */
    int32_t embd_type;      /* type of token_embd.weight; -1 = by the mixture */
    bool imatrix;           /* an importance file is given */
    pi__mix_rule *rules;    /* [n_rules] the first match decides */
    size_t n_rules;
    pi__regex_scratch *scratch; /* NULL if there are no rules */
    /* set from the model by pi__mix_begin */
    int n_layer, n_expert, n_gqa; /* layers; experts per layer; query heads per key head */
    bool llama_70b;               /* 80 layers with several query heads per key head: attn_v gets a better format */
    bool tied;                    /* no output.weight: token_embd is used in its place */
    int n_attn_v;                 /* value matrices in the model: attn_v, attn_qkv and attn_kv_b */
    int i_attn_v, i_ffn_down;     /* value matrices and ffn_down matrices that pi__mix_type has seen so far */
} pi__mix;

/* True if the type is so coarse that the matrix is only written with an importance matrix. */
bool pi__mix_needs_imatrix(const pi__tensor *t, int32_t type);
void pi__mix_init(pi__mix *m, const pi__ftype *ftype);
void pi__mix_free(pi__mix *m);
/* Adds "REGEX=TYPE". PI_EINVAL, PI_ENOMEM. */
int pi__mix_add_rule(pi__mix *m, const char *rule, pi_error *err);
/* Sets the fields of m that depend on the model, from the metadata and tensor names of g. */
int pi__mix_begin(pi__mix *m, const pi__gguf *g, pi_error *err);
/* Stores the output type of t in *type; its input type if t stays unchanged. Counts t, so call it once per tensor, in
 * the order of pi__mix_order. PI_ENOMEM; PI_EINVAL: a rule's pattern exceeds the matching limit on the name. */
int pi__mix_type(pi__mix *m, const pi__tensor *t, int32_t *type, pi_error *err);
/* Compares tensors as for qsort: by layer, tensors without a layer first, then by name. */
int pi__mix_order(const pi__tensor *a, const pi__tensor *b);
/* Returns type if rows of n values are a multiple of its block size; otherwise its fallback format, or F16 if that does
 * not fit either. */
int32_t pi__mix_fit(int32_t type, int64_t n);

#endif
