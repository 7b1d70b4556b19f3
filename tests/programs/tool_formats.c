/* tool_formats TYPE: reads blocks on stdin, writes their floats to stdout. tool_formats -w TYPE: the inverse.
 * For check_formats.py, which compares with the reference package. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"

int main(int argc, char **argv)
{
    bool write = argc == 3 && strcmp(argv[1], "-w") == 0;
    const pi__type_info *t = argc == 2 + write ? pi__type_info_of(pi__type_from_name(argv[argc - 1])) : NULL;
    if (!t) {
        fprintf(stderr, "usage: tool_formats [-w] TYPE\n");
        return 64;
    }
    int32_t type = pi__type_from_name(t->name);
    size_t n_in = write ? t->blck_size * sizeof(float) : t->type_size;
    size_t n_out = write ? t->type_size : t->blck_size * sizeof(float);
    void *in = malloc(n_in), *out = malloc(n_out);
    int rc = in && out ? 0 : 71;
    while (rc == 0 && fread(in, 1, n_in, stdin) == n_in) {
        bool ok = write ? pi__quantize_row(type, in, out, t->blck_size, NULL)
                        : pi__dequantize_row(type, in, out, t->blck_size);
        if (!ok) rc = 65;
        else if (fwrite(out, 1, n_out, stdout) != n_out) rc = 74;
    }
    free(in);
    free(out);
    return rc;
}
