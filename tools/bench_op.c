/* `pagedinfer bench --op`: times a single op of the device; output as a table or as JSON lines. */
#include <string.h>

#include "bench.h"

typedef struct op_table {
    const cli *c;
    bool json;
    bool begun; /* the table header was printed */
} op_table;

/* Prints one time. The share of the bound is the time that the bytes take at full bandwidth, divided by the measured
 * time. */
static bool print_time(void *ud, const pi_op_time *t)
{
    op_table *o = ud;
    double gbs = (double) t->bytes / t->ns, share = (double) t->bytes / t->bandwidth * 1e9 / t->ns;
    if (!o->json && !o->begun) {
        printf("| %-6s | sequences | tokens | all, ms   | a sequence  | MiB       | GB/s  | of bound  |\n",
               cli_str(o->c, "op"));
        printf("|--------|-----------|--------|-----------|-------------|-----------|-------|-----------|\n");
    }
    o->begun = true;
    if (o->json) {
        printf("{\"op\": \"%s\", \"what\": \"%s\", \"n_seqs\": %u, \"n_tokens\": %u, \"ns\": %.0f, \"bytes\": %llu, "
               "\"bandwidth\": %.0f}\n", cli_str(o->c, "op"), t->what, t->n_seqs, t->n_tokens, t->ns,
               (unsigned long long) t->bytes, t->bandwidth);
    } else {
        printf("| %-6s | %9u | %6u | %9.3f | %11.3f | %9.2f | %5.1f | %7.0f %% |\n", t->what, t->n_seqs, t->n_tokens,
               t->ns * 1e-6, t->ns * 1e-6 / t->n_seqs, (double) t->bytes / (1 << 20), gbs, share * 100);
    }
    fflush(stdout);
    return cli_signal() != 0;
}

/* Sets the options that affect the op. */
static int set_options(const cli *c, pi_options *o)
{
    static const char *const keys[] = {"threads", "cpu-mask", "poll", "cpu-isa"};
    pi_error err = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (cli_given(c, keys[i]) && pi_options_set(o, keys[i], cli_str(c, keys[i]), &err))
            return cli_usage_error(c, "%s", err.msg);
    }
    return CLI_OK;
}

int bench_op(const cli *c)
{
    op_table t = {c, !strcmp(cli_str(c, "output"), "jsonl"), false};
    pi_error err = {0};
    if (!t.json && strcmp(cli_str(c, "output"), "md")) return cli_usage_error(c, "--op: the output is md or jsonl");
    pi_options *o = pi_options_new();
    int code = o ? set_options(c, o) : cli_error(c, CLI_OS, "out of memory");
    if (!code) code = cli_catch_signals();
    int rc = code ? PI_OK : pi_bench_op(o, cli_str(c, "op"), cli_str(c, "op-shape"), print_time, &t, &err);
    if (rc == PI_EINVAL) code = cli_usage_error(c, "%s", err.msg);
    else if (rc) code = cli_pi_error(c, &err);
    pi_options_free(o);
    if (!code && cli_signal()) code = 128 + cli_signal();
    return code ? code : cli_flush(c);
}
