/* Measures the time of one layer's attention:
 *
 *     tool_bench_attention [isa] [threads] [type_k] [type_v] [tokens [rows [n_head n_head_kv head_dim]]]
 *
 * Not a test. Prints times of a prefill of 512 tokens, and of decode late in a sequence. With `tokens`, prints the
 * time of `rows` rows (default 1) after that number of tokens. The default shape is that of Gemma 3 270M (4 1 256). */
#include <time.h>

#include "attention_fixture.h"

static double seconds(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double) ts.tv_sec + (double) ts.tv_nsec * 1e-9;
}

static double wall(void) { return seconds(CLOCK_MONOTONIC); }
/* CPU time of a single thread, which other processes do not disturb. */
static double cpu(void) { return seconds(CLOCK_THREAD_CPUTIME_ID); }

/* Prints the fastest of n_rounds steps of `tokens` tokens from position `from`, in milliseconds: attention, and
 * qkv. */
static void time_step(config c, int from, int tokens, int n_rounds, const char *what)
{
    int len = from + tokens;
    fixture w;
    fixture_init(&w, &c, 1, &len);
    int n = from;
    w.fills = true;
    if (from) fixture_step(&w, &n);
    w.fills = false;
    const int32_t done = w.seq[0].done, n_free = w.n_free;
    double best_attn = 1e9, best_qkv = 1e9;
    for (int i = 0; i < n_rounds; i++) {
        w.n_free = n_free; /* use the same blocks again */
        w.seq[0].done = done;
        fixture_step(&w, &tokens);
        if (w.time_attention < best_attn) best_attn = w.time_attention;
        if (w.time_qkv < best_qkv) best_qkv = w.time_qkv;
    }
    double keys = 0;
    for (int p = from; p < len; p++) keys += c.window && p >= c.window ? c.window : p + 1;
    double fma = keys * c.n_head * c.head_dim * 2;
    printf("%-28s %9.3f ms  %6.1f G multiply-adds/s   qkv %7.3f ms\n", what, best_attn * 1e3, fma / best_attn * 1e-9,
           best_qkv * 1e3);
    fixture_free(&w);
}

int main(int argc, char **argv)
{
    config c = {.n_threads = argc > 2 ? atoi(argv[2]) : 2, .block_size = 16, .type_k = PI__F16, .type_v = PI__F16,
                .n_head = 4, .n_head_kv = 1, .head_dim = 256, .window = 512, .chunk = 512};
    c.clock = c.n_threads == 1 ? cpu : wall;
    if (pi__isa_choose(argc > 1 ? argv[1] : "auto", &c.isa, NULL)) return 64;
    if (argc > 3) c.type_k = pi__kv_from_name(argv[3], strlen(argv[3]));
    if (argc > 4) c.type_v = pi__kv_from_name(argv[4], strlen(argv[4]));
    printf("%s, %d threads, k %s, v %s\n", pi__isa_names[c.isa].desc, c.n_threads, pi__kv_name(c.type_k),
           pi__kv_name(c.type_v));
    if (argc > 5) {
        int rows = argc > 6 ? atoi(argv[6]) : 1;
        c.window = 0;
        if (argc > 9) c.n_head = atoi(argv[7]), c.n_head_kv = atoi(argv[8]), c.head_dim = atoi(argv[9]);
        char what[64];
        snprintf(what, sizeof(what), "%d behind %s", rows, argv[5]);
        time_step(c, atoi(argv[5]), rows, rows > 1 ? 3 : 100, what);
        return 0;
    }
    time_step(c, 0, 512, 20, "prompt of 512");
    time_step(c, 500, 1, 500, "one token at 500");
    c.window = 0;
    time_step(c, 4095, 1, 200, "one token at 4096, no window");
    time_step(c, 100, 1, 500, "one token at 100");
    return 0;
}
