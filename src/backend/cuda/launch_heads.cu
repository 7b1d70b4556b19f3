/* Launches of kernels/heads_kernels.cuh: variant, grid, shared memory (see kernels_heads.h). */
#include "backend/cuda/launch.cuh"
#include "heads_kernels.cuh"

enum { SHORT = 1024 /* columns of which fewer threads prepare a row */, SHORT_THREADS = 64, USUAL_SM = 128 };

int pi__k_heads_prepare(void *stream, const pi__k_heads *a)
{
    if (a->n_rows < 1) return 0;
    uint16_t *words = (uint16_t *) a->prepared;
    float *factor = (float *) ((char *) a->prepared + w16_rows_bytes((int64_t) a->n_rows * a->n_head, a->w.n_in));
    auto kernel = pi__k_w16_input(a->w.type) ? heads_prepare<true> : heads_prepare<false>;
    const unsigned threads = a->w.n_in <= SHORT ? (unsigned) SHORT_THREADS : (unsigned) THREADS;
    const bool row = a->prep.n_tokens && a->prep.a.row;
    const size_t width = row ? (size_t) (a->prep.a.dim + 31) / 32 * 32 : 0;
    return pi_launch_dependent(stream, kernel, dim3((unsigned) a->n_rows, (unsigned) (a->n_head + row)), dim3(threads),
                               (width > threads / 32 ? width : threads / 32) * sizeof(float), *a, words, factor);
}

/* As many blocks as the device holds at once, where there are items for them. */
template <int TYPE, int NT> static int run(void *stream, const w16_heads &p)
{
    const uint64_t items = (uint64_t) p.n_item * (uint64_t) p.n_head;
    const uint64_t most = (uint64_t) (p.a.n_sm > 0 ? p.a.n_sm : (int) USUAL_SM) * (NT == 1 ? 2 : 1);
    const size_t own = expert_stream<TYPE, NT, false, w16_heads>::BYTES;
    const size_t least = p.tail.arrived ? tail_bytes(p.tail, THREADS / 32) : 0;
    return pi_launch_dependent(stream, heads_w16<TYPE, NT>, dim3((unsigned) (items < most ? items : most)), dim3(THREADS),
                               own > least ? own : least, p);
}

template <int TYPE> static int run_rows(void *stream, const w16_heads &p)
{
    return p.n_rows <= FEW ? run<TYPE, FEW / 8>(stream, p) : run<TYPE, PI__K_HEADS_ROWS / 8>(stream, p);
}

/* What is to be done behind the product is what its results can have. */
static bool fits(const pi__k_heads *a)
{
    const pi__mla_qkv &q = a->prep.a;
    if (a->n_rows > (a->tail ? (int) PI__K_TAIL_ROWS : (int) PI__K_HEADS_ROWS) || !pi__k_w16_has(a->w.type)) return false;
    if (!a->prep.n_tokens) return true;
    return a->prep.n_tokens == a->n_rows && q.n_head == a->n_head && !q.q_norm && q.n_rot == a->n_tail && a->n_tail % 2 == 0 &&
           q.dim == a->w.n_out + a->n_tail;
}

int pi__k_heads_run(void *stream, const pi__k_heads *a)
{
    if (a->n_rows < 1) return 0;
    const int64_t rows = (int64_t) a->n_rows * a->n_head, parts = (a->w.n_out + FEW_TILES * 16 - 1) / (FEW_TILES * 16);
    const size_t size = w16_rows_bytes(rows, a->w.n_in);
    if (size / 16 > UINT32_MAX || parts * a->n_head > UINT32_MAX || !fits(a)) return 1;
    w16_heads p = {};
    p.a.w = a->w, p.a.y = a->y, p.a.ldy = a->ldy, p.a.n_sm = a->n_sm;
    p.x = (const uint8_t *) a->prepared, p.factor = (const float *) ((const char *) a->prepared + size), p.n_item = (uint32_t) parts;
    p.n_rows = a->n_rows, p.n_head = a->n_head, p.y_step = a->y_step - a->n_rows * a->ldy;
    p.by = a->prep.n_tokens ? a->prep.a.q_scale : 1.0f;
    if (a->tail) p.tail = *a->tail;
    if (int code = pi__k_heads_prepare(stream, a)) return code;
    switch (a->w.type) {
#define RUN(t) case PI__##t: return run_rows<PI__##t>(stream, p);
        W16_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}
