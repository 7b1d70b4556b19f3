/* A plugin for qemu-user (version 7 or newer, plugin interface 1): prints the number of instructions that each
 * function of a program executed, highest first. tests/scripts/arm_counts.py builds and uses it:
 *
 *     cc -shared -fPIC -O2 -o qemu_count.so qemu_count.c
 *     qemu-aarch64 -plugin ./qemu_count.so -d plugin PROGRAM
 *
 * This file declares the required parts of QEMU's header, because distributions package the emulator without it.
 * Counts are exact for single-threaded programs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t qemu_plugin_id_t;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int op, void *ptr, uint64_t imm);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, void (*fn)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*fn)(qemu_plugin_id_t, void *), void *user);
void qemu_plugin_outs(const char *text);

enum { MOST = 1 << 14, ADD_U64 = 0 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static struct count {
    char name[120]; /* function name; "" = all other code */
    uint64_t n;     /* executed instructions */
} count[MOST];
static int n_count;

static struct count *count_of(const char *name)
{
    int i = 0;
    if (!name) name = "";
    while (i < n_count && strncmp(count[i].name, name, sizeof count[i].name - 1) != 0) i++;
    if (i == MOST) return count;
    if (i == n_count) snprintf(count[n_count++].name, sizeof count[i].name, "%s", name);
    return &count[i];
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void) id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, &count_of(qemu_plugin_insn_symbol(insn))->n, 1);
    }
}

static int more(const void *a, const void *b)
{
    const struct count *x = a, *y = b;
    return (x->n < y->n) - (x->n > y->n);
}

static void finished(qemu_plugin_id_t id, void *user)
{
    (void) id, (void) user;
    char line[200];
    qsort(count, (size_t) n_count, sizeof *count, more);
    for (int i = 0; i < n_count && count[i].n; i++) {
        snprintf(line, sizeof line, "%llu %.119s\n", (unsigned long long) count[i].n,
                 *count[i].name ? count[i].name : "-");
        qemu_plugin_outs(line);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc,
                                                               char **argv)
{
    (void) info, (void) argc, (void) argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
