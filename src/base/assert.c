/* Reports a broken invariant (see assert.h). */
#include "base/assert.h"

#ifdef PI_CHECKED
const char *volatile pi__assert_where; /* the library's only variable; written just before the trap */

void pi__assert_failed(const char *where)
{
    pi__assert_where = where;
    __builtin_trap();
}
#else
typedef int pi__assert_nothing; /* ISO C requires a declaration in each file */
#endif
