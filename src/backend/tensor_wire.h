/* A run's calls as bytes that rank 0 sends to the processes of the other ranks (tensor_wire.c). */
#ifndef PI__TENSOR_WIRE_H
#define PI__TENSOR_WIRE_H

#include "backend/tensor_impl.h"

enum { PI__MOST_KEPT = 64 };

/* Constant host memory, PI__HOST in the table of operands. */
typedef struct pi__kept {
    const void *at;  /* address on rank 0 */
    size_t size;     /* bytes */
    void *copy;      /* copy on a worker rank; NULL on rank 0 */
} pi__kept;

struct pi__wire {
    char *bytes;     /* [cap] the calls */
    size_t n, cap;   /* bytes used, allocated */
    char *held;      /* [cap] worker ranks: arrays of the batch, until the next begin */
    int32_t *table;  /* worker ranks: block tables of the batch */
    size_t n_table, cap_table; /* integers used, allocated */
    pi__batch batch, rows; /* worker ranks: the batch, and its logits rows */
    int32_t n_blocks[PI__MAX_GROUPS]; /* largest block id of each group in the batch, plus 1 */
    pi__kept kept[PI__MOST_KEPT];
    int32_t n_kept;
};

/* Creates the buffers for steps within these limits. Returns NULL if out of memory. */
pi__wire *pi__wire_create(const pi__limits *lim);
void pi__wire_free(pi__wire *w);

/* Rank 0: writes the calls recorded in t to w->bytes[0..n). keep is called for constant host memory that the
 * others do not have yet; it returns false if sending failed. Returns false if the calls do not fit, or if keep
 * failed. */
bool pi__wire_write(pi__wire *w, const pi__tensor *t, bool (*keep)(const pi__tensor *t, const void *at, size_t size));
/* Worker ranks: reads calls from w->bytes[0..n) into t. Their arrays are valid until the next run, the batch until
 * the next begin. Returns false if the bytes are not valid calls for this rank. */
bool pi__wire_read(pi__wire *w, pi__tensor *t);
/* Records constant host memory that rank 0 has at `at`. bytes: its contents, which are copied; NULL on rank
 * 0. Returns false if the list is full or memory is short. */
bool pi__wire_keep(pi__wire *w, const void *at, const void *bytes, size_t size);

#endif
