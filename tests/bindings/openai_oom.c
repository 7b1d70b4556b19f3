/* openai_oom.c: every allocation of a completion fails in turn, for tests/scripts/check_openai.py.
 *
 *     LD_PRELOAD=failing_malloc.so FAILING_MALLOC=FILE openai_oom MODEL REQUEST...
 *
 * Each REQUEST must give its normal content, or end with PI_ENOMEM. Prints one line per fault and the number of failed
 * allocations; status 1 if there is any fault. */
#include <fcntl.h>
#include <pagedinfer_openai.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct control { /* as in tests/support/failing_malloc.c */
    atomic_int_fast64_t armed, seen, from, count;
} control;

static control *ctl;
static pi_openai *o;

typedef struct outcome {
    int code, n_last;
    char text[8192]; /* contents of all chunks, one after the other */
} outcome;

/* Appends the value of each "content" of a chunk. */
static void add_content(outcome *out, const char *json)
{
    static const char key[] = "\"content\":\"";
    for (const char *p = json; (p = strstr(p, key));) {
        p += sizeof key - 1;
        const size_t n = strcspn(p, "\""), at = strlen(out->text);
        if (at + n < sizeof out->text) memcpy(out->text + at, p, n);
    }
}

/* Runs a request. from: the allocation that fails, from 1; 0 = none. Returns true if that allocation was reached. */
static bool run(const char *request, int64_t from, outcome *out)
{
    pi_completion *c = NULL;
    pi_chunk *chunk;
    memset(out, 0, sizeof *out);
    atomic_store(&ctl->seen, 0);
    atomic_store(&ctl->from, from);
    atomic_store(&ctl->count, 1);
    atomic_store(&ctl->armed, from > 0);
    out->code = pi_chat_completions(&c, o, request, strlen(request), NULL, NULL);
    while (c && pi_openai_poll(o, &chunk, 1, -1) == 1) {
        out->n_last += chunk->last;
        if (chunk->code) out->code = chunk->code;
        else add_content(out, chunk->json);
        pi_chunk_release(chunk);
    }
    atomic_store(&ctl->armed, 0);
    if (out->n_last != (c != NULL)) out->code = PI_EINTERNAL;
    pi_completion_free(c);
    return atomic_load(&ctl->seen) >= from;
}

static int check(const char *request)
{
    static outcome normal, got;
    int bad = 0, n_failed = 0;
    run(request, 0, &normal);
    if (normal.code || !*normal.text) return printf("%s: code %d, text '%s'\n", request, normal.code, normal.text);
    for (int64_t from = 1; run(request, from, &got) && bad < 5; from++) {
        const bool whole = !got.code && !strcmp(got.text, normal.text);
        n_failed += got.code == PI_ENOMEM;
        if (whole || got.code == PI_ENOMEM) continue;
        bad++;
        printf("allocation %lld: code %d, %d last chunks, '%s'\n", (long long) from, got.code, got.n_last, got.text);
    }
    run(request, 0, &got);
    if (got.code || strcmp(got.text, normal.text)) bad += printf("after the failures: %d '%s'\n", got.code, got.text);
    printf("%d failures reported\n", n_failed);
    return bad + (n_failed < 20);
}

int main(int argc, char **argv)
{
    const char *path = getenv("FAILING_MALLOC");
    int fd = path ? open(path, O_RDWR) : -1, bad = 0;
    pi_options *options = pi_options_new();
    pi_engine *e = NULL;
    ctl = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ctl, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc < 3 || ctl == MAP_FAILED || pi_options_set(options, "model", argv[1], NULL) ||
        pi_options_set(options, "chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}", NULL) ||
        pi_options_set(options, "threads", "1", NULL) || pi_engine_open(&e, options, NULL) ||
        pi_openai_new(&o, e, NULL)) return 2;
    for (int i = 2; i < argc; i++) bad += check(argv[i]);
    pi_openai_free(o);
    pi_engine_close(e);
    pi_options_free(options);
    return bad != 0;
}
