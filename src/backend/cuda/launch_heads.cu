/* Launches of kernels/heads_kernels.cuh: variant, grid, shared memory (see kernels_heads.h). The packing kernel has a
 * grid of x = row, y = head, plus one y for the cache row of a fused mla_qkv. The product kernel has persistent blocks,
 * which divide the items: FEW_TILES tiles of 16 rows of one head's matrix, for all rows of x. OWN: blocks pack their
 * input themselves. */
#include "backend/cuda/launch.cuh"
#include "heads_kernels.cuh"

using namespace heads;

/* SHORT: max columns of rows that SHORT_THREADS threads pack; longer rows use THREADS. USUAL_SM: assumed number of SMs
 * if n_sm is 0. */
enum { SHORT = 1024, SHORT_THREADS = 64, USUAL_SM = 128 };

/* Returns the bytes of shared memory for `warps` warps, each with the cache row of one token as floats. */
static size_t row_bytes(const pi__k_mla_qkv &k, size_t warps)
{
    return warps * (size_t) ((k.a.dim + 31) / 32 * 32) * sizeof(float);
}

int pi__k_heads_pack_x(void *stream, const pi__k_heads *a)
{
    if (a->n_rows < 1) return 0;
    uint16_t *words = (uint16_t *) a->prepared;
    float *factor = (float *) ((char *) a->prepared + w16_rows_bytes((int64_t) a->n_rows * a->n_head, a->w.n_in));
    const unsigned threads = a->w.n_in <= SHORT ? (unsigned) SHORT_THREADS : (unsigned) THREADS;
    const bool row = a->prep.n_tokens && a->prep.a.row;
    const size_t width = row ? row_bytes(a->prep, 1) : 0, scratch = threads / 32 * sizeof(float);
    return pi_launch_dependent(stream, heads_prepare, dim3((unsigned) a->n_rows, (unsigned) (a->n_head + row)),
                               dim3(threads), width > scratch ? width : scratch, *a,
                               (bool) pi__k_w16_input(a->w.type), words, factor);
}

/* Launches the number of blocks that are resident at the same time: p.row_blocks blocks for the tokens' cache rows, and
 * the others for items, at most one per item. */
template <int TYPE, int NT, bool OWN> static int run(void *stream, w16_heads<OWN> p)
{
    using S = expert_stream<TYPE, NT, false, w16_heads<OWN>>;
    const uint64_t items = (uint64_t) p.n_item * (uint64_t) p.n_head;
    size_t bytes = S::BYTES;
    if (OWN) bytes += own_bytes(p.n_rows, p.a.w.n_in) + (size_t) p.n_rows * sizeof(float);
    const bool two = NT == 1 && bytes <= ROOM_OF_TWO;
    const uint64_t room = (uint64_t) (p.a.n_sm > 0 ? p.a.n_sm : (int) USUAL_SM) * (two ? 2 : 1);
    const uint64_t most = room > p.row_blocks ? room - p.row_blocks : 1;
    if (p.tail.arrived) bytes = tail_bytes(p.tail, THREADS / 32, bytes);
    if (p.row_blocks && bytes < row_bytes(p.h.prep, THREADS / 32)) bytes = row_bytes(p.h.prep, THREADS / 32);
    const unsigned blocks = (unsigned) (items < most ? items : most) + p.row_blocks;
    return pi_launch_dependent(stream, heads_w16<TYPE, NT, OWN>, dim3(blocks), dim3(THREADS), bytes, p);
}

template <int TYPE, bool OWN> static int run_rows(void *stream, const w16_heads<OWN> &p)
{
    return p.n_rows <= FEW ? run<TYPE, FEW / 8>(stream, p) : run<TYPE, PI__K_HEADS_ROWS / 8>(stream, p);
}

template <bool OWN> static int run_type(void *stream, const w16_heads<OWN> &p)
{
    switch (p.a.w.type) {
#define RUN(t) case PI__##t: return run_rows<PI__##t>(stream, p);
        W16_TYPES(RUN)
#undef RUN
    default: return 1;
    }
}

/* True if the kernels support the type, the number of rows, and the fused mla_qkv, which must match the product. */
static bool fits(const pi__k_heads *a)
{
    const pi__mla_qkv &q = a->prep.a;
    if (a->n_rows > (a->tail ? (int) PI__K_TAIL_ROWS : (int) PI__K_HEADS_ROWS) || !pi__k_w16_has(a->w.type))
        return false;
    if (!a->prep.n_tokens) return true;
    return a->prep.n_tokens == a->n_rows && q.n_head == a->n_head && !q.q_norm && q.n_rot == a->n_tail &&
           a->n_tail % 2 == 0 && q.dim == a->w.n_out + a->n_tail;
}

bool pi__k_heads_own(const pi__k_heads *a) { return pi__k_heads_are_short(a->n_rows, a->w.n_in, a->n_tail); }

/* Returns the kernel's arguments without the packed input and its factors. */
template <bool OWN> static w16_heads<OWN> heads_of(const pi__k_heads *a)
{
    w16_heads<OWN> p = {};
    p.a.w = a->w, p.a.y = a->y, p.a.ldy = a->ldy, p.a.n_sm = a->n_sm;
    p.n_item = (uint32_t) ((a->w.n_out + FEW_TILES * 16 - 1) / (FEW_TILES * 16));
    p.n_rows = a->n_rows, p.n_head = a->n_head, p.y_step = a->y_step - a->n_rows * a->ldy;
    p.by = a->prep.n_tokens ? a->prep.a.q_scale : 1.0f;
    if (a->tail) p.tail = *a->tail;
    return p;
}

static int run_own(void *stream, const pi__k_heads *a)
{
    w16_heads<true> p = heads_of<true>(a);
    p.h = *a;
    p.h.tail = nullptr;
    if (a->prep.n_tokens && a->prep.a.row) p.row_blocks = (uint32_t) (a->n_rows + THREADS / 32 - 1) / (THREADS / 32);
    return run_type(stream, p);
}

int pi__k_heads_run(void *stream, const pi__k_heads *a, bool ready)
{
    if (a->n_rows < 1) return 0;
    const size_t size = w16_rows_bytes((int64_t) a->n_rows * a->n_head, a->w.n_in);
    w16_heads<false> p = heads_of<false>(a);
    if (size / 16 > UINT32_MAX || (uint64_t) p.n_item * (uint64_t) a->n_head > UINT32_MAX || !fits(a)) return 1;
    if (pi__k_heads_own(a)) return ready ? 1 : run_own(stream, a);
    p.x = (const uint8_t *) a->prepared, p.factor = (const float *) ((const char *) a->prepared + size);
    if (int code = ready ? 0 : pi__k_heads_pack_x(stream, a)) return code;
    return run_type(stream, p);
}
