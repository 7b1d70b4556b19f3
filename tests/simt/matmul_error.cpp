/* Writes docs/perf/matmul.md: what each way of multiplying packed matrices adds to what their format costs, as the kernels do
 * it, emulated. check_w16.cpp holds them to it.
 *
 *     matmul_error > docs/perf/matmul.md */
#include <cstdio>

#include "runtime_emu.h"
#include "selftest/matmul_error.h"

using namespace selftest;

int main()
{
    target t = {};
    const char *lazy;
    if (pi__rt_open(&t.rt, 0, &t.info) || pi__rt_load_kernels(t.rt, &lazy)) return 1;
    t.name = "emu0";
    now = &t;
    std::puts("# The error of products\n\n"
              "Written by `matmul_error` of tests/simt. A product y = W x of a matrix in a quantised format with normally distributed\n"
              "weights, 2048 columns, against float64 on the same quantised weights: the root of the sum of squared differences,\n"
              "divided by that of the results. **exact** and **w16** are the ways of option `matmul` on GPUs; **q8_1** is x in blocks of\n"
              "32 with 8 bits and a float scale, what llama.cpp's CUDA products round it to, at its best: its halves as scales and\n"
              "sums are left out. Below, one column of 97 is 50 times as large as the others. `auto` takes w16 for a format where its\n"
              "error is at most 1.1 of q8_1's; the test of these kernels asserts it.\n");
    try {
        for (bool outliers : {false, true}) {
            std::printf("## %s\n\n| format | exact | w16 | q8_1 | w16 / q8_1 |\n|---|---|---|---|---|\n",
                        outliers ? "x with outliers" : "x normally distributed");
            for (int32_t type : w16_types) {
                const matmul_error e = error_of(type, outliers);
                std::printf("| %s | %.1e | %.1e | %.1e | %.3f |\n", pi__type_info_of(type)->name, e.exact, e.w16, e.q8_1,
                            e.w16 / e.q8_1);
            }
            std::puts("");
        }
        std::puts("## FP4\n\n"
                  "The modes of option `fp4-mode` on sm_120 and sm_121, against the same. **w4a4** is x in the matrix's own\n"
                  "format, **w4a8** in MXFP8 (e4m3, a power of two for 32), which MXFP4 alone has: NVFP4's scales for 16 are no\n"
                  "powers of two, and taken into the weights they would not fit e4m3. **usual w4a4** is how llama.cpp's CUDA\n"
                  "rounds x for these formats on such devices. What `auto` takes is to cost whole models at most 1.1 of the KL\n"
                  "divergence that llama.cpp's 8-bit activations do, in the mean of some: w4a8 keeps to that, w4a4 does not\n"
                  "(modes.md). The last column says how w4a4 is beside what is usual there.\n\n"
                  "| format | x | w4a4 | w4a8 | q8_1 | usual w4a4 | w4a4 / usual |\n|---|---|---|---|---|---|---|");
        for (int32_t type : {PI__MXFP4, PI__NVFP4}) {
            for (bool outliers : {false, true}) {
                const fp4_error e = fp4_error_of(type, outliers);
                std::printf("| %s | %s | %.1e | ", pi__type_info_of(type)->name, outliers ? "outliers" : "normal", e.w4a4);
                if (e.w4a8 > 0) std::printf("%.1e", e.w4a8);
                std::printf(" | %.1e | %.1e | %.3f |\n", e.q8_1, e.usual, e.w4a4 / e.usual);
            }
        }
        std::puts("\n## Down matrices of experts\n\n"
                  "What gate and up make of a row is rounded where they meet, with a power of two for each 32 values instead of one for\n"
                  "the row; gate and up themselves are as above.\n\n"
                  "| format | w16 | w16 / q8_1 | w16, outliers | w16 / q8_1 |\n|---|---|---|---|---|");
        for (int32_t type : w16_types) {
            const matmul_error e = error_of(type, false), o = error_of(type, true);
            std::printf("| %s | %.1e | %.3f | %.1e | %.3f |\n", pi__type_info_of(type)->name, e.down, e.down / e.q8_1, o.down,
                        o.down / o.q8_1);
        }
    } catch (const failed &f) {
        std::fprintf(stderr, "%s\n", f.text);
        return 1;
    }
    pi__rt_close(t.rt);
    return 0;
}
