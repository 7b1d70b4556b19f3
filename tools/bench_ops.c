/* `pagedinfer bench --ops`: for each test, the step time per op, compared to the lower bound from memory bandwidth and
 * arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { MOST = 160 };

typedef struct share_row {
    char op[80];
    pi_op_share s;
} share_row;

typedef struct shares {
    share_row row[MOST];
    size_t n;
} shares;

static bool note_rate(void *ud, const pi_op_time *t)
{
    bench_rates *r = ud;
    if (!strcmp(t->what, "read")) r->read = t->bandwidth;
    if (!strcmp(t->what, "integers")) r->integers = t->products;
    if (!strcmp(t->what, "floats")) r->floats = t->products;
    return false;
}

int bench_ops_begin(bench *b, const pi_options *o)
{
    pi_error err = {0};
    if (!b->ops.on || b->ops.rates.read > 0) return CLI_OK;
    if (pi_bench_op(o, "rates", NULL, note_rate, &b->ops.rates, &err)) return cli_pi_error(b->c, &err);
    if (b->ops.json)
        printf("{\"read\": %.0f, \"integers\": %.0f, \"floats\": %.0f}\n", b->ops.rates.read, b->ops.rates.integers,
               b->ops.rates.floats);
    else printf("Rates: %.1f GB/s read, %.0f G integer products/s, %.0f G float products/s\n", b->ops.rates.read * 1e-9,
                b->ops.rates.integers * 1e-9, b->ops.rates.floats * 1e-9);
    return CLI_OK;
}

static bool note_share(void *ud, const pi_op_share *s)
{
    shares *all = ud;
    share_row *r = &all->row[all->n++];
    r->s = *s;
    snprintf(r->op, sizeof r->op, "%s", s->op);
    return all->n == MOST;
}

static int slower_first(const void *a, const void *b)
{
    const double x = ((const share_row *) a)->s.ns, y = ((const share_row *) b)->s.ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Returns the lower bound of the time for the work, in ns. */
static double least(const bench_rates *r, const pi_op_share *s)
{
    const double read = (double) s->bytes / r->read;
    const double products = (double) s->integers / r->integers + (double) s->floats / r->floats;
    return (read > products ? read : products) * 1e9;
}

static void print_row(const bench *b, const pi_op_share *s, const char *op, double all)
{
    const double n = (double) s->n_steps, bound = least(&b->ops.rates, s);
    if (b->ops.json) {
        printf("{\"decode\": %s, \"op\": \"%s\", \"steps\": %llu, \"calls\": %llu, \"ns\": %.0f, \"bytes\": %llu, \"integers\": %llu, "
               "\"floats\": %llu, \"bound_ns\": %.0f}\n", s->decode ? "true" : "false", op, (unsigned long long) s->n_steps,
               (unsigned long long) s->n_calls, s->ns, (unsigned long long) s->bytes, (unsigned long long) s->integers,
               (unsigned long long) s->floats, bound);
        return;
    }
    printf("| %-32s | %6.1f | %9.3f | %5.1f %% | %9.2f | %9.1f | %9.1f | ", op, (double) s->n_calls / n, s->ns / n * 1e-6,
           100 * s->ns / all, (double) s->bytes / n * 1e-6, (double) s->integers / n * 1e-6, (double) s->floats / n * 1e-6);
    if (bound > 0 && s->ns > 0) printf("%6.0f %% |\n", 100 * bound / s->ns);
    else printf("%8s |\n", "");
}

static void print_kind(const bench *b, const shares *all, bool decode)
{
    pi_op_share sum = {.decode = decode};
    double bound = 0;
    for (size_t i = 0; i < all->n; i++) {
        const pi_op_share *s = &all->row[i].s;
        if ((s->decode != 0) != decode) continue;
        sum.n_steps = s->n_steps;
        sum.ns += s->ns, sum.bytes += s->bytes, sum.integers += s->integers, sum.floats += s->floats, sum.n_calls += s->n_calls;
        bound += least(&b->ops.rates, s);
    }
    if (!sum.n_steps || sum.ns <= 0) return;
    if (!b->ops.json) {
        printf("\n%llu steps %s; sum of bounds %.0f %%\n\n", (unsigned long long) sum.n_steps,
               decode ? "that decode" : "with tokens of prompts", 100 * bound / sum.ns);
        printf("| %-32s | calls  | ms a step | share   | MB a step | M integer | M float   | of bound |\n", "op");
        printf("|----------------------------------|--------|-----------|---------|-----------|-----------|-----------|----------|\n");
    }
    for (size_t i = 0; i < all->n; i++)
        if ((all->row[i].s.decode != 0) == decode) print_row(b, &all->row[i].s, all->row[i].op, sum.ns);
    if (!b->ops.json) print_row(b, &sum, "all", sum.ns);
}

static bool ignore(void *ud, const pi_op_share *s)
{
    (void) ud, (void) s;
    return true;
}

int bench_ops_restart(bench *b)
{
    pi_error err = {0};
    if (!b->ops.on) return CLI_OK;
    return pi_engine_profile(b->e, ignore, NULL, &err) ? cli_pi_error(b->c, &err) : CLI_OK;
}

int bench_ops_print(bench *b)
{
    pi_error err = {0};
    if (!b->ops.on) return CLI_OK;
    shares *all = calloc(1, sizeof *all);
    int code = all ? CLI_OK : cli_error(b->c, CLI_OS, "out of memory");
    if (!code && pi_engine_profile(b->e, note_share, all, &err)) code = cli_pi_error(b->c, &err);
    if (!code) {
        qsort(all->row, all->n, sizeof *all->row, slower_first);
        print_kind(b, all, false);
        print_kind(b, all, true);
        if (!b->ops.json) putchar('\n');
    }
    free(all);
    return code;
}
