/* Selects the key blocks that query blocks of a step attend to (sparse prefill: see PI__SPARSE_BLOCK of ops.h). */
#ifndef PI__CPU_ATTENTION_BLOCKS_H
#define PI__CPU_ATTENTION_BLOCKS_H

#include "backend/cpu/attention.h"
#include "base/alloc.h"

/* Selected key blocks of 128 keys, one bit each: 1 = the query block attends to it. The bits are in the backend's
 * scratch. */
typedef struct pi__taken {
    /* [query blocks, n_head_kv, words] bit i of a row = key block i of the sequence; NULL = dense attention, all key
     * blocks are selected */
    uint64_t *bits;
    int32_t n_head_kv; /* KV heads of the layer */
    int32_t words;     /* 64-bit words per query block and KV head */
} pi__taken;

static inline bool pi__is_taken(const pi__taken *t, int32_t query_block, int32_t head, int32_t key_block)
{
    const uint64_t *bits = t->bits + ((size_t) query_block * (size_t) t->n_head_kv + (size_t) head) * (size_t) t->words;
    return bits[key_block / 64] >> key_block % 64 & 1;
}

/* *out = the selected key blocks of all query blocks of batch b (at least one) for the layer of a. Takes scratch from
 * ar; out is valid as long as that scratch. */
void pi__cpu_take_blocks(pi__cpu *cpu, const pi__batch *b, const pi__attention *a, pi__arena *ar, pi__taken *out);
/* Returns the scratch bytes of pi__cpu_take_blocks. */
size_t pi__cpu_take_scratch(const pi__cpu *cpu, const pi__limits *lim);

#endif
