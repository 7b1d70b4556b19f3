/* Bounds of memory that ops work on, for checked builds: regions of pi__map, and the buffers that are cut from them.
 *
 * An op's operand must lie inside of one buffer (backend/trace.c). In other builds nothing is noted and all is well. Any
 * thread. */
#ifndef PI__EXTENT_H
#define PI__EXTENT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef PI_CHECKED
/* A buffer begins to be: a whole region, or a range of one. */
void pi__extent_note(const void *p, size_t size);
/* It is no more, nor is what was cut from it. */
void pi__extent_drop(const void *p, size_t size);
/* true: n bytes at p lie in one buffer, the smallest that p is in; true as well for memory that was never noted. */
bool pi__extent_holds(const void *p, size_t n);
#else
static inline void pi__extent_note(const void *p, size_t size) { (void) p, (void) size; }
static inline void pi__extent_drop(const void *p, size_t size) { (void) p, (void) size; }
#endif

#endif
