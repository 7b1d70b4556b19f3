/* tool_tiny_model.c: writes the random models of tiny_*.h, for tests that run programs.
 *
 *     tool_tiny_model FILE [CONTEXT [gemma3|gemma4|qwen35|qwen35moe|deepseek4]]
 *
 * CONTEXT is the number of tokens it was "trained" for: how long a request may become. */
#include "tiny_deepseek4.h"
#include "tiny_gemma4.h"
#include "tiny_qwen35.h"

int main(int argc, char **argv)
{
    tiny_spec s = tiny_default;
    pi_error err = {0};
    if (argc > 2) s.ctx = atoi(argv[2]);
    const char *arch = argc > 3 ? argv[3] : "gemma3";
    int rc = PI_EINVAL;
    if (argc < 2 || argc > 4 || s.ctx < 1) snprintf(err.msg, sizeof err.msg, "usage: FILE [CONTEXT [ARCHITECTURE]]");
    else if (!strcmp(arch, "gemma3")) rc = tiny_write(argv[1], &s, &err);
    else if (!strcmp(arch, "gemma4")) rc = tiny_gemma4_write(argv[1], s.ctx, &err);
    else if (!strcmp(arch, "deepseek4")) rc = tiny_deepseek4_write(argv[1], s.ctx, &err);
    else if (!strcmp(arch, "qwen35")) rc = tiny_qwen35_write(argv[1], false, s.ctx, &err);
    else if (!strcmp(arch, "qwen35moe")) rc = tiny_qwen35_write(argv[1], true, s.ctx, &err);
    else snprintf(err.msg, sizeof err.msg, "there is no tiny %.40s", arch);
    if (rc) fprintf(stderr, "tool_tiny_model: %s\n", err.msg);
    return rc ? 1 : 0;
}
