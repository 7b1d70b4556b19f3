/* Functions that code compiled with -fsanitize=thread calls, in place of that sanitizer's library. Programs with
 * instrumented kernels link this file; linking it enables the checks of shadow.cpp. */
#include "simt_impl.h"

using simt::compiled_access;

#define AT __builtin_return_address(0)
#define HOOKS(n)                                                                                                       \
    void __tsan_read##n(void *p) { compiled_access(p, n, false, true, AT); }                                           \
    void __tsan_write##n(void *p) { compiled_access(p, n, true, true, AT); }                                           \
    void __tsan_unaligned_read##n(void *p) { compiled_access(p, n, false, false, AT); }                                \
    void __tsan_unaligned_write##n(void *p) { compiled_access(p, n, true, false, AT); }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, size_t n) { compiled_access(p, n, false, false, AT); }
void __tsan_write_range(void *p, size_t n) { compiled_access(p, n, true, false, AT); }
/* Clang calls these for virtual table pointers, in the host code of launches. */
void __tsan_vptr_read(void *p) { compiled_access(p, sizeof(void *), false, true, AT); }
void __tsan_vptr_update(void *p, void *) { compiled_access(p, sizeof(void *), true, true, AT); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
