/* Bounds of the memory that ops access, for checked builds: regions of pi__map, and the buffers carved from them.
 *
 * An op's operand must lie within one buffer (backend/trace.c). Other builds record nothing. Any thread. */
#ifndef PI__EXTENT_H
#define PI__EXTENT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef PI_CHECKED
/* Registers a buffer of size bytes: a complete region, or a part of one. Removes the registered buffers within it
 * first. */
void pi__extent_register(const void *p, size_t size);
/* Removes a buffer and all buffers within it. */
void pi__extent_drop(const void *p, size_t size);
/* True if n bytes at p lie within the smallest buffer that contains p, or if p was never registered. */
bool pi__extent_holds(const void *p, size_t n);
#else
static inline void pi__extent_register(const void *p, size_t size) { (void) p, (void) size; }
static inline void pi__extent_drop(const void *p, size_t size) { (void) p, (void) size; }
#endif

#endif
