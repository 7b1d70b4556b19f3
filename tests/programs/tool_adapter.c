/* tool_adapter.c: writes a random LoRA adapter for all matrices of a model's layers, for tests that run programs.
 *
 *     tool_adapter FILE MODEL [RANK [SEED [SIZE [TYPE [ONLY]]]]]
 *
 * SIZE is the magnitude of the change; 1 changes the output of a tiny random model. TYPE is F32, F16 or BF16. ONLY is
 * a part of the names of the adapted matrices. Alpha is twice the rank. */
#include "adapter_file.h"

int main(int argc, char **argv)
{
    adapter_spec s = {.rank = 8, .seed = 1, .size = 4};
    pi_error err = {0};
    if (argc > 3) s.rank = atoi(argv[3]);
    if (argc > 4) s.seed = (uint32_t) strtoul(argv[4], NULL, 10);
    if (argc > 5) s.size = strtof(argv[5], NULL);
    if (argc > 6) s.type = pi__type_from_name(argv[6]);
    if (argc > 7) s.only = argv[7];
    s.alpha = 2.0f * (float) s.rank;
    if (argc < 3 || argc > 8 || s.rank < 1 || (s.type != PI__F32 && s.type != PI__F16 && s.type != PI__BF16)) {
        fprintf(stderr, "usage: tool_adapter FILE MODEL [RANK [SEED [SIZE [TYPE [ONLY]]]]]\n");
        return 1;
    }
    if (adapter_write(argv[1], argv[2], &s, &err) == PI_OK) return 0;
    fprintf(stderr, "tool_adapter: %s\n", err.msg);
    return 1;
}
