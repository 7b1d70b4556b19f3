/* Layout of matrices in device memory, and their packing into this layout on the host at load time.
 *
 * A tile is 16 rows; a block is 32 columns of a tile, the A operand of an integer mma.m16n8k32. Lane l = 4 g + t of a
 * warp holds the words a0 (row g, columns 4t..4t+3), a1 (row g + 8), a2 and a3 (the same rows, columns + 16). Codes
 * keep the file's number of bits, cut into planes. A plane of a block is stored lane by lane, so that a warp loads it
 * contiguously:
 *
 *     8 bits  16 bytes a lane   a0 a1 a2 a3
 *     4 bits   8 bytes a lane   a0 in the low, a1 in the high nibbles of a word; a2, a3 in the next
 *     table    8 bytes a lane   IQ4, FP4 formats: a0 in the low, a2 in the high 16 bits of a word; a1, a3 in the next
 *     2 bits   4 bytes a lane   bits 2r..2r+1 of byte b: byte b of word ar
 *     1 bit    2 bytes a lane   bit 4r+b: byte b of word ar
 *
 * Codebook formats (IQ1, IQ2, IQ3) keep the file's data of each row and 32 columns: 4 or 8 bytes of indices, then
 *
 *     IQ2_XXS, IQ3_XXS  the word of signs and scale          IQ2_XS   4 x 7 signs, 4 x 1 upper bit of an index
 *     IQ2_S, IQ3_S      32 signs; a byte of upper bits       IQ1      a halfword: upper bits, signs (IQ1_S: and scale)
 *
 * with each kind stored for all 16 rows, row after row.
 *
 *     tile: [blocks][planes] [blocks][scales] [blocks of 256 columns][scales of scales]
 *
 * Scales are [16 rows], or [2][16] where each half of a block has its own, or [16][2] for NVFP4. Rows past n_out are
 * zeros. F32, F16 and BF16 keep the file's rows. Packing is lossless and computes no values, except that 6-bit scales
 * become bytes.
 *
 * TQ1_0 and TQ2_0 are converted to Q2_K, with scale 1 and minimum 1: d * (q - 1) = d * 1 * q - d * 1.
 *
 * Table formats store the nibbles of a row adjacently for mma.m16n8k64, where a lane holds 8 columns of a row: two
 * lanes' words of one row, one half of each. NVFP4 scales are ue4m3 as that instruction reads them. Bit 7, which has
 * no meaning, is cleared. 0x7f, which the file uses for 0, becomes 0; 0xff, which the file uses for 480, becomes
 * 0x7f. */
#ifndef PI__CUDA_PACK_H
#define PI__CUDA_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Layout of one tile, and sizes in bytes. */
typedef struct pi__cuda_shape {
    int64_t n_block;     /* blocks of 32 columns; 0 = unpacked rows, as in the file */
    size_t code_bytes;   /* bytes of a block's planes */
    size_t side_at;      /* offset in the tile of the blocks' scales */
    size_t side_bytes;   /* bytes of a block's scales */
    size_t super_at;     /* offset in the tile of the scales of 256 columns */
    size_t super_bytes;  /* bytes of the scales of 256 columns */
    size_t tile_bytes;   /* bytes between tiles; with n_block 0, bytes between rows */
    size_t mat_bytes;    /* bytes of one matrix */
} pi__cuda_shape;
/* Fills *s for a matrix of n_out rows and n_in columns. Returns false if the type or the shape is not supported. */
bool pi__cuda_shape_of(int32_t type, int64_t n_in, int64_t n_out, pi__cuda_shape *s);

/* Returns the type that kernels use for a matrix packed from `type`: Q2_K for TQ1_0 and TQ2_0, else `type` itself. */
int32_t pi__cuda_packed_type(int32_t type);

/* Packs n rows of the file (n_in values each, at src) into one tile. n is at most 16; the other rows become zeros. */
void pi__cuda_pack_tile(int32_t type, const pi__cuda_shape *s, int64_t n_in, const uint8_t *src, int32_t n,
                        uint8_t *tile);

#ifdef __cplusplus
}
#endif

#endif