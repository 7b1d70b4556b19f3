/* A run's calls as bytes, on their way from rank 0 to the processes of the other ranks (tensor_wire.c). */
#ifndef PI__TENSOR_WIRE_H
#define PI__TENSOR_WIRE_H

#include "backend/tensor_impl.h"

enum { PI__MOST_KEPT = 64 };

/* Host memory that stays, as the table of operands has it (PI__HOST). */
typedef struct pi__kept {
    const void *at;  /* where rank 0 has it */
    size_t size;     /* bytes */
    void *copy;      /* on the others; NULL on rank 0 */
} pi__kept;

struct pi__wire {
    char *bytes;     /* [cap] the calls */
    size_t n, cap;   /* bytes in use, at most */
    char *held;      /* [cap] on the others: the batch, up to the next begin */
    int32_t *table;  /* and its block tables */
    size_t n_table, cap_table; /* in use, allocated */
    pi__batch batch, rows; /* that batch, and its logits rows */
    int32_t n_blocks[PI__MAX_GROUPS]; /* one more than the largest block id in it */
    pi__kept kept[PI__MOST_KEPT];
    int32_t n_kept;
};

/* For steps within these limits. NULL: out of memory. */
pi__wire *pi__wire_create(const pi__limits *lim);
void pi__wire_free(pi__wire *w);

/* Rank 0: the calls noted in t to w->bytes[0..n). keep is called for host memory that the others do not have yet; false: it did
 * not get there. false: there are more bytes than there is room for, or keep said so. */
bool pi__wire_write(pi__wire *w, const pi__tensor *t, bool (*keep)(const pi__tensor *t, const void *at, size_t size));
/* The others: w->bytes[0..n) to the calls of t. What they point to stays up to the next run, the batch up to the next begin.
 * false: these are no calls for this rank. */
bool pi__wire_read(pi__wire *w, pi__tensor *t);
/* Notes host memory that rank 0 has at `at`; bytes: what is there, of which a copy is kept, or NULL on rank 0 itself. false: no
 * room. */
bool pi__wire_keep(pi__wire *w, const void *at, const void *bytes, size_t size);

#endif
