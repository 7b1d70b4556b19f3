/* Invariants of the library's own code, checked in test builds only: Debug builds of the tests and builds with
 * sanitizers or fuzzers (CMake option PAGEDINFER_CHECKED, which defines PI_CHECKED). In other builds the condition is
 * compiled but never evaluated, so it must have no side effects.
 *
 * Errors of a caller, a file or a device are no invariants: they are reported in every build. Nothing is printed: a
 * broken invariant stops the process with a trap, and pi__assert_where names the place for a debugger or a core
 * dump. */
#ifndef PI__ASSERT_H
#define PI__ASSERT_H

#ifdef PI_CHECKED
#define PI__ASSERT_TEXT(line) #line
#define PI__ASSERT_AT(file, line) file ":" PI__ASSERT_TEXT(line)
#define pi__assert(x) ((x) ? (void) 0 : pi__assert_failed(PI__ASSERT_AT(__FILE__, __LINE__) ": " #x))
/* Place of the first broken invariant; NULL = no failure yet. */
extern const char *volatile pi__assert_where;
void pi__assert_failed(const char *where) __attribute__((noreturn));
#else
#define pi__assert(x) ((void) sizeof(!(x)))
#endif

#endif
