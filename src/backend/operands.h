/* The table of operands: the memory that each op reads and writes, and the backend that it runs on.
 *
 * With this table other code can process a step's calls without knowing the ops: placement on a device or the CPU
 * (split.c), sharding over several devices (tensor.c), removal of padding, capture of graph segments, tracing and
 * checking (trace.c). An op's row is a function in operands.c that fills a list from the op's arguments.
 *
 * No memory; any thread. */
#ifndef PI__OPERANDS_H
#define PI__OPERANDS_H

#include "backend/device.h"

/* Kinds of operands. */
typedef enum pi__operand_kind {
    PI__READ,    /* activations, read */
    PI__WRITE,   /* activations, written: all columns, but no bytes between rows */
    PI__UPDATE,  /* activations, read and written */
    PI__SCRATCH, /* activations that only this op writes and reads */
    PI__VECTOR,  /* values of the model, replicated on all backends */
    PI__WEIGHT,  /* const pi__weight *; its placement counts */
    PI__CACHE,   /* const pi__kv_layer *; its placement counts */
    PI__STATE,   /* const pi__state_layer *; its placement counts */
    PI__TOKENS,  /* host memory: token indices, maybe the batch's own array (pi__batch.logits_indices) */
    PI__HOST,    /* host memory that is valid and constant */
    PI__ADAPTERS, /* const pi__lora_rows *, with pointers to pairs */
} pi__operand_kind;

/* One operand. Rows of activations are of 4-byte values. */
typedef struct pi__operand {
    const char *name;      /* name of the argument */
    size_t at;             /* offset of the pointer in the op's struct */
    pi__operand_kind kind; /* type of the value there */
    /* Activations: rows; values between rows; values per row that are used. TOKENS, HOST: one row of `width`
     * 4-byte values. */
    int64_t n, ld, width;
} pi__operand;

enum { PI__MAX_OPERANDS = 32, PI__AT_LAST = -1 };

/* The placement and operands of one call. */
typedef struct pi__operands {
    /* PI__AT_DEVICE or PI__AT_CPU, the placement of its largest input; PI__AT_LAST = the backend of the last op. */
    int32_t placement;
    bool guest;     /* side op: does not change the backend of the following ops */
    bool everywhere; /* its results are needed on all backends */
    bool uncaptured; /* it is not captured: the step's last graph segment ends before it */
    bool first_rank; /* of devices with the same data, only the first runs it */
    int32_t rows_at; /* offset of the struct's n_rows; -1 = the op works on the batch's tokens */
    int32_t n;      /* operands in use */
    pi__operand op[PI__MAX_OPERANDS];
} pi__operands;

/* Returns w's factors that are part of the model; they apply to an adapter's results too. NULL = no factors.
 * NVFP4's second-level scale belongs to the format, so the result is NULL. */
const float *pi__lora_scale(const pi__weight *w);
/* Returns the index of the first run after r's level. */
int32_t pi__lora_level_end(const pi__lora_rows *rows, int32_t r);
/* Returns a hash of the max rank per matrix. Lists of runs with the same hash need the same ops. rows has at least
 * one run. */
uint64_t pi__lora_ranks(const pi__lora_rows *rows);

/* Returns the name, for example "add_gated". */
const char *pi__op_name(pi__op_id id);
/* Returns the size of the op's struct. */
size_t pi__op_size(pi__op_id id);
/* Lists the operands of a call, without NULL pointers. b: the call's batch, or NULL. */
void pi__operands_of(pi__op_id id, const pi__batch *b, const void *args, pi__operands *out);
/* Runs the op on be. */
void pi__op_run(pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* Returns true if be has the op. */
bool pi__op_has(const pi__backend *be, pi__op_id id);

/* Get and set an operand's pointer in a struct of arguments. */
static inline void *pi__operand_get(const void *args, const pi__operand *o)
{
    return *(void *const *) (const void *) ((const char *) args + o->at);
}
static inline void pi__operand_set(void *args, const pi__operand *o, const void *p)
{
    *(const void **) (void *) ((char *) args + o->at) = p;
}
/* Returns the bytes from an operand's first value to the end of its last. */
static inline size_t pi__operand_bytes(const pi__operand *o)
{
    return o->n > 0 ? (size_t) ((o->n - 1) * o->ld + o->width) * 4 : 0;
}

#endif
