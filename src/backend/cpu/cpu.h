/* Inside of the CPU backend: the state that its ops share, and which file implements which op. */
#ifndef PI__CPU_H
#define PI__CPU_H

#include <pthread.h>

#include "backend/device.h"
#include "backend/cpu/pool.h"

/* Of one architecture, each has what those before it have. I8MM, AVX-VNNI and AMX have matrix kernels of their own; all others
 * are those of NEON, AVX2 and AVX-512. */
enum pi__isa {
    PI__ISA_GENERIC, PI__ISA_NEON, PI__ISA_I8MM, PI__ISA_SVE256, PI__ISA_AVX2, PI__ISA_AVXVNNI, PI__ISA_AVX512, PI__ISA_AMX, PI__N_ISAS
};

typedef struct pi__cpu_linear_kernels pi__cpu_linear_kernels; /* linear.h */
typedef struct pi__cpu_attn_kernels pi__cpu_attn_kernels;     /* attention.h */
typedef struct pi__cpu_gdn_kernels pi__cpu_gdn_kernels;       /* gdn.h */
typedef struct pi__cpu_sparse_kernels pi__cpu_sparse_kernels; /* sparse.h */
typedef struct pi__cpu_lora_kernels pi__cpu_lora_kernels;     /* lora.h */
typedef struct pi__cpu_top_kernels pi__cpu_top_kernels;       /* top.h */

typedef struct pi__cpu {
    pi__backend be;                    /* first: the public face */
    pi__pool *pool;                    /* threads */
    int isa;                           /* enum pi__isa chosen at create */
    const pi__cpu_linear_kernels *lin; /* kernels of that isa */
    const pi__cpu_attn_kernels *attn;  /* the same for attention */
    const pi__cpu_gdn_kernels *gdn;    /* the same for the delta rule */
    const pi__cpu_sparse_kernels *sparse; /* the same for attention to rows and entries */
    const pi__cpu_lora_kernels *lora;  /* the same for adapters */
    const pi__cpu_top_kernels *top;    /* the same for the largest values of rows */
    char desc[64];                     /* describe() */
    pi__limits lim;                    /* of reserve() */
    char *scratch;                     /* reserve()d, shared by ops one after the other; page-aligned */
    size_t scratch_size;               /* bytes */
    struct {
        const void *of;                /* data of a matrix, the last one that was asked for its largest values alone */
        float *tile;                   /* [n_tile] the largest norm of a row of each of its tiles */
        float least, most;             /* of all */
    } norms;                           /* linear_best.c */
    int32_t n_decode, n_prefill;       /* threads of steps that only decode, and of others */
    pthread_t placed;                  /* thread that begin gave the place of thread 0 */
    bool has_placed;                   /* placed is valid */
} pi__cpu;

/* isa.c */
typedef struct pi__isa_name {
    const char *name; /* as the isa option has it */
    const char *desc; /* as describe() says it */
} pi__isa_name;
extern const pi__isa_name pi__isa_names[]; /* by enum pi__isa */
/* true: processor and system run what the files of an instruction set are compiled with. */
bool pi__isa_there(int isa);
/* x86: the tile registers of AMX and their products of bytes can be used, as far as the processor (edx of leaf 7), the system
 * (XCR0) and permit say; that is asked last, where the others agree, and asks Linux to permit them to this process. */
bool pi__amx_usable(uint32_t leaf7_edx, uint64_t xcr0, bool (*permit)(void));
/* The instruction set for an isa option; the best one for NULL, "" and "auto". PI_EUNSUPPORTED: not there, or no name. */
int pi__isa_choose(const char *name, int *out, pi_error *err);

/* linear.c: matrices. Scratch is laid out by the op from the start of cpu->scratch. */
const pi__cpu_linear_kernels *pi__cpu_linear_kernels_of(int isa, int bits); /* of activations */
size_t pi__cpu_weight_size(const pi__backend *be, pi__weight *w);
void pi__cpu_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
size_t pi__cpu_linear_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* moe.c: routed experts. */
size_t pi__cpu_moe_scratch(const pi__cpu *cpu, const pi__limits *lim);
/* id = the n_used largest of n logits, largest first, equal ones by index. A NaN is taken only where there is no other. */
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

/* lora.c: adapters. */
const pi__cpu_lora_kernels *pi__cpu_lora_kernels_of(int isa);
size_t pi__cpu_lora_scratch(const pi__cpu *cpu, const pi__limits *lim);

/* topk.c: the largest values of rows of logits. */
const pi__cpu_top_kernels *pi__cpu_top_kernels_of(int isa);
size_t pi__cpu_topk_scratch(const pi__cpu *cpu, const pi__limits *lim);
bool pi__cpu_topk_here(const pi__backend *be);
void pi__cpu_topk(pi__backend *be, const pi__batch *b, const pi__topk *a);

/* The ops: each in the file of its name, small ones on rows of floats in elementwise.c. Scratch is laid out by the op from
 * the start of cpu->scratch. */
#define PI__CPU_OP(name, type) void pi__cpu_##name(pi__backend *be, const pi__batch *b, const type *a);
PI__OPS_ALL(PI__CPU_OP)
#undef PI__CPU_OP

#endif
