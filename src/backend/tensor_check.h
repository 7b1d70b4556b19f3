/* Checks of the orders that a rank takes from another process, before it follows them (tensor_check.c). */
#ifndef PI__TENSOR_CHECK_H
#define PI__TENSOR_CHECK_H

#include <string.h>

#include "backend/tensor_impl.h"

/* true: rank k has all of [p, p + size) in one region. size 0: p is an address in a region. */
bool pi__valid_memory(const rank *k, const void *p, size_t size);
/* true: scratch can be sized from these numbers. */
bool pi__valid_limits(const pi__limits *lim);
/* true: rank k's part of the matrix, and its scales, are memory of this rank. Sets flags to 0 or 1. */
bool pi__valid_weight(const rank *k, pi__weight *w);
/* true: rows [row, row + n) of matrix mat exist in a valid weight, and start at a tile. */
bool pi__valid_rows(const rank *k, pi__rank_rows *rows);
/* true: the batch's arrays name tokens, sequences, blocks and slots that exist. n_blocks[g]: one more than the largest block
 * id of cache group g. */
bool pi__valid_batch(const pi__batch *b, const pi__limits *lim, int32_t n_blocks[PI__MAX_GROUPS]);

/* The kind of host pointer at offset `at` of an op's arguments; PI__VECTOR: the sender may set no pointer there. */
pi__operand_kind pi__host_pointer_kind(pi__op_id id, size_t at);
/* Sets all host pointers in an op's arguments to NULL: the sender's addresses mean nothing here. */
void pi__clear_host_pointers(pi__op_id id, void *args);
/* An array of host memory that came with a call. */
typedef struct pi__sent {
    size_t at;    /* offset of its pointer in the op's arguments */
    size_t bytes; /* how many came */
} pi__sent;
/* true: the call, with its host pointers set, names memory of this rank alone and sizes within the limits. Sets flags to 0 or 1.
 * sent [n_sent]: its arrays. n_blocks: as of pi__valid_batch. */
bool pi__valid_call(const pi__tensor *t, pi__op_record *r, const pi__sent *sent, int32_t n_sent,
                    const int32_t n_blocks[PI__MAX_GROUPS]);

/* Makes a flag 0 or 1: another process may have sent any byte. */
static inline void pi__fix_flag(bool *flag)
{
    unsigned char byte;
    memcpy(&byte, flag, 1);
    *flag = byte != 0;
}

#endif
