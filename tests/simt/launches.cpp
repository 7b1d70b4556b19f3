/* Lists every kernel with the threads and the maximum bytes of shared memory of its blocks, at the shapes of large
 * models. Each line "ADDRESS THREADS BYTES" is for tools/kernel_report.py, which looks up the address in this
 * program's symbol table. No kernel runs. */
#include <cstdio>
#include <map>

#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels_conv.h"
#include "backend/cuda/kernels_scan.h"
#include "backend/cuda/kernels_draw.h"
#include "backend/cuda/kernels_floats.h"
#include "backend/cuda/kernels_down.h"
#include "backend/cuda/kernels_heads.h"
#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_sparse.h"
#include "backend/cuda/kernels_lora.h"
#include "backend/cuda/kernels_w16_glu.h"
#include "backend/device.h"
#include "formats/formats.h"
#include "simt.h"

extern "C" const char __executable_start; /* from the linker: the address where the file is loaded */

namespace {

struct block {
    unsigned threads;
    size_t shared;
};
std::map<uintptr_t, block> found;
int failed;

void note(const void *kernel, unsigned threads, size_t shared)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(kernel) - reinterpret_cast<uintptr_t>(&__executable_start);
    block &b = found.emplace(at, block{threads, shared}).first->second;
    b.threads = max(b.threads, threads);
    b.shared = max(b.shared, shared);
}

void check(int code, const char *what)
{
    if (!code) return;
    std::fprintf(stderr, "%s is refused\n", what);
    failed = 1;
}
#define CHECK(call) check(call, #call)

const int32_t row_counts[] = {1, 8, 16, 32, 64, 512};
const int64_t N_IN = 4096, N_OUT = 12288;
char memory[1]; /* target of pointers that must not be NULL */
float *const some = reinterpret_cast<float *>(memory);
int32_t *const ints = reinterpret_cast<int32_t *>(memory);

void adapters()
{
    pi__k_lora_group group = {nullptr, 1, 0, PI__K_LORA_ROWS, 0};
    pi__k_lora a = {};
    a.in.x = some, a.in.ldx = N_IN, a.n_in = N_IN;
    a.lin[0] = {N_OUT, N_OUT, some, 1, 0};
    a.n_lin = a.n_groups = 1;
    a.group = &group, a.row = ints, a.t = some, a.ldt = a.max_rank = PI__MAX_LORA_RANK, a.max_out = N_OUT;
    CHECK(pi__k_lora_run(nullptr, &a));
    a.token = ints;
    CHECK(pi__k_lora_run(nullptr, &a));
    pi__k_lora_heads h = {};
    h.x = some, h.n_in = h.ldx = h.x_step = 512, h.y = some, h.n_out = h.ldy = h.y_step = 512;
    h.n_head = h.n_groups = 1, h.target = 1, h.max_rank = PI__MAX_LORA_RANK, h.group = &group, h.row = ints;
    CHECK(pi__k_lora_heads_run(nullptr, &h));
    pi__k_lora_experts e = {};
    e.in = a.in, e.n_in = N_IN;
    e.lin[0] = {N_OUT, N_OUT, some, 1, 0, 0, some};
    e.n_lin = e.n_groups = e.n_rows = 1;
    e.group = &group, e.row = e.id = e.column = ints, e.n_used = 2, e.t = some, e.ldt = e.max_rank = PI__MAX_LORA_RANK,
    e.max_out = N_OUT;
    CHECK(pi__k_lora_experts_shrink(nullptr, &e));
    CHECK(pi__k_lora_experts_expand(nullptr, &e));
}

void rows_of_floats(int32_t n)
{
    const pi__add_norm add_norm = {some, some, some, some, 0, 1, n, N_IN};
    const pi__norm norm = {some, N_IN, some, some, 0, n, N_IN};
    const pi__copy_2d copy_2d = {some, N_IN, N_IN, 2, n, N_IN, some, N_IN};
    const pi__softcap softcap = {some, 30, n, N_IN};
    const pi__add_gated add_gated = {some, some, some, 1, n, N_IN};
    CHECK(pi__k_add_norm(nullptr, &add_norm));
    CHECK(pi__k_norm(nullptr, &norm));
    pi__k_tail tail = {};
    tail.n_rows = n;
    CHECK(pi__k_finish_rows(nullptr, &tail));
    tail.in = {PI__IN_RMSNORM, some, N_IN, nullptr, 0, some, 0, 0}, tail.halves = memory;
    for (int64_t n_in : {2048, 4096, 6144, 7168}) {
        tail.n_in = n_in;
        CHECK(pi__k_finish_rows(nullptr, &tail));
    }
    const pi__rope rope = {some, 64, 1, 0, 0, some, {24, 20, 20}, true};
    CHECK(pi__k_rope(nullptr, ints, ints, n, &rope));
    const pi__block_conv block_conv = {some, some, some, 4 * N_IN / 64, 4, 64, N_IN, some};
    CHECK(pi__k_block_conv(nullptr, &block_conv, ints, ints, n));
    CHECK(pi__k_gather_rows(nullptr, some, ints, n, N_IN, some));
    CHECK(pi__k_copy_2d(nullptr, &copy_2d));
    CHECK(pi__k_softcap(nullptr, &softcap));
    CHECK(pi__k_add_gated(nullptr, &add_gated));
    const pi__gate_heads gate_heads = {some, some, 2, n, 2, N_IN / 2, true};
    CHECK(pi__k_gate_heads(nullptr, &gate_heads));
    const pi__add_rows add_rows = {some, some, ints, n, N_IN};
    CHECK(pi__k_add_rows(nullptr, &add_rows, ints));
    const pi__place_rows place_rows = {some, some, N_IN, ints, n, N_IN, true};
    CHECK(pi__k_place_rows(nullptr, &place_rows, ints));
    const pi__layer_norm layer_norm = {some, some, some, some, some, 0, n, N_IN};
    const pi__activate activate = {some, some, n, N_IN, PI__ACT_XIELU, {1, 1, 1, 0}};
    CHECK(pi__k_layer_norm(nullptr, &layer_norm));
    CHECK(pi__k_activate(nullptr, &activate));
    const pi__scale scale = {some, some, some, 2, -1, 1, n, N_IN};
    CHECK(pi__k_scale(nullptr, &scale));
    pi__k_streams streams = {}, post = {};
    pi__k_tail read = {};
    post.n_rows = n, post.n = N_IN, post.result = some;
    streams.n_rows = n, streams.n_iter = 20, streams.n = N_IN, streams.w = streams.y = some;
    read.n_rows = n, read.n_in = read.in.ldx = N_IN, read.in.kind = PI__IN_RMSNORM, read.in.x = some;
    CHECK(pi__k_streams_run(nullptr, &post, nullptr));
    for (const int32_t type : {PI__F32, PI__F16, PI__BF16}) {
        streams.type = type;
        CHECK(pi__k_streams_run(nullptr, &streams, &read));
    }
}

void top(int32_t k)
{
    pi__k_top a = {};
    a.n_rows = 1;
    a.n = 262144;
    a.k = k;
    a.sum = 1;
    CHECK(pi__k_top_run(nullptr, &a));
    CHECK(pi__k_top_tokens(nullptr, a.out, ints, 1, ints));
    const pi__k_draw d = {a.out, ints, nullptr, nullptr, ints, ints, 1, k, a.out, some, a.n};
    CHECK(pi__k_draw_run(nullptr, &d));
}

void clusters()
{
    pi__k_centroids a = {};
    pi__k_routes r = {};
    a.n_rows = 1;
    a.n_mat = 2048;
    a.n_pick = 32;
    a.n = 128;
    CHECK(pi__k_pick_centroids(nullptr, &a, &r));
    CHECK(pi__k_scatter_logits(nullptr, &a));
}

void attention(int32_t n, int32_t dim, int32_t type)
{
    pi__k_qkv q = {};
    q.n_head = 16;
    q.n_tokens = n;
    q.cache = {memory, 0, type, type, 4, dim, 16};
    CHECK(pi__k_qkv_run(nullptr, &q));
    const pi__k_unrotate t = {nullptr, 0, nullptr, 0, 0, n, 16, dim};
    if (pi__kv_rotated(type)) CHECK(pi__k_unrotate_run(nullptr, &t));
    pi__k_attn a = {};
    a.n_head = 16;
    a.n_tokens = n;
    a.n_seqs = 1;
    a.max_keys = 8192;
    a.cache = q.cache;
    a.scratch = memory;
    a.scratch_size = SIZE_MAX;
    /* large tiles, small tiles with keys split over blocks; exact, fast */
    for (int32_t way = 0; way < 4; way++) {
        a.n_sm = way % 2 ? 148 : 0;
        a.n_head = way % 2 ? 4 : 16;
        a.fast = way / 2;
        CHECK(pi__k_attention(nullptr, &a));
    }
    a.n_sm = 1;
    a.n_head = 16;
    a.wgmma = 1;
    CHECK(pi__k_attention(nullptr, &a));
    const pi__k_blocks b = {a, 0.1f, 0, 0, 0, 0, 4, nullptr, memory, nullptr};
    CHECK(pi__k_blocks_run(nullptr, &b));
}

void delta_net(int32_t n, int32_t dim, int32_t taps)
{
    pi__k_gdn a = {};
    a.n_tokens = a.least = a.most = n;
    a.n_seqs = 1;
    a.state = {memory, 0, memory, 0, 16, 32, dim, 3, taps, 0, 0, 0, 0};
    for (int32_t form = 0; form < 4; form++) {
        a.n_sm = form % 2 * 100, a.state.exact = form / 2;
        CHECK(pi__k_gdn_run(nullptr, &a));
        CHECK(pi__k_state_save(nullptr, &a.state, 0, 0, 0));
    }
    CHECK(pi__k_state_load(nullptr, &a.state, 0, 0, 0));
}

void mamba2(int32_t n, int32_t dim, int32_t dim_v)
{
    pi__k_gdn a = {};
    a.n_tokens = a.least = a.most = n;
    a.n_seqs = 1;
    a.grouped = 1;
    a.state = {memory, 0, memory, 0, 8, 64, dim, 3, 4, 0, dim_v, 1, 0};
    CHECK(pi__k_gdn_run(nullptr, &a));
    CHECK(pi__k_state_save(nullptr, &a.state, 0, 0, 0));
    CHECK(pi__k_state_load(nullptr, &a.state, 0, 0, 0));
}

void kimi_delta(int32_t n, int32_t dim)
{
    pi__k_gdn a = {};
    a.n_tokens = a.least = a.most = n;
    a.n_seqs = 1;
    a.state = {memory, 0, memory, 0, 32, 32, dim, 3, 4, 0, dim, 0, 1};
    CHECK(pi__k_gdn_run(nullptr, &a));
    CHECK(pi__k_state_save(nullptr, &a.state, 0, 0, 0));
    CHECK(pi__k_state_load(nullptr, &a.state, 0, 0, 0));
}

void short_conv(int32_t n, int32_t taps)
{
    pi__k_conv a = {};
    a.base = a.snap = memory, a.dim = 2048, a.n_conv = taps, a.n_seqs = 1, a.most = n;
    a.ldx = 3 * 2048, a.ldo = 2048;
    CHECK(pi__k_conv_run(nullptr, &a));
    CHECK(pi__k_conv_save(nullptr, &a, 0, 0, 0));
    CHECK(pi__k_conv_load(nullptr, &a, 0, 0, 0));
}

void scan(int32_t n, int32_t n_state)
{
    pi__k_scan a = {};
    a.base = a.snap = memory, a.n_channel = 8192, a.n_state = n_state, a.n_seqs = n;
    CHECK(pi__k_scan_run(nullptr, &a));
    CHECK(pi__k_scan_save(nullptr, &a, 0, 0, 0));
    CHECK(pi__k_scan_load(nullptr, &a, 0, 0, 0));
}

/* Kernels of DeepSeek V4. */
void compressed(int32_t n, int32_t dim, int32_t type)
{
    const pi__k_rows rows = {{memory, 0, type, type, 1, dim, 32}, 4, ints, ints, 1};
    pi__k_mla_qkv q = {};
    q.a.row = some, q.a.n_head = 64, q.a.dim = dim, q.rows = rows, q.n_tokens = n;
    CHECK(pi__k_mla_qkv_run(nullptr, &q));
    pi__k_compress c = {};
    c.a.ratio = 4, c.a.dim = dim, c.a.overlap = true, c.recent = c.entries = rows, c.n_tokens = n;
    CHECK(pi__k_compress_run(nullptr, &c));
    pi__k_indexer i = {};
    i.a.n_head = 64, i.a.dim = dim, i.a.n_top = 512, i.entries = rows, i.n_tokens = n, i.most = 32768,
    i.scratch = memory;
    i.scratch_size = SIZE_MAX;
    CHECK(pi__k_indexer_run(nullptr, &i));
    pi__k_sparse s = {};
    s.a.n_head = 64, s.a.dim = s.a.dim_v = dim, s.rows = s.entries = rows, s.n_tokens = n, s.most = 640,
    s.scratch = memory;
    s.scratch_size = SIZE_MAX;
    for (int32_t n_sm : {0, 148}) {
        s.n_sm = n_sm;
        CHECK(pi__k_sparse_split(nullptr, &s, reinterpret_cast<uint32_t *>(memory)));
    }
}

/* Kernels of DeepSeek V3. */
void latent(int32_t n, int32_t type)
{
    const pi__k_rows rows = {{memory, 0, type, type, 1, 576, 32}, 1, ints, ints, 1};
    pi__k_mla_qkv q = {};
    q.a.row = some, q.a.n_head = 128, q.a.dim = 576, q.a.n_norm = 512, q.rows = rows, q.n_tokens = n;
    CHECK(pi__k_mla_qkv_run(nullptr, &q));
    pi__k_sparse s = {};
    s.a.n_head = 128, s.a.dim = 576, s.a.dim_v = 512, s.rows = rows, s.n_tokens = n, s.most = 32768, s.scratch = memory;
    s.scratch_size = SIZE_MAX;
    for (int32_t way = 0; way < 4; way++) {
        s.n_sm = way % 2 ? 148 : 0;
        s.fast = way / 2;
        CHECK(pi__k_sparse_split(nullptr, &s, reinterpret_cast<uint32_t *>(memory)));
    }
    pi__k_head_rows h = {};
    h.n_rows = n, h.n_head = 128, h.n_in = 128, h.n_out = 512;
    CHECK(pi__k_head_rows_run(nullptr, &h));
    CHECK(pi__k_scatter_heads(nullptr, &h));
    pi__k_expert_choice c = {};
    c.r.n_rows = n, c.r.n_expert = 256, c.r.n_used = 8, c.n_group = 8, c.n_group_used = 4;
    CHECK(pi__k_expert_choice_run(nullptr, &c));
}

/* Copies of experts in host memory. */
void copies()
{
    pi__k_expert_cache c = {};
    c.n_stack = 3, c.n_expert = 256, c.n_slot = 64, c.n_tile = ints, c.n_sm = 148;
    CHECK(pi__k_keep_experts(nullptr, &c));
}

void experts(int32_t n, const pi__k_matrix &w)
{
    pi__k_routes r = {};
    r.n_rows = n;
    r.n_expert = 128;
    r.n_used = 8;
    for (pi__k_tile *&t : r.tile) t = reinterpret_cast<pi__k_tile *>(memory);
    CHECK(pi__k_route(nullptr, &r));
    pi__k_experts e = {};
    e.w = w;
    CHECK(pi__k_experts_run(nullptr, &r, &e, memory));
    if (w.type == PI__NVFP4 || w.type == PI__MXFP4) CHECK(pi__k_fp4_experts(nullptr, &r, &e, memory));
    if (w.type == PI__MXFP4) CHECK(pi__k_w4a8_experts(nullptr, &r, &e, memory));
    pi__k_experts both = e; /* gate and up */
    both.data2 = reinterpret_cast<const uint8_t *>(memory), both.mid = memory, both.mid_type = w.type;
    if (w.type == PI__NVFP4 || w.type == PI__MXFP4) CHECK(pi__k_fp4_experts(nullptr, &r, &both, memory));
    if (w.type == PI__MXFP4) CHECK(pi__k_w4a8_experts(nullptr, &r, &both, memory));
    if (pi__k_mma16_has(w.type, N_IN)) CHECK(pi__k_mma16_experts(nullptr, &r, &e, memory));
    if (pi__k_w16_has(w.type)) {
        pi__k_input glu = {};
        glu.x2 = some;
        CHECK(pi__k_w16_experts(nullptr, &r, &e, memory));
        CHECK(pi__k_w16_mid(nullptr, &glu, w.type, n, N_IN, memory));
        CHECK(pi__k_w16_down(nullptr, &r, &e, memory));
        const pi__k_down down = {r, e, memory};
        const pi__k_product shared = {w, some, N_OUT, 0};
        if (n <= PI__K_DOWN_ROWS) CHECK(pi__k_w16_down_shared(nullptr, &down, &shared, memory, nullptr));
    }
    pi__k_sum sum = {};
    sum.n_rows = n, sum.n = N_IN;
    CHECK(pi__k_add_experts(nullptr, &sum));
    pi__k_routes pairs = {};
    pairs.n_rows = n, pairs.n_used = 8;
    CHECK(pi__k_add_biases(nullptr, &pairs, some, some, some, N_IN));
}

void products(int32_t n, int32_t type)
{
    pi__k_matrix w = {};
    if (pi__cuda_packed_type(type) != type || !pi__cuda_shape_of(type, N_IN, N_OUT, &w.shape)) return;
    w.type = type;
    w.n_in = N_IN;
    w.n_out = N_OUT;
    pi__k_input in = {};
    CHECK(pi__k_embed(nullptr, &w, ints, n, 1, some));
    CHECK(pi__k_pack_x(nullptr, &in, n, N_IN, 0, memory));
    const pi__k_product one = {w, some, N_OUT, 0};
    CHECK(pi__k_linear(nullptr, &one, 1, memory, n));
    for (int64_t n_out : {64, 12288}) {
        pi__k_product floats = one;
        floats.w.n_out = n_out;
        if (type == PI__F32 || type == PI__F16 || type == PI__BF16)
            CHECK(pi__k_floats_linear(nullptr, &floats, 1, memory, n));
    }
    experts(n, w);
    if (type == PI__NVFP4 || type == PI__MXFP4) {
        CHECK(pi__k_fp4_pack_x(nullptr, &in, type, n, N_IN, memory));
        CHECK(pi__k_fp4_linear(nullptr, &one, 1, memory, n));
        pi__k_product thin = one;
        thin.w.n_out = 64;
        CHECK(pi__k_fp4_linear(nullptr, &thin, 1, memory, n));
    }
    if (type == PI__NVFP4 || type == PI__MXFP4) {
        pi__k_glu glu = {w, w.data, nullptr, PI__IN_SWIGLU, 0, 0, nullptr, memory, {}};
        for (int64_t n_out : {int64_t(256), N_OUT})
            for (glu.fp8 = 0; glu.fp8 < (type == PI__MXFP4 ? 2 : 1); glu.fp8++) {
                glu.gate.n_out = n_out;
                CHECK(pi__k_fp4_glu(nullptr, &glu, memory, n));
            }
    }
    if (type == PI__MXFP4) {
        CHECK(pi__k_w4a8_pack_x(nullptr, &in, type, n, N_IN, memory));
        CHECK(pi__k_w4a8_linear(nullptr, &one, 1, memory, n));
        pi__k_product thin = one;
        thin.w.n_out = 64;
        CHECK(pi__k_w4a8_linear(nullptr, &thin, 1, memory, n));
    }
    if (pi__k_w16_has(type)) {
        CHECK(pi__k_w16_pack_x(nullptr, &in, type, n, N_IN, memory));
        CHECK(pi__k_w16_linear(nullptr, &one, 1, memory, n));
        const pi__k_w16_glu both = {w,     w.data,  nullptr, PI__IN_SWIGLU, 0,       some,
                                    N_OUT, nullptr, type,    memory,        nullptr, {}};
        for (int64_t n_out : {1024, 12288}) {
            pi__k_w16_glu few = both;
            few.gate.n_out = n_out;
            if (n <= PI__K_MMA_ROWS) CHECK(pi__k_w16_glu_few(nullptr, &few, memory, n));
        }
        if (n > PI__K_MMA_ROWS) CHECK(pi__k_w16_glu_run(nullptr, &both, memory, n, nullptr));
        for (int32_t n_sm : {1, INT32_MAX})
            if (pi__k_wgmma_has_glu(type)) CHECK(pi__k_wgmma_glu_run(nullptr, &both, memory, n, n_sm));
        pi__k_heads heads = {};
        heads.w = w, heads.n_rows = n, heads.n_head = 8, heads.x = some, heads.y = some, heads.prepared = memory;
        if (n <= PI__K_HEADS_ROWS) CHECK(pi__k_heads_run(nullptr, &heads, false));
        heads.w.n_in = 512; /* rows that blocks pack themselves */
        if (n <= PI__K_HEADS_ROWS) CHECK(pi__k_heads_run(nullptr, &heads, false));
        pi__k_product few = one;
        for (int64_t n_out : {1024, 24576}) {
            few.w.n_out = n_out;
            CHECK(pi__k_w16_linear(nullptr, &few, 1, memory, n));
        }
        pi__k_tail routes = {};
        routes.arrived = reinterpret_cast<uint32_t *>(memory);
        routes.routes.n_rows = n, routes.routes.n_expert = 256, routes.routes.n_used = 8;
        for (int64_t n_out : {1024, 8192, 24576}) {
            few.w.n_out = n_out;
            if (n <= PI__K_MIXED_ROWS) CHECK(pi__k_mixed_linear(nullptr, &few, 1, memory, some, n, &routes));
        }
        for (int32_t n_sm : {1, INT32_MAX}) CHECK(pi__k_wgmma_linear(nullptr, &one, 1, memory, n, n_sm));
    }
    if (pi__k_mma16_has(type, N_IN)) {
        CHECK(pi__k_mma16_pack_x(nullptr, &in, type, n, N_IN, memory));
        CHECK(pi__k_mma16_linear(nullptr, &w, memory, n, some, N_OUT));
        CHECK(pi__k_hilo_pack_x(nullptr, &in, type, n, N_IN, memory));
        CHECK(pi__k_hilo_finish(nullptr, &w, memory, n, some, N_OUT));
    }
}

} // namespace

int main()
{
    simt::options.list = note;
    adapters();
    copies();
    for (int32_t k : {1, 256}) top(k);
    clusters();
    for (int32_t n : row_counts) {
        rows_of_floats(n);
        for (int32_t dim = 32; dim <= 512; dim += 16) {
            if (!pi__k_attention_has(dim)) continue;
            for (int32_t type : {PI__F16, PI__Q8_0, PI__F32})
                if (type != PI__Q8_0 || dim % 32 == 0) attention(n, dim, type);
            if (dim == 64) attention(n, dim, PI__TQ4_0);
        }
        for (int32_t dim = 32; dim <= 128; dim += 32)
            for (int32_t taps : {4, 2}) delta_net(n, dim, taps);
        for (int32_t dim = 32; dim <= 256; dim *= 2) mamba2(n, dim, 128);
        for (int32_t dim = 32; dim <= 128; dim *= 2) kimi_delta(n, dim);
        for (int32_t taps = PI__MIN_CONV; taps <= PI__MAX_CONV; taps++) short_conv(n, taps);
        for (int32_t n_state : {16, 32}) scan(n, n_state);
        for (int32_t dim : {128, 512}) {
            for (int32_t type : {PI__F16, PI__F32, PI__Q8_0}) compressed(n, dim, type);
        }
        for (int32_t type : {PI__F16, PI__F32, PI__Q8_0}) latent(n, type);
        for (int32_t type = 0; type < PI__N_TYPES; type++) products(n, type);
    }
    for (const auto &k : found) std::printf("%zx %u %zu\n", (size_t) k.first, k.second.threads, k.second.shared);
    return failed;
}
