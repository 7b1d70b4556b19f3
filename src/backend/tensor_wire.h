/* The recorded calls of a run as bytes that rank 0 sends to the processes of the other ranks (tensor_wire.c). */
#ifndef PI__TENSOR_WIRE_H
#define PI__TENSOR_WIRE_H

#include "backend/tensor_impl.h"

enum { PI__MOST_KEPT = 64 };

/* Constant host memory that ops read (PI__HOST in the table of operands), which is sent to worker ranks once. */
typedef struct pi__kept {
    const void *at;  /* address on rank 0 */
    size_t size;     /* bytes */
    void *copy;      /* copy on a worker rank; NULL on rank 0 */
} pi__kept;

struct pi__wire {
    char *bytes;     /* [cap] the calls of one run */
    size_t n, cap;   /* bytes used, allocated */
    char *held;      /* [cap] on worker ranks: copy of the current batch's arrays, valid until the next begin */
    int32_t *table;  /* on worker ranks: the batch's block tables */
    size_t n_table, cap_table; /* int32_t entries of table used, allocated */
    pi__batch batch, rows; /* on worker ranks: the batch, and its logits batch */
    int32_t n_blocks[PI__MAX_GROUPS]; /* on worker ranks: largest block id of each cache group in the batch, plus 1 */
    pi__kept kept[PI__MOST_KEPT]; /* [n_kept] */
    int32_t n_kept;  /* entries in use */
};

/* Creates the buffers for steps within these limits. Returns NULL if out of memory. */
pi__wire *pi__wire_create(const pi__limits *lim);
void pi__wire_free(pi__wire *w);

/* Rank 0: writes the calls recorded in t to w->bytes[0..n). Calls `keep` for constant host memory that the worker ranks
 * do not have yet; `keep` sends it and returns false on failure. Returns false if the calls do not fit in w->bytes,
 * or if keep failed. */
bool pi__wire_write(pi__wire *w, const pi__tensor *t, bool (*keep)(const pi__tensor *t, const void *at, size_t size));
/* Worker ranks: reads the calls in w->bytes[0..n) into t's list of recorded calls. Their arrays are valid until the
 * next run, the batch until the next begin. Returns false if the bytes are not valid calls for this rank. */
bool pi__wire_read(pi__wire *w, pi__tensor *t);
/* Adds an entry to w->kept: constant host memory that rank 0 has at `at`. bytes: its contents, which are copied;
 * NULL on rank 0. Returns false if the list is full or memory is short. */
bool pi__wire_keep(pi__wire *w, const void *at, const void *bytes, size_t size);

#endif
