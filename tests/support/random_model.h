/* Random models that are small enough for tests, of every architecture, written as GGUFs with the keys and tensor names of
 * llama.cpp's converter. random_rows.c has a row an architecture, random_model.c writes any of them.
 *
 * The same spec gives the same bytes on every machine. All vocabularies have TINY_VOCAB tokens. */
#ifndef RANDOM_MODEL_H
#define RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/formats.h"
#include "gguf/gguf.h"

/* The SentencePiece vocabulary: 4 control tokens, 256 bytes, then short pieces. Its size is a prime number. */
enum { TINY_PAD = 0, TINY_EOS = 1, TINY_BOS = 2, TINY_UNK = 3, TINY_BYTE0 = 4, TINY_PIECE0 = 260, TINY_N_PIECES = 53 };
enum { TINY_VOCAB = TINY_PIECE0 + TINY_N_PIECES };

/* Options of a random model; zeros and NULLs stand for the row's own. */
typedef struct tiny_spec {
    const char *arch;  /* name of a row, "gemma3" where NULL: see tiny_row_name */
    uint32_t seed;     /* of the weights */
    int32_t ctx;       /* context it was "trained" for; 512 */
    int32_t type;      /* enum pi__type of matrices whose type the row leaves open; F32: the row's own */
    bool vocab_only;   /* no tensors */
    const char *sizes; /* what differs from the row, as there: "L=2 E=256" (random_rows.h has the letters) */
} tiny_spec;

/* Writes the model to path (spec NULL: gemma3 as its row says). PI_EINVAL: no such architecture. */
int tiny_write(const char *path, const tiny_spec *s, pi_error *err);
/* Name of row i, from 0; NULL behind the last. */
const char *tiny_row_name(size_t i);
/* A name for a temporary file, not yet there. */
const char *tiny_path(char buf[256], const char *what);

/* 31 random bits. */
static inline uint32_t tiny_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (*s >> 33);
}

#endif
