/* tool_tiny_model.c: writes the random models of tiny_model.h and tiny_gemma4.h, for tests that run programs.
 *
 *     tool_tiny_model FILE [CONTEXT [gemma3|gemma4]]
 *
 * CONTEXT is the number of tokens it was "trained" for: how long a request may become. */
#include "tiny_gemma4.h"

int main(int argc, char **argv)
{
    tiny_spec s = tiny_default;
    pi_error err = {0};
    if (argc > 2) s.ctx = atoi(argv[2]);
    const char *arch = argc > 3 ? argv[3] : "gemma3";
    const bool is4 = !strcmp(arch, "gemma4");
    if (argc < 2 || argc > 4 || s.ctx < 1 || (!is4 && strcmp(arch, "gemma3"))) {
        fprintf(stderr, "usage: tool_tiny_model FILE [CONTEXT [gemma3|gemma4]]\n");
        return 2;
    }
    int rc = is4 ? tiny_gemma4_write(argv[1], s.ctx, &err) : tiny_write(argv[1], &s, &err);
    if (rc) fprintf(stderr, "%s: %s: %s\n", argv[1], pi_strerror(rc), err.msg);
    return rc ? 1 : 0;
}
