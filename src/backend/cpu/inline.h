/* PI__INLINE: for the small functions that vector kernels call. Always inlined in optimized builds, because sums must
 * stay in registers. Not forced at -O0: inlining hundreds of kernels took 6 GB and minutes of compile time, and a
 * debugger could not step through them. As calls they compile in seconds, and a breakpoint has one location. Both
 * builds compute the same results. */
#ifndef PI__CPU_INLINE_H
#define PI__CPU_INLINE_H

#ifdef __OPTIMIZE__
#define PI__INLINE static inline __attribute__((always_inline))
#else
#define PI__INLINE static inline
#endif

#endif
