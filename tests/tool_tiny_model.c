/* tool_tiny_model.c: writes the random model of tiny_model.h, for tests that run programs.
 *
 *     tool_tiny_model FILE [CONTEXT]
 *
 * CONTEXT is the number of tokens it was "trained" for: how long a request may become. */
#include "tiny_model.h"

int main(int argc, char **argv)
{
    tiny_spec s = tiny_default;
    pi_error err = {0};
    if (argc == 3) s.ctx = atoi(argv[2]);
    if (argc < 2 || argc > 3 || s.ctx < 1) {
        fprintf(stderr, "usage: tool_tiny_model FILE [CONTEXT]\n");
        return 2;
    }
    int rc = tiny_write(argv[1], &s, &err);
    if (rc) fprintf(stderr, "%s: %s: %s\n", argv[1], pi_strerror(rc), err.msg);
    return rc ? 1 : 0;
}
