/* tests/tiny_model.h for C++: a random Gemma 3 whose matrices are of a type. */
#include "tiny_model.h"

int simt_tiny_write(const char *path, int32_t type);
int simt_tiny_write(const char *path, int32_t type)
{
    tiny_spec s = tiny_default;
    pi_error err;
    s.type = type;
    s.n_embd = 256;
    s.n_head = 4;
    s.n_head_kv = 2;
    s.head_dim = 64;
    s.n_ff = 256;
    return tiny_write(path, &s, &err);
}
