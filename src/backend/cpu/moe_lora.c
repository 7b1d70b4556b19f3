/* LoRA adapters of routed experts on the CPU: makes an entry for lora.c from each column of moe.c's results with an
 * adapter.
 *
 * A column is a (row, expert) pair. Columns are sorted by expert, then by row. Adjacent columns of one expert form a
 * run if their rows have the same adapter:
 *
 *     columns   [e1: r0 r1 r2] [e4: r0 r2] [e7: r1]        r0 and r1 have adapter a, r2 has none
 *     runs      [a.e1: r0 r1]  [a.e4: r0]  [a.e7: r1]
 *
 * A row with several adapters has one per level. Levels are added one after the other, so a column's sums are in the
 * order of levels. Memory: the scratch of moe.c. Threads: the step thread. */
#include "backend/cpu/lora.h"
#include "backend/operands.h"
#include "base/alloc.h"

void pi__cpu_moe_lora_layout(pi__cpu_moe_lora *l, pi__arena *a, int64_t n_in)
{
    const size_t n = (size_t) l->n_rows * (size_t) l->n_used;
    l->of_row = pi__arena_take(a, (size_t) l->n_rows * sizeof *l->of_row);
    l->from = pi__arena_take(a, n * sizeof *l->from);
    l->to = pi__arena_take(a, n * sizeof *l->to);
    l->run = pi__arena_take(a, n * sizeof *l->run);
    l->scratch = pi__arena_take(a, pi__cpu_lora_bytes(n_in, 2 * PI__MAX_LORA_RANK));
}

/* Adds the adapters of runs r0..r1 - 1, all of one level, to the results of the columns of their rows. */
static void add_level(pi__cpu *cpu, const pi__cpu_moe_lora *l, int32_t r0, int32_t r1, const pi__cpu_lora_work *work,
                      bool by_row)
{
    const pi__lora_rows *rows = l->a->rows;
    pi__cpu_lora_work w = *work;
    int32_t last = -1;
    for (int32_t r = 0; r < l->n_rows; r++) l->of_row[r] = -1;
    for (int32_t k = r0; k < r1; k++)
        for (int32_t i = 0; i < rows->run[k].n; i++) l->of_row[rows->row[rows->run[k].first + i]] = k;
    w.n = w.n_runs = 0;
    for (int32_t j = 0; j < l->n_rows * l->n_used; j++) {
        const int32_t row = l->pair[j] / l->n_used, k = l->of_row[row], e = l->id[l->pair[j]];
        if (k < 0) continue;
        if (!w.n_runs || k != last || l->run[w.n_runs - 1].expert != e) {
            l->run[w.n_runs] = rows->run[k];
            l->run[w.n_runs].expert = e, l->run[w.n_runs].first = w.n, l->run[w.n_runs].n = 0;
            w.n_runs++;
            last = k;
        }
        l->from[w.n] = by_row ? row : j;
        l->to[w.n++] = j;
        l->run[w.n_runs - 1].n++;
    }
    w.run = l->run, w.from = l->from, w.to = l->to, w.scratch = l->scratch;
    pi__cpu_lora_add(cpu, &w);
}

void pi__cpu_moe_lora_add(pi__cpu *cpu, const pi__cpu_moe_lora *l, const pi__cpu_lora_work *work, bool by_row)
{
    const pi__lora_rows *rows = l->a->rows;
    for (int32_t r = 0, end; work->n_lin && r < rows->n_runs; r = end) {
        end = pi__lora_level_end(rows, r);
        add_level(cpu, l, r, end, work, by_row);
    }
}
