/* The table of operands: the memory that each op reads and writes, and the placement of the op.
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
    PI__WRITE,   /* activations, written: all columns of each row, but no bytes between rows */
    PI__UPDATE,  /* activations, read and written */
    PI__SCRATCH, /* activations that only this op writes and reads */
    PI__VECTOR,  /* vectors and tables of the model, replicated on all backends */
    PI__WEIGHT,  /* const pi__weight *; the op's placement depends on it */
    PI__CACHE,   /* const pi__kv_layer *; the op's placement depends on it */
    PI__STATE,   /* const pi__state_layer *; the op's placement depends on it */
    PI__TOKENS,  /* host memory: token indices, maybe the batch's own array (pi__batch.logits_indices) */
    PI__HOST,    /* host memory that is valid and constant */
    PI__ADAPTERS, /* const pi__lora_rows *, which point to pairs in device memory */
} pi__operand_kind;

/* One operand. Rows of activations are of 4-byte values. */
typedef struct pi__operand {
    const char *name;      /* field of the op's struct */
    size_t at;             /* offset in bytes of the pointer in the op's struct */
    pi__operand_kind kind; /* type of the value there */
    /* Activations: number of rows; distance between rows in 4-byte values; values per row that are used. TOKENS, HOST:
     * n is 1, and width is the number of 4-byte values. Other kinds: 0. */
    int64_t n, ld, width;
} pi__operand;

enum { PI__MAX_OPERANDS = 32, PI__AT_LAST = -1 };

/* The placement and operands of one call. */
typedef struct pi__operands {
    /* placement of the op's largest matrix, cache or state: PI__AT_*, or a stage; PI__AT_LAST = where the last op
     * ran */
    int32_t placement;
    bool guest;      /* side op: following ops with PI__AT_LAST run where the op before this one ran */
    bool everywhere; /* the op's results are needed on all backends */
    bool uncaptured; /* the op cannot be captured: the step's last graph segment ends before it */
    bool first_rank; /* of several devices with the same data (ranks), only the first runs the op */
    int32_t rows_at; /* byte offset of n_rows in the op's struct; -1 = the op works on the batch's tokens */
    int32_t n;       /* entries of op in use */
    pi__operand op[PI__MAX_OPERANDS];
} pi__operands;

/* Returns the factors of w's output that are part of the model; they apply to an adapter's results too. NULL = no
 * factors. For NVFP4 the result is NULL: its factors (second-level scale) belong to the format. */
const float *pi__lora_scale(const pi__weight *w);
/* Returns the index of the first run after run r that has another level than run r; n_runs if there is none. */
int32_t pi__lora_level_end(const pi__lora_rows *rows, int32_t r);
/* Returns a hash of the runs' max rank for each target. Lists of runs with the same hash need the same adapter ops.
 * rows has at least one run. */
uint64_t pi__lora_ranks(const pi__lora_rows *rows);

/* Returns the name of the op, for example "add_gated". */
const char *pi__op_name(pi__op_id id);
/* Returns the size of the op's struct. */
size_t pi__op_size(pi__op_id id);
/* Lists the operands of a call with these arguments, without NULL pointers. b: the call's batch, or NULL. */
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
