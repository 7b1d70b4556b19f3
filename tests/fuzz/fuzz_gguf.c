/* Fuzzes the GGUF reader: opens any bytes from memory, and reads everything from a file that opens. */
#include "gguf_seed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint64_t sink; /* volatile, so that the reads are not removed */
    pi__gguf *g;
    pi_error err = {0};
    if (pi__gguf_open_memory(&g, data, size, &err) == PI_OK) sink = sink + touch_all(g);
    else if (!err.msg[0] || g) abort(); /* a refusal must give a reason and no reader */
    pi__gguf_close(g);
    return 0;
}
