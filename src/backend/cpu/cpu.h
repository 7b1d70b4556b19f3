/* Internals of the CPU backend: the state that its ops share, and the list of functions by file. */
#ifndef PI__CPU_H
#define PI__CPU_H

#include <pthread.h>

#include "backend/device.h"
#include "backend/cpu/pool.h"

/* Instruction sets, within an architecture in order of preference: "auto" takes the last available one. AVX-VNNI and
 * AVX-512 require AVX2; AMX requires AVX-512. I8MM requires NEON; SVE256 requires I8MM. I8MM, AVX-VNNI and AMX have
 * their own matrix kernels. Their other kernels are the kernels of NEON, AVX2 and AVX-512. */
enum pi__isa {
    PI__ISA_GENERIC,
    PI__ISA_NEON,
    PI__ISA_I8MM,
    PI__ISA_SVE256,
    PI__ISA_AVX2,
    PI__ISA_AVXVNNI,
    PI__ISA_AVX512,
    PI__ISA_AMX,
    PI__N_ISAS
};

typedef struct pi__cpu_linear_kernels pi__cpu_linear_kernels; /* linear.h */
typedef struct pi__cpu_attn_kernels pi__cpu_attn_kernels;     /* attention.h */
typedef struct pi__cpu_gdn_kernels pi__cpu_gdn_kernels;       /* gdn.h */
typedef struct pi__cpu_sparse_kernels pi__cpu_sparse_kernels; /* sparse.h */
typedef struct pi__cpu_lora_kernels pi__cpu_lora_kernels;     /* lora.h */
typedef struct pi__cpu_top_kernels pi__cpu_top_kernels;       /* top.h */

typedef struct pi__cpu {
    pi__backend be;                    /* must be first: the public struct */
    pi__pool *pool;                    /* thread pool; the step thread is its thread 0 */
    int isa;                           /* enum pi__isa of all kernels, chosen at create */
    const pi__cpu_linear_kernels *lin; /* matrix kernels of isa */
    const pi__cpu_attn_kernels *attn;  /* attention */
    const pi__cpu_gdn_kernels *gdn;    /* gated delta rule */
    const pi__cpu_sparse_kernels *sparse; /* DeepSeek V4: sparse attention to rows and entries */
    const pi__cpu_lora_kernels *lora;  /* LoRA adapters */
    const pi__cpu_top_kernels *top;    /* top values of rows */
    char desc[64];                     /* text for describe() */
    pi__limits lim;                    /* limits of the last reserve() */
    char *scratch;                     /* scratch memory of reserve(), used by one op at a time; page-aligned */
    size_t scratch_size;               /* bytes */
    struct {
        const void *of;                /* data of the matrix that `tile` belongs to; NULL = none yet */
        float *tile;                   /* [n_tile] max row norm of each tile of that matrix */
        float least, most;             /* min and max of `tile` */
    } norms;                           /* cached row norms of the last matrix that linear_best.c multiplied */
    /* threads of a decode step (a logits row for every token); threads of other steps */
    int32_t n_decode, n_prefill;
    pthread_t placed;                  /* step thread that begin() gave the cores and priority of pool thread 0 */
    bool has_placed;                   /* true = `placed` is valid */
} pi__cpu;

/* isa.c */
typedef struct pi__isa_name {
    const char *name; /* name for the isa option */
    const char *desc; /* text for describe() */
} pi__isa_name;
extern const pi__isa_name pi__isa_names[]; /* [enum pi__isa] */
/* True if the processor, the system and the build support the instruction set. */
bool pi__isa_available(int isa);
/* x86: True if AMX tile registers and byte products can be used. leaf7_edx: edx of CPUID leaf 7; xcr0: register states
 * that the system saves. Only if both allow AMX, calls permit(), which requests Linux's permission for this process. */
bool pi__amx_usable(uint32_t leaf7_edx, uint64_t xcr0, bool (*permit)(void));
/* Sets *out to the enum pi__isa for a value of the isa option. NULL, "" and "auto" = the best available one. Returns
 * PI_EUNSUPPORTED for an unavailable or unknown one. */
int pi__isa_choose(const char *name, int *out, pi_error *err);

/* linear.c: matrices. Ops use cpu->scratch from its start. */
const pi__cpu_linear_kernels *pi__cpu_linear_kernels_of(int isa, int bits); /* bits: of packed activations, 8 or 15 */
size_t pi__cpu_weight_size(const pi__backend *be, pi__weight *w);
void pi__cpu_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
size_t pi__cpu_linear_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* moe.c: routed experts. */
size_t pi__cpu_moe_scratch(const pi__cpu *cpu, const pi__limits *lim);
/* id[0 .. n_used - 1] = indices of the n_used largest of n logits, largest first. Of equal logits the lower index comes
 * first. A NaN is chosen only if fewer than n_used logits are numbers. */
void pi__cpu_best_of(const float *logits, int32_t n, int32_t n_used, int32_t *id);


/* attention.c: the paged cache and attention over it. */
const pi__cpu_attn_kernels *pi__cpu_attn_kernels_of(int isa);
size_t pi__cpu_kv_bytes(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                        int32_t block_size);
size_t pi__cpu_attn_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* gdn.c: the gated delta rule and its states. */
const pi__cpu_gdn_kernels *pi__cpu_gdn_kernels_of(int isa);
size_t pi__cpu_state_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cpu_snapshot_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cpu_gdn_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* head_linear.c: matrices of heads. */
size_t pi__cpu_head_linear_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* sparse.c, indexer.c, compress.c, hyper.c: DeepSeek V4. */
const pi__cpu_sparse_kernels *pi__cpu_sparse_kernels_of(int isa);
size_t pi__cpu_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);
size_t pi__cpu_sparse_scratch(const pi__cpu *cpu, const pi__limits *lim);
size_t pi__cpu_indexer_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* lora.c: LoRA adapters. */
const pi__cpu_lora_kernels *pi__cpu_lora_kernels_of(int isa);
size_t pi__cpu_lora_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* topk.c: top values of logits rows. */
const pi__cpu_top_kernels *pi__cpu_top_kernels_of(int isa);
size_t pi__cpu_topk_scratch(const pi__cpu *cpu, const pi__limits *lim);
bool pi__cpu_topk_here(const pi__backend *be);
void pi__cpu_topk(pi__backend *be, const pi__batch *b, const pi__topk *a);

/* The ops, each in the file with its name; small ops on float rows are in elementwise.c. An op uses cpu->scratch
 * from its start. */
#define PI__CPU_OP(name, type) void pi__cpu_##name(pi__backend *be, const pi__batch *b, const type *a);
PI__OPS_ALL(PI__CPU_OP)
#undef PI__CPU_OP

#endif
