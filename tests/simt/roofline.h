/* What roofline.cpp asks of roofline_step.c. */
#ifndef ROOFLINE_H
#define ROOFLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the model for steps of so many tokens and sequences, whose caches take so many tokens in all. 0, or it has said
 * what is wrong. */
int roofline_open(const char *path, int32_t max_tokens, int32_t max_seqs, size_t cache_tokens);
/* A step of sequences that bring `each` tokens and have ctx in the cache then: 1 is decode, more are prefill. */
int roofline_step(int32_t n_seqs, int32_t each, int32_t ctx);
void roofline_close(void);

/* Told before the launches of a layer: its number, -1 before the first, the number of layers behind the last. */
void roofline_layer(int32_t layer);

#ifdef __cplusplus
}
#endif

#endif
