/* PI__INLINE: the small functions that vector kernels are made of. Always inlined where the compiler optimises, because sums
 * must live in registers. Not at -O0: hundreds of kernels of thousands of steps each took 6 GB and minutes to compile, and
 * nobody could step through them; as functions they compile in seconds, and a breakpoint is in one place. Same results. */
#ifndef PI__CPU_INLINE_H
#define PI__CPU_INLINE_H

#ifdef __OPTIMIZE__
#define PI__INLINE static inline __attribute__((always_inline))
#else
#define PI__INLINE static inline
#endif

#endif
