/* Instruction sets that this build has kernels for, in addition to plain C: PI__SIMD_X86 (AVX2, AVX-VNNI, AVX-512,
 * AMX), PI__SIMD_ARM (NEON, i8mm, SVE), or none with PI_NO_SIMD (CMake: PAGEDINFER_SIMD=OFF). A build for one x86
 * processor (CMake: PAGEDINFER_CPU=native) defines PI_NO_AVX2, PI_NO_AVXVNNI, PI_NO_AVX512 or PI_NO_AMX for each
 * instruction set that it excludes. */
#ifndef PI__SIMD_H
#define PI__SIMD_H

#if defined(__x86_64__) && !defined(PI_NO_SIMD)
#define PI__SIMD_X86
#elif defined(__aarch64__) && !defined(PI_NO_SIMD)
#define PI__SIMD_ARM
#endif

/* PI__RETURN_X86(isa, name): returns &name_avx512 or &name_avx2 from the calling function, the best kernels of this
 * build for instruction set isa. Does nothing if the build has none. */
#ifdef PI_NO_AVX512
#define PI__RETURN_AVX512(isa, name)
#else
#define PI__RETURN_AVX512(isa, name)                                                                                   \
    if ((isa) >= PI__ISA_AVX512) return &name##_avx512
#endif
#ifdef PI_NO_AVX2
#define PI__RETURN_AVX2(isa, name)
#else
#define PI__RETURN_AVX2(isa, name)                                                                                     \
    if ((isa) >= PI__ISA_AVX2) return &name##_avx2
#endif
#define PI__RETURN_X86(isa, name)                                                                                      \
    PI__RETURN_AVX512(isa, name);                                                                                      \
    PI__RETURN_AVX2(isa, name)

#endif
