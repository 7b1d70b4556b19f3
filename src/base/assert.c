/* A broken invariant (see assert.h). */
#include "base/assert.h"

#ifdef PI_CHECKED
const char *volatile pi__assert_where; /* the one variable of the library: only a trap follows its being written */

void pi__assert_failed(const char *where)
{
    pi__assert_where = where;
    __builtin_trap();
}
#else
typedef int pi__assert_nothing; /* a file of C declares something */
#endif
