/* Instruction sets that this build has kernels for, in addition to plain C: PI__SIMD_X86 (AVX2, AVX-VNNI, AVX-512,
 * AMX), PI__SIMD_ARM (NEON, i8mm, SVE), or none with PI_NO_SIMD (CMake: PAGEDINFER_SIMD=OFF). */
#ifndef PI__SIMD_H
#define PI__SIMD_H

#if defined(__x86_64__) && !defined(PI_NO_SIMD)
#define PI__SIMD_X86
#elif defined(__aarch64__) && !defined(PI_NO_SIMD)
#define PI__SIMD_ARM
#endif

#endif
