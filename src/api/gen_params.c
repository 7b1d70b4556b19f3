/* Request options as the plain values that scheduler and sampler read.
 *
 * Ranges were checked when the options were set; this file makes the checks that need the vocabulary. Memory: the
 * arrays and the grammar, until pi__gen_params_free; the core copies the parts it keeps. Any thread. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "api/gen_params.h"
#include "api/lora.h"
#include "api/breakers.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "template/chat_form.h"

static int random_seed(uint64_t *out, pi_error *err)
{
    ssize_t n;
    do n = getrandom(out, sizeof *out, 0);
    while (n < 0 && errno == EINTR);
    return n == sizeof *out ? PI_OK : pi__fail(err, PI_EINTERNAL, "no random seed: %s", strerror(errno));
}

static int32_t clamp_i32(int64_t v) { return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t) v; }

/* Checks that at least one token is allowed. no_end: end-of-generation tokens do not count; they are forbidden, at
 * least at first. */
static int check_some_allowed(const pi__vocab *v, const pi__sampling *p, bool no_end, pi_error *err)
{
    int32_t n_vocab = pi__vocab_size(v);
    size_t n_forbidden = 0;
    for (size_t i = 0; i < p->n_bias; i++) n_forbidden += isinf(p->bias[i].bias) != 0;
    if (n_forbidden < (size_t) n_vocab / 2) return PI_OK; /* fast path: there are only a few end-of-generation tokens */
    uint8_t *forbidden = pi__calloc((size_t) n_vocab, 1);
    if (!forbidden) return pi__fail_mem(err, "logit biases");
    for (size_t i = 0; i < p->n_bias; i++) forbidden[p->bias[i].id] |= isinf(p->bias[i].bias) != 0;
    int32_t id = 0;
    while (id < n_vocab && (forbidden[id] || (no_end && pi__vocab_is_eog(v, id)))) id++;
    pi__free(forbidden);
    if (id < n_vocab) return PI_OK;
    return pi__fail(err, PI_EINVAL, "logit-bias forbids every token%s", no_end
                    ? " except ends of generation, which ignore-eos"
                    " or min-tokens forbid" : ": leave at least one");
}

static int logit_biases(const pi__opt_set *s, int32_t n_vocab, pi__sampling *p, pi_error *err)
{
    const pi__opt_list *l = pi__opt_list_of(s, PI__OPT_LOGIT_BIAS);
    if (!l->n) return PI_OK;
    pi__logit_bias *b = pi__calloc(l->n, sizeof *b);
    if (!b) return pi__fail_mem(err, "logit biases");
    p->bias = b;
    p->n_bias = l->n;
    for (size_t i = 0; i < l->n; i++) {
        double bias;
        if (!pi__parse_logit_bias(l->item[i], &b[i].id, &bias) || b[i].id >= n_vocab) {
            return pi__fail(err, PI_EINVAL, "logit-bias: '%.60s': token ids go from 0 to %d", l->item[i], n_vocab - 1);
        }
        b[i].bias = (float) bias;
    }
    return PI_OK;
}

static int stop_tokens(const pi__opt_set *s, int32_t n_vocab, pi__gen_params *p, pi_error *err)
{
    const pi__opt_list *l = pi__opt_list_of(s, PI__OPT_STOP_TOKEN);
    if (!l->n) return PI_OK;
    int32_t *ids = pi__calloc(l->n, sizeof *ids);
    if (!ids) return pi__fail_mem(err, "stop tokens");
    p->stop_ids = ids;
    p->n_stop_ids = l->n;
    for (size_t i = 0; i < l->n; i++) {
        int64_t v = -1;
        if (!pi__parse_int(l->item[i], false, &v) || v < 0 || v >= n_vocab) {
            return pi__fail(err, PI_EINVAL, "stop-token: '%.60s': token ids go from 0 to %d", l->item[i], n_vocab - 1);
        }
        ids[i] = (int32_t) v;
    }
    return PI_OK;
}

enum { MAX_BAD = 65536 }; /* maximum entries for all bad words */

/* Appends the tokens of a bad word to *all. space 0: the word as given. space 1: the word after a space, added only
 * if it begins with another token and has the same number of tokens. */
static int bad_word(const pi__vocab *v, const char *word, int space, pi__ids *as_it_is, pi__ids *all, pi_error *err)
{
    char text[1024];
    pi__ids ids = {0};
    while (*word == ' ') word++;
    const int n = snprintf(text, sizeof text, "%s%s", space ? " " : "", word);
    if (!*word || n >= (int) sizeof text)
        return pi__fail(err, PI_EINVAL, "bad-words: '%.60s': give 1 to %zu bytes, not counting leading spaces",
                        word, sizeof text - 2);
    int rc = pi__tokenize(v, text, (size_t) n, false, false, &ids);
    const bool other = !space || (ids.n == as_it_is->n && ids.n && ids.p[0] != as_it_is->p[0]);
    if (!rc && all->n + ids.n + 1 > MAX_BAD) rc = pi__fail(err, PI_ETOOBIG, "bad-words: too many: give fewer");
    if (!rc && ids.n && other) {
        if (!pi__grow(&all->p, &all->cap, all->n + ids.n + 1, sizeof *all->p)) rc = PI_ENOMEM;
        for (size_t i = 0; i < ids.n && !rc; i++) all->p[all->n++] = ids.p[i];
        if (!rc) all->p[all->n++] = -1;
    }
    if (rc == PI_ENOMEM) pi__fail_mem(err, "bad words");
    if (space) pi__free(ids.p);
    else *as_it_is = ids;
    return rc;
}

static int bad_words(const pi__opt_set *s, const pi__vocab *v, pi__gen_params *p, pi_error *err)
{
    const pi__opt_list *l = pi__opt_list_of(s, PI__OPT_BAD_WORDS);
    pi__ids all = {0};
    int rc = PI_OK;
    for (size_t i = 0; i < l->n && !rc; i++) {
        pi__ids ids = {0};
        for (int space = 0; space < 2 && !rc; space++) rc = bad_word(v, l->item[i], space, &ids, &all, err);
        pi__free(ids.p);
    }
    p->bad = all.p;
    p->n_bad = all.n;
    return rc;
}

static int sampling_of(pi_request *r, pi__sampling *p, pi_error *err)
{
    const pi__opt_set *s = &r->set;
    p->temp = (float) pi__opt_float(s, PI__OPT_TEMP);
    p->dynatemp_range = (float) pi__opt_float(s, PI__OPT_DYNATEMP_RANGE);
    p->dynatemp_exponent = (float) pi__opt_float(s, PI__OPT_DYNATEMP_EXP);
    p->mirostat = clamp_i32(pi__opt_int(s, PI__OPT_MIROSTAT));
    p->mirostat_tau = (float) pi__opt_float(s, PI__OPT_MIROSTAT_ENT);
    p->mirostat_eta = (float) pi__opt_float(s, PI__OPT_MIROSTAT_LR);
    p->adaptive_target = (float) pi__opt_float(s, PI__OPT_ADAPTIVE_TARGET);
    p->adaptive_decay = (float) pi__opt_float(s, PI__OPT_ADAPTIVE_DECAY);
    p->top_k = clamp_i32(pi__opt_int(s, PI__OPT_TOP_K));
    p->top_p = (float) pi__opt_float(s, PI__OPT_TOP_P);
    p->min_p = (float) pi__opt_float(s, PI__OPT_MIN_P);
    p->typical_p = (float) pi__opt_float(s, PI__OPT_TYPICAL);
    p->top_n_sigma = (float) pi__opt_float(s, PI__OPT_TOP_N_SIGMA);
    p->repeat_penalty = (float) pi__opt_float(s, PI__OPT_REPEAT_PENALTY);
    p->presence_penalty = (float) pi__opt_float(s, PI__OPT_PRESENCE_PENALTY);
    p->frequency_penalty = (float) pi__opt_float(s, PI__OPT_FREQUENCY_PENALTY);
    p->repeat_last_n = clamp_i32(pi__opt_int(s, PI__OPT_REPEAT_LAST_N));
    p->dry_multiplier = (float) pi__opt_float(s, PI__OPT_DRY_MULTIPLIER);
    p->dry_base = (float) pi__opt_float(s, PI__OPT_DRY_BASE);
    p->dry_allowed_length = clamp_i32(pi__opt_int(s, PI__OPT_DRY_ALLOWED_LENGTH));
    p->dry_penalty_last_n = clamp_i32(pi__opt_int(s, PI__OPT_DRY_PENALTY_LAST_N));
    p->xtc_probability = (float) pi__opt_float(s, PI__OPT_XTC_PROBABILITY);
    p->xtc_threshold = (float) pi__opt_float(s, PI__OPT_XTC_THRESHOLD);
    p->min_keep = clamp_i32(pi__opt_int(s, PI__OPT_MIN_KEEP));
    int64_t seed = pi__opt_int(s, PI__OPT_SEED);
    int rc = pi__parse_samplers(pi__opt_str(s, PI__OPT_SAMPLERS), p->chain, err);
    p->seed = (uint64_t) seed;
    if (!rc && seed == -1 && (p->temp > 0 || p->dynatemp_range > 0)) rc = random_seed(&p->seed, err);
    if (rc || p->dry_multiplier <= 0) return rc;
    rc = pi__breakers_get(r->e, pi__opt_list_of(s, PI__OPT_DRY_BREAKER), r->work, &r->breakers, err);
    if (rc) return rc;
    p->dry_breakers = r->breakers->seq;
    p->n_dry_breakers = r->breakers->n;
    return PI_OK;
}

pi__grammar_parts pi__call_parts(const pi__call_form *f)
{
    const bool free_text = f->trigger.p != NULL;
    return (pi__grammar_parts) {.form = {PI__GRAMMAR_GBNF, f->grammar.p, f->trigger.p, free_text ? f->thoughts : 0},
                                .lead = free_text ? NULL : f->lead.p, .start = free_text ? "behind" : NULL};
}

/* Compiles the call grammar. If no call is required and a tool's schema has an unsupported keyword, calls are not
 * constrained; the answer's parser still finds them. */
static int grammar_of_calls(pi_request *r, pi__gen_params *p, pi_error *err)
{
    const pi__grammar_parts parts = pi__call_parts(&r->calls);
    pi_error why = {0};
    int rc = pi__core_grammar(r->e->core, &parts, r->work, &p->grammar, &why);
    p->calls = !rc;
    if (rc && rc != PI_ENOMEM && !r->calls.required && !pi__work_code(r->work)) {
        pi__logf(&r->e->log, PI_LOG_DEBUG, "tool calls of this request are not constrained by a grammar: %s", why.msg);
        return PI_OK;
    }
    if (rc && err) *err = why;
    return rc;
}

/* Adds thoughts before the constrained content and calls instead of it, for an answer to a conversation. */
static void add_chat(const pi_request *r, pi__gen_params *p, pi__grammar_parts *parts)
{
    const pi__call_form *f = &r->calls;
    const bool opened = f->thoughts >= PI__THOUGHTS_OPEN, no_thoughts = p->limit_thoughts && !p->thought_budget;
    if (!no_thoughts || opened) parts->lead = f->lead.p;
    parts->before = f->before.p;
    parts->after = f->after.p;
    parts->calls = f->grammar.p;
    p->calls = f->grammar.p != NULL;
}

/* Compiles the constraint of the answer from at most one of its options. */
static int grammar_of(pi_request *r, pi__gen_params *p, pi_error *err)
{
    static const struct { enum pi__opt_id id; int kind; const char *name; } of[] = {
        {PI__OPT_JSON_SCHEMA, PI__GRAMMAR_SCHEMA, "json-schema"}, {PI__OPT_GRAMMAR, PI__GRAMMAR_GBNF, "grammar"},
        {PI__OPT_REGEX, PI__GRAMMAR_REGEX, "regex"}, {PI__OPT_CHOICE, PI__GRAMMAR_CHOICE, "choice"}};
    const char *trigger = pi__opt_str(&r->set, PI__OPT_GRAMMAR_TRIGGER), *name = NULL;
    pi__grammar_parts parts = {.form = {.trigger = trigger}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *text = pi__opt_str(&r->set, of[i].id);
        if (!*text) continue;
        if (name) return pi__fail(err, PI_EINVAL, "%s and %s: an answer has one constraint: give one of them", name,
                                  of[i].name);
        name = of[i].name;
        parts.form.kind = of[i].kind;
        parts.form.text = text;
    }
    if (!name && *trigger)
        return pi__fail(err, PI_EINVAL,
                        "grammar-trigger has no constraint to start: give grammar, json-schema, regex or choice");
    if (r->calls.grammar.p && (r->calls.required || !name)) return grammar_of_calls(r, p, err);
    if (name && !*trigger) add_chat(r, p, &parts);
    return name ? pi__core_grammar(r->e->core, &parts, r->work, &p->grammar, err) : PI_OK;
}

/* Returns a tenant's number. Two names with the same number share their rounds. */
static uint32_t tenant_of(const char *name)
{
    return *name ? (uint32_t) (pi__hash64(name, strlen(name), 0) % PI__TENANTS) : 0;
}

int pi__gen_params_of(pi_request *r, pi__gen_params *p, pi_error *err)
{
    const pi__opt_set *s = &r->set;
    const pi__vocab *v = pi__core_vocab(r->e->core);
    int32_t n_vocab = pi__vocab_size(v);
    int64_t max_tokens = pi__opt_int(s, PI__OPT_MAX_TOKENS);
    *p = (pi__gen_params) {
        .max_tokens = max_tokens < 0 ? -1 : clamp_i32(max_tokens),
        .min_tokens = clamp_i32(pi__opt_int(s, PI__OPT_MIN_TOKENS)),
        .limit_thoughts = pi__opt_int(s, PI__OPT_REASONING_BUDGET) >= 0,
        .thought_budget = clamp_i32(pi__opt_int(s, PI__OPT_REASONING_BUDGET)),
        .thought_message = pi__opt_str(s, PI__OPT_REASONING_MESSAGE),
        .ignore_eos = pi__opt_bool(s, PI__OPT_IGNORE_EOS),
        .no_stop = pi__opt_bool(s, PI__OPT_NO_STOP),
        .cache = pi__opt_bool(s, PI__OPT_CACHE),
        .salt = pi__opt_str(s, PI__OPT_CACHE_SALT),
        .n_logprobs = clamp_i32(pi__opt_int(s, PI__OPT_LOGPROBS)),
        .probs_drawn = pi__opt_int(s, PI__OPT_LOGPROBS_MODE) == 1, /* processed */
        /* indexed like the option's words */
        .logits = r->on_logits ? (int32_t) pi__opt_int(s, PI__OPT_LOGITS) : PI__LOGITS_NONE,
        .logits_from = clamp_i32(pi__opt_int(s, PI__OPT_LOGITS_FROM)),
        .priority = clamp_i32(pi__opt_int(s, PI__OPT_PRIORITY)),
        .tenant = tenant_of(pi__opt_str(s, PI__OPT_TENANT)),
        .deadline_ms = pi__opt_float(s, PI__OPT_TIMEOUT) * 1e3,
    };
    (void) pi__parse_drafters(pi__opt_str(s, PI__OPT_SPEC_TYPE), &p->spec, &(unsigned) {0});
    if (p->n_logprobs >= n_vocab) p->n_logprobs = n_vocab - 1;
    pi__breakers_put(r->e, r->breakers); /* from an earlier submit that was refused */
    r->breakers = NULL;
    int rc = sampling_of(r, &p->sampling, err);
    if (!rc) rc = logit_biases(s, n_vocab, &p->sampling, err);
    if (!rc) rc = check_some_allowed(v, &p->sampling, p->ignore_eos || p->min_tokens > 0, err);
    if (!rc) rc = stop_tokens(s, n_vocab, p, err);
    if (!rc) rc = bad_words(s, v, p, err);
    if (!rc) rc = pi__lora_asked(pi__opt_str(s, PI__OPT_LORA), p, err);
    if (!rc) rc = grammar_of(r, p, err);
    if (rc) pi__gen_params_free(p);
    return rc;
}

void pi__gen_params_free(pi__gen_params *p)
{
    pi__free((void *) p->sampling.bias);
    pi__free((void *) p->stop_ids);
    pi__free((void *) p->bad);
    pi__free((void *) p->lora);
    pi__grammar_release(p->grammar);
    p->sampling.bias = NULL;
    p->stop_ids = NULL;
    p->bad = NULL;
    p->lora = NULL;
    p->grammar = NULL;
}
