/* The operand table contains every pointer of each op's struct, so that code that moves ops between devices finds all
 * operands. Also: equal steps give equal traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/operands.h"
#include "model_jobs.h"

/* Number of pointers in each op's struct that the op reads. */
static const struct { pi__op_id id; int n;
} pointers[] = {{PI__OP_add_norm, 4},       {PI__OP_norm, 3},
                {PI__OP_layer_norm, 5},     {PI__OP_activate, 2},
                {PI__OP_scale, 3},
                {PI__OP_add_gated, 3},      {PI__OP_gate_heads, 2},
                {PI__OP_softcap, 1},
                {PI__OP_copy_2d, 2},        {PI__OP_hyper_pre, 6},
                {PI__OP_hyper_post, 3},     {PI__OP_embed, 2},
                {PI__OP_linear, 2 + 1 + 2}, {PI__OP_lora, 2 + 1 + 2 + 1},
                {PI__OP_lora_embed, 3},     {PI__OP_block_conv, 4},
                {PI__OP_rope, 2},           {PI__OP_qkv, 11},
                {PI__OP_attention, 6},      {PI__OP_moe, 3 + 11},
                {PI__OP_head_linear, 3},    {PI__OP_gather_rows, 3},
                {PI__OP_add_rows, 3},       {PI__OP_place_rows, 3},
                {PI__OP_centroid_head, 3 + 7},
                {PI__OP_gdn, 12},           {PI__OP_short_conv, 5},
                {PI__OP_scan, 12},
                {PI__OP_state_save, 1},     {PI__OP_state_load, 1},     {PI__OP_mla_qkv, 5},
                {PI__OP_compress, 6},       {PI__OP_indexer, 4},
                {PI__OP_sparse, 7},         {PI__OP_topk, 4}};

/* Fills an op's arguments; all pointers lead to one zeroed object: a matrix without rows, a cache without heads. */
static void fill(pi__op_id id, pi__op_record *r, void *target)
{
    memset(r, 0, sizeof *r);
    r->id = id;
    switch (id) {
    case PI__OP_block_conv:
        r->args.block_conv = (pi__block_conv) {.x = target, .base = target, .own = target, .group = 1, .out = target};
        break;
    case PI__OP_embed: r->args.embed = (pi__embed) {target, 1, target}; break;
    case PI__OP_linear:
        r->args.linear = (pi__linear) {
            {PI__IN_SWIGLU, target, 1, target, 1, target, 0, 0}, 1, 1, {{target, target, 1}}, NULL};
        break;
    case PI__OP_lora:
        r->args.lora = (pi__lora) {
            {{PI__IN_SWIGLU, target, 1, target, 1, target, 0, 0}, 1, 1, {{target, target, 1}}, NULL}, {1}, target};
        break;
    case PI__OP_lora_embed: r->args.lora_embed = (pi__lora_embed) {.w = target, .rows = target, .out = target}; break;
    case PI__OP_add_norm: r->args.add_norm = (pi__add_norm) {target, target, target, target, 0, 1, 1, 1}; break;
    case PI__OP_norm: r->args.norm = (pi__norm) {target, 1, target, target, 0, 1, 1}; break;
    case PI__OP_add_rows: r->args.add_rows = (pi__add_rows) {target, target, target, 1, 1}; break;
    case PI__OP_place_rows: r->args.place_rows = (pi__place_rows) {target, target, 1, target, 1, 1, true}; break;
    case PI__OP_layer_norm:
        r->args.layer_norm = (pi__layer_norm) {target, target, target, target, target, 0, 1, 1};
        break;
    case PI__OP_activate: r->args.activate = (pi__activate) {target, target, 1, 1, PI__ACT_GELU, {0}}; break;
    case PI__OP_scale: r->args.scale = (pi__scale) {target, target, target, 1, 0, 1, 1, 1}; break;
    case PI__OP_add_gated: r->args.add_gated = (pi__add_gated) {target, target, target, 1, 1, 1}; break;
    case PI__OP_gate_heads: r->args.gate_heads = (pi__gate_heads) {target, target, 1, 1, 1, 1, false}; break;
    case PI__OP_rope: r->args.rope = (pi__rope) {.freq = target, .n_freq = 1, .table = target}; break;
    case PI__OP_qkv:
        r->args.qkv = (pi__qkv) {.kv = target,
                                 .q = target,
                                 .k = target,
                                 .v = target,
                                 .q_norm = target,
                                 .k_norm = target,
                                 .rope = target,
                                 .q_rope = target,
                                 .q_bias = target,
                                 .k_bias = target,
                                 .v_bias = target};
        break;
    case PI__OP_attention:
        r->args.attention = (pi__attention) {.kv = target, .q = target, .gate = target, .out = target, .sinks = target,
                                               .rel = target};
        break;
    case PI__OP_moe:
        r->args.moe = (pi__moe) {.in = {PI__IN_GEGLU, target, 1, target, 1, target, 0, 0},
                                 .logits = target,
                                 .gate = target,
                                 .up = target,
                                 .down = target,
                                 .gate_bias = target,
                                 .up_bias = target,
                                 .down_bias = target,
                                 .bias = target,
                                 .table = target,
                                 .y = target,
                                 .n_rows = 1,
                                 .lora = {.rows = target}};
        break;
    case PI__OP_head_linear:
        r->args.head_linear = (pi__head_linear) {.w = target, .n_rows = 1, .x = target, .y = target};
        break;
    case PI__OP_gather_rows: r->args.gather_rows = (pi__gather_rows) {target, 1, target, 1, target}; break;
    case PI__OP_softcap: r->args.softcap = (pi__softcap) {target, 1, 1, 1}; break;
    case PI__OP_centroid_head:
        r->args.centroid_head = (pi__centroid_head) {.n_rows = 1,
                                                     .in = {PI__IN_GEGLU, target, 1, target, 1, target, 0, 0},
                                                     .centroids = target,
                                                     .head = target,
                                                     .order = target,
                                                     .scores = target,
                                                     .pick = target,
                                                     .some = target,
                                                     .logits = target};
        break;
    case PI__OP_gdn:
        r->args.gdn = (pi__gdn) {.st = target,
                                 .qkv = target,
                                 .z = target,
                                 .alpha = target,
                                 .beta = target,
                                 .conv = target,
                                 .conv_bias = target,
                                 .skip = target,
                                 .dt_bias = target,
                                 .a = target,
                                 .norm = target,
                                 .out = target};
        break;
    case PI__OP_short_conv:
        r->args.short_conv = (pi__short_conv) {.st = target, .x = target, .conv = target, .bias = target,
                                               .out = target};
        break;
    case PI__OP_scan:
        r->args.scan = (pi__scan) {.st = target, .x = target, .z = target, .dt = target, .b = target, .c = target,
                                   .norm_b = target, .norm_c = target, .dt_bias = target, .a = target, .skip = target,
                                   .out = target};
        break;
    case PI__OP_state_save: r->args.state_save = (pi__state_copy) {target, 0, 0, 0}; break;
    case PI__OP_state_load: r->args.state_load = (pi__state_copy) {target, 0, 0, 0}; break;
    case PI__OP_copy_2d:
        r->args.copy_2d = (pi__copy_2d) {.x = target, .n_shards = 1, .n_rows = 1, .n = 1, .y = target};
        break;
    case PI__OP_hyper_pre:
    case PI__OP_hyper_post:
        r->args.hyper_pre = (pi__hyper) {.n_rows = 1,
                                         .x = target,
                                         .mix = target,
                                         .scale = target,
                                         .base = target,
                                         .n_iter = 1,
                                         .coef = target,
                                         .y = target};
        break;
    case PI__OP_mla_qkv:
        r->args.mla_qkv = (pi__mla_qkv) {.rows = target, .q = target, .row = target, .norm = target, .rope = target};
        break;
    case PI__OP_compress:
        r->args.compress = (pi__compress) {
            .recent = target, .entries = target, .x = target, .ape = target, .norm = target, .freq = target};
        break;
    case PI__OP_indexer:
        r->args.indexer = (pi__indexer) {.entries = target, .q = target, .w = target, .pick = target};
        break;
    case PI__OP_sparse:
        r->args.sparse = (pi__sparse) {.rows = target, .entries = target, .q = target, .pick = target, .sinks = target,
                                       .rope = target, .out = target};
        break;
    case PI__OP_topk:
        r->args.topk = (pi__topk) {.x = target, .n_rows = 1, .skip = target, .request = target, .out = target};
        break;
    case PI__N_OPS: break;
    }
}

static void test_all_pointers(void **state)
{
    (void) state;
    static union { char bytes[4096]; pi__weight w; pi__kv_layer kv; pi__state_layer st; } target;
    const pi__batch b = {.n_tokens = 1, .n_seqs = 1};
    assert_int_equal(sizeof pointers / sizeof *pointers, PI__N_OPS);
    for (int i = 0; i < PI__N_OPS; i++) {
        pi__op_record r;
        pi__operands o;
        int n = 0;
        assert_int_equal(pointers[i].id, i);
        fill(i, &r, &target);
        pi__operands_of(i, &b, &r.args, &o);
        assert_int_equal(o.n, pointers[i].n);
        for (int k = 0; k < o.n; k++) {
            assert_ptr_equal(pi__operand_get(&r.args, &o.op[k]), &target);
            assert_true(o.op[k].at + sizeof(void *) <= pi__op_size(i));
            for (int j = 0; j < k; j++) assert_true(o.op[j].at != o.op[k].at);
        }
        /* Words of the struct that hold the address but are not in the table: NULL, or an input that the op's kind
         * does not use. */
        for (size_t at = 0; at + sizeof(void *) <= pi__op_size(i); at += sizeof(void *)) {
            const void *p;
            memcpy(&p, (char *) &r.args + at, sizeof p);
            n += p == (void *) &target;
        }
        if (i == PI__OP_hyper_post) n -= 3; /* uses the struct of hyper_pre */
        if (n != o.n) fail_msg("%s: %d pointers, %d operands", pi__op_name(i), n, o.n);
    }
}

/* ----------------------------------------------------------------------------------------------------------- trace */

typedef struct trace { int lines; uint64_t hash; bool named[PI__N_OPS]; } trace;

static void on_log(void *ud, int level, const char *line)
{
    trace *t = ud;
    (void) level;
    if (strncmp(line, "op ", 3)) return;
    t->lines++;
    for (const char *c = line; *c; c++) t->hash = (t->hash ^ (uint8_t) *c) * 0x100000001b3u;
    for (int i = 0; i < PI__N_OPS; i++) {
        const size_t n = strlen(pi__op_name(i));
        if (!strncmp(line + 3, pi__op_name(i), n) && line[3 + n] == ':') t->named[i] = true;
    }
}

/* Equal requests give equal trace lines; another prompt gives other lines. */
static void test_trace(void **state)
{
    (void) state;
    char path[256];
    pi_error err = {0};
    trace t[3] = {{0}};
    static job j[N_JOBS];
    assert_int_equal(tiny_write(tiny_path(path, "trace"), NULL, &err), PI_OK);
    for (int i = 0; i < 3; i++) {
        pi__config c = {.model = path,
                        .max_batch_tokens = 32,
                        .max_seqs = 2,
                        .max_queue = 4,
                        .block_size = 16,
                        .snapshot_interval = 64,
                        .type_k = PI__F16,
                        .type_v = PI__F16,
                        .kv_tokens = 512,
                        .trace_ops = true,
                        .log = {on_log, &t[i], PI_LOG_DEBUG},
                        .params.cpu = {.n_threads = 1}};
        jobs_fill(j);
        pi__core *e = job_core(&c);
        job_submit(e, &j[i == 2], PI__LOGITS_GENERATED, NULL);
        job_await(&j[i == 2], PI_OK);
        pi__core_close(e);
    }
    assert_true(t[0].lines > 100 && t[0].named[PI__OP_linear] && t[0].named[PI__OP_attention] &&
                !t[0].named[PI__OP_gdn]);
    assert_int_equal(t[0].lines, t[1].lines);
    assert_true(t[0].hash == t[1].hash && t[0].hash != t[2].hash);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_pointers), cmocka_unit_test(test_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
