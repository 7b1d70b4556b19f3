/* PI__INLINE: for the small functions that vector kernels consist of. Always inlined in optimized builds, because
 * sums must stay in registers. Not inlined at -O0: hundreds of kernels of thousands of steps each took 6 GB and
 * minutes to compile and could not be stepped through. As functions they compile in seconds, and a breakpoint is in
 * one place. The results are equal. */
#ifndef PI__CPU_INLINE_H
#define PI__CPU_INLINE_H

#ifdef __OPTIMIZE__
#define PI__INLINE static inline __attribute__((always_inline))
#else
#define PI__INLINE static inline
#endif

#endif
