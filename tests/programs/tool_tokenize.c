/* tool_tokenize -m GGUF -f FILE [--ids] [--no-bos] [--no-escape] [--no-parse-special] [--round-trip]
 * Prints the ids of a file's text in the format of llama-tokenize. --ids, --no-bos and --no-escape are accepted and
 * always active. --round-trip prints the decoded text instead. For check_tokenizers.py and manual use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagedinfer.h"

static char *read_file(const char *path, size_t *n)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    char *p = NULL;
    size_t cap = 0;
    *n = 0;
    while (f) {
        if (*n == cap) p = realloc(p, cap = cap ? cap * 2 : 65536);
        if (!p) break;
        size_t k = fread(p + *n, 1, cap - *n, f);
        if (!k) break;
        *n += k;
    }
    if (f && f != stdin) fclose(f);
    return p;
}

int main(int argc, char **argv)
{
    const char *model = NULL, *file = NULL;
    int flags = PI_TOK_SPECIAL;
    bool round_trip = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-m") && i + 1 < argc) model = argv[++i];
        else if (!strcmp(argv[i], "-f") && i + 1 < argc) file = argv[++i];
        else if (!strcmp(argv[i], "--no-parse-special")) flags = 0;
        else if (!strcmp(argv[i], "--round-trip")) round_trip = true;
    }
    if (!model || !file) return 64;
    pi_vocab *v;
    pi_error err;
    if (pi_vocab_open(&v, model, &err)) {
        fprintf(stderr, "tool_tokenize: %s\n", err.msg);
        return 65;
    }
    size_t len;
    char *text = read_file(file, &len);
    size_t cap = 3 * len + 16; /* upper bound: an invalid byte becomes three tokens */
    int32_t *ids = text ? malloc(cap * sizeof *ids) : NULL;
    int64_t n = ids ? pi_vocab_tokenize(v, text, len, flags, ids, cap) : PI_ENOMEM;
    if (n < 0) return 66;
    if (round_trip) {
        int64_t m = pi_vocab_detokenize(v, ids, (size_t) n, flags, NULL, 0);
        char *out = m < 0 ? NULL : malloc((size_t) m + 1);
        if (!out) return 66;
        pi_vocab_detokenize(v, ids, (size_t) n, flags, out, (size_t) m);
        fwrite(out, 1, (size_t) m, stdout);
        free(out);
    } else {
        putchar('[');
        for (int64_t i = 0; i < n; i++) printf("%s%d", i ? ", " : "", ids[i]);
        puts("]");
    }
    free(ids);
    free(text);
    pi_vocab_free(v);
    return 0;
}
