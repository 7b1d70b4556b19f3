/* Shared code of the grammar fuzzers. A constraint is compiled, or refused with a message, and then followed for some
 * tokens that its masks allow. The matcher accepts every token in the mask and no token outside it. The library's own
 * limits bound time and memory. */
#ifndef GRAMMAR_FUZZ_H
#define GRAMMAR_FUZZ_H

#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/grammar.h"
#include "template/chat_form.h"
#include "vocab_seed.h"

enum { FUZZ_LONGEST = 4096, FUZZ_TOKENS = 24 };

static inline pi__vocab *fuzz_vocab(void)
{
    static pi__vocab *v;
    pi_error err;
    seed s;
    if (v) return v;
    seed_spm(&s);
    if (seed_load(&s, &v, &err)) __builtin_trap();
    return v;
}

static inline void fuzz_follow(pi__grammar *g, const pi__vocab *v, uint64_t rng)
{
    pi__matcher *m;
    pi_error err = {0};
    pi__mask mask;
    if (pi__matcher_create(&m, g, &err)) return;
    for (int i = 0; i < FUZZ_TOKENS; i++) {
        int rc = pi__matcher_mask(m, true, &mask, &err);
        if (rc && (rc != err.code || !err.msg[0])) __builtin_trap();
        if (rc || !mask.n) break;
        int32_t id = -1, other = -1, n = 0;
        for (int32_t k = 0; k < pi__vocab_size(v); k++) {
            if (!pi__mask_has(&mask, k)) other = k;
            else if (rng = rng * 6364136223846793005u + 1442695040888963407u, (rng >> 33) % (uint64_t) ++n == 0) id = k;
        }
        if (n != mask.n || (n == 1 && mask.only != id)) __builtin_trap();
        if (other >= 0 && pi__matcher_accept(m, other, NULL) == PI_OK) __builtin_trap();
        rc = pi__matcher_accept(m, id, &err);
        if (rc && rc != PI_EUNSUPPORTED) __builtin_trap();
        if (rc || pi__matcher_is_over(m)) break;
    }
    pi__matcher_free(m);
}

/* Compiles and follows the input as a constraint's text; bytes after a zero byte are the trigger. */
static inline int fuzz_form(int kind, const uint8_t *data, size_t size)
{
    char text[FUZZ_LONGEST + 1];
    const pi__vocab *v = fuzz_vocab();
    static pi__grammars *gs; /* keeps recent constraints, as an engine does */
    pi__grammar *g = NULL;
    pi_error err = {0};
    if (size > FUZZ_LONGEST) size = FUZZ_LONGEST;
    if (size) memcpy(text, data, size);
    text[size] = 0;
    const size_t n = strlen(text);
    const pi__grammar_spec spec = {kind, text, n < size ? text + n + 1 : NULL,
                                   (int) (size % (PI__THOUGHTS_OPEN + PI__N_THOUGHT_TAGS))};
    if (!gs && pi__grammars_create(&gs, v, pi__vocab_size(v), NULL, 0, &err)) return 0;
    const int rc = pi__grammar_get(gs, &spec, &g, &err);
    if (rc ? rc != err.code || !err.msg[0] || g : !g) __builtin_trap();
    if (!rc) fuzz_follow(g, v, size + (size ? data[size / 2] : 0));
    pi__grammar_release(g);
    return 0;
}

#endif
