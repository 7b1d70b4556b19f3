/* Random models of every architecture, small enough for tests, written as GGUF files with the keys and tensor names of
 * llama.cpp's converter. random_rows.c has one row per architecture; random_model.c writes any of them.
 *
 * Equal specs give equal bytes on every machine. All vocabularies have TINY_VOCAB tokens. */
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

/* The SentencePiece vocabulary: 4 control tokens, 256 bytes, then short pieces. The total is a prime number. */
enum { TINY_PAD = 0, TINY_EOS = 1, TINY_BOS = 2, TINY_UNK = 3, TINY_BYTE0 = 4, TINY_PIECE0 = 260, TINY_N_PIECES = 53 };
enum { TINY_VOCAB = TINY_PIECE0 + TINY_N_PIECES };

/* Options of a random model; 0 and NULL select the row's defaults. */
typedef struct tiny_spec {
    const char *arch;  /* name of a row, see tiny_row_name; NULL = "gemma3" */
    uint32_t seed;     /* seed of the weights */
    int32_t ctx;       /* context length that the metadata states; 0 = 512 */
    int32_t type;      /* enum pi__type of matrices with an open type; F32 = the row's own */
    bool vocab_only;   /* write no tensors */
    const char *sizes; /* sizes that replace the row's, for example "L=2 E=256"; random_rows.h lists the letters */
} tiny_spec;

/* Writes the model to path; spec NULL = gemma3 with its defaults. PI_EINVAL = unknown architecture. */
int tiny_write(const char *path, const tiny_spec *s, pi_error *err);
/* Returns the name of row i, from 0, or NULL after the last row. */
const char *tiny_row_name(size_t i);
/* Returns a name for a temporary file that does not exist yet. */
const char *tiny_path(char buf[256], const char *what);

/* Returns 31 random bits. */
static inline uint32_t tiny_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) (*s >> 33);
}

#endif
