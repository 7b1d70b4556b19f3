/* pagedinfer tokenize: converts text to token ids and prints them like llama-tokenize. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Returns the text's tokens in an allocated buffer; NULL on failure, with *code set. */
static int32_t *tokens_of(const cli *c, const pi_vocab *v, const char *text, size_t len, size_t *n, int *code)
{
    int flags = (cli_bool(c, "no-bos") ? 0 : PI_TOK_BOS) | (cli_bool(c, "parse-special") ? PI_TOK_SPECIAL : 0);
    size_t cap = len / 2 + 16;
    for (;;) {
        int32_t *ids = malloc(cap * sizeof *ids);
        int64_t got = ids ? pi_vocab_tokenize(v, text, len, flags, ids, cap) : PI_ENOMEM;
        if (got >= 0 && (size_t) got <= cap) {
            *n = (size_t) got;
            return ids;
        }
        free(ids);
        if (got < 0) {
            *code = cli_error(c, cli_exit_code((int) got), "tokenizing: %s", pi_strerror((int) got));
            return NULL;
        }
        cap = (size_t) got;
    }
}

/* Prints one token as text, with control tokens spelled out. A sequence's text may lose its first space, so the token
 * is detokenized twice in a row; the second copy is the token's text. */
static int print_piece(const cli *c, const pi_vocab *v, int32_t id)
{
    const int32_t twice[2] = {id, id};
    int64_t one = pi_vocab_detokenize(v, twice, 1, PI_TOK_SPECIAL, NULL, 0);
    int64_t both = pi_vocab_detokenize(v, twice, 2, PI_TOK_SPECIAL, NULL, 0);
    char *text = one < 0 || both < one ? NULL : malloc((size_t) both + 1);
    if (!text || pi_vocab_detokenize(v, twice, 2, PI_TOK_SPECIAL, text, (size_t) both) < 0) {
        free(text);
        return cli_error(c, CLI_OS, "out of memory");
    }
    printf("%6d -> '", id);
    fwrite(text + one, 1, strnlen(text + one, (size_t) (both - one)), stdout);
    printf("'\n");
    free(text);
    return CLI_OK;
}

int cmd_tokenize(const cli *c)
{
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    pi_vocab *v = NULL;
    pi_error err = {0};
    char *text = NULL;
    size_t len = 0, n = 0;
    int32_t *ids = NULL;
    int code = CLI_OK;
    if (pi_vocab_open(&v, cli_str(c, "model"), &err)) return cli_pi_error(c, &err);
    if (cli_bool(c, "stdin") || cli_given(c, "file") || cli_given(c, "prompt")) code = cli_prompt(c, true, &text, &len);
    else code = cli_usage_error(c, "no text: give --stdin, --file FILE or --prompt TEXT");
    if (!code) ids = tokens_of(c, v, text, len, &n, &code);
    if (ids && cli_bool(c, "ids")) {
        putchar('[');
        for (size_t i = 0; i < n; i++) printf("%s%d", i ? ", " : "", ids[i]);
        printf("]\n");
    } else if (ids) {
        for (size_t i = 0; i < n && !code; i++) code = print_piece(c, v, ids[i]);
    }
    if (ids && cli_bool(c, "show-count")) printf("Total number of tokens: %zu\n", n);
    free(ids);
    free(text);
    pi_vocab_free(v);
    return code;
}
