/* Tile products for registers with fewer than 16 rows. Included by linear_kernel.inc.h.
 *
 * A canonical tile is multiplied in parts of PI__ISA_PART_ROWS rows. A part's codes of one block fill 8 registers,
 * which are reused for all columns. The part's sums stay in registers from block to block:
 *
 *     columns of the batch  0 1 2 3 4 5 6 7
 *     rows 0..3             . . . . . . . .     8 registers of sums, 8 of codes; then rows 4..7, same blocks, ...
 *
 * After PART_BLOCKS blocks of one part, the same blocks of the next part follow. So these blocks of activations are in
 * the first-level cache for all parts except the first. Each result is summed in the order of linear.h.
 *
 * The including file defines registers rb (codes), ri (int32), rf (float) with operations rb_*, ri_*, rf_*. With
 * PI__ISA_LINE_COLS 4, a register of codes is 4 matrix columns of a part's rows, and ri_dot4 multiplies 4 of these
 * registers by one column of the batch. With PI__ISA_LINE_COLS 8, a register of codes is 8 matrix columns of half a
 * part's rows, and ri_mmla multiplies it by two columns of the batch. Each 16 bytes of its result are two rows of the
 * first batch column, then the same rows of the second. No memory. Threads: any. */

enum { PART_BLOCKS = 16 };

/* The codes and factors of a part (PI__ISA_PART_ROWS rows) of one block. */
typedef struct part {
    /* 8 lines; with lines of 8: columns 0..7 of the part's first rows, of its last rows, then columns 8..15, ... */
    rb w[8];
    rf s[2], m[2]; /* scales and minima of the halves (kinds *32: only [0]) */
} part;

INLINE void get_part(int kind, const uint8_t *p, int row, part *u)
{
    const int n = n_scales(kind);
    const float *side = (const float *) (p + 512) + row;
#if PI__ISA_LINE_COLS == 8
#define LINE(q) u->w[q] = rb_load(p + 128 * (q / 2) + 8 * row + sizeof(rb) * (q % 2));
#else
#define LINE(q) u->w[q] = rb_load(p + 64 * q + 4 * row);
#endif
    REP8(LINE)
#undef LINE
    u->s[0] = rf_load(side);
    if (n == 2) u->s[1] = rf_load(side + 16);
    if (has_min(kind)) u->m[0] = rf_load(side + 16 * n);
    if (kind == PI__LK_MIN16) u->m[1] = rf_load(side + 48);
}

/* Returns t[0] * s0 + t[1] * s1, the scaled dot products of the block's halves. Kinds with one scale: t[0] * s0. */
INLINE rf scaled(int kind, const ri t[2], rf s0, rf s1)
{
    const rf v = rf_mul(rf_from(t[0]), s0);
    return n_scales(kind) == 1 ? v : rf_fma(rf_from(t[1]), s1, v);
}

/* Returns acc plus block b's terms of column c (of `cols`), for the part's rows. v: dot products times weight
 * scales. */
INLINE rf add_part(int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, int c, rf v, rf acc)
{
    const int64_t i = b * cols + c, h = 2 * b * cols + c;
    acc = rf_fma(v, rf_dup(x->d + i), acc);
    if (kind == PI__LK_MIN32) acc = rf_fma(u->m[0], rf_dup(x->ds + i), acc);
    if (kind == PI__LK_MIN16) {
        acc = rf_fma(u->m[0], rf_dup(x->dsh + h), acc);
        acc = rf_fma(u->m[1], rf_dup(x->dsh + h + cols), acc);
    }
    return acc;
}

#if PI__ISA_LINE_COLS == 8

/* t[0], t[1] (first and last rows of the part) += half h of the codes times 16 digits of each of two columns. q: the
 * two columns' digits, interleaved by 8. */
INLINE void mmla_half(const part *u, int h, const int8_t *q, ri t[2])
{
    const rb x0 = rb_pair(q + 32 * h), x1 = rb_pair(q + 32 * h + 16);
    t[0] = ri_mmla(t[0], x0, u->w[4 * h]);
    t[1] = ri_mmla(t[1], x0, u->w[4 * h + 1]);
    t[0] = ri_mmla(t[0], x1, u->w[4 * h + 2]);
    t[1] = ri_mmla(t[1], x1, u->w[4 * h + 3]);
}

/* Adds block b's terms to acc[c] and acc[c + 1], the sums of two columns. */
INLINE void two_columns(int digits, int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, int c, rf *acc)
{
    const int8_t *q = x->q + 32 * digits * (b * cols + c);
    ri t[2][2] = {{ri_zero(), ri_zero()}, {ri_zero(), ri_zero()}};
    rf v[2];
    const int halves = n_scales(kind), last = halves - 1;
    if (digits == 2) {
        mmla_half(u, 0, q, t[0]);
        mmla_half(u, 1, q, t[last]);
        for (int h = 0; h < halves; h++) {
            t[h][0] = ri_shl7(t[h][0]);
            t[h][1] = ri_shl7(t[h][1]);
        }
        q += 64;
    }
    mmla_half(u, 0, q, t[0]);
    mmla_half(u, 1, q, t[last]);
    const ri t0[2] = {t[0][0], t[1][0]}, t1[2] = {t[0][1], t[1][1]};
    v[0] = scaled(kind, t0, rf_twice_low(u->s[0]), halves == 2 ? rf_twice_low(u->s[1]) : u->s[0]);
    v[1] = scaled(kind, t1, rf_twice_high(u->s[0]), halves == 2 ? rf_twice_high(u->s[1]) : u->s[0]);
    acc[c] = add_part(kind, cols, u, x, b, c, rf_first(v[0], v[1]), acc[c]);
    acc[c + 1] = add_part(kind, cols, u, x, b, c + 1, rf_second(v[0], v[1]), acc[c + 1]);
}

/* Returns the dots of half h of the codes with 16 activation codes of a single column (the last of an odd number). The
 * column's high and low digits take the places of two columns of ri_mmla. */
INLINE ri dot_alone(int digits, const part *u, int h, const int8_t *q)
{
    const int8_t *low = q + 32 * (digits - 1);
    const rb x0 = rb_two(q + 16 * h, low + 16 * h), x1 = rb_two(q + 16 * h + 8, low + 16 * h + 8);
    const ri a = ri_mmla(ri_mmla(ri_zero(), x0, u->w[4 * h]), x1, u->w[4 * h + 2]);
    const ri b = ri_mmla(ri_mmla(ri_zero(), x0, u->w[4 * h + 1]), x1, u->w[4 * h + 3]);
    return digits == 1 ? ri_first(a, b) : ri_add(ri_shl7(ri_first(a, b)), ri_second(a, b));
}

INLINE void one_column(int digits, int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, int c, rf *acc)
{
    const int8_t *q = x->q + 32 * digits * (b * cols + c);
    ri t[2] = {dot_alone(digits, u, 0, q), dot_alone(digits, u, 1, q)};
    if (n_scales(kind) == 1) t[0] = ri_add(t[0], t[1]);
    acc[c] = add_part(kind, cols, u, x, b, c, scaled(kind, t, u->s[0], u->s[n_scales(kind) - 1]), acc[c]);
}

INLINE void part_block(int digits, int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, rf *acc)
{
#define TWO(c)                                                                 \
    if (c + 1 < cols) two_columns(digits, kind, cols, u, x, b, c, acc);       \
    else if (c < cols) one_column(digits, kind, cols, u, x, b, c, acc);
    TWO(0) TWO(2) TWO(4) TWO(6)
#undef TWO
}

#else

INLINE void one_column(int digits, int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, int c, rf *acc)
{
    const int8_t *q = x->q + 32 * digits * (b * cols + c);
    ri t[2] = {ri_zero(), ri_zero()};
    const int halves = n_scales(kind), last = halves - 1;
    if (digits == 2) {
        t[0] = ri_dot4(t[0], u->w, q);
        t[last] = ri_dot4(t[last], u->w + 4, q + 16);
        for (int h = 0; h < halves; h++) t[h] = ri_shl7(t[h]);
        q += 32;
    }
    t[0] = ri_dot4(t[0], u->w, q);
    t[last] = ri_dot4(t[last], u->w + 4, q + 16);
    acc[c] = add_part(kind, cols, u, x, b, c, scaled(kind, t, u->s[0], u->s[last]), acc[c]);
}

INLINE void part_block(int digits, int kind, int cols, const part *u, const pi__lin_x *x, int64_t b, rf *acc)
{
#define ONE(c) if (c < cols) one_column(digits, kind, cols, u, x, b, c, acc);
    REP8(ONE)
#undef ONE
}

#endif

/* Adds the terms of blocks b0..b1 - 1 to the sums of the part that begins at row `row` of the tile. sums: [column][16
 * rows] */
INLINE void mul_part(int digits, int kind, int cols, const pi__lin_w *w, const pi__lin_x *x, int64_t b0, int64_t b1,
                     int row, float *sums)
{
    const size_t size = pi__lin_block_size(kind);
    const uint8_t *p = w->data + (size_t) b0 * size;
    rf acc[8];
    part u;
#define GET(c) if (c < cols) acc[c] = rf_load(sums + 16 * c + row);
    REP8(GET)
#undef GET
    for (int64_t b = b0; b < b1; b++, p += size) {
        get_part(kind, p, row, &u);
        if (w->next && !row) fetch_next(w, b);
        part_block(digits, kind, cols, &u, x, b, acc);
    }
#define KEEP(c) if (c < cols) rf_store(sums + 16 * c + row, acc[c]);
    REP8(KEEP)
#undef KEEP
}

/* Multiplies canonical tile w by the cols columns of x, part by part, and writes the results to y. Codes have 8
 * bits. */
INLINE void mul_tile(int digits, int kind, int bits, int cols, const pi__lin_w *w, const pi__lin_x *x,
                     const pi__lin_y *y)
{
    (void) bits;
    const int64_t n_blk = w->n_in / 32;
    float sums[8 * 16] = {0};
    for (int64_t b = 0; b < n_blk; b += PART_BLOCKS) {
        const int64_t end = n_blk - b < PART_BLOCKS ? n_blk : b + PART_BLOCKS;
        for (int row = 0; row < y->lanes; row += PI__ISA_PART_ROWS)
            mul_part(digits, kind, cols, w, x, b, end, row, sums);
    }
    for (int c = 0; c < cols; c++) put_column(y, c, vf_load(sums + 16 * c));
}

/* t[half] += rows 4 i .. 4 i + 3 of a packed block (planes at p) times the 32 codes at q of one column. The source
 * unpacks the entire block; the compiler removes the three registers that are not used. vb_barrier() prevents the
 * compiler from unpacking once for all i and spilling the other registers to memory. */
INLINE void dot_rows(int digits, int type, const uint8_t *p, const int8_t *q, int i, vi t[2])
{
    const pi__lin_format f = pi__lin_format_of(type);
    const int last = n_scales(f.kind) - 1;
    blk u;
    vb_barrier();
    unpack_codes(type, p, &u);
    if (f.offset == 7) to_canonical(7, 8, &u);
    if (digits == 2) {
        t[0] = vi_dot_rows(t[0], i, u.w, q);
        t[last] = vi_dot_rows(t[last], i, u.w + 4, q + 16);
        t[0] = vi_shl7_rows(t[0], i);
        if (last) t[last] = vi_shl7_rows(t[last], i);
        q += 32;
    }
    t[0] = vi_dot_rows(t[0], i, u.w, q);
    t[last] = vi_dot_rows(t[last], i, u.w + 4, q + 16);
}

/* acc[0] += block b's terms of a packed tile, for one column (PI__ISA_DIRECT is 1, so cols is 1). p: planes of block j
 * of a record with scales `side`. */
INLINE void columns(int digits, int kind, int offset, int bits, int type, int cols, const uint8_t *p, const sides *side,
                    int j, const pi__lin_x *x, int64_t b, vf *acc)
{
    (void) bits;
    const int8_t *q = x->q + 32 * digits * b;
    vi t[2] = {vi_set(0), vi_set(0)};
    vf v;
    blk u;
    dot_rows(digits, type, p, q, 0, t);
    dot_rows(digits, type, p, q, 1, t);
    dot_rows(digits, type, p, q, 2, t);
    dot_rows(digits, type, p, q, 3, t);
    block_side(kind, side, j, &u);
    if (n_scales(kind) == 1) {
        t[0] = vi_add(t[0], dot_start(digits, kind, offset, x->n7 + b));
        v = vf_mul(vf_from_vi(t[0]), u.s[0]);
    } else {
        t[0] = vi_add(t[0], dot_start(digits, kind, offset, x->n7h + 2 * b));
        t[1] = vi_add(t[1], dot_start(digits, kind, offset, x->n7h + 2 * b + 1));
        v = vf_fma(vf_from_vi(t[1]), u.s[1], vf_mul(vf_from_vi(t[0]), u.s[0]));
    }
    acc[0] = add_block(kind, cols, u.m, x, b, 0, v, acc[0]);
}
