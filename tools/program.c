/* Names of programs (see program.h). */
#include "program.h"

#include <ctype.h>
#include <string.h>

#include "options.h"

/* Tools without a subcommand of the same purpose, and older names without llama-. */
static const struct foreign {
    const char *names;  /* without llama-, which may precede each one */
    const char *advice; /* the nearest supported command */
    bool bare;          /* the name is also refused without llama- */
} foreign[] = {
    {"main", "pagedinfer run", true},
    {"server", "pagedinfer serve", true},
    {"vllm", "pagedinfer serve", true},
    {"perplexity", "pagedinfer eval", true},
    {"quantize", "pagedinfer quantize", true},
    {"embedding", "pagedinfer embed", true},
    {"tokenize", "pagedinfer tokenize", true},
    {"batched-bench benchmark-matmult", "pagedinfer bench", true},
    {"imatrix", "pagedinfer imatrix", true},
    {"quantize-stats", "pagedinfer eval --kl-divergence", true},
    {"speculative speculative-simple", "pagedinfer run -md DRAFTER", true},
    {"lookup lookahead lookup-create lookup-merge lookup-stats", "pagedinfer run --spec-type ngram", true},
    {"batched parallel", "pagedinfer run --copies N", false},
    {"simple passkey beam-search", "pagedinfer run", false},
    {"simple-chat run", "pagedinfer chat", false},
    {"gguf gguf-hash", "pagedinfer inspect", false},
    {"gguf-split", "pagedinfer quantize, which writes one file", true},
    {"export-lora", "pagedinfer run --lora FILE, which applies an adapter at run time", true},
    {"retrieval", "pagedinfer embed", false},
    {"save-load-state", "pagedinfer run --prompt-cache DIRECTORY", true},
    {"infill fim", "pagedinfer serve, which has POST /infill", false},
    {"rpc-server", "pagedinfer serve with local devices", true},
    {"mtmd-cli llava-cli minicpmv-cli gemma3-cli qwen2vl-cli", "pagedinfer chat, which reads text only", true},
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Copies the name without path and version into out. A name that is too long is cut off; no known name is long. */
static void plain_name(const char *argv0, char out[64])
{
    snprintf(out, 64, "%s", base_name(argv0));
    char *dash = strrchr(out, '-');
    if (!dash || dash == out) return;
    const char *v = dash + 1;
    if (*v == 'v' || *v == 'b') v++;
    if (isdigit((unsigned char) *v) && v[strspn(v, "0123456789.")] == 0) *dash = 0;
}

/* True if word is one of the space-separated words of list. */
static bool has_name(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; *p;) {
        const size_t len = strcspn(p, " ");
        if (len == n && !memcmp(p, word, n)) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

/* Writes the subcommand whose program name is the nearest to name, or the list of commands. */
static void nearest_command(const char *name, char advice[160])
{
    char best[64] = "";
    int dist = 1 + (int) strlen(name) / 3;
    const cli_command *found = NULL;
    for (const cli_command *c = cli_commands; c->name; c++)
        if (*c->symlink && options_nearest_word(name, c->symlink, best, &dist)) found = c;
    if (found) snprintf(advice, 160, "pagedinfer %s (%s)", found->name, best);
    else snprintf(advice, 160, "one of the commands that 'pagedinfer help' lists");
}

program program_of(const char *argv0)
{
    static const char llama[] = "llama-";
    program p = {0};
    plain_name(argv0, p.name);
    for (const cli_command *c = cli_commands; c->name; c++) {
        if (!has_name(c->symlink, p.name)) continue;
        p.cmd = c;
        return p;
    }
    const bool prefixed = !strncmp(p.name, llama, sizeof llama - 1);
    const char *rest = p.name + (prefixed ? sizeof llama - 1 : 0);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign && !*p.advice; i++)
        if ((prefixed || foreign[i].bare) && has_name(foreign[i].names, rest))
            snprintf(p.advice, sizeof p.advice, "%s", foreign[i].advice);
    if (prefixed && !*p.advice) nearest_command(p.name, p.advice);
    *p.name = 0;
    return p;
}
