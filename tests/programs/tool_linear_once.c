/* Multiplies one matrix by some rows, once, with one thread, to count its instructions (tests/scripts/arm_counts.py).
 *
 *     tool_linear_once ISA BITS TYPE N_IN N_OUT ROWS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/linear.h"

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    uint32_t s = 1;
    for (size_t i = 0; x && i < n; i++) {
        s = s * 1664525 + 1013904223;
        x[i] = (float) (s >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

/* Returns 0, or the exit status of the program. */
static int multiply(pi__backend *be, int32_t type, int64_t n_in, int64_t n_out, int32_t n_rows)
{
    const pi__type_info *info = pi__type_info_of(type);
    const pi__limits lim = {.max_tokens = n_rows,
                            .max_rows = n_rows,
                            .max_n_in = n_in,
                            .max_n_out = n_out,
                            .max_seqs = 1,
                            .max_ctx = 32,
                            .max_n_head = 1,
                            .max_head_dim = 32};
    pi__weight w = {.type = type, .n_in = n_in, .n_out = n_out, .n_mat = 1};
    const size_t row = pi__row_size(info, n_in);
    float *x = random_floats((size_t) (n_in * n_rows)), *values = random_floats((size_t) n_in);
    float *y = malloc((size_t) (n_out * n_rows) * sizeof *y);
    uint8_t *src = malloc(row * (size_t) n_out);
    w.size = be->dev->weight_size(be, &w);
    w.data = w.size ? be->dev->alloc(be, w.size) : NULL;
    if (!x || !values || !y || !src || !w.data || be->dev->reserve(be, &lim, NULL) != PI_OK) return 1;
    for (int64_t r = 0; r < n_out; r++) {
        if (r) memcpy(src + (size_t) r * row, src, row);
        else if (!pi__quantize_row(type, values, src, n_in, NULL)) return 1;
    }
    be->dev->weight_load(be, &w, 0, 0, n_out, src);
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = n_in};
    const pi__lin lin = {&w, y, n_out};
    const pi__linear a = pi__linear_of(&in, n_rows, &lin, 1);
    pi__op_linear(be, NULL, &a);
    printf("%s: %.9g\n", be->dev->describe(be), (double) y[n_out * n_rows - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: tool_linear_once ISA BITS TYPE N_IN N_OUT ROWS\n");
        return 2;
    }
    const pi__cpu_params p = {.n_threads = 1, .isa = argv[1], .act8 = atoi(argv[2]) == 8};
    const int32_t type = pi__type_from_name(argv[3]);
    pi__backend *be;
    pi_error err = {0};
    if (type < 0 || pi__cpu_create(&be, &p, NULL, &err) != PI_OK) {
        fprintf(stderr, "%s\n", type < 0 ? "no such type" : err.msg);
        return 1;
    }
    return multiply(be, type, atoll(argv[4]), atoll(argv[5]), atoi(argv[6]));
}
