/* tool_lora_speed.c: measures the cost of adapters in decode: 16 concurrent requests, with the adapters distributed
 * round-robin, and without adapters, in pairs.
 *
 *     tool_lora_speed MODEL ROUNDS THREADS ADAPTER...
 *
 * Prints milliseconds per token of both runs of each pair, and at the end the median of the ratios. Also prints CPU
 * times for machines with other load. CPU times need one thread, because several threads spin at barriers. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pagedinfer.h"

enum { N_SEQS = 16, N_TOKENS = 48, MAX_ROUNDS = 99 };

static int fail(const char *what, const pi_error *err)
{
    fprintf(stderr, "tool_lora_speed: %s: %s\n", what, err->msg);
    exit(1);
}

static void take_all(pi_engine *e)
{
    pi_event *ev[16];
    for (int n; (n = pi_poll(e, ev, 16, -1)) > 0;)
        for (int i = 0; i < n; i++) pi_event_release(ev[i]);
}

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

/* Returns milliseconds per decoded token, averaged over requests; *cpu = CPU milliseconds per token, prompts
 * included. */
static double decode(pi_engine *e, int n_adapters, double *cpu)
{
    const double began = cpu_ms();
    pi_error err = {0};
    pi_request *r[N_SEQS];
    int32_t prompt[16];
    double ms = 0;
    for (int i = 0; i < N_SEQS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", n_adapters ? i % n_adapters : 0);
        for (int k = 0; k < 16; k++) prompt[k] = 1000 + 37 * i + k;
        r[i] = pi_request_new(e);
        if (!r[i] || pi_request_set(r[i], "lora", n_adapters ? name : "none", &err) ||
            pi_request_prompt_tokens(r[i], prompt, 16, &err) || pi_request_submit(r[i], &err))
            fail("request", &err);
    }
    take_all(e);
    for (int i = 0; i < N_SEQS; i++) {
        pi_result res = {.size = sizeof res};
        pi_request_result(r[i], &res);
        ms += res.decode_ms / (N_TOKENS - 1) / N_SEQS;
        pi_request_free(r[i]);
    }
    *cpu = (cpu_ms() - began) / N_TOKENS;
    return ms;
}

static int by_size(const void *a, const void *b) { return *(const double *) a < *(const double *) b ? -1 : 1; }

int main(int argc, char **argv)
{
    pi_error err = {0};
    pi_engine *e;
    double ratio[MAX_ROUNDS], cpu_ratio[MAX_ROUNDS], cpu[2];
    const int rounds = argc > 4 ? atoi(argv[2]) : 0, n = argc - 4;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: tool_lora_speed MODEL ROUNDS THREADS ADAPTER...\n");
        return 1;
    }
    pi_options *o = pi_options_new();
    const char *const set[][2] = {{"model", argv[1]}, {"threads", argv[3]},   {"ctx-size", "2048"}, {"parallel", "16"},
                                  {"temp", "0"},      {"ignore-eos", "true"}, {"max-tokens", "48"}, {"cache", "false"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (pi_options_set(o, set[i][0], set[i][1], &err)) fail(set[i][0], &err);
    if (pi_engine_open(&e, o, &err)) fail(argv[1], &err);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (pi_lora_load(e, name, argv[4 + i], 0, &err)) fail(argv[4 + i], &err);
    }
    decode(e, 0, cpu), decode(e, n, cpu);
    for (int i = 0; i < rounds; i++) {
        const bool turned = i % 2;
        const double first = decode(e, turned ? n : 0, &cpu[turned]), second = decode(e, turned ? 0 : n, &cpu[!turned]);
        ratio[i] = turned ? first / second : second / first;
        cpu_ratio[i] = cpu[1] / cpu[0];
        printf("without %.3f ms a token, with %d adapters %.3f: %.3f; of the processor %.3f and %.3f: %.3f\n",
               turned ? second : first, n, turned ? first : second, ratio[i], cpu[0], cpu[1], cpu_ratio[i]);
    }
    qsort(ratio, (size_t) rounds, sizeof *ratio, by_size);
    qsort(cpu_ratio, (size_t) rounds, sizeof *cpu_ratio, by_size);
    printf("median %.3f, of the processor %.3f\n", ratio[rounds / 2], cpu_ratio[rounds / 2]);
    pi_engine_close(e);
    pi_options_free(o);
    return 0;
}
