/* Groups of rows with adapters, as kernels process them (kernels_lora.h), and the rows of op moe that scratch has space
 * for. No memory; any thread. */
#ifndef PI__CUDA_LORA_GROUPS_H
#define PI__CUDA_LORA_GROUPS_H

#include "backend/cuda/kernels_lora.h"
#include "backend/operands.h"

/* Returns the number of groups of the run. */
int32_t pi__lora_groups_of(const pi__lora_run *run);
/* Sets n_groups to the number of groups of each level, and *n_levels. Returns the total number of groups. rounded: each
 * level's number is rounded up to a power of two, as in captured steps. */
int32_t pi__lora_count_groups(const pi__lora_rows *rows, bool rounded, int32_t *n_groups, int32_t *n_levels);
/* Returns the number of floats of t in scratch: the results of A x. */
size_t pi__lora_t_floats(const pi__limits *lim);
/* Returns the rows per pass of op moe that fit into t; all of them without adapters. */
int32_t pi__lora_moe_rows(const pi__limits *lim, const pi__moe *a);

#endif
