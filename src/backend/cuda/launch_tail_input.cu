/* The epilogue that packs an input, for all kernels that have it (kernels/tail_input.cuh). */
#include "tail_input.cuh"
