/* The gated delta rule, Mamba-2, Kimi delta attention, and their states: compared with the plain recurrence in double
 * precision. Also batch-invariant: bitwise identical for every chunking, batch composition, thread count and acceptance
 * of drafts, for each available instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gdn_fixture.h"
#include "isas.h"
#include "rounds.h"

static int isas[PI__N_ISAS], n_isas;

static int find_isas(void **state)
{
    (void) state;
    for (int i = PI__ISA_GENERIC; i < PI__N_ISAS; i++) {
        if (own_kernels(i)) isas[n_isas++] = i;
    }
    return 0;
}

static const gdn_config ssd_base = {.n_threads = 3, .n_k = 2, .n_v = 4, .dim = 32, .dim_v = 48, .n_draft = 5,
                                    .n_conv = 4, .ssd = 1, .grouped = true};
static const gdn_config kda_base = {.n_threads = 2, .n_k = 3, .n_v = 3, .dim = 32, .n_draft = 5, .n_conv = 4, .kda = 1};
static gdn_config base = {.n_threads = 2, .n_k = 2, .n_v = 4, .dim = 32, .n_draft = 5, .n_conv = 4};

/* ------------------------------------------------------------------------------------------------------- reference */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Computes the convolution of token t for n channels from channel c on. */
static void ref_conv(const gdn_fixture *w, const gdn_sequence *s, int t, size_t c, int n, double *y)
{
    for (int i = 0; i < n; i++) {
        double sum = w->bias ? (double) w->bias[c + (size_t) i] : 0;
        for (int k = 0; k < w->c.n_conv; k++) {
            int p = t - w->c.n_conv + 1 + k;
            size_t at = c + (size_t) i;
            if (p >= 0)
                sum += (double) w->conv[at * (size_t) w->c.n_conv + (size_t) k] * s->qkv[(size_t) p * w->channels + at];
        }
        y[i] = sum * sigmoid(sum);
    }
}

static void ref_norm(double *x, int n, double scale)
{
    double ss = 0;
    for (int i = 0; i < n; i++) ss += x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] *= scale / sqrt(ss + 1e-6);
}

/* S <- e^g S, then S <- S + k (outer) beta (v - k . S); o = q . S. g: log decay of each row of S */
static void ref_token(int n, double *S, const double *q, const double *k, const double *v, const double *g,
                      double beta, double *o)
{
    double d[256];
    for (int i = 0; i < n * n; i++) S[i] *= exp(g[i / n]);
    for (int b = 0; b < n; b++) {
        double p = 0;
        for (int a = 0; a < n; a++) p += k[a] * S[a * n + b];
        d[b] = beta * (v[b] - p);
    }
    for (int b = 0; b < n; b++) {
        o[b] = 0;
        for (int a = 0; a < n; a++) o[b] += q[a] * (S[a * n + b] += k[a] * d[b]);
    }
}

/* Computes the log decays of a head at token t: g [dim]. */
static void ref_decays(const gdn_fixture *w, const gdn_sequence *s, int t, int head, double *g)
{
    const int n = w->c.dim, each = w->c.kda ? n : 1;
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t) (head * each + i % each);
        const double x = (double) s->ab[(size_t) t * gdn_ab(&w->c) + at] + w->dt[at], a = w->a[head];
        g[i] = w->c.min_decay < 0 ? w->c.min_decay * sigmoid(a * x) : a * log1p(exp(x));
    }
}

/* Computes the outputs of one head of a sequence: [len][dim]. */
static void reference(const gdn_fixture *w, const gdn_sequence *s, int head, double *out)
{
    int n = w->c.dim, nv = w->c.n_v, kh = head % w->c.n_k;
    size_t dim = (size_t) n;
    double *S = gdn_must(calloc(dim * dim, sizeof *S)), q[256], k[256], v[256], g[256];
    for (int t = 0; t < s->len; t++, out += n) {
        ref_conv(w, s, t, (size_t) kh * dim, n, q);
        ref_conv(w, s, t, (size_t) (w->c.n_k + kh) * dim, n, k);
        ref_conv(w, s, t, (size_t) (2 * w->c.n_k + head) * dim, n, v);
        ref_norm(q, n, 1 / sqrt((double) n));
        ref_norm(k, n, 1);
        ref_decays(w, s, t, head, g);
        const double beta = s->ab[(size_t) t * gdn_ab(&w->c) + gdn_alphas(&w->c) + (size_t) head];
        ref_token(n, S, q, k, v, g, sigmoid(beta), out);
        double ss = 0;
        for (int i = 0; i < n; i++) ss += out[i] * out[i];
        for (int i = 0; i < n; i++) {
            double z = s->z[(t * nv + head) * n + i];
            out[i] *= w->norm[i] / sqrt(ss / n + 1e-6) * (w->c.kda ? 1 : z) * sigmoid(z);
        }
    }
    free(S);
}

/* As reference(), for Mamba-2, before the norm. */
static void ssd_reference(const gdn_fixture *w, const gdn_sequence *s, int head, double *out)
{
    const int n = w->c.dim, nv = w->c.n_v, kh = head % w->c.n_k, m = gdn_values(&w->c);
    double *S = gdn_must(calloc((size_t) (n * m), sizeof *S)), q[256], k[256], v[256];
    for (int t = 0; t < s->len; t++, out += m) {
        ref_conv(w, s, t, (size_t) (kh * n), n, q);
        ref_conv(w, s, t, (size_t) ((w->c.n_k + kh) * n), n, k);
        ref_conv(w, s, t, (size_t) (2 * w->c.n_k * n + head * m), m, v);
        const double dt = log1p(exp((double) s->ab[t * 2 * nv + head] + w->dt[head])), decay = exp(w->a[head] * dt);
        for (int i = 0; i < m; i++) {
            const double z = s->z[(t * nv + head) * m + i];
            double o = w->skip[head] * v[i];
            for (int l = 0; l < n; l++) o += q[l] * (S[l * m + i] = decay * S[l * m + i] + dt * k[l] * v[i]);
            out[i] = o * z * sigmoid(z);
        }
    }
    free(S);
}

/* Compares a sequence with the recurrence: the heads of one key head are normed together. */
static void ssd_check(const gdn_fixture *w, int i)
{
    const gdn_sequence *s = &w->seq[i];
    const int m = gdn_values(&w->c), nv = w->c.n_v, per = nv / w->c.n_k, n = per * m;
    double *ref = gdn_must(malloc(sizeof(double) * (size_t) (per * s->len * m)));
    for (int kh = 0; kh < w->c.n_k; kh++) {
        for (int h = 0; h < per; h++) ssd_reference(w, s, kh + h * w->c.n_k, ref + h * s->len * m);
        for (int t = 0; t < s->len; t++) {
            double ss = 0;
            for (int d = 0; d < n; d++) ss += pow(ref[(d / m * s->len + t) * m + d % m], 2);
            for (int d = 0; d < n; d++) {
                const double r = ref[(d / m * s->len + t) * m + d % m] / sqrt(ss / n + 1e-6) * w->norm[kh * n + d];
                const double x = s->out[t * nv * m + kh * n + d];
                if (fabs(x - r) <= 1e-4 * (1 + fabs(r))) continue;
                fail_msg("isa %d heads %d/%d dims %d, %d: sequence %d token %d key head %d value %d: %g, expected %g",
                         w->c.isa, w->c.n_k, nv, w->c.dim, m, i, t, kh, d, x, r);
            }
        }
    }
    free(ref);
}

static void check(const gdn_fixture *w)
{
    int n = w->c.dim, nv = w->c.n_v;
    for (int i = 0; w->c.ssd && i < w->n_seqs; i++) {
        assert_int_equal(w->seq[i].done, w->seq[i].len);
        ssd_check(w, i);
    }
    if (w->c.ssd) return;
    for (int i = 0; i < w->n_seqs; i++) {
        const gdn_sequence *s = &w->seq[i];
        assert_int_equal(s->done, s->len);
        double *ref = gdn_must(malloc(sizeof(double) * (size_t) (s->len * n)));
        for (int h = 0; h < nv; h++) {
            const int place = w->c.grouped ? h % w->c.n_k * (nv / w->c.n_k) + h / w->c.n_k : h;
            reference(w, s, h, ref);
            for (int t = 0; t < s->len; t++) {
                for (int d = 0; d < n; d++) {
                    double x = s->out[(t * nv + place) * n + d], r = ref[t * n + d];
                    if (fabs(x - r) <= 1e-4 * (1 + fabs(r))) continue;
                    fail_msg("isa %d heads %d/%d dim %d: sequence %d token %d head %d dim %d: %g, expected %g",
                             w->c.isa, w->c.n_k, w->c.n_v, n, i, t, h, d, x, r);
                }
            }
        }
        free(ref);
    }
}

/* Checks that the gaps between slots and between snapshots, and slots without a sequence, were not written. */
static void check_gaps(const gdn_fixture *w)
{
    bool used[GDN_SEQS + 1] = {false};
    for (int i = 0; i < w->n_seqs; i++) used[w->seq[i].slot] = true;
    for (size_t i = 0; i <= GDN_SEQS; i++) {
        size_t from = used[i] ? w->st.stride - GDN_GAP : 0;
        for (size_t k = from; k < w->st.stride; k++) assert_int_equal((uint8_t) w->st.base[i * w->st.stride + k], 0xff);
    }
    for (size_t i = 0; i < GDN_SNAPS; i++) {
        const char *gap = w->st.snap + (i + 1) * w->st.snap_stride - GDN_GAP;
        for (size_t k = 0; k < GDN_GAP; k++) assert_int_equal((uint8_t) gap[k], 0xff);
    }
}

/* Runs all sequences in ragged chunks of about n tokens. */
static void run(gdn_fixture *w, int n)
{
    for (;;) {
        gdn_turn turn[GDN_SEQS] = {{0}};
        int any = 0;
        for (int i = 0; i < w->n_seqs; i++) {
            int left = w->seq[i].len - w->seq[i].done, size = n + i * (n > 1);
            turn[i].n = left < size ? left : size;
            any += turn[i].n;
        }
        if (!any) return;
        gdn_step(w, turn);
    }
}

static void test_reference(void **state)
{
    (void) state;
    static const int32_t shapes[][3] = {{2, 4, 64}, {2, 6, 32}, {1, 2, 128}, {3, 3, 96}, {1, 1, 256}, {4, 2, 32}};
    static const int lens[] = {75, 1, 32, 17};
    for (int i = 0; i < n_isas; i++) {
        for (int k = 0; k < 6; k += slow_vectors() ? 3 : 1) {
            gdn_config c = base;
            c.isa = isas[i];
            c.n_k = shapes[k][0];
            c.n_v = shapes[k][1];
            c.dim = shapes[k][2];
            c.grouped = k == 1;
            gdn_fixture w;
            gdn_init(&w, &c, 4, lens);
            run(&w, k % 2 ? 1 : 21);
            check(&w);
            check_gaps(&w);
            gdn_free(&w);
        }
    }
}

/* Both kinds of log decays of Kimi delta attention. */
static void test_kda_reference(void **state)
{
    (void) state;
    static const int32_t dims[] = {64, 128, 256};
    static const int lens[] = {75, 1, 32, 17};
    for (int i = 0; i < n_isas; i++) {
        for (int k = 0; k < 3; k += slow_vectors() ? 2 : 1) {
            gdn_config c = kda_base;
            c.isa = isas[i];
            c.dim = dims[k];
            c.min_decay = k % 2 ? -5.0f : 0;
            gdn_fixture w;
            gdn_init(&w, &c, 4, lens);
            run(&w, k % 2 ? 1 : 21);
            check(&w);
            check_gaps(&w);
            gdn_free(&w);
        }
    }
}

/* Mamba-2: state and value heads of different sizes, also sizes that are not a multiple of a panel. */
static void test_ssd_reference(void **state)
{
    (void) state;
    static const int32_t shapes[][4] = {{1, 6, 128, 64}, {2, 4, 64, 80}, {2, 2, 256, 32}, {4, 8, 32, 48}};
    static const int lens[] = {75, 1, 32, 150};
    for (int i = 0; i < n_isas; i++) {
        for (int k = 0; k < 4; k += slow_vectors() ? 2 : 1) {
            gdn_config c = ssd_base;
            c.isa = isas[i];
            c.n_k = shapes[k][0], c.n_v = shapes[k][1];
            c.dim = shapes[k][2], c.dim_v = shapes[k][3];
            gdn_fixture w;
            gdn_init(&w, &c, 4, lens);
            run(&w, k % 2 ? 1 : 21);
            check(&w);
            check_gaps(&w);
            gdn_free(&w);
        }
    }
}

/* ----------------------------------------------------------------------------------------------- bitwise identical */

static void assert_same(const gdn_fixture *a, int ia, const gdn_fixture *b, int ib, const char *what)
{
    const gdn_sequence *x = &a->seq[ia], *y = &b->seq[ib];
    size_t vd = (size_t) (a->c.n_v * gdn_values(&a->c));
    assert_int_equal(x->len, y->len);
    assert_int_equal(y->done, y->len);
    for (size_t i = 0; i < (size_t) x->len * vd; i++) {
        if (!memcmp(&x->out[i], &y->out[i], 4)) continue;
        fail_msg("%s: isa %d sequence %d token %d: %a is not %a", what, a->c.isa, ia, (int) (i / vd),
                 (double) x->out[i], (double) y->out[i]);
    }
}

/* Runs each sequence by itself in one step on one thread. */
static void alone(gdn_fixture *w, const gdn_config *c0, int n_seqs, const int *lens)
{
    gdn_config c = *c0;
    c.n_threads = 1;
    gdn_init(w, &c, n_seqs, lens);
    for (int i = 0; i < n_seqs; i++) {
        gdn_turn turn[GDN_SEQS] = {{0}};
        turn[i].n = lens[i];
        gdn_step(w, turn);
    }
}

static void test_cuts(void **state)
{
    (void) state;
    static const int lens[] = {90, 33, 16, 1, 47}, cuts[] = {1, 2, 7, 15, 16, 17, 40, 100};
    for (int i = 0; i < n_isas; i++) {
        gdn_config c = base;
        c.isa = isas[i];
        gdn_fixture a, b;
        alone(&a, &c, 5, lens);
        for (int k = 0; k < 8; k += emulated() ? 3 : 1) {
            c.n_threads = 1 + k % 3;
            gdn_init(&b, &c, 5, lens);
            run(&b, cuts[k]);
            for (int s = 0; s < 5; s++) assert_same(&a, s, &b, s, "cut");
            gdn_free(&b);
        }
        gdn_free(&a);
    }
}

/* Convolutions of every length match the recurrence, and give the same bits token by token. */
static void test_taps(void **state)
{
    (void) state;
    static const int lens[] = {37, 18};
    for (int i = 0; i < n_isas; i++) {
        for (int32_t taps = PI__MIN_CONV; taps <= PI__MAX_CONV; taps++) {
            gdn_config c = base;
            c.isa = isas[i];
            c.n_conv = taps;
            gdn_fixture a, b;
            alone(&a, &c, 2, lens);
            check(&a);
            check_gaps(&a);
            gdn_init(&b, &c, 2, lens);
            run(&b, 1 + taps % 3);
            for (int s = 0; s < 2; s++) assert_same(&a, s, &b, s, "taps");
            gdn_free(&a);
            gdn_free(&b);
        }
    }
}

static int up_to(int n) { return (int) (gdn_uniform() * (n + 1)); }

/* Steps of one token and drafts, with every number of accepted drafts, together with prefill chunks of other
 * sequences. */
static void test_drafts(void **state)
{
    (void) state;
    static const int lens[] = {120, 61, 200, 35}, most[] = {1, 5, 19, 40};
    for (int i = 0; i < n_isas; i++) {
        for (int k = 0; k < 4; k++) {
            gdn_config c = base;
            c.isa = isas[i];
            c.n_draft = most[k];
            gdn_fixture a, b;
            alone(&a, &c, 4, lens);
            gdn_init(&b, &c, 4, lens);
            for (int any = 1; any;) {
                gdn_turn turn[GDN_SEQS] = {{0}};
                any = 0;
                for (int s = 0; s < 4; s++) {
                    int left = lens[s] - b.seq[s].done;
                    if (!left || up_to(5) == 0) {
                        any += left;
                        continue;
                    }
                    turn[s].n = up_to(8) ? 1 : 1 + up_to(left < 40 ? left - 1 : 39);
                    left -= turn[s].n;
                    int drafts = up_to(c.n_draft);
                    turn[s].right = up_to(drafts < left ? drafts : left);
                    turn[s].wrong = drafts - turn[s].right;
                    any++;
                }
                gdn_step(&b, turn);
            }
            for (int s = 0; s < 4; s++) assert_same(&a, s, &b, s, "drafts");
            check_gaps(&b);
            gdn_free(&a);
            gdn_free(&b);
        }
    }
}

/* Every number of accepted drafts gives the same bits, for each position of the committed token in its chunk and each
 * number of drafts. */
static void test_draft_counts(void **state)
{
    (void) state;
    enum { MOST = 18, LEN = 16 + 16 + 1 + MOST };
    static const int lens[] = {LEN};
    gdn_config c = base;
    c.isa = isas[n_isas - 1];
    c.n_draft = MOST;
    c.n_k = c.n_v = c.n_threads = 1;
    gdn_fixture a, b;
    alone(&a, &c, 1, lens);
    gdn_init(&b, &c, 1, lens);
    for (int from = 15; from < 32; from += crossed() ? 5 : 1) {
        for (int drafts = 0; drafts <= MOST; drafts += drafts == 3 ? 11 : 1) {
            for (int right = 0; right <= drafts; right++) {
                b.seq[0].done = 0;
                gdn_step(&b, &(gdn_turn){.n = from});
                gdn_step(&b, &(gdn_turn){.n = 1, .right = right, .wrong = drafts - right});
                if (b.seq[0].done < LEN) gdn_step(&b, &(gdn_turn){.n = LEN - b.seq[0].done});
                assert_same(&a, 0, &b, 0, "draft counts");
            }
        }
    }
    gdn_free(&a);
    gdn_free(&b);
}

/* A slot that another sequence used, with garbage in it, works like a new one. */
static void test_slot_reuse(void **state)
{
    (void) state;
    static const int lens[] = {50, 50};
    for (int i = 0; i < n_isas; i++) {
        gdn_config c = base;
        c.isa = isas[i];
        gdn_fixture a, b;
        alone(&a, &c, 2, lens);
        gdn_init(&b, &c, 2, lens);
        b.seq[1].slot = b.seq[0].slot;
        for (int s = 0; s < 2; s++) {
            gdn_turn turn[GDN_SEQS] = {{0}};
            turn[s].n = s ? 2 : 49;
            turn[s].wrong = s ? 0 : 3;
            gdn_step(&b, turn);
        }
        while (b.seq[1].done < 50) gdn_step(&b, (gdn_turn[GDN_SEQS]){{0}, {.n = 1}});
        assert_same(&a, 1, &b, 1, "reused slot");
        gdn_free(&a);
        gdn_free(&b);
    }
}

/* ------------------------------------------------------------------------------------------------------- snapshots */

static size_t snap_bytes(const gdn_fixture *w) { return pi__cpu_snapshot_bytes(NULL, &w->st); }
static char *snap(const gdn_fixture *w, int i) { return w->st.snap + (size_t) i * w->st.snap_stride; }

static void same_snap(const gdn_fixture *a, int ia, const gdn_fixture *b, int ib, const char *what, int pos)
{
    if (memcmp(snap(a, ia), snap(b, ib), snap_bytes(a)))
        fail_msg("%s: isa %d: snapshots of %d differ", what, a->c.isa, pos);
}

/* Takes snapshots at 16, 32, 48, ... in the single prefill step of a sequence, together with another sequence. */
static void snaps_in_step(gdn_fixture *w, const gdn_config *c, const int *lens)
{
    gdn_init(w, c, 2, lens);
    gdn_turn turn[GDN_SEQS] = {{.n = lens[0]}, {.n = lens[1], .n_save = 1, .save = {{16, 20}}}};
    for (int p = 16; p <= lens[0]; p += 16) turn[0].save[turn[0].n_save++] = (pi__save){p, p / 16};
    gdn_step(w, turn);
    check_gaps(w);
}

/* Snapshots taken in a prefill step, in decode and between steps are identical, and do not disturb the slot. */
static void test_snapshots(void **state)
{
    (void) state;
    static const int lens[] = {96, 40};
    for (int i = 0; i < n_isas; i++) {
        gdn_config c = base;
        c.isa = isas[i];
        gdn_fixture a, b, d;
        alone(&d, &c, 2, lens);
        snaps_in_step(&a, &c, lens);
        gdn_init(&b, &c, 2, lens);
        while (b.seq[0].done < 96) {
            int to = b.seq[0].done + 1;
            gdn_turn turn[GDN_SEQS] = {{.n = 1}, {.n = b.seq[1].done < 40}};
            if (to % 32 == 0) turn[0].save[turn[0].n_save++] = (pi__save){to, to / 16};
            gdn_step(&b, turn);
            if (to % 32 == 16)
                pi__cpu_state_save(&b.cpu.be, NULL, &(pi__state_copy) {&b.st, b.seq[0].slot, to, to / 16});
            if (to % 32 == 7 && to > 16)
                pi__cpu_state_save(&b.cpu.be, NULL,
                                   &(pi__state_copy) {&b.st, b.seq[0].slot, to / 16 * 16, 12 + to / 32});
        }
        for (int p = 16; p <= 96; p += 16) same_snap(&a, p / 16, &b, p / 16, "decode", p);
        same_snap(&a, 2, &b, 13, "later", 32);
        same_snap(&a, 4, &b, 14, "later", 64);
        for (int s = 0; s < 2; s++) {
            assert_same(&d, s, &a, s, "saved from");
            assert_same(&d, s, &b, s, "saved from");
        }
        check_gaps(&b);
        gdn_free(&a);
        gdn_free(&b);
        gdn_free(&d);
    }
}

/* Snapshots at a boundary that accepted drafts crossed, and at the first position of a step. */
static void test_snapshot_after_drafts(void **state)
{
    (void) state;
    static const int lens[] = {96, 40};
    for (int i = 0; i < n_isas; i++) {
        gdn_config c = base;
        c.isa = isas[i];
        c.n_draft = 36;
        gdn_fixture a, b;
        snaps_in_step(&a, &c, lens);
        for (int from = 15; from < 48; from += crossed() ? 7 : 1) {
            gdn_init(&b, &c, 2, lens);
            gdn_step(&b, (gdn_turn[GDN_SEQS]){{.n = from}});
            gdn_step(&b, (gdn_turn[GDN_SEQS]){{.n = 1, .right = from % 37, .wrong = 36 - from % 37}});
            int pos = b.seq[0].done / 16 * 16;
            pi__cpu_state_save(&b.cpu.be, NULL,
                               &(pi__state_copy) {.st = &b.st, .slot = b.seq[0].slot, .pos = pos, .snap = 7});
            same_snap(&a, pos / 16, &b, 7, "accepted drafts", pos);
            gdn_step(&b, (gdn_turn[GDN_SEQS]){{.n = 1, .n_save = 1, .save = {{pos, 8}}}});
            same_snap(&a, pos / 16, &b, 8, "accepted drafts, in the next step", pos);
            gdn_step(&b, (gdn_turn[GDN_SEQS]){{.n = lens[0] - b.seq[0].done}, {.n = 40}});
            assert_same(&a, 0, &b, 0, "saved after drafts");
            gdn_free(&b);
        }
        gdn_free(&a);
    }
}

/* A sequence continues from a snapshot in another slot. */
static void test_load(void **state)
{
    (void) state;
    static const int lens[] = {96, 40};
    for (int i = 0; i < n_isas; i++) {
        gdn_config c = base;
        c.isa = isas[i];
        gdn_fixture a;
        snaps_in_step(&a, &c, lens);
        gdn_fixture b;
        size_t vd = (size_t) (c.n_v * gdn_values(&c));
        for (int pos = 16; pos <= 80; pos += 16) {
            gdn_init(&b, &c, 2, lens);
            memcpy(snap(&b, 3), snap(&a, pos / 16), snap_bytes(&a));
            pi__cpu_state_load(&b.cpu.be, NULL,
                               &(pi__state_copy) {.st = &b.st, .slot = b.seq[0].slot, .pos = pos, .snap = 3});
            memcpy(b.seq[0].out, a.seq[0].out, (size_t) pos * vd * 4);
            b.seq[0].done = pos;
            if (pos % 32) gdn_step(&b, (gdn_turn[GDN_SEQS]){{.n = 1, .wrong = 2}});
            run(&b, pos == 48 ? 1 : 30);
            for (int s = 0; s < 2; s++) assert_same(&a, s, &b, s, "loaded");
            check_gaps(&b);
            gdn_free(&b);
        }
        gdn_free(&a);
    }
}

static void test_sizes(void **state)
{
    (void) state;
    pi__state_layer st = {.n_k = 16, .n_v = 32, .dim = 128, .n_conv = 4, .n_draft = 4};
    size_t s0 = 32 * 128 * 128 * 4, channels = 64 * 128 * 4;
    assert_int_equal(pi__cpu_snapshot_bytes(NULL, &st), s0 + 3 * channels);
    assert_int_equal(pi__cpu_state_bytes(NULL, &st), 64 + s0 + 23 * channels + 20 * (16 + 32) * 128 * 4 + 20 * 32 * 4);
    static const pi__state_layer bad[] = {
        {.n_k = 16, .n_v = 32, .dim = 100, .n_conv = 4, .n_draft = 4},
        {.n_k = 16, .n_v = 32, .dim = 288, .n_conv = 4, .n_draft = 4},
        {.n_k = 16, .n_v = 32, .dim = 0, .n_conv = 4, .n_draft = 4},
        {.n_k = 0, .n_v = 32, .dim = 128, .n_conv = 4, .n_draft = 4},
        {.n_k = 16, .n_v = 0, .dim = 128, .n_conv = 4, .n_draft = 4},
        {.n_k = 16, .n_v = 32, .dim = 128, .n_conv = 1, .n_draft = 4},
        {.n_k = 16, .n_v = 32, .dim = 128, .n_conv = 9, .n_draft = 4},
        {.n_k = 16, .n_v = 32, .dim = 128, .n_conv = 4, .n_draft = -1},
        {.n_k = 16, .n_v = 32, .dim = 128, .n_conv = 4, .n_draft = 4, .kda = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi__cpu_state_bytes(NULL, &bad[i]), 0);
        assert_int_equal(pi__cpu_snapshot_bytes(NULL, &bad[i]), 0);
    }
}

/* Runs the following tests with Mamba-2 instead of the delta rule. */
static int use_ssd(void **state)
{
    (void) state;
    base = ssd_base;
    return 0;
}

/* Runs the following tests with Kimi delta attention. */
static int use_kda(void **state)
{
    (void) state;
    base = kda_base;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),  cmocka_unit_test(test_cuts),      cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_draft_counts), cmocka_unit_test(test_slot_reuse), cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_snapshot_after_drafts), cmocka_unit_test(test_load), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_taps),
    };
    const struct CMUnitTest ssd_tests[] = {
        cmocka_unit_test(test_ssd_reference), cmocka_unit_test(test_cuts), cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_draft_counts), cmocka_unit_test(test_slot_reuse), cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_snapshot_after_drafts), cmocka_unit_test(test_load), cmocka_unit_test(test_taps),
    };
    const struct CMUnitTest kda_tests[] = {
        cmocka_unit_test(test_kda_reference), cmocka_unit_test(test_cuts), cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_slot_reuse), cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_snapshot_after_drafts), cmocka_unit_test(test_load),
    };
    int failed = cmocka_run_group_tests(tests, find_isas, NULL);
    failed += cmocka_run_group_tests(ssd_tests, use_ssd, NULL);
    return failed + cmocka_run_group_tests(kda_tests, use_kda, NULL);
}
