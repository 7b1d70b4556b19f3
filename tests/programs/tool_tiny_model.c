/* tool_tiny_model.c: writes the random models of random_rows.c, for tests that run programs.
 *
 *     tool_tiny_model FILE [CONTEXT [ARCHITECTURE [SEED [TYPE [SIZES]]]]]
 *
 * CONTEXT is the model's training context, which limits the length of a request. ARCHITECTURE is the name of a row;
 * the program lists the rows if run without arguments. SEED 0 = the row's own. TYPE is the type of matrices that the
 * row leaves open ("Q8_0"). SIZES replaces sizes of the row: "L=2 E=256". */
#include "random_model.h"

int main(int argc, char **argv)
{
    tiny_spec s = {.ctx = 512};
    pi_error err = {0};
    if (argc > 2) s.ctx = atoi(argv[2]);
    if (argc > 3) s.arch = argv[3];
    if (argc > 4) s.seed = (uint32_t) strtoul(argv[4], NULL, 10);
    if (argc > 5) s.type = pi__type_from_name(argv[5]);
    if (argc > 6) s.sizes = argv[6];
    if (argc < 2 || argc > 7 || s.ctx < 1 || s.type < 0) {
        fprintf(stderr, "usage: tool_tiny_model FILE [CONTEXT [ARCHITECTURE [SEED [TYPE [SIZES]]]]]; architectures:");
        for (size_t i = 0; tiny_row_name(i); i++) fprintf(stderr, " %s", tiny_row_name(i));
        fprintf(stderr, "\n");
        return 1;
    }
    if (tiny_write(argv[1], &s, &err) == PI_OK) return 0;
    fprintf(stderr, "tool_tiny_model: %s\n", err.msg);
    return 1;
}
