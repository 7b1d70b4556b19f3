/* Written by gen_formats.py from the reference package: what it reads, hashed. */
#include <stdint.h>

#define EXPECTED_N_BLOCKS 200
static const struct {
    int32_t type;
    const char *name;
    uint32_t blck_size, type_size;
    uint64_t hash;
} expected[] = {
    {0, "F32", 1, 4, 0x7fb45e1d94846c66u},
    {1, "F16", 1, 2, 0x825c4de675511485u},
    {30, "BF16", 1, 2, 0x6de025dc0506ec0eu},
    {2, "Q4_0", 32, 18, 0xa380341581605fa6u},
    {3, "Q4_1", 32, 20, 0x048feeb178d63250u},
    {6, "Q5_0", 32, 22, 0x325101f41da7045du},
    {7, "Q5_1", 32, 24, 0x2b73fa83e402f46bu},
    {8, "Q8_0", 32, 34, 0x70228d19aef13405u},
    {10, "Q2_K", 256, 84, 0xcf1d124821aeea3du},
    {11, "Q3_K", 256, 110, 0x93bb4d82583fb292u},
    {12, "Q4_K", 256, 144, 0x1824fc4e0e85758eu},
    {13, "Q5_K", 256, 176, 0x978a2b1eefcc2245u},
    {14, "Q6_K", 256, 210, 0xa1a2b3b350446c58u},
    {19, "IQ1_S", 256, 50, 0xda0bd9ba81e864bbu},
    {29, "IQ1_M", 256, 56, 0xc97d2a097ff0a5bau},
    {16, "IQ2_XXS", 256, 66, 0xcdb5de5504bf8788u},
    {17, "IQ2_XS", 256, 74, 0x692ed8ce2167fb4eu},
    {22, "IQ2_S", 256, 82, 0xd31528ea3aa81ca2u},
    {18, "IQ3_XXS", 256, 98, 0x0c9a560f80f4d97au},
    {21, "IQ3_S", 256, 110, 0x635bb1c5c09ceba1u},
    {20, "IQ4_NL", 32, 18, 0x3d1904be53d3fcc6u},
    {23, "IQ4_XS", 256, 136, 0x430d30a7022f8009u},
    {34, "TQ1_0", 256, 54, 0x951c5feeabd0464du},
    {35, "TQ2_0", 256, 66, 0xceb0274d1294873du},
    {39, "MXFP4", 32, 17, 0x26d157f42d5ae5dcu},
    {40, "NVFP4", 64, 36, 0x80c0b8fcb23a8c5fu},
};
