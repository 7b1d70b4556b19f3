/* The epilogue of products, for all kernels that have it (kernels/tail_products.cuh). */
#include "tail_products.cuh"
