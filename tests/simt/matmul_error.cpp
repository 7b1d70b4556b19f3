/* Writes docs/perf/matmul.md: the error that each matmul mode adds to the error of the weights' format, computed by
 * the emulated kernels. check_w16.cpp enforces the limits.
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
    std::puts("# Error of matrix products\n\n"
              "Written by `matmul_error` of tests/simt. A product y = W x has a matrix W in a quantized format, with\n"
              "normally distributed weights and 2048 columns. The reference is float64 on the same quantized weights.\n"
              "The error is the root of the sum of squared differences, divided by that of the results.\n\n"
              "| column | activations |\n"
              "|---|---|\n"
              "| exact, w16 | modes of option `matmul` on GPUs |\n"
              "| q8_1 | blocks of 32 with 8 bits and a float scale |\n\n"
              "q8_1 is the best case of llama.cpp's CUDA products: their half-precision scales and sums are left out.\n"
              "`auto` selects w16 for a format if its error is at most 1.1 of q8_1's. The test of these kernels\n"
              "asserts this. With outliers, one column of 97 is 50 times as large as the others.\n");
    try {
        for (bool outliers : {false, true}) {
            std::printf("## %s\n\n| format | exact | w16 | q8_1 | w16 / q8_1 |\n|---|---|---|---|---|\n",
                        outliers ? "x with outliers" : "x normally distributed");
            for (int32_t type : w16_types) {
                const matmul_error e = error_of(type, outliers);
                std::printf("| %s | %.1e | %.1e | %.1e | %.3f |\n", pi__type_info_of(type)->name, e.exact, e.w16,
                            e.q8_1, e.w16 / e.q8_1);
            }
            std::puts("");
        }
        std::puts("## FP4\n\n"
                  "Modes of option `fp4-mode` on sm_120 and sm_121, with the same reference.\n\n"
                  "| column | activations |\n"
                  "|---|---|\n"
                  "| w4a4 | format of the matrix |\n"
                  "| w4a8 | MXFP8 (e4m3, one power of two per 32 values); MXFP4 only |\n"
                  "| usual w4a4 | rounding of llama.cpp's CUDA backend for these formats on these devices |\n\n"
                  "NVFP4's scales, one per 16 values, are not powers of two. Multiplied into the weights, they do not\n"
                  "fit e4m3. `auto` may cost complete models at most 1.1 of the KL divergence of llama.cpp's 8-bit\n"
                  "activations, as a mean of several models. w4a8 stays within this limit, w4a4 does not\n"
                  "([modes.md](modes.md)).\n\n"
                  "| format | x | w4a4 | w4a8 | q8_1 | usual w4a4 | w4a4 / usual |\n|---|---|---|---|---|---|---|");
        for (int32_t type : {PI__MXFP4, PI__NVFP4}) {
            for (bool outliers : {false, true}) {
                const fp4_error e = fp4_error_of(type, outliers);
                std::printf("| %s | %s | %.1e | ", pi__type_info_of(type)->name, outliers ? "outliers" : "normal",
                            e.w4a4);
                if (e.w4a8 > 0) std::printf("%.1e", e.w4a8);
                std::printf(" | %.1e | %.1e | %.3f |\n", e.q8_1, e.usual, e.w4a4 / e.usual);
            }
        }
        std::puts("\n## Down matrices of experts\n\n"
                  "The combined result of gate and up is rounded in their kernel, with one power of two per 32 values\n"
                  "instead of one per row. Gate and up themselves have the errors above.\n\n"
                  "| format | w16 | w16 / q8_1 | w16, outliers | w16 / q8_1 |\n|---|---|---|---|---|");
        for (int32_t type : w16_types) {
            const matmul_error e = error_of(type, false), o = error_of(type, true);
            std::printf("| %s | %.1e | %.3f | %.1e | %.3f |\n", pi__type_info_of(type)->name, e.down, e.down / e.q8_1,
                        o.down, o.down / o.q8_1);
        }
    } catch (const failed &f) {
        std::fprintf(stderr, "%s\n", f.text);
        return 1;
    }
    pi__rt_close(t.rt);
    return 0;
}
