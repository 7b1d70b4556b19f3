/* Opens an engine with each allocation failing in turn; the open returns PI_ENOMEM and frees all memory. */
#ifndef OPEN_OOM_H
#define OPEN_OOM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "counting_alloc.h"
#include "engine/core.h"

/* Returns the number of allocations that one open makes. */
static inline long open_out_of_memory(const pi__config *c)
{
    static counting_alloc a;
    for (long i = 0;; i++) {
        pi__core *e = NULL;
        pi_error err = {0};
        counting_use(&a, i);
        int rc = pi__core_open(&e, c, &err);
        pi__core_close(e);
        pi_set_allocator(NULL);
        assert_int_equal(a.live, 0);
        if (a.count <= i) {
            assert_int_equal(rc, PI_OK);
            return i;
        }
        if (rc) assert_int_equal(rc, PI_ENOMEM);
    }
}

#endif
