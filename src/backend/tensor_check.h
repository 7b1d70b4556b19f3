/* Validation of the commands that a worker rank receives from another process (tensor_check.c). */
#ifndef PI__TENSOR_CHECK_H
#define PI__TENSOR_CHECK_H

#include <string.h>

#include "backend/tensor_impl.h"

/* Returns true if [p, p + size) lies in one region of rank k. size 0: p is an address in a region. */
bool pi__valid_memory(const rank *k, const void *p, size_t size);
/* Returns true if scratch memory can be sized from these limits. */
bool pi__valid_limits(const pi__limits *lim);
/* Returns true if rank k's part of the matrix, and its scales, lie in memory of this rank. Normalizes bools. */
bool pi__valid_weight(const rank *k, pi__weight *w);
/* Returns true if rows [row, row + n) of matrix mat exist in a valid weight, and start at a tile. */
bool pi__valid_rows(const rank *k, pi__rank_rows *rows);
/* Returns true if the batch's arrays name existing tokens, sequences, blocks and slots. n_blocks[g] receives the
 * largest block id of cache group g, plus 1. */
bool pi__valid_batch(const pi__batch *b, const pi__limits *lim, int32_t n_blocks[PI__MAX_GROUPS]);

/* Returns the kind of host pointer at offset `at` of an op's arguments; PI__VECTOR = the sender may not set a
 * pointer there. */
pi__operand_kind pi__host_pointer_kind(pi__op_id id, size_t at);
/* Sets all host pointers in an op's arguments to NULL: they are addresses of the sender's process. */
void pi__clear_host_pointers(pi__op_id id, void *args);
/* An array in host memory that was received with a call. */
typedef struct pi__sent {
    size_t at;    /* offset of its pointer in the op's arguments */
    size_t bytes; /* bytes received */
} pi__sent;
/* Returns true if the call, with its host pointers set, uses only memory of this rank, and sizes within the
 * limits. Normalizes bools. sent [n_sent]: arrays received with the call. n_blocks: from pi__valid_batch. */
bool pi__valid_call(const pi__tensor *t, pi__op_record *r, const pi__sent *sent, int32_t n_sent,
                    const int32_t n_blocks[PI__MAX_GROUPS]);

/* Makes a bool 0 or 1: another process may have sent any byte. */
static inline void pi__fix_flag(bool *flag)
{
    unsigned char byte;
    memcpy(&byte, flag, 1);
    *flag = byte != 0;
}

#endif
