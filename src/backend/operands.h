/* The table of operands: what memory each op reads and writes, and on which backend it runs.
 *
 * It is what makes a step a list of calls over which others can go without knowing the ops: placement on a device or
 * the CPU (split.c), sharding over several devices (tensor.c), leaving out padding, capture of graph segments, tracing and
 * checking (trace.c). An op's row is a function in operands.c that fills a list from the op's arguments.
 *
 * No memory; any thread. */
#ifndef PI__OPERANDS_H
#define PI__OPERANDS_H

#include "backend/device.h"

/* Kinds of operands. */
typedef enum pi__operand_kind {
    PI__READ,    /* activations that are read, */
    PI__WRITE,   /* written: all of the columns, nothing of what lies between rows, */
    PI__UPDATE,  /* or both */
    PI__SCRATCH, /* activations that are written and read by this op alone */
    PI__VECTOR,  /* values of the model, which are on all backends */
    PI__WEIGHT,  /* const pi__weight *: where that is */
    PI__CACHE,   /* const pi__kv_layer *: where that is */
    PI__STATE,   /* const pi__state_layer *: where that is */
    PI__TOKENS,  /* host memory: indices of tokens, which may be the batch's own (pi__batch.logits_indices) */
    PI__HOST,    /* host memory that stays */
    PI__ADAPTERS, /* const pi__lora_rows *: where pairs are */
} pi__operand_kind;

/* One operand. Rows of activations are of 4-byte values. */
typedef struct pi__operand {
    const char *name;      /* of the argument */
    size_t at;             /* offset of the pointer in the op's struct */
    pi__operand_kind kind; /* what is there */
    int64_t n, ld, width;  /* activations: rows; values from row to row; values of a row that count. TOKENS, HOST: one
                            * row of that many 4-byte values */
} pi__operand;

enum { PI__MAX_OPERANDS = 32, PI__AT_LAST = -1 };

/* Where an op runs, and what it touches. */
typedef struct pi__operands {
    int32_t placement; /* PI__AT_DEVICE or PI__AT_CPU, where what it reads most lies; PI__AT_LAST: where the last op ran */
    bool guest;     /* the next op runs where the one before this did */
    bool everywhere; /* what it writes is wanted on both backends */
    bool uncaptured; /* it is not captured: the step's last graph segment has ended */
    bool first_rank; /* of several devices that hold the same, the first does it alone */
    int32_t rows_at; /* offset of the struct's n_rows; -1: it works on the batch's tokens */
    int32_t n;      /* operands in use */
    pi__operand op[PI__MAX_OPERANDS];
} pi__operands;

/* The factors of an expert's results that go for what adapters add to these, too: the model's own. NVFP4's second-level scale is
 * the format's, and NULL here. */
const float *pi__lora_scale(const pi__weight *w);
/* The first run behind those of r's level. */
int32_t pi__lora_level_end(const pi__lora_rows *rows, int32_t r);
/* The same for lists of runs, of which there are some, whose largest ranks are, matrix by matrix: so the same ops are called for them. */
uint64_t pi__lora_ranks(const pi__lora_rows *rows);

/* "add_gated" */
const char *pi__op_name(pi__op_id id);
/* Bytes of its struct. */
size_t pi__op_size(pi__op_id id);
/* The operands of a call, NULL pointers left out. b: the call's, or NULL. */
void pi__operands_of(pi__op_id id, const pi__batch *b, const void *args, pi__operands *out);
/* Calls an op of be by its number. */
void pi__op_run(pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* true: be has the op. */
bool pi__op_has(const pi__backend *be, pi__op_id id);

/* An operand's pointer in a struct of arguments. */
static inline void *pi__operand_get(const void *args, const pi__operand *o)
{
    return *(void *const *) (const void *) ((const char *) args + o->at);
}
static inline void pi__operand_set(void *args, const pi__operand *o, const void *p)
{
    *(const void **) (void *) ((char *) args + o->at) = p;
}
/* Bytes from an operand's first value to behind its last. */
static inline size_t pi__operand_bytes(const pi__operand *o)
{
    return o->n > 0 ? (size_t) ((o->n - 1) * o->ld + o->width) * 4 : 0;
}

#endif
