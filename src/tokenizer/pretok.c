/* Pre-tokenizers: the regular expressions that split text into words before byte-level BPE, by tokenizer.ggml.pre.
 *
 * A pre-tokenizer is a list of expressions. Each one splits every fragment of the previous one into its matches and the
 * gaps between them; the last one yields the words. An expression sees only its fragment: "end" and lookahead refer to
 * the fragment. White space is spelled out because PCRE2's \s includes U+180E, which the original tokenizers do not
 * treat as a space. No expression repeats a group that can backtrack, so matching needs no backtracking memory and
 * stays linear.
 *
 * Compiled once at load (with JIT code if PCRE2 has it). Match data is created per call: any number of threads. */
#include <string.h>

#include "base/regex.h"
#include "tokenizer/vocab_impl.h"

#define MAX_STAGES 6

struct pi__pretok {
    pi__regex *stage[MAX_STAGES]; /* NULL after the last */
};

/* ------------------------------------------------------------------------------------------------------ expressions */

/* White space, letters, marks, numbers, punctuation and symbols, for use inside a class. They are long and occur in
 * most expressions, so an expression has one byte for each; compiling inserts the text. */
#define WS "\1"
#define L "\2"
#define M "\3"
#define N "\4"
#define P "\5"
#define S "\6"
/* Additions of Unicode 15 and 16 are spelled out, so that words do not depend on the version of PCRE2's tables. */
static const char *const classes[] = {
    NULL,
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}",
    "\\p{L}\\x{1123f}\\x{11240}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}\\x{1342f}"
        "\\x{13441}-\\x{13446}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}"
        "\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}",
    "\\p{M}\\x{cf3}\\x{ece}\\x{10efd}-\\x{10eff}\\x{11241}\\x{11f00}\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}"
        "\\x{11f3e}-\\x{11f42}\\x{13440}\\x{13447}-\\x{13455}\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}",
    "\\p{N}\\x{11f50}-\\x{11f59}\\x{1d2c0}-\\x{1d2d3}\\x{1e4f0}-\\x{1e4f9}",
    "\\p{P}\\x{11b00}-\\x{11b09}\\x{11f43}-\\x{11f4f}",
    "\\p{S}\\x{2ffc}-\\x{2fff}\\x{31ef}\\x{1f6dc}\\x{1f774}-\\x{1f776}\\x{1f77b}-\\x{1f77f}\\x{1f7d9}"
        "\\x{1fa75}-\\x{1fa77}\\x{1fa87}\\x{1fa88}\\x{1faad}-\\x{1faaf}\\x{1fabb}-\\x{1fabd}\\x{1fabf}\\x{1face}"
        "\\x{1facf}\\x{1fada}\\x{1fadb}\\x{1fae8}\\x{1faf7}\\x{1faf8}",
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

#define SPACES "[" WS "]+(?![^" WS "])|[" WS "]+"
#define NEWLINES "[" WS "]*[\\r\\n]+"
#define ABBREV "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define WORD "[^\\r\\n" L N "]?[" L "]+"
#define OTHER " ?[^" WS L N "]+"
#define DIGITS3 "[" N "]{1,3}"

#define GPT2 "'(?:[stmd]|re|ve|ll)| ?[" L "]+| ?[" N "]+|" OTHER "|" SPACES
#define LLAMA3 ABBREV "|" WORD "|" DIGITS3 "|" OTHER "[\\r\\n]*|" NEWLINES "|" SPACES
#define QWEN2 ABBREV "|" UFAKZEKA
#define QWEN35 ABBREV "|[^\\r\\n" L N "]?[" L M "]+|[" N "]| ?[^" WS L M N "]+[\\r\\n]*|" NEWLINES "|" SPACES
#define UFAKZEKA WORD "|[" N "]|" OTHER "[\\r\\n]*|" NEWLINES "|" SPACES
#define MINICPM5 ABBREV "|" WORD "|[" N "]+|" OTHER "[\\r\\n]*|" NEWLINES "|" SPACES
#define BAILING ABBREV "|" WORD "|[" N "]|" OTHER "[\\r\\n]*|[" WS "]*[\\r\\n]|" SPACES
#define SEED ABBREV "|" WORD "|[" N "]| ?[^" WS L N "\\r\\n]+|" NEWLINES "|" SPACES
#define RUN(n) "[" WS "]{" n "}(?![^" WS "])|"
#define JAIS2 ABBREV "|" WORD "|" DIGITS3 "|" OTHER "[\\r\\n]*|" NEWLINES "|" RUN("512") RUN("256") RUN("128") \
    RUN("64") RUN("32") RUN("16") RUN("8") RUN("4") RUN("1,2") "[" WS "]"

/* Letters except a-z, letters except A-Z: these models' approximation of upper and lower case. (A negated class cannot
 * include the newest letters.) */
#define UPPER "[^\\P{L}a-z]"
#define LOWER "[^\\P{L}A-Z]"
#define CASED(end) "[^\\r\\n" L N "]?" UPPER "*" LOWER "+" end "|[^\\r\\n" L N "]?" UPPER "+" LOWER "*" end
#define GPT4O CASED("(?:" ABBREV ")?") "|" DIGITS3 "|" OTHER "[\\r\\n/]*|" NEWLINES "|" SPACES
#define TEKKEN CASED("") "|[" N "]|" OTHER "[\\r\\n/]*|" NEWLINES "|" SPACES

#define MARKED_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n" L P S "]?[" L M "]+"
#define DEEPSEEK3 MARKED_WORD "| ?[" P S "]+[\\r\\n]*|" NEWLINES "|" SPACES
#define SPARK MARKED_WORD "| ?[" P S "]+|[\\r\\n]|" SPACES
/* Words with single spaces between them; the repeated group is possessive. */
#define EXAONE_MOE ABBREV "|[^\\r\\n" L N "]?[" L "](?:[" M "]| ?[" L "])*+|[" N "]|" OTHER "[\\r\\n/]?|" \
    "[" WS "]*[\\r\\n]|" SPACES
#define UPPERS "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWERS "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define TRUE_CASED "[^\\r\\n" L N "]?[" UPPERS "]*[" LOWERS "]+(?:" ABBREV ")?" \
    "|[^\\r\\n" L N "]?[" UPPERS "]+[" LOWERS "]*(?:" ABBREV ")?"
/* Script Han of Unicode 15.1 (in newer versions of PCRE2, \p{Han} also matches characters that other scripts share with
 * Han). Then UPPERS and LOWERS without Han, written as complements of everything else. */
#define HAN "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}" \
    "\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}" \
    "\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}" \
    "\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}" \
    "\\x{31350}-\\x{323af}"
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN
#define KIMI_UPPER "[^\\p{Ll}" NO_LETTER "]"
#define KIMI_LOWER "[^\\p{Lu}\\p{Lt}" NO_LETTER "]"
/* As in the model's own tokenizer; llama.cpp ignores case here. */
#define KIMI                                                                                                           \
    "[" HAN "]+|[^\\r\\n" L N "]?" KIMI_UPPER "*" KIMI_LOWER "+(?:" ABBREV ")?"                                        \
    "|[^\\r\\n" L N "]?" KIMI_UPPER "+" KIMI_LOWER "*(?:" ABBREV ")?|" DIGITS3 "|" OTHER "[\\r\\n]*|" NEWLINES         \
    "|" SPACES
#define YOUTU_ASIA "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|" \
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}" \
    "\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" KANA_HAN
#define YOUTU TRUE_CASED "|[" N "]|" OTHER "[\\r\\n/]*|" NEWLINES "|" SPACES
#define AFMOE_ASIA "[\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}\\x{1000}-\\x{109f}\\x{1100}-\\x{11ff}\\x{1780}-\\x{17ff}" \
    "\\x{2f00}-\\x{2fdf}\\x{3040}-\\x{30ff}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{faff}\\x{ff65}-\\x{ff9f}]+"
#define KANA_HAN "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
/* U+0800..U+9FA5 and U+AC00..U+D7FF, except white space */
#define EAST_ASIA "[\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
#define CASED_LETTERS \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}" \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}" \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}" \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}" \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}" \
    "\\x{1e900}-\\x{1e943}"
#define WIDE_PUNCT "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3001}\\x{3002}"
/* White space at the fragment's end. The lookbehind lets a run match only from its first space: linear time. */
#define TAIL "(?<![" WS "])[" WS "]++\\z"
#define PUNCT_WORDS " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

enum set {
    SET_DEFAULT,
    SET_GPT2,
    SET_DIGIT_GPT2,
    SET_FALCON,
    SET_LLAMA3,
    SET_QWEN2,
    SET_QWEN35,
    SET_DEEPSEEK_LLM,
    SET_DEEPSEEK_CODER,
    SET_DEEPSEEK3,
    SET_GPT4O,
    SET_TEKKEN,
    SET_JAIS2,
    SET_BAILING,
    SET_SEED,
    SET_UFAKZEKA,
    SET_MINICPM5,
    SET_POINTS,
    SET_POINTS_DIGIT,
    SET_LINES_QWEN2,
    SET_SPARK,
    SET_CHAMELEON,
    SET_EXAONE_MOE,
    SET_YOUTU,
    SET_KIMI,
    SET_AFMOE
};

static const char *const sets[][MAX_STAGES] = {
    [SET_DEFAULT] = {"[" P "$+<=>^~|]+", GPT2, "[" N "]+", "[0-9][0-9][0-9]"},
    [SET_GPT2] = {GPT2},
    [SET_DIGIT_GPT2] = {"[" N "]", GPT2},
    [SET_FALCON] = {"[" P "$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"},
    [SET_LLAMA3] = {LLAMA3},
    [SET_QWEN2] = {QWEN2},
    [SET_QWEN35] = {QWEN35},
    [SET_DEEPSEEK_LLM] = {"[\\r\\n]", "[" WS "]?[" CASED_LETTERS "]+", "[" WS "]?[" WIDE_PUNCT "]+", TAIL, EAST_ASIA,
                          "[" N "]+"},
    [SET_DEEPSEEK_CODER] = {"[\\r\\n]", "[" WS "]?[" L "]+", "[" WS "]?[" P "]+", EAST_ASIA, "[" N "]"},
    [SET_DEEPSEEK3] = {DIGITS3, KANA_HAN, DEEPSEEK3},
    [SET_GPT4O] = {GPT4O},
    [SET_TEKKEN] = {TEKKEN},
    [SET_JAIS2] = {JAIS2},
    [SET_BAILING] = {BAILING},
    [SET_SEED] = {SEED},
    [SET_UFAKZEKA] = {UFAKZEKA},
    [SET_MINICPM5] = {DIGITS3, MINICPM5},
    [SET_POINTS] = {PUNCT_WORDS},
    [SET_POINTS_DIGIT] = {PUNCT_WORDS, "[" N "]"},
    [SET_LINES_QWEN2] = {"[^\\n]+|\\n+", QWEN2},
    [SET_SPARK] = {DIGITS3, KANA_HAN, SPARK, "[" N "]"},
    [SET_CHAMELEON] = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "[" N "]",
                       "[" P "!-/:-@\\[-`{-~]", GPT2},
    [SET_EXAONE_MOE] = {EXAONE_MOE},
    [SET_YOUTU] = {YOUTU_ASIA, YOUTU},
    [SET_KIMI] = {KIMI},
    /* runs of digits, then groups of three digits from the right */
    [SET_AFMOE] = {"[" N "]+", "^[" N "]{1,2}(?=(?:[" N "]{3})*+$)|[" N "]{3}", AFMOE_ASIA, DEEPSEEK3},
};

#define MERGES_LAST {.ignore_merges = true}
#define MERGES_LAST_BOS {.ignore_merges = true, .add_bos = true}
#define PAIRS {.add_sep = true}

static const struct pre {
    const char *name;
    enum set set;
    pi__pre_rules rules;
} pres[] = {
    {"default", SET_DEFAULT, {0}},
    {"gpt-2", SET_GPT2, {0}},
    {"phi-2", SET_GPT2, {0}},
    {"gigachat", SET_GPT2, {0}},
    {"a.x-4.0", SET_GPT2, {0}},
    {"mellum", SET_GPT2, {0}},
    {"mpt", SET_GPT2, {0}},
    {"olmo", SET_GPT2, {0}},
    {"jais", SET_GPT2, {0}},
    {"trillion", SET_GPT2, {0}},
    {"granite-docling", SET_GPT2, {0}},
    {"exaone4", SET_GPT2, {0}},
    {"modern-bert", SET_GPT2, {0}},
    {"jina-v1-en", SET_GPT2, PAIRS},
    {"jina-v2-code", SET_GPT2, PAIRS},
    {"roberta-bpe", SET_GPT2, PAIRS},
    {"jina-es", SET_GPT2, {0}},
    {"jina-de", SET_GPT2, {0}},
    {"jina-v2-es", SET_GPT2, {0}},
    {"jina-v2-de", SET_GPT2, {0}},
    {"starcoder", SET_DIGIT_GPT2, {0}},
    {"refact", SET_DIGIT_GPT2, {0}},
    {"command-r", SET_DIGIT_GPT2, {0}},
    {"smollm", SET_DIGIT_GPT2, {0}},
    {"codeshell", SET_DIGIT_GPT2, {0}},
    {"exaone", SET_DIGIT_GPT2, {0}},
    {"minerva-7b", SET_DIGIT_GPT2, {0}},
    {"mellum2", SET_DIGIT_GPT2, {0}},
    {"falcon", SET_FALCON, {0}},
    {"llama3", SET_LLAMA3, MERGES_LAST_BOS},
    {"llama-v3", SET_LLAMA3, MERGES_LAST_BOS},
    {"llama-bpe", SET_LLAMA3, MERGES_LAST_BOS},
    {"falcon3", SET_LLAMA3, MERGES_LAST_BOS},
    {"falcon-h1", SET_LLAMA3, MERGES_LAST_BOS},
    {"pixtral", SET_LLAMA3, MERGES_LAST_BOS},
    {"midm-2.0", SET_LLAMA3, MERGES_LAST_BOS},
    {"lfm2", SET_LLAMA3, MERGES_LAST_BOS},
    {"jina-v5-nano", SET_LLAMA3, MERGES_LAST_BOS},
    {"dbrx", SET_LLAMA3, {0}},
    {"smaug-bpe", SET_LLAMA3, {0}},
    {"chatglm-bpe", SET_LLAMA3, {0}},
    {"glm4", SET_LLAMA3, MERGES_LAST},
    {"glm5", SET_LLAMA3, MERGES_LAST},
    {"qwen2", SET_QWEN2, {0}},
    {"deepseek-r1-qwen", SET_QWEN2, {0}},
    {"kormo", SET_QWEN2, {0}},
    {"f2llmv2", SET_QWEN2, {0}},
    {"megrez", SET_QWEN2, {0}},
    {"stablelm2", SET_QWEN2, {0}},
    {"hunyuan", SET_QWEN2, {0}},
    {"solar-open", SET_QWEN2, {0}},
    {"grok-2", SET_QWEN2, {0}},
    {"qwen35", SET_QWEN35, {0}},
    {"laguna", SET_LINES_QWEN2, {0}},
    {"deepseek-llm", SET_DEEPSEEK_LLM, {0}},
    {"deepseek-coder", SET_DEEPSEEK_CODER, {0}},
    {"deepseek-v3", SET_DEEPSEEK3, {0}},
    {"joyai-llm", SET_DEEPSEEK3, {0}},
    {"hunyuan-dense", SET_DEEPSEEK3, {0}},
    {"hy_v4", SET_DEEPSEEK3, {0}},
    {"gpt-4o", SET_GPT4O, {0}},
    {"llama4", SET_GPT4O, {0}},
    {"kanana2", SET_GPT4O, {0}},
    {"talkie", SET_GPT4O, {0}},
    {"minimax-m2", SET_GPT4O, {0}},
    {"tekken", SET_TEKKEN, MERGES_LAST_BOS},
    {"jais-2", SET_JAIS2, {0}},
    {"bailingmoe", SET_BAILING, {0}},
    {"bailingmoe2", SET_BAILING, {0}},
    {"llada-moe", SET_BAILING, {0}},
    {"seed-coder", SET_SEED, {0}},
    {"ufakzeka", SET_UFAKZEKA, {0}},
    {"minicpm5", SET_MINICPM5, MERGES_LAST},
    {"poro-chat", SET_POINTS, {0}},
    {"bloom", SET_POINTS, {0}},
    {"gpt3-finnish", SET_POINTS, {0}},
    {"viking", SET_POINTS_DIGIT, {0}},
    {"spark2_5", SET_SPARK, {0}},
    {"chameleon", SET_CHAMELEON, {.add_bos = true}},
    {"exaone-moe", SET_EXAONE_MOE, {0}},
    {"youtu", SET_YOUTU, MERGES_LAST},
    {"kimi-k2", SET_KIMI, {0}},
    {"afmoe", SET_AFMOE, {0}},
};

/* ---------------------------------------------------------------------------------------------------------- compile */

static const struct pre *find_pre(pi__str name)
{
    if (!name.p) return &pres[0];
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (strlen(pres[i].name) == name.n && !memcmp(pres[i].name, name.p, name.n)) return &pres[i];
    return NULL;
}

/* Returns the expression with its classes inserted, on the heap; NULL if out of memory. */
static char *expand(const char *expr)
{
    size_t n = 1;
    for (const char *e = expr; *e; e++) n += *e > 0 && *e < N_CLASSES ? strlen(classes[(int) *e]) : 1;
    char *text = pi__malloc(n), *to = text;
    for (const char *e = expr; text && *e; e++) {
        bool class = *e > 0 && *e < N_CLASSES;
        size_t len = class ? strlen(classes[(int) *e]) : 1;
        memcpy(to, class ? classes[(int) *e] : e, len);
        to += len;
    }
    if (text) *to = 0;
    return text;
}

/* Compiles one stage. */
static int compile(pi__regex **out, const struct pre *pre, const char *expr, pi_error *err)
{
    char why[PI__REGEX_ERROR], *text = expand(expr);
    if (!text) return pi__fail_mem(err, "the pre-tokenizer");
    int rc = pi__regex_compile(out, text, strlen(text), true, why);
    pi__free(text);
    if (rc == PI_ENOMEM) return pi__fail_mem(err, "the pre-tokenizer");
    return rc ? pi__fail(err, PI_EINTERNAL, "pre-tokenizer '%s': %s", pre->name, why) : PI_OK;
}

int pi__pretok_new(pi__pretok **out, pi__str name, pi__pre_rules *rules, pi_error *err)
{
    const struct pre *pre = find_pre(name);
    if (!pre) {
        return pi__fail(err, PI_EUNSUPPORTED, "tokenizer.ggml.pre: the pre-tokenizer '%.*s' is not supported",
                        (int) (name.n < 64 ? name.n : 64), name.p);
    }
    *rules = pre->rules;
    pi__pretok *p = pi__calloc(1, sizeof *p);
    if (!p) return pi__fail_mem(err, "the pre-tokenizer");
    const char *const *exprs = sets[pre->set];
    int rc = PI_OK;
    for (int i = 0; i < MAX_STAGES && exprs[i] && !rc; i++) rc = compile(&p->stage[i], pre, exprs[i], err);
    if (rc) {
        pi__pretok_free(p);
        return rc;
    }
    *out = p;
    return PI_OK;
}

void pi__pretok_free(pi__pretok *p)
{
    if (!p) return;
    for (int i = 0; i < MAX_STAGES; i++) pi__regex_free(p->stage[i]);
    pi__free(p);
}

/* ------------------------------------------------------------------------------------------------------------ split */

typedef struct split {
    const pi__pretok *p;
    pi__regex_scratch *scratch;
    pi__word_fn fn;
    void *ud;
} split;

static int run_stage(const split *s, int stage, const char *text, size_t n)
{
    if (stage == MAX_STAGES || !s->p->stage[stage]) return s->fn(s->ud, text, n);
    int rc = PI_OK;
    for (size_t done = 0; done < n;) {
        size_t from = done, to = n;
        int found = pi__regex_find(s->p->stage[stage], s->scratch, text, n, &from, &to);
        if (found < 0) return found;
        if (!found || to <= from) /* no expression matches the empty text; guard against a loop */
            return run_stage(s, stage + 1, text + done, n - done);
        if (from > done) rc = run_stage(s, stage + 1, text + done, from - done);
        if (!rc) rc = run_stage(s, stage + 1, text + from, to - from);
        if (rc) return rc;
        done = to;
    }
    return rc;
}

int pi__pretok_split(const pi__pretok *p, const char *text, size_t n, pi__word_fn fn, void *ud)
{
    if (!n) return PI_OK;
    split s = {p, pi__regex_scratch_new(), fn, ud};
    if (!s.scratch) return PI_ENOMEM;
    int rc = run_stage(&s, 0, text, n);
    pi__regex_scratch_free(s.scratch);
    return rc;
}
