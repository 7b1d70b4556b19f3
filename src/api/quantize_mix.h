/* Which format each tensor of a quantised model gets.
 *
 * A file type ("Q4_K_M") is a mixture: most matrices in one format, the ones that matter more in a better one, the
 * small ones left alone. The rules are llama-quantize's, so that a file made here has the sizes and the layout that
 * people know under that name. No memory of its own but the compiled patterns; one thread. */
#ifndef PI__QUANTIZE_MIX_H
#define PI__QUANTIZE_MIX_H

#include "base/regex.h"
#include "gguf/gguf.h"

typedef struct pi__ftype {
    const char *name; /* "Q4_K_M" */
    int32_t number;   /* general.file_type; -1: as it was */
    int32_t type;     /* enum pi__type of most matrices; -1: tensors are copied */
} pi__ftype;

/* Number i of the file types; NULL past the last. */
const pi__ftype *pi__ftype_at(size_t i);
/* By name (case does not matter, "Q4_K" means "Q4_K_M") or number ("15"); NULL: not known. */
const pi__ftype *pi__ftype_find(const char *name);

typedef struct pi__mix_rule { /* tensor-type=REGEX=TYPE */
    pi__regex *pattern; /* searched for in names */
    int32_t type;       /* enum pi__type */
} pi__mix_rule;

typedef struct pi__mix {
    const pi__ftype *ftype; /* what is wanted */
    bool pure;              /* all matrices alike */
    bool leave_output;      /* output.weight stays as it is */
    int32_t output_type;    /* of output.weight, -1: by the mixture */
    int32_t embd_type;      /* of token_embd.weight, -1: by the mixture */
    bool imatrix;           /* the importance of columns is known */
    pi__mix_rule *rules;    /* n_rules of them; the first that matches decides */
    size_t n_rules;
    pi__regex_scratch *scratch; /* NULL without rules */
    /* from the model, by pi__mix_begin */
    int n_layer, n_expert, n_gqa; /* layers; experts; query heads a key head */
    bool llama_70b;               /* 80 layers with few key heads: attn_v is small, so better */
    bool tied;                    /* there is no output.weight: token_embd serves as one */
    int n_attn_v;                 /* attn_v-like tensors in the model */
    int i_attn_v, i_ffn_down;     /* counted while types are asked for */
} pi__mix;

void pi__mix_init(pi__mix *m, const pi__ftype *ftype);
void pi__mix_free(pi__mix *m);
/* Adds "REGEX=TYPE". PI_EINVAL, PI_ENOMEM. */
int pi__mix_add_rule(pi__mix *m, const char *rule, pi_error *err);
/* Reads what the rules need to know of the model. */
int pi__mix_begin(pi__mix *m, const pi__gguf *g, pi_error *err);
/* The type of t: its own where it is left alone. To be asked once a tensor, in the order of pi__mix_order. PI_ENOMEM;
 * PI_EINVAL: a pattern of a rule gives up on the name. */
int pi__mix_type(pi__mix *m, const pi__tensor *t, int32_t *type, pi_error *err);
/* Orders tensors by layer, those of no layer first, then by name: negative, 0 or positive as for qsort. */
int pi__mix_order(const pi__tensor *a, const pi__tensor *b);
/* The fallback format where rows of n values do not fit the blocks of type; type itself where they do. */
int32_t pi__mix_fit(int32_t type, int64_t n);

#endif
