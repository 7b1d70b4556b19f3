/* Fuzzer of the GGUF reader: any bytes are opened from memory; what opens is asked for everything that it has. */
#include "gguf_seed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink; /* what was read counts */
    pi__gguf *g;
    pi_error err = {0};
    if (pi__gguf_open_memory(&g, data, size, &err) == PI_OK) sink = sink + touch_all(g);
    else if (!err.msg[0] || g) abort(); /* a refusal gives a reason and no reader */
    pi__gguf_close(g);
    return 0;
}
