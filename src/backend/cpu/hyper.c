/* Residual streams (hyper-connections) of DeepSeek V4 on the CPU. hyper_pre: y = weighted sum of the streams, the input
 * of a block. hyper_post: each stream = weighted sum of all streams + weighted block output. x: [rows][S][n] streams;
 * y: [rows][n].
 *
 * No memory. Threads: called by the step thread; large inputs are split over the pool by rows. One thread computes a
 * row, with sums in a fixed order. */
#include "backend/cpu/sparse.h"

enum { S = PI__STREAMS, SMALL = 16384 }; /* S: streams. SMALL: fewer values run on the calling thread */

typedef struct hyper_job {
    const pi__cpu *cpu;
    const pi__hyper *a;
    int32_t n_rows;
} hyper_job;

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Divides each of the S lines (rows or columns) of matrix c [S][S] by the line's sum + eps. from: distance between the
 * starts of lines; step: distance between the values of a line. Rows: (S, 1); columns: (1, S). */
static void divide(float c[S * S], int from, int step, float eps)
{
    for (int a = 0; a < S; a++, c += from) {
        float sum = 0;
        for (int b = 0; b < S; b++) sum += c[b * step];
        sum += eps;
        for (int b = 0; b < S; b++) c[b * step] /= sum;
    }
}

/* c [S][S] = softmax of each row of the scaled mix m + eps, then n_iter alternating column and row normalizations. f:
 * RMS factor of the row. */
static void sinkhorn(const pi__hyper *a, const float *m, float f, float c[S * S])
{
    for (int r = 0; r < S; r++) {
        float z[S], top = -INFINITY, sum = 0;
        for (int b = 0; b < S; b++) {
            z[b] = m[2 * S + S * r + b] * f * a->scale[2] + a->base[2 * S + S * r + b];
            if (z[b] > top) top = z[b];
        }
        for (int b = 0; b < S; b++) sum += z[b] = expf(z[b] - top);
        for (int b = 0; b < S; b++) c[S * r + b] = z[b] / sum + a->eps;
    }
    divide(c, 1, S, a->eps); /* columns */
    for (int32_t i = 1; i < a->n_iter; i++) {
        divide(c, S, 1, a->eps);
        divide(c, 1, S, a->eps);
    }
}

static void pre_row(const hyper_job *j, int64_t r)
{
    const pi__hyper *a = j->a;
    const int64_t n = a->n;
    const float *restrict x = a->x + r * S * n, *m = a->mix + r * (a->n_iter ? PI__HYPER_MIX : S);
    const float f = j->cpu->sparse->rms(x, S * n, a->norm_eps);
    float pre[S];
    for (int i = 0; i < S; i++) pre[i] = sigmoid(m[i] * f * a->scale[0] + a->base[i]) + a->eps;
    if (a->n_iter) {
        float *coef = a->coef + r * PI__HYPER_COEF;
        for (int i = 0; i < S; i++) coef[i] = 2.0f * sigmoid(m[S + i] * f * a->scale[1] + a->base[S + i]);
        sinkhorn(a, m, f, coef + S);
    }
    float *restrict y = a->y + r * n;
    for (int64_t i = 0; i < n; i++)
        y[i] = pre[0] * x[i] + pre[1] * x[n + i] + pre[2] * x[2 * n + i] + pre[3] * x[3 * n + i];
}

static void post_row(const hyper_job *j, int64_t r)
{
    const pi__hyper *a = j->a;
    const int64_t n = a->n;
    const float *post = a->coef + r * PI__HYPER_COEF, *c = post + S, *restrict y = a->y + r * n;
    float *restrict x = a->x + r * S * n;
    for (int64_t i = 0; i < n; i++) {
        const float x0 = x[i], x1 = x[n + i], x2 = x[2 * n + i], x3 = x[3 * n + i];
        for (int b = 0; b < S; b++)
            x[b * n + i] = post[b] * y[i] + c[b] * x0 + c[S + b] * x1 + c[2 * S + b] * x2 + c[3 * S + b] * x3;
    }
}

static void pre_main(void *arg, int32_t ith, int32_t nth)
{
    const hyper_job *j = arg;
    const int64_t n = j->n_rows;
    for (int64_t r = n * ith / nth; r < n * (ith + 1) / nth; r++) pre_row(j, r);
}

static void post_main(void *arg, int32_t ith, int32_t nth)
{
    const hyper_job *j = arg;
    const int64_t n = j->n_rows;
    for (int64_t r = n * ith / nth; r < n * (ith + 1) / nth; r++) post_row(j, r);
}

static void run(pi__backend *be, const pi__hyper *a, int32_t n_rows, pi__job_fn fn)
{
    hyper_job j = {(pi__cpu *) be, a, n_rows};
    if (n_rows == 1 || n_rows * S * a->n < SMALL) fn(&j, 0, 1);
    else pi__pool_run(((pi__cpu *) be)->pool, fn, &j);
}

void pi__cpu_hyper_pre(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    run(be, a, a->n_rows, pre_main);
}
void pi__cpu_hyper_post(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    run(be, a, a->n_rows, post_main);
}
