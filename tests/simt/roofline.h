/* Interface of roofline_step.c for roofline.cpp. */
#ifndef ROOFLINE_H
#define ROOFLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the model for steps of up to max_tokens tokens and max_seqs sequences, with caches for cache_tokens tokens in
 * total. Returns 0, or another value after printing an error. */
int roofline_open(const char *path, int32_t max_tokens, int32_t max_seqs, size_t cache_tokens);
/* Runs a step of n_seqs sequences with `each` new tokens and a context of ctx tokens including them. each 1 = decode,
 * else prefill. */
int roofline_step(int32_t n_seqs, int32_t each, int32_t ctx);
void roofline_close(void);

/* Called before the launches of a layer with its number: -1 before the first, the number of layers after the last. */
void roofline_layer(int32_t layer);

#ifdef __cplusplus
}
#endif

#endif
