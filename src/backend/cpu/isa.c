/* Detects which of the compiled instruction sets this processor supports (see cpu.h). No memory, no state. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/simd.h"
#include "base/error.h"

#if defined(PI__SIMD_ARM)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(PI__SIMD_X86)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads the F16C bit from CPUID: __builtin_cpu_supports of Clang 14 does not accept "f16c". */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

#ifndef PI_NO_AVXVNNI
/* Reads the AVX-VNNI bit (leaf 7, subleaf 1, EAX bit 4) from CPUID: GCC before 12 has no name for the feature. AVX-VNNI
 * uses AVX2's registers, so the operating system needs to save no others. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a & 1u << 4);
}
#endif
#endif

#if defined(PI__SIMD_X86) && !defined(PI_NO_AMX)
/* Requests permission to use the 8 KiB of tile registers, once for all threads of the process; without it Linux does
 * not save them. Returns false if Linux refuses, for example because a thread's signal stack is too small. */
static bool permit_tiles(void)
{
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
#else
    return false;
#endif
}

/* Called only if AVX-512 is available, so the system has enabled XSAVE and XCR0 can be read. Also checks that the AMX
 * kernels agree with the AVX-512 kernels. */
__attribute__((target("xsave"))) static bool has_amx(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && pi__amx_usable(d, _xgetbv(0), permit_tiles) &&
           pi__lin_agrees(pi__lin_kernels_avx512(8), pi__lin_amx[0]) &&
           pi__lin_agrees(pi__lin_kernels_avx512(15), pi__lin_amx[1]);
}
#endif

const pi__isa_name pi__isa_names[] = {
    [PI__ISA_GENERIC] = {"generic", "generic"},
    [PI__ISA_NEON] = {"neon", "neon-dotprod"},
    [PI__ISA_I8MM] = {"i8mm", "neon-i8mm"},
    [PI__ISA_SVE256] = {"sve256", "sve256-i8mm"},
    [PI__ISA_AVX2] = {"avx2", "avx2"},
    [PI__ISA_AVXVNNI] = {"avxvnni", "avx-vnni"},
    [PI__ISA_AVX512] = {"avx512", "avx512-vnni"},
    [PI__ISA_AMX] = {"amx", "amx-int8"},
};

#if defined(PI__SIMD_X86)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
           has_f16c();
}
#endif

/* Instruction sets that a PI_NO_* macro excludes from the build are not available. */
bool pi__isa_available(int isa)
{
    switch (isa) {
    case PI__ISA_GENERIC: return true;
#if defined(PI__SIMD_X86)
#ifndef PI_NO_AVX2
    case PI__ISA_AVX2: return has_avx2();
#endif
#ifndef PI_NO_AVXVNNI
    case PI__ISA_AVXVNNI: return has_avx2() && has_avx_vnni();
#endif
#ifndef PI_NO_AVX512
    case PI__ISA_AVX512:
        return has_avx2() && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
               __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
#endif
#ifndef PI_NO_AMX
    case PI__ISA_AMX: return pi__isa_available(PI__ISA_AVX512) && has_amx();
#endif
#elif defined(PI__SIMD_ARM)
    case PI__ISA_NEON: {
        unsigned long want = 1ul << 20 /* HWCAP_ASIMDDP */ | 1ul << 10 /* HWCAP_ASIMDHP */ | 1ul << 9 /* HWCAP_FPHP */;
        return (getauxval(AT_HWCAP) & want) == want;
    }
    case PI__ISA_I8MM: return pi__isa_available(PI__ISA_NEON) && (getauxval(AT_HWCAP2) & 1ul << 13 /* HWCAP2_I8MM */);
    case PI__ISA_SVE256: {
        /* bytes of a register in this thread and in threads that it starts; -1 = no SVE */
        const int length = prctl(PR_SVE_GET_VL);
        return length >= 0 && (length & PR_SVE_VL_LEN_MASK) == 32 && pi__isa_available(PI__ISA_I8MM) &&
               (getauxval(AT_HWCAP2) & 1ul << 9 /* HWCAP2_SVEI8MM */);
    }
#endif
    default: return false;
    }
}

bool pi__amx_usable(uint32_t leaf7_edx, uint64_t xcr0, bool (*permit)(void))
{
    const uint32_t instructions = 1u << 24 /* AMX-TILE: tile registers */ | 1u << 25 /* AMX-INT8: products of bytes */;
    const uint64_t registers = 1u << 17 /* XTILECFG: tile configuration */ | 1u << 18 /* XTILEDATA: tile data */;
    return (leaf7_edx & instructions) == instructions && (xcr0 & registers) == registers && permit();
}

int pi__isa_choose(const char *name, int *out, pi_error *err)
{
    bool any = !name || !*name || !strcmp(name, "auto");
    for (int isa = PI__N_ISAS - 1; isa >= PI__ISA_GENERIC; isa--) {
        if (!any && strcmp(name, pi__isa_names[isa].name)) continue;
        if (pi__isa_available(isa)) {
            *out = isa;
            return PI_OK;
        }
        if (!any) return pi__fail(err, PI_EUNSUPPORTED, "%s is not supported by this processor, "
                                  "or not in this build: give cpu-isa auto", name);
    }
    return pi__fail(err, PI_EUNSUPPORTED,
                    "unknown instruction set %s: give auto, amx, avx512, avxvnni, avx2, sve256, i8mm, neon or generic",
                    name);
}
