/* Plans of the CUDA backend (src/backend/cuda/plan.c) without a device: the launches of whole models, for steps of 1,
 * 8 and 32 sequences and for a prompt of 96 rows, are those of the files in plans/. Without rules, every op has its
 * own launch; without one rule, the launches of that rule do not occur; the plan depends on its arguments only.
 *
 * A graph runs on a backend that only records its ops. `test_plan --write` writes the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/plan.h"
#include "backend/devices.h"
#include "backend/operands.h"
#include "model/model.h"
#include "plan_facts.h"
#include "random_model.h"

enum { MAX_TOKENS = 96, MAX_SEQS = 32, CTX = 256, BLOCK = 16, MANY = 96, TEXT = 1 << 16 };

static struct {
    int32_t n;
    pi__op_record op[PI__MAX_RECORDS];
} calls;
static pi__plan plan, other;

#define RECORD(name, type)                                                                                             \
    static void record_##name(pi__backend *be, const pi__batch *b, const type *a)                                      \
    {                                                                                                                  \
        (void) be;                                                                                                     \
        assert_true(calls.n < PI__MAX_RECORDS);                                                                        \
        calls.op[calls.n] = (pi__op_record) {.id = PI__OP_##name, .b = b};                                             \
        calls.op[calls.n++].args.name = *a;                                                                            \
    }
PI__OPS(RECORD)
#undef RECORD
#define FN(name, type) .name = record_##name,
static const pi__op_fns recorder = {PI__OPS(FN)};
#undef FN

/* ------------------------------------------------------------------------------------------------- model and step */

static struct {
    pi__gguf *g;
    pi__backend *be;
    pi__model *m;
    pi__limits lim;
    int32_t ints[1 << 16]; /* memory of a batch's arrays */
} s;

/* Models, by the file in plans/: sizes NULL = those of the row (random_rows.h).
 *
 *  */
static const struct {
    const char *file, *arch, *sizes;
} models[] = {
#define DEFAULT(arch)                                                                                                  \
    {                                                                                                                  \
        arch, arch, NULL                                                                                               \
    }
    DEFAULT("llama2"),
    DEFAULT("llama-bias"),
    DEFAULT("mixtral"),
    DEFAULT("gemma2"),
    DEFAULT("gemma3"),
    DEFAULT("gemma4"),
    DEFAULT("qwen2"),
    DEFAULT("qwen3"),
    DEFAULT("qwen3moe"),
    DEFAULT("qwen35"),
    DEFAULT("qwen35moe"),
    DEFAULT("qwen3next"),
    DEFAULT("deepseek2-lite"),
    DEFAULT("deepseek3"),
    DEFAULT("deepseek4"),
    DEFAULT("phi3"),
    DEFAULT("gpt-oss"),
    DEFAULT("glm4moe"),
    DEFAULT("minimax-m2"),
    DEFAULT("granite"),
    DEFAULT("granitemoe"),
    DEFAULT("granitehybrid"),
    DEFAULT("nemotron_h_moe-latent"),
    DEFAULT("falcon-h1"),
    DEFAULT("bert"),
    DEFAULT("nomic-bert"),
    DEFAULT("gemma-embedding"),
    DEFAULT("lfm2"),
    DEFAULT("glm-dsa"),
#undef DEFAULT
    {"deepseek4-long-groups", "deepseek4", "L=2 D=512 H=8"}};
enum { MODELS = sizeof models / sizeof *models };

static void open_model(size_t model)
{
    const char *arch = models[model].arch, *sizes = models[model].sizes;
    const pi__device_params p = {.cpu = {.n_threads = 1, .poll = 1}};
    const pi__log log = {0};
    char path[256];
    pi_error err;
    tiny_path(path, "plan");
    /* some rows' own types are not open, or their sizes have no blocks of Q8_0 */
    if (!strcmp(arch, "deepseek4") || tiny_write(path, &(tiny_spec) {.arch = arch, .type = PI__Q8_0}, &err))
        assert_int_equal(tiny_write(path, &(tiny_spec) {.arch = arch, .sizes = sizes}, &err), PI_OK);
    s.lim = (pi__limits) {.max_tokens = MAX_TOKENS, .max_seqs = MAX_SEQS, .max_rows = 32, .max_ctx = CTX};
    int rc = pi__device_create(&s.be, "cpu", true, &p, &log, &err);
    if (!rc) rc = pi__gguf_open(&s.g, path, PI__LOAD_MMAP, &err);
    if (!rc) rc = pi__model_declare(&s.m, s.g, s.be, &(pi__model_use) {0}, &err);
    if (!rc) {
        (void) pi__model_scratch(s.m, &s.lim);
        s.lim.n_vocab = s.m->n_vocab;
        rc = s.be->dev->reserve(s.be, &s.lim, &err);
    }
    if (!rc) rc = pi__model_load(s.m, &s.lim, NULL, &err);
    if (rc) fail_msg("%s: %s", arch, err.msg);
    for (int32_t i = 0; i < s.m->n_kv; i++) s.m->kv[i].type_k = s.m->kv[i].type_v = s.m->kv[i].f32 ? PI__F32 : PI__F16;
    s.be->ops = &recorder;
    remove(path);
}

static void close_model(void)
{
    pi__model_free(s.m);
    pi__gguf_close(s.g);
    s.be->dev->destroy(s.be);
}

static int32_t *take(int32_t **at, int32_t n)
{
    int32_t *p = *at;
    *at += n;
    assert_true(*at <= s.ints + sizeof s.ints / sizeof *s.ints);
    return p;
}

/* Fills *b with n_seqs sequences of `each` tokens, which see CTX / 2 keys, and *last with its logits rows. */
static void fill_batch(pi__batch *b, pi__batch *last, int32_t n_seqs, int32_t each)
{
    const int32_t n = n_seqs * each, seen = CTX / 2;
    int32_t *at = s.ints, *token = take(&at, n), *pos = take(&at, n), *seq = take(&at, n),
            *start = take(&at, n_seqs + 1), *row_start = take(&at, n_seqs + 1), *len = take(&at, n_seqs),
            *index = take(&at, n_seqs), *row_pos = take(&at, n_seqs), *table = take(&at, n_seqs * (CTX / BLOCK + 1)),
            *slot = take(&at, n), *zero = take(&at, n + 1);
    memset(s.ints, 0, sizeof s.ints);
    for (int32_t i = 0; i < n; i++) token[i] = i % 64, seq[i] = i / each, pos[i] = seen - each + i % each;
    for (int32_t i = 0; i <= n_seqs; i++) start[i] = i * each, row_start[i] = i;
    for (int32_t i = 0; i < n_seqs; i++) len[i] = seen, index[i] = (i + 1) * each - 1, row_pos[i] = seen - 1;
    *b = (pi__batch) {.n_tokens = n,
                      .n_seqs = n_seqs,
                      .n_rows = n_seqs,
                      .n_groups = s.m->n_groups,
                      .token = token,
                      .pos = pos,
                      .seq = seq,
                      .seq_start = start,
                      .seq_len = len,
                      .logits_indices = index,
                      .n_verified = len,
                      .state_slot = zero,
                      .save_start = zero};
    for (int32_t g = 0; g < b->n_groups; g++) {
        const int32_t block = s.m->group[g].block > BLOCK ? s.m->group[g].block : BLOCK;
        b->kv[g] = (pi__kv_batch) {block, CTX / BLOCK + 1, table, slot};
    }
    *last = *b;
    last->n_tokens = n_seqs, last->n_rows = 0, last->seq_start = row_start, last->pos = row_pos, last->seq = row_start;
    last->logits_indices = NULL;
    for (int32_t g = 0; g < b->n_groups; g++) last->kv[g].slot = NULL;
    b->logits_batch = last;
}

static pi__batch batch, rows;

/* Records a step. */
static void record_step(int32_t n_seqs, int32_t each)
{
    static float logits[1 << 16];
    fill_batch(&batch, &rows, n_seqs, each);
    calls.n = 0;
    s.m->arch->forward(s.m, &batch, s.m->n_trunk);
    if (s.m->arch->logits) s.m->arch->logits(s.m, 0, n_seqs, logits); /* encoders have none */
}

/* -------------------------------------------------------------------------------------------------------- as text */

static struct {
    size_t n;
    char text[TEXT];
} out;

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(out.text + out.n, TEXT - out.n, format, ap);
    va_end(ap);
    assert_true(n >= 0 && out.n + (size_t) n < TEXT);
    out.n += (size_t) n;
}

/* The name of a matrix's tensor, without ".weight"; its layer is *layer. */
static const char *name_of(const pi__weight *w, int32_t *layer, char name[64])
{
    for (size_t i = 0; i < s.m->n_want; i++) {
        if (s.m->want[i].weight != w) continue;
        const pi__str of = s.m->want[i].tensor->name;
        int at = 0;
        snprintf(name, 64, "%.*s", (int) of.n, of.p);
        if (sscanf(name, "blk.%d.%n", layer, &at) == 1) memmove(name, name + at, strlen(name + at) + 1);
        char *end = strstr(name, ".weight");
        if (end) *end = 0;
        return name;
    }
    return "part";
}

static void put_matrices(const pi__linear *a)
{
    char name[64];
    int32_t layer;
    for (int32_t i = 0; i < a->n_lin; i++) put("%s%s", i ? ", " : " ", name_of(a->lin[i].w, &layer, name));
}

static void put_op(const char *before, int32_t r)
{
    if (r != PI__NONE) put("%s%s", before, pi__op_name(calls.op[r].id));
}

/* True if the launch packs an input of its matrices itself, with a kernel before it. */
static bool packs_itself(const pi__facts *f, const pi__plan_launch *l, const pi__linear *a)
{
    for (int32_t i = 0; i < a->n_lin && l->uses == PI__NONE; i++)
        if (!pi__reads_in_place(pi__form_of(f, a, i), &a->in, a->n_rows, a->lin[0].w->n_in)) return true;
    return false;
}

/* The kernels of a launch of experts: gate and up; their activation, unless it is in the same one; down. In integers
 * and floats a product takes another kernel if an expert may have more than 8 rows. */
static int kernels_of(const pi__facts *f, const pi__plan_launch *l)
{
    const pi__moe *m = &calls.op[l->op].args.moe;
    const pi__weight *w[] = {m->gate, m->down};
    int n = (l->routed ? 0 : 1) + (pi__experts_have_glu(f, m) ? 0 : 1);
    for (int i = 0; i < (l->mid ? 1 : 2); i++) {
        const int form = pi__form(f, pi__cuda_packed_type(w[i]->type), w[i]->n_in);
        n += (form == PI__FORM_INTEGERS || form == PI__FORM_FLOATS) && m->n_rows > 8 ? 2 : 1;
    }
    return n;
}

/* One line: the family and the main op, with its matrices; then what else the launch does. */
static void put_launch(const pi__facts *f, const pi__plan_launch *l)
{
    static const char *const families[] = {"op",          "linear",    "linear to residual",
                                           "gate and up", "experts",   "all downs",
                                           "rows",        "attention", "gdn",
                                           "heads",       "sparse",    "indexer",
                                           "latent",      "streams"};
    const bool linear = l->op != PI__NONE && calls.op[l->op].id == PI__OP_linear && l->family != PI__L_STREAMS;
    const pi__plan_launch whole = {.op = l->op, .n = linear ? (uint8_t) calls.op[l->op].args.linear.n_lin : 0};
    const pi__linear a =
        linear ? pi__launch_linear(l->family == PI__L_OP ? &whole : l, calls.op) : (pi__linear) {.n_lin = 0};
    if (linear && packs_itself(f, l, &a)) put("pack\n");
    if (l->family == PI__L_OP) put("%s", pi__op_name(calls.op[l->op].id));
    else put("%s", families[l->family]);
    if (linear) put_matrices(&a);
    if (l->mid) put(" up to their activation");
    if (l->family == PI__L_EXPERTS && !l->routed) put(" with routes");
    if (l->family == PI__L_EXPERTS && kernels_of(f, l) > 1) put(", %d kernels", kernels_of(f, l));
    if (l->packed) put(" of packed rows");
    for (int i = 0; i < l->n_q; i++) {
        if (l->parts[i] & PI__PART_QUERIES) put(" + queries");
        if (l->parts[i] & PI__PART_ROW) put(" + row");
    }
    for (int i = 0; i < l->n_compress; i++) put(" + compress");
    put_op(" + ", l->raw);
    put_op(" + ", l->heads);
    if (l->routes != PI__NONE) put(" + routes");
    if (l->sum != PI__NONE) put(" + sums");
    put_op(" + ", l->gated);
    for (int i = 0; i < l->n_add; i++) put_op(" + ", l->add[i]);
    put_op(" + ", l->post);
    if (l->mix != PI__NONE) put(" + mix");
    put_op(" + ", l->pre);
    if (l->groups != PI__NONE) put(" + packs heads");
    if (l->packs != PI__NONE && calls.op[l->packs].id == PI__OP_moe) put(" + packs experts");
    else if (l->packs != PI__NONE) put(" + packs"), put_matrices(&calls.op[l->packs].args.linear);
    if (l->beside != PI__NONE) put(" + packs"), put_matrices(&calls.op[l->beside].args.linear);
    put("\n");
}

static pi__facts facts(void)
{
    pi__facts f = plan_facts();
    f.lim = s.lim;
    return f;
}

/* Puts the plans of all steps; equal ones once. */
static void put_plans(void)
{
    const struct {
        int32_t n_seqs, each;
        const char *what;
    } steps[] = {
        {1, 1, "1 sequence"}, {8, 1, "8 sequences"}, {32, 1, "32 sequences"}, {1, MANY, "a prompt of 96 rows"}};
    const pi__facts f = facts();
    size_t start[4], length[4];
    out.n = 0;
    for (size_t i = 0; i < 4; i++) {
        put("--- %s\n", steps[i].what);
        start[i] = out.n;
        record_step(steps[i].n_seqs, steps[i].each);
        pi__plan_make(&plan, &f, calls.op, calls.n);
        for (int32_t k = 0; k < plan.n; k++) put_launch(&f, &plan.launch[k]);
        length[i] = out.n - start[i];
        for (size_t k = 0; k < i; k++) {
            if (length[k] != length[i] || memcmp(out.text + start[k], out.text + start[i], length[i])) continue;
            out.n = start[i];
            put("as %s\n", steps[k].what);
            break;
        }
    }
}

/* ---------------------------------------------------------------------------------------------------------- tests */

static void test_texts(void **state)
{
    static char want[TEXT];
    (void) state;
    for (size_t i = 0; i < MODELS; i++) {
        char path[512];
        snprintf(path, sizeof path, PLANS "/%s.txt", models[i].file);
        open_model(i);
        put_plans();
        close_model();
        FILE *file = fopen(path, "r");
        if (!file) fail_msg("%s is missing: run test_plan --write", path);
        want[fread(want, 1, TEXT - 1, file)] = 0;
        fclose(file);
        if (strcmp(want, out.text)) fail_msg("%s: the plan is now\n%s", models[i].file, out.text);
    }
}

static int write_texts(void)
{
    for (size_t i = 0; i < MODELS; i++) {
        char path[512];
        snprintf(path, sizeof path, PLANS "/%s.txt", models[i].file);
        open_model(i);
        put_plans();
        close_model();
        FILE *file = fopen(path, "w");
        if (!file) return 1;
        fwrite(out.text, 1, out.n, file);
        if (fclose(file)) return 1;
    }
    return 0;
}

/* docs/design/cuda.md lists the rules as the planner has them. */
static void test_page(void **state)
{
    static char page[TEXT], row[512];
    FILE *file = fopen(PAGE, "r");
    (void) state;
    assert_non_null(file);
    page[fread(page, 1, TEXT - 1, file)] = 0;
    fclose(file);
#define ROW(name, ops, result)                                                                                         \
    snprintf(row, sizeof row, "| `%s` | %s | %s |\n", #name, ops, result);                                             \
    if (!strstr(page, row)) fail_msg("%s has no row %s", PAGE, row);
    PI__PLAN_RULES(ROW)
#undef ROW
}

/* Without rules, the plan is the list of ops. */
static void test_identity(void **state)
{
    (void) state;
    for (size_t i = 0; i < MODELS; i++) {
        open_model(i);
        pi__facts f = facts();
        record_step(8, 1);
        f.fuses = false;
        pi__plan_make(&plan, &f, calls.op, calls.n);
        assert_int_equal(plan.n, calls.n);
        for (int32_t k = 0; k < plan.n; k++) {
            assert_int_equal(plan.launch[k].family, PI__L_OP);
            assert_int_equal(plan.launch[k].op, k);
        }
        close_model();
    }
}

/* Counts in the plan what a rule makes. */
static int32_t made_by(pi__rule rule)
{
    int32_t n = 0;
    for (int32_t i = 0; i < plan.n; i++) {
        const pi__plan_launch *l = &plan.launch[i], *before = i ? l - 1 : NULL;
        const bool rows = l->family == PI__L_ROWS, sums = l->sum != PI__NONE;
        switch (rule) {
        case PI__RULE_glu: n += l->family == PI__L_GLU; break;
        case PI__RULE_added: n += l->family == PI__L_ADDED; break;
        case PI__RULE_adds: n += l->family != PI__L_ADDED && l->n_add; break;
        case PI__RULE_sums: n += sums && (!rows || l->n_add); break;
        case PI__RULE_gated: n += l->gated != PI__NONE; break;
        case PI__RULE_pack:
            n += l->packs != PI__NONE && l->family != PI__L_GLU && l->routes == PI__NONE && !l->joined;
            break;
        case PI__RULE_heads: n += l->heads != PI__NONE; break;
        case PI__RULE_routes: n += l->routes != PI__NONE; break;
        case PI__RULE_beside: n += l->beside != PI__NONE; break;
        case PI__RULE_split: n += before && before->family == PI__L_EXPERTS && l->first; break;
        case PI__RULE_downs: n += l->family == PI__L_DOWNS; break;
        case PI__RULE_latent:
            n += l->family == PI__L_LATENT || (l->family == PI__L_LINEAR && (l->n_q || l->n_compress));
            break;
        case PI__RULE_queries: n += l->raw != PI__NONE || (l->family == PI__L_HEADS && l->n_q); break;
        case PI__RULE_groups: n += l->groups != PI__NONE; break;
        case PI__RULE_streams: n += l->family == PI__L_STREAMS || l->joined; break;
        case PI__N_RULES: break;
        }
    }
    return n;
}

/* Every op of the records is in the plan exactly once, or is one that a plan may drop: an indexer with its
 * queries. */
static void check_complete(void)
{
    static int32_t seen[PI__MAX_RECORDS];
    memset(seen, 0, sizeof seen);
    for (int32_t i = 0; i < plan.n; i++) {
        const pi__plan_launch *l = &plan.launch[i];
        const int16_t once[] = {l->heads, l->sum, l->gated, l->post, l->mix, l->pre};
        if (l->op != PI__NONE && l->family != PI__L_LATENT && l->family != PI__L_STREAMS) {
            const int32_t all = calls.op[l->op].id == PI__OP_linear && l->n ? calls.op[l->op].args.linear.n_lin : 1;
            seen[l->op] += calls.op[l->op].id == PI__OP_linear && l->n ? l->n * 1000 / all : 1000;
        }
        for (size_t k = 0; k < sizeof once / sizeof *once; k++)
            if (once[k] != PI__NONE && !(k == 1)) seen[once[k]] += 1000;
        for (int k = 0; k < l->n_add; k++) seen[l->add[k]] += 1000;
        for (int k = 0; k < l->n_compress; k++) seen[l->compress[k]] += 1000;
        for (int k = 0; k < l->n_q; k++) seen[l->q[k]] |= 1000;
        if (l->raw != PI__NONE) seen[l->raw] |= 1000;
    }
    for (int32_t r = 0; r < calls.n; r++) {
        const pi__op_id id = calls.op[r].id;
        const bool dropped = id == PI__OP_indexer || id == PI__OP_mla_qkv;
        if (!(seen[r] > 990 && seen[r] <= 1000) && !dropped)
            fail_msg("op %d, %s, is in the plan %d thousandths of once", (int) r, pi__op_name(id), (int) seen[r]);
    }
}

/* Each rule works somewhere; without it, what it makes does not occur, and no op is lost. */
static void test_rules(void **state)
{
    int32_t made[PI__N_RULES] = {0};
    (void) state;
    for (size_t i = 0; i < MODELS; i++) {
        open_model(i);
        for (int step = 0; step < 2; step++) {
            pi__facts f = facts();
            record_step(step ? 1 : 3, step ? MANY : 1);
            pi__plan_make(&plan, &f, calls.op, calls.n);
            check_complete();
            for (int32_t rule = 0; rule < PI__N_RULES; rule++) made[rule] += made_by(rule);
            for (int32_t rule = 0; rule < PI__N_RULES; rule++) {
                f.rules_off = UINT32_C(1) << rule;
                pi__plan_make(&plan, &f, calls.op, calls.n);
                check_complete();
                if (made_by(rule)) fail_msg("%s: rule %s is off, and works", models[i].file, pi__rule_name(rule));
            }
        }
        close_model();
    }
    for (int32_t rule = 0; rule < PI__N_RULES; rule++)
        if (!made[rule]) fail_msg("rule %s has no effect in any model", pi__rule_name(rule));
}

/* Equal records and facts give equal plans, whatever was planned before. */
static void test_pure(void **state)
{
    (void) state;
    open_model(MODELS - 1);
    const pi__facts f = facts();
    record_step(8, 1);
    memset(&plan, 0, sizeof plan);
    memset(&other, 0xff, sizeof other);
    pi__plan_make(&plan, &f, calls.op, calls.n);
    pi__plan_make(&other, &f, calls.op, calls.n / 2);
    pi__plan_make(&other, &f, calls.op, calls.n);
    assert_int_equal(plan.n, other.n);
    assert_memory_equal(plan.launch, other.launch, (size_t) plan.n * sizeof *plan.launch);
    close_model();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_page),
                                       cmocka_unit_test(test_identity), cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_pure)};
    if (argc > 1 && !strcmp(argv[1], "--write")) return write_texts();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
