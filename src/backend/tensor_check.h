/* Validation of the commands that a worker rank receives from another process (tensor_check.c). */
#ifndef PI__TENSOR_CHECK_H
#define PI__TENSOR_CHECK_H

#include <string.h>

#include "backend/tensor_impl.h"

/* Returns true if [p, p + size) lies in one region of rank k. size 0: true if p is an address in a region. */
bool pi__valid_memory(const rank *k, const void *p, size_t size);
/* Returns true if these limits are in the ranges that scratch memory can be sized from. */
bool pi__valid_limits(const pi__limits *lim);
/* Returns true if rank k's part of the matrix, and its scales, lie in memory of this process. Changes bools to 0 or
 * 1. */
bool pi__valid_weight(const rank *k, pi__weight *w);
/* Returns true if rows [row, row + n) of matrix mat exist in rows->w, and start and end at a tile or at the
 * matrix's end. rows->w is valid. */
bool pi__valid_rows(const rank *k, pi__rank_rows *rows);
/* Returns true if the batch's arrays name existing tokens, sequences, blocks and slots. n_blocks[g] receives the
 * largest block id of cache group g, plus 1. */
bool pi__valid_batch(const pi__batch *b, const pi__limits *lim, int32_t n_blocks[PI__MAX_GROUPS]);

/* Returns the kind of operand that a host pointer at byte offset `at` of an op's arguments points to: a descriptor
 * (WEIGHT, CACHE, STATE, ADAPTERS) or an array (TOKENS, HOST). PI__VECTOR = the sender may not set a pointer there. */
pi__operand_kind pi__host_pointer_kind(pi__op_id id, size_t at);
/* Sets all host pointers in an op's arguments to NULL: they are addresses of the sender's process. */
void pi__clear_host_pointers(pi__op_id id, void *args);
/* An array in host memory that was received together with a call. */
typedef struct pi__sent {
    size_t at;    /* byte offset of the pointer to the array in the op's arguments */
    size_t bytes; /* bytes of the array */
} pi__sent;
/* Returns true if the call uses only memory of this rank, and sizes within the limits. Its host pointers must be set.
 * Changes bools to 0 or 1. sent [n_sent]: arrays received with the call. n_blocks: from pi__valid_batch. */
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
