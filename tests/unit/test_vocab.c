/* Vocabularies: tokenization by each kind, special tokens, detokenization, streamed UTF-8, errors of bad metadata,
 * and each allocation failed in turn. check_tokenizers.py compares real vocabularies. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "tokenizer/infill.h"
#include "vocab_seed.h"

static pi__vocab *load(const seed *s)
{
    pi_error err = {0};
    pi__vocab *v;
    if (seed_load(s, &v, &err)) fail_msg("refused: %s", err.msg);
    return v;
}

enum { ADD = 1, SPECIAL = 2 };

/* The ids of text are the tokens spelled in `want`, separated by '|'. */
static void expect_n(const pi__vocab *v, const char *text, size_t n, int flags, const char *want)
{
    pi__ids ids = {0};
    assert_int_equal(pi__tokenize(v, text, n, flags & ADD, flags & SPECIAL, &ids), PI_OK);
    char got[4096] = "";
    for (size_t i = 0; i < ids.n; i++) {
        pi__str s = pi__vocab_spelling(v, ids.p[i]);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? " " : "", (int) s.n, s.p);
    }
    assert_string_equal(got, want);
    pi__free(ids.p);
}

static void expect(const pi__vocab *v, const char *text, int flags, const char *want)
{
    expect_n(v, text, strlen(text), flags, want);
}

static void expect_text(const pi__vocab *v, const int32_t *ids, size_t n, bool special, const char *want)
{
    char *out;
    size_t len;
    assert_int_equal(pi__detokenize(v, ids, n, special, &out, &len), PI_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(out, want, len);
    pi__free(out);
}

/* Tokenizing and detokenizing the text gives `want`. */
static void round_trip(const pi__vocab *v, const char *text, size_t n, int flags, const char *want, size_t n_want)
{
    pi__ids ids = {0};
    char *out;
    size_t len;
    assert_int_equal(pi__tokenize(v, text, n, flags & ADD, flags & SPECIAL, &ids), PI_OK);
    assert_int_equal(pi__detokenize(v, ids.p, ids.n, false, &out, &len), PI_OK);
    assert_int_equal(len, n_want);
    assert_memory_equal(out, want, n_want);
    pi__free(out);
    pi__free(ids.p);
}

/* --------------------------------------------------------------------------------------------------- SentencePiece */

static void test_spm(void **state)
{
    (void) state;
    seed s;
    seed_spm(&s);
    pi__vocab *v = load(&s);
    expect(v, "", 0, "");
    expect(v, "", ADD, "<s>");
    expect(v, "hello", 0, SP "hello");
    expect(v, "hello", ADD, "<s> " SP "hello");
    expect(v, " hello", 0, SP " " SP "hello");
    expect(v, "hellohello", 0, SP "hello hello");
    expect(v, "hello hello  he", 0, SP "hello " SP "hello " SP SP " he");
    expect(v, "abc", 0, SP " a bc");                   /* bc has the higher score, although ab comes first */
    expect(v, "aaa", 0, SP " aa a");                   /* equal scores: leftmost */
    expect(v, "aaaaa", 0, SP " aa aa a");
    expect(v, "\xC3\xA9", 0, SP " <0xC3> <0xA9>");     /* no piece: its bytes */
    /* the first byte announces four bytes */
    expect(v, "a\xFF" "bcdef", 0, SP " a <0xFF> <0x62> <0x63> <0x64> e <0x66>");
    expect(v, "a\x80" "b\xE2\x96", 0, SP " a <0x80> b <0xE2> <0x96>");
    expect(v, "\n", 0, SP " <0x0A>");
    expect_n(v, "a\0b", 3, 0, SP " a <0x00> b");
    round_trip(v, " he  llo\n\xC3\xA9 x ", 13, ADD, " he  llo\n\xC3\xA9 x ", 13);
    pi__vocab_free(v);

    seed_extra(&s, "tokenizer.ggml.add_space_prefix", PI__GGUF_BOOL, 0);
    seed_extra(&s, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, 0);
    seed_extra(&s, "tokenizer.ggml.add_eos_token", PI__GGUF_BOOL, 1);
    v = load(&s);
    expect(v, "hello hello", ADD, "hello " SP "hello </s>");
    assert_false(pi__vocab_add_bos(v));
    round_trip(v, " hello", 6, 0, " hello", 6);
    pi__vocab_free(v);
}

static void test_spm_special(void **state)
{
    (void) state;
    seed s;
    seed_spm(&s);
    pi__vocab *v = load(&s);
    expect(v, "hello<t>hello", 0, SP "hello <t> " SP "hello"); /* a prefix after each special token */
    expect(v, "<t><t><t>a", 0, "<t><t> <t> " SP " a");         /* longest first */
    expect(v, "<t<t><t>", 0, SP " <0x3C> <0x74> <t><t>");
    expect(v, "<|end|>", SPECIAL, "<|end|>");
    expect(v, "a<s>b</s>", SPECIAL, SP " a <s> " SP " b </s>");
    expect(v, "<s>", 0, SP " <0x3C> <0x73> <0x3E>");           /* control tokens only on request */
    expect(v, "<unused0>", SPECIAL, SP " <0x3C> <0x75> <0x6E> <0x75> <0x73> e <0x64> <0x30> <0x3E>");
    assert_true(pi__vocab_is_eog(v, 2));
    assert_true(pi__vocab_is_eog(v, pi__vocab_find(v, "<|end|>", 7)));
    assert_false(pi__vocab_is_eog(v, 1));
    assert_false(pi__vocab_is_eog(v, -1));
    assert_false(pi__vocab_is_eog(v, pi__vocab_size(v)));
    assert_int_equal(pi__vocab_eot(v), pi__vocab_find(v, "<|end|>", 7));
    assert_int_equal(pi__vocab_bos(v), 1);
    assert_int_equal(pi__vocab_eos(v), 2);
    assert_int_equal(pi__vocab_attr(v, 0), PI__TOK_UNKNOWN);
    assert_int_equal(pi__vocab_find(v, "<0x0A>", 6), 3 + 10);
    assert_int_equal(pi__vocab_find(v, "nothing", 7), -1);
    assert_int_equal(pi__vocab_find(v, "", 0), -1);
    int32_t hello = pi__vocab_find(v, SP "hello", 8), t = pi__vocab_find(v, "<t>", 3);
    const int32_t ids[] = {1, hello, hello, 3 + 0xC3, 3 + 0xA9, t, 2};
    expect_text(v, ids, 7, false, "hello hello\xC3\xA9<t>");
    expect_text(v, ids, 7, true, "<s> hello hello\xC3\xA9<t></s>");
    expect_text(v, ids, 0, true, "");
    const int32_t wrong[] = {-1, 1 << 30, hello};
    expect_text(v, wrong, 3, true, "hello");
    pi__vocab_free(v);

    s.name = "A Phi-3 model"; /* drops white space after special tokens, with some exceptions */
    v = load(&s);
    expect(v, "<|end|> \n a", SPECIAL, "<|end|> " SP " a");
    expect(v, "<t> a<s> a", SPECIAL, "<t> " SP " a <s> " SP SP " a");
    expect(v, "<|end|>  <|end|> ", SPECIAL, "<|end|> <|end|>");
    pi__vocab_free(v);
}

/* -------------------------------------------------------------------------------------------------- byte-level BPE */

static void test_bpe(void **state)
{
    (void) state;
    seed s;
    seed_gpt2(&s);
    pi__vocab *v = load(&s);
    expect(v, "", ADD, ""); /* no BOS unless the file enables it */
    expect(v, "hello hello", 0, "hello \xC4\xA0hello");
    expect(v, "hellhe  hello", 0, "hell he \xC4\xA0 \xC4\xA0hello");
    expect(v, "aaaaa", 0, "aaaa a");
    expect(v, "aaaaaaa", 0, "aaaa aa a");
    expect(v, "\xC3\xA9", 0, "\xC3\x83\xC2\xA9");
    expect(v, "123", 0, "12 3");
    expect(v, "a\n", 0, "a \xC4\x8A");
    expect(v, "<think>hello<|im_end|>", 0, "<think> hello < | i m _ e n d | >");
    expect(v, "<think>hello<|im_end|>", SPECIAL, "<think> hello <|im_end|>");
    expect(v, "<|endoftext|>", 0, "< | e n d o f t e x t | >");
    expect(v, "<|endoftext|>", SPECIAL, "<|endoftext|>");
    assert_true(pi__vocab_is_eog(v, pi__vocab_find(v, "<|endoftext|>", 13)));
    assert_int_equal(pi__vocab_attr(v, pi__vocab_find(v, "<|endoftext|>", 13)), PI__TOK_CONTROL);
    assert_int_equal(pi__vocab_eot(v), pi__vocab_find(v, "<|im_end|>", 10));
    char out[4];
    assert_int_equal(pi__token_bytes(v, pi__vocab_find(v, "\xC4\xA0hello", 7), false, out, sizeof out), 6);
    assert_memory_equal(out, " hel", 4);
    assert_int_equal(pi__token_bytes(v, pi__vocab_find(v, "<|im_end|>", 10), false, out, sizeof out), 0);
    assert_int_equal(pi__token_bytes(v, pi__vocab_find(v, "<|im_end|>", 10), true, NULL, 0), 10);
    pi__vocab_free(v);

    s.pre = "llama-bpe"; /* words that are tokens need no merges; BOS by default */
    v = load(&s);
    expect(v, "123", ADD, "<|endoftext|> 123");
    expect(v, "1234", 0, "123 4");
    pi__vocab_free(v);
}

static void test_bpe_any_bytes(void **state)
{
    (void) state;
    seed s;
    seed_gpt2(&s);
    pi__vocab *v = load(&s);
    char all[0x800 * 2 + 0x20 * 3 + 4];
    size_t n = 0;
    for (uint32_t cp = 0; cp < 0x800; cp++) n += pi__utf8_put(cp, all + n);
    for (uint32_t cp = 0xFFE0; cp < 0x10000; cp++) n += pi__utf8_put(cp, all + n);
    n += pi__utf8_put(0x1F980, all + n);
    round_trip(v, all, n, 0, all, n);
    static const struct {
        const char *in, *out;
    } bad[] = {
        {"\xFF" "a\xC3", "\xEF\xBF\xBD" "a\xEF\xBF\xBD"},
        {"\xE2\x96x", "\xEF\xBF\xBD\xEF\xBF\xBDx"},            /* one per byte */
        {"\xC1\x81\xE0\x81\x81", "AA"},                        /* overlong forms are accepted */
        {"a\xED\xA0\x80" "b", "a\xED\xA0\x80" "b"},            /* a surrogate stays */
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF8\x88\x80\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        round_trip(v, bad[i].in, strlen(bad[i].in), 0, bad[i].out, strlen(bad[i].out));
    pi__vocab_free(v);
}

static char words[512];

static int note_word(void *ud, const char *word, size_t n)
{
    (void) ud;
    snprintf(words + strlen(words), sizeof words - strlen(words), "[%.*s]", (int) n, word);
    return PI_OK;
}

static void test_pretokenizers(void **state)
{
    (void) state;
    static const struct {
        const char *pre, *text, *want;
    } cases[] = {
        {"gpt-2", "I'll go  12345 x!?\n\n a\t", "[I]['ll][ go][ ][ 12345][ x][!?][\n\n][ a][\t]"},
        {"gpt-2", "I'LL", "[I]['][LL]"},
        {"jina-v2-code", "I'LL 12x", "[I]['][LL][ 12][x]"},
        {"gpt-2", "a\xE1\xA0\x8E" "b", "[a][\xE1\xA0\x8E][b]"}, /* U+180E is not a space */
        {"gpt-2", "e\xCC\x81", "[e][\xCC\x81]"},
        {"default", "a.b 1234", "[a][.][b][ ][123][4]"},
        {"falcon", "x=1234;", "[x][=][123][4][;]"},
        {"starcoder", "a12 b", "[a][1][2][ b]"},
        {"llama-bpe", "I'LL pay 12345 $x\r\n  \n y  ", "[I]['LL][ pay][ ][123][45][ $][x][\r\n  \n][ y][  ]"},
        {"llama-bpe", "'\xC5\xBF", "['\xC5\xBF]"}, /* long s is not s */
        {"llama-bpe", "a!!\n\nb  c", "[a][!!\n\n][b][ ][ c]"},
        {"qwen2", "a 12 e\xCC\x81", "[a][ ][1][2][ e][\xCC\x81]"},
        {"qwen35", "a 12 e\xCC\x81x !\n", "[a][ ][1][2][ e\xCC\x81x][ !\n]"},
        {"deepseek-llm", "a b\n\n 12 \xE4\xBD\xA0x  ", "[a][ b][\n][\n][ ][12][ ][\xE4\xBD\xA0][x][  ]"},
        {"deepseek-llm", "  \xE4\xBD\xA0!", "[  ][\xE4\xBD\xA0][!]"},
        {"deepseek-coder", "a b, 12\n", "[a][ b][,][ ][1][2][\n]"},
        {"deepseek-v3", "a1234 \xE4\xBD\xA0!x .\n  y", "[a][123][4][ ][\xE4\xBD\xA0][!x][ .\n][ ][ y]"},
        {"joyai-llm", "\xF0\x9F\xAB\xA8 a", "[\xF0\x9F\xAB\xA8][ a]"}, /* U+1FAE8, Unicode 15 */
        {"gpt-4o", "HTTPServer's don'T", "[HTTPServer's][ don'T]"},
        {"gpt-4o", "camelCase a/\n/b", "[camel][Case][ a][/\n/][b]"},
        {"tekken", "aB12", "[a][B][1][2]"},
        {"viking", "a,b 12", "[a][,][b][ ][1][2]"},
        {"smollm", "a12 don't\n", "[a][1][2][ don]['t][\n]"},
        {"spark2_5", "a1234 .\n\n!x", "[a][1][2][3][4][ .][\n][\n][!x]"},
        {"chameleon", "<sentinel:12>IMGIMGABZ a,  b", "[<][sentinel][:][1][2][>][IMGIMGABZ][ a][,][  ][b]"},
        {"exaone-moe", "one two 12\n\n", "[one two][ ][1][2][\n\n]"},
        {"youtu", "HTTPServer caf\xC3\xA9 \xE4\xBD\xA0\xE3\x80\x82 12", "[HTTPServer][ caf\xC3\xA9][ ][\xE4\xBD\xA0]"
                  "[\xE3\x80\x82][ ][1][2]"},
        {"afmoe", "a1234567 12 123\xE4\xBD\xA0 x", "[a][1][234][567][ ][12][ ][123][\xE4\xBD\xA0][ x]"},
        {"kimi-k2", "camelCase HTTPServer's 1234", "[camel][Case][ HTTPServer's][ ][123][4]"},
        /* letters end at the start of Han */
        {"kimi-k2", "caf\xC3\xA9\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82x \xE3\x81\xAE .\n\n",
         "[caf\xC3\xA9][\xE4\xBD\xA0\xE5\xA5\xBD][\xE3\x80\x82x][ \xE3\x81\xAE][ .\n\n]"},
        {"kimi-k2", "I'LL don't", "[I'LL][ don't]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pi__pretok *p;
        pi__pre_rules rules;
        pi_error err;
        pi__str name = {cases[i].pre, strlen(cases[i].pre)};
        assert_int_equal(pi__pretok_new(&p, name, &rules, &err), PI_OK);
        words[0] = 0;
        assert_int_equal(pi__pretok_split(p, cases[i].text, strlen(cases[i].text), note_word, NULL), PI_OK);
        assert_string_equal(words, cases[i].want);
        pi__pretok_free(p);
    }
}

/* Every pre-tokenizer in the table compiles, and its words joined together are the text. */
static void test_pretokenizers_cover(void **state)
{
    (void) state;
    static const char *const names[] = {"default", "gpt-2", "starcoder", "falcon", "llama3", "qwen2", "qwen35",
        "laguna", "deepseek-llm", "deepseek-coder", "deepseek-v3", "gpt-4o", "tekken", "jais-2", "bailingmoe",
        "seed-coder", "ufakzeka", "minicpm5", "bloom", "viking", "spark2_5", "chameleon", "exaone-moe", "youtu",
        "kimi-k2", "afmoe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        seed s;
        seed_gpt2(&s);
        s.pre = names[i];
        pi__vocab *v = load(&s);
        static const char text[] = "It's 12345 \xC3\x89t\xC3\xA9, \xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82  \r\n\t x!"
                                   "\xE2\x80\x83y\xF0\x9F\xA6\x99 ";
        round_trip(v, text, sizeof text - 1, 0, text, sizeof text - 1);
        pi__vocab_free(v);
    }
}

/* --------------------------------------------------------------------------------------------------------- Gemma 4 */

static void test_gemma4(void **state)
{
    (void) state;
    seed s;
    seed_gemma4(&s);
    pi__vocab *v = load(&s);
    assert_true(pi__vocab_add_bos(v)); /* although the file disables it */
    expect(v, "hello hello", ADD, "<bos> hello " SP "hello");
    expect(v, " hello     x", 0, SP "hello " SP SP SP SP " " SP " x");
    expect(v, "o x", 0, "o" SP " x");                           /* a merge across the space is not cut */
    expect(v, "x\n\n\nx\n\n\n\n", 0, "x \n\n\n x \n\n \n\n");   /* a run that is a token, and one that is not */
    expect(v, "\xC3\xA9\xE2\x82\xAC", 0, "\xC3\xA9 <0xE2> <0x82> <0xAC>");
    expect(v, "\xFFx", 0, "<0xEF> <0xBF> <0xBD> x");
    expect(v, "<|\"|>x<turn|></s>", SPECIAL, "<|\"|> x <turn|> <0x3C> <0x2F> <0x73> <0x3E>");
    expect(v, "<|tool_response>", 0, "<0x3C> <0x7C> <0x74> o o l <0x5F> <0x72> e <0x73> <0x70> o <0x6E> <0x73> e "
                                    "<0x3E>");
    static const struct {
        const char *text;
        bool eog;
    } ends[] = {{"<eos>", true}, {"<turn|>", true}, {"<|tool_response>", true}, {"</s>", false}, {"<bos>", false}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_int_equal(pi__vocab_is_eog(v, pi__vocab_find(v, ends[i].text, strlen(ends[i].text))), ends[i].eog);
    assert_int_equal(pi__vocab_attr(v, pi__vocab_find(v, "</s>", 4)), PI__TOK_NORMAL);
    static const char text[] = "  hello\n\n \xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99 x\t";
    round_trip(v, text, sizeof text - 1, ADD, text, sizeof text - 1);
    pi__vocab_free(v);
}

static void refused(const seed *s, int code, const char *part);

static void test_wpm(void **state)
{
    (void) state;
    seed s;
    seed_wpm(&s);
    pi__vocab *v = load(&s);
    expect(v, "Hello x's", ADD, "[CLS] " SP "hello " SP "x " SP "' " SP "s [SEP]");
    expect(v, "hellox hel", 0, SP "hello x " SP "he l");
    expect(v, "hexy x", 0, "[UNK] " SP "x");                    /* a complete word or [UNK] */
    expect(v, "x$x.", 0, SP "x " SP "$ " SP "x " SP ".");
    /* accents, composed or decomposed, and capitals */
    expect(v, "\xC3\x89 h\xC3\xA9llo e\xCC\x81", 0, SP "e " SP "hello " SP "e");
    expect(v, "x\xE4\xBD\xA0x", 0, SP "x " SP "\xE4\xBD\xA0 " SP "x");     /* a Chinese character is a word */
    expect(v, "\xEA\xB0\x80", 0, SP "\xE1\x84\x80 \xE1\x85\xA1");         /* a syllable is split into its letters */
    /* characters that are dropped */
    expect(v, "x\xE2\x80\x8Bx\x01\xEF\xBF\xBD\xFF\xED\xA0\x80\xC2\x85x", 0, SP "x x x");
    expect(v, " \t\n\r\xC2\xA0\xE3\x80\x80", 0, "");
    expect(v, "x<t>x [SEP]l", SPECIAL, SP "x <t> " SP "x [SEP] " SP "l");
    expect(v, "[CLS]", 0, "[UNK] [UNK] [UNK]");                 /* the brackets and the text between them */
    char word[128] = "";
    memset(word, 'x', 101);
    expect(v, word, 0, "[UNK]");
    pi__ids ids = {0};
    assert_int_equal(pi__tokenize(v, word, 100, false, false, &ids), PI_OK);
    assert_int_equal(ids.n, 100);
    pi__free(ids.p);
    static const char text[] = "hello x l";
    round_trip(v, text, sizeof text - 1, ADD, text, sizeof text - 1);
    assert_int_equal(pi__vocab_bos(v), 2);
    assert_int_equal(pi__vocab_eos(v), 3);
    pi__vocab_free(v);
    seed_extra(&s, "tokenizer.ggml.normalizer.lowercase", PI__GGUF_BOOL, 0);
    v = load(&s);
    expect(v, "Hello hello \xC3\xA9", 0, "[UNK] " SP "hello " SP "\xC3\xA9");
    pi__vocab_free(v);
}

static void test_ugm(void **state)
{
    (void) state;
    seed s;
    seed_ugm(&s);
    pi__vocab *v = load(&s);
    expect(v, "hello", ADD, "<s> " SP "he llo </s>");              /* -10, like hell + o, which come later */
    /* repeated spaces become one; trailing spaces are dropped */
    expect(v, "  a   ab ", 0, SP "a " SP "a b");
    expect(v, "Qb", 0, SP " abb");                                  /* by the map; -9, while a, b, b has -10 */
    expect(v, "a\xE6\x97\xA5\xE6\x97\xA5x\xFFl", 0, SP "a <unk> l"); /* adjacent unknown characters become one token */
    expect(v, "a<t>Q</s>", SPECIAL, SP "a <t> " SP "a b </s>");
    expect(v, " ", 0, "");
    static const char text[] = "ab l";
    round_trip(v, text, sizeof text - 1, ADD, text, sizeof text - 1);
    pi__vocab_free(v);
    s.charsmap[0] = 13; /* not a multiple of 4 */
    refused(&s, PI_EFORMAT, "precompiled_charsmap");
    s.charsmap[0] = 16; /* larger than the array */
    refused(&s, PI_EFORMAT, "precompiled_charsmap");
    s.charsmap[0] = 12, s.charsmap[12] = 200; /* a text offset out of range */
    v = load(&s);
    expect(v, "Qa", 0, SP " <unk> a");
    pi__vocab_free(v);
}

static void test_plamo2(void **state)
{
    (void) state;
    seed s;
    seed_plamo2(&s);
    pi__vocab *v = load(&s);
    expect(v, "hello", ADD, "hell o"); /* -11, like he, llo: the longer first token wins */
    expect(v, " hello", 0, " hello");
    expect(v, "abc", 0, "a bc");                                       /* -7; ab, c has -8.5 */
    expect(v, "aaa", 0, "aa a");                                       /* all have -9 */
    expect(v, "abcabc", 0, "abcabc");
    expect(v, "   ", 0, "    ");                                       /* two spaces, and one */
    /* a character without a token becomes its bytes */
    expect(v, "\xE3\x81\x82\xE3\x81\x84\xE3\x81\x84", 0,
           "\xE3\x81\x82\xE3\x81\x84 <0xE3> <0x81> <0x84>");
    expect(v, "x\xF0\x9F\x98\x80", 0, "<0x78> <0xF0> <0x9F> <0x98> <0x80>");
    expect(v, "qqq", 0, "q q q");                                      /* a score below -2000 is never used */
    expect(v, "\xEF\xBB\xBF" "a\xEF\xBB\xBF", 0, "a <0xEF> <0xBB> <0xBF>");
    expect_n(v, "a\xFF\xE3\x81", 4, 0, "a <0xEF> <0xBF> <0xBD> <0xEF> <0xBF> <0xBD> <0xEF> <0xBF> <0xBD>");
    expect_n(v, "\0", 1, 0, "<0x00>");
    expect(v, "", 0, "");
    expect(v, "a<t>b<|plamo:eos|>", SPECIAL, "a <t> b <|plamo:eos|>");
    expect(v, "<|plamo:eos|>", 0, "<0x3C> <0x7C> <0x70> l a <0x6D> o <0x3A> e o <0x73> <0x7C> <0x3E>");
    expect(v, "[PAD1]", SPECIAL, "<0x5B> <0x50> <0x41> <0x44> <0x31> <0x5D>");
    assert_int_equal(pi__vocab_bos(v), 1);
    assert_int_equal(pi__vocab_eos(v), 2);
    assert_false(pi__vocab_add_bos(v));
    static const char text[] = " hello" SP " \xE3\x81\x82\xF0\x9F\x98\x80  x"; /* U+2581 is no space here */
    round_trip(v, text, sizeof text - 1, ADD, text, sizeof text - 1);
    pi__vocab_free(v);
    seed_extra(&s, "tokenizer.ggml.add_bos_token", PI__GGUF_BOOL, 1);
    s.tok[3 + 256].score = INFINITY; /* a token without a usable score */
    v = load(&s);
    expect(v, " a", ADD, "<|plamo:bos|> <0x20> a");
    pi__vocab_free(v);
    s.tok[3 + 'x'].type = PI__TOK_NORMAL;
    refused(&s, PI_EFORMAT, "the byte token <0x78> is missing");
}

/* The infill prompt has the tokens of `want`, spelled as for expect_n. */
static void expect_infill(const pi__vocab *v, const pi_infill_parts *in, const char *want)
{
    pi_error err = {0};
    pi__ids ids = {0};
    if (pi__infill(v, in, &ids, &err)) fail_msg("refused: %s", err.msg);
    char got[4096] = "";
    for (size_t i = 0; i < ids.n; i++) {
        pi__str s = pi__vocab_spelling(v, ids.p[i]);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? " " : "", (int) s.n, s.p);
    }
    assert_string_equal(got, want);
    if (in->max_tokens) assert_true(ids.n <= in->max_tokens);
    pi__free(ids.p);
}

static void infill_seed(seed *s, bool files)
{
    seed_gpt2(s);
    seed_tok(s, "<|fim_prefix|>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<|fim_middle|>", PI__TOK_CONTROL, 0);
    seed_tok(s, "<|fim_suffix|>", PI__TOK_CONTROL, 0);
    if (files) seed_tok(s, "<|repo_name|>", PI__TOK_CONTROL, 0);
    if (files) seed_tok(s, "<|file_sep|>", PI__TOK_CONTROL, 0);
}

static void test_infill(void **state)
{
    (void) state;
    seed s;
    infill_seed(&s, false);
    pi__vocab *v = load(&s);
    const pi_infill_file one = {"b.c", "yz", 2};
    pi_infill_parts in = {.prefix = "abcd", .prefix_len = 4, .suffix = "efg", .suffix_len = 3};
    expect_infill(v, &in, "<|fim_prefix|> a b c d <|fim_suffix|> e f g <|fim_middle|>");
    in.suffix_first = 1;
    in.typed = "x", in.typed_len = 1;
    expect_infill(v, &in, "<|fim_suffix|> e f g <|fim_prefix|> a b c d x <|fim_middle|>");
    in.suffix_first = 0;
    in.prefix = "<|fim_middle|>", in.prefix_len = 14; /* special tokens in text stay text */
    expect_infill(v, &in, "<|fim_prefix|> < | f i m _ m i d d l e | > x <|fim_suffix|> e f g <|fim_middle|>");
    in.prefix = "", in.prefix_len = 0;
    in.files = &one, in.n_files = 1;
    expect_infill(v, &in, "\xC4\x8A \xC4\x8A - - - \xC4\xA0 s n i p p e t \xC4\xA0 - - - \xC4\x8A \xC4\x8A y z "
                  "<|fim_prefix|> x <|fim_suffix|> e f g <|fim_middle|>");
    pi__vocab_free(v);

    infill_seed(&s, true);
    v = load(&s);
    in = (pi_infill_parts) {.prefix = "abcd", .prefix_len = 4, .suffix = "efgh", .suffix_len = 4, .files = &one,
                            .n_files = 1, .repo = "r", .name = "n"};
    expect_infill(v, &in, "<|repo_name|> r \xC4\x8A <|file_sep|> b . c \xC4\x8A y z <|file_sep|> n \xC4\x8A "
                  "<|fim_prefix|> a b c d <|fim_suffix|> e f g h <|fim_middle|>");
    in.max_tokens = 16; /* first, files lose their beginning */
    expect_infill(v, &in, "y z <|file_sep|> n \xC4\x8A <|fim_prefix|> a b c d <|fim_suffix|> e f g h <|fim_middle|>");
    in.max_tokens = 9; /* then the suffix loses its end */
    expect_infill(v, &in, "<|fim_prefix|> a b c d <|fim_suffix|> e f <|fim_middle|>");
    in.max_tokens = 7; /* then the prefix loses its beginning */
    expect_infill(v, &in, "<|fim_prefix|> b c d <|fim_suffix|> e <|fim_middle|>");
    pi_error err = {0};
    pi__ids ids = {0};
    in.typed = "abcde", in.typed_len = 5;
    assert_int_equal(pi__infill(v, &in, &ids, &err), PI_EINVAL);
    pi__free(ids.p);
    pi__vocab_free(v);

    seed_gpt2(&s); /* a vocabulary without infill tokens */
    v = load(&s);
    ids = (pi__ids) {0};
    assert_int_equal(pi__infill(v, &in, &ids, &err), PI_EUNSUPPORTED);
    assert_null(ids.p);
    pi__vocab_free(v);
}

static void test_end_of_message(void **state)
{
    (void) state;
    seed s;
    seed_gpt2(&s);
    int32_t end = seed_tok(&s, "<|end|>", PI__TOK_CONTROL, 0);
    int32_t channel = seed_tok(&s, "<|channel|>", PI__TOK_CONTROL, 0);
    int32_t pad = seed_tok(&s, "<|fim_pad|>", PI__TOK_USER, 0);
    int32_t mid = seed_tok(&s, "<|fim_middle|>", PI__TOK_USER, 0);
    int32_t html = seed_tok(&s, "</s>", PI__TOK_NORMAL, 0);
    pi__vocab *v = load(&s);
    assert_true(pi__vocab_is_eog(v, end));
    assert_true(pi__vocab_is_eog(v, pad));
    assert_false(pi__vocab_is_eog(v, mid));
    assert_false(pi__vocab_is_eog(v, html));
    expect_text(v, &html, 1, false, "</s>");
    expect(v, "a</s>", SPECIAL, "a </s>");
    expect(v, "a</s>", 0, "a < / s >");
    assert_int_equal(pi__vocab_attr(v, mid), PI__TOK_CONTROL);
    assert_int_equal(pi__vocab_attr(v, channel), PI__TOK_USER);
    pi__vocab_free(v);
    seed_tok(&s, "<|return|>", PI__TOK_CONTROL, 0);
    int32_t call = seed_tok(&s, "<|call|>", PI__TOK_CONTROL, 0);
    v = load(&s);
    assert_false(pi__vocab_is_eog(v, end));
    assert_int_equal(pi__vocab_attr(v, end), PI__TOK_USER);
    assert_true(pi__vocab_is_eog(v, call));
    pi__vocab_free(v);
}

/* The tokens that begin a turn are the ones spelled in `want`, separated by spaces. */
static void expect_turns(seed *s, const char *chat_template, const char *want)
{
    s->chat_template = chat_template;
    pi__vocab *v = load(s);
    int32_t ids[PI__MAX_TURNS], n = pi__vocab_turn_starts(v, ids, PI__MAX_TURNS);
    char got[512] = "";
    for (int32_t i = 0; i < n; i++) {
        pi__str t = pi__vocab_spelling(v, ids[i]);
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i ? " " : "", (int) t.n, t.p);
    }
    assert_string_equal(got, want);
    assert_int_equal(pi__vocab_turn_starts(v, NULL, 0), n);
    pi__vocab_free(v);
}

/* End-of-answer tokens and turn tokens in the spellings and templates of model families. */
static void test_families(void **state)
{
    (void) state;
    static const struct {
        const char *tokens[4], *chat_template; /* tokens: the ones that end an answer, then NULL */
        const char *turn, *turns;              /* further tokens, and the ones among them that begin a turn */
    } families[] = {
        {{"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"},
         "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}",
         "<|start_header_id|>",
         "<|start_header_id|>"},
        {{"<|endoftext|>", "<|im_end|>"},
         "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' }}",
         "<|vision_start|>",
         "<|im_start|>"},
        {{"<eos>", "<end_of_turn>"},
         "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
         "<start_of_turn>",
         "<start_of_turn>"},
        {{"</s>"},
         "{{ '[INST] ' + message['content'] + '[/INST]' }}{{ message['content'] + eos_token }}",
         "[INST]",
         "[INST]"},
        {{"<|endoftext|>", "<|end|>"},
         "{% if message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}",
         "<|user|>",
         "<|user|>"},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        seed s;
        seed_gpt2(&s);
        for (int k = 0; k < 4 && families[i].tokens[k]; k++) seed_tok(&s, families[i].tokens[k], PI__TOK_CONTROL, 0);
        seed_tok(&s, families[i].turn, PI__TOK_CONTROL, 0);
        pi__vocab *v = load(&s);
        for (int k = 0; k < 4 && families[i].tokens[k]; k++)
            assert_true(pi__vocab_is_eog(v, pi__vocab_find(v, families[i].tokens[k], strlen(families[i].tokens[k]))));
        assert_false(pi__vocab_is_eog(v, pi__vocab_find(v, families[i].turn, strlen(families[i].turn))));
        pi__vocab_free(v);
        expect_turns(&s, families[i].chat_template, families[i].turns);
    }
}

/* ----------------------------------------------------------------------------------------------------------- UTF-8 */

static void feed_case(const char *in, size_t n, const char *want)
{
    for (size_t step = 1; step <= n; step++) { /* independent of the cut */
        pi__utf8_hold h = {0};
        char out[256];
        size_t o = 0;
        for (size_t i = 0; i < n; i += step) {
            size_t before = o;
            o += pi__utf8_feed(&h, in + i, step < n - i ? step : n - i, out + o);
            assert_int_equal(pi__utf8_valid(out + before, o - before), o - before);
        }
        o += pi__utf8_flush(&h, out + o);
        assert_int_equal(h.n, 0);
        assert_int_equal(o, strlen(want));
        assert_memory_equal(out, want, o);
    }
}

static void test_utf8_hold(void **state)
{
    (void) state;
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain", "plain"},
        {"\xC3\xA9\xE4\xBD\xA0\xF0\x9F\xA6\x99.", "\xC3\xA9\xE4\xBD\xA0\xF0\x9F\xA6\x99."},
        {"\xF0\x9F\xA6", "\xEF\xBF\xBD"},                                       /* truncated at the end */
        {"\xF0\x9F\xA6z", "\xEF\xBF\xBDz"},                                     /* one maximal subpart */
        {"\xE4\xBD\xC3\xA9", "\xEF\xBF\xBD\xC3\xA9"},                           /* truncated by another character */
        {"\x80\xBF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF\xFF", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},               /* surrogate */
        {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},               /* overlong */
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
        {"\xF1\x80\x80\xE1\x80\xC2\x41", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\x41"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        feed_case(cases[i].in, strlen(cases[i].in), cases[i].want);
}

/* -------------------------------------------------------------------------------------------------------- refusals */

static void refused(const seed *s, int code, const char *part)
{
    pi_error err = {0};
    pi__vocab *v;
    assert_int_equal(seed_load(s, &v, &err), code);
    assert_null(v);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" is not in \"%s\"", part, err.msg);
    assert_int_equal(seed_load(s, &v, NULL), code);
}

static void test_refused(void **state)
{
    (void) state;
    seed s;
#define REFUSED(kind, change, code, part)                                                                              \
    do {                                                                                                               \
        seed_##kind(&s);                                                                                               \
        change;                                                                                                        \
        refused(&s, code, part);                                                                                       \
    } while (0)
    REFUSED(spm, s.model = NULL, PI_EFORMAT, "tokenizer.ggml.model");
    REFUSED(spm, s.model = "rwkv", PI_EUNSUPPORTED, "'rwkv'");
    REFUSED(gpt2, s.pre = "klingon", PI_EUNSUPPORTED, "'klingon'");
    REFUSED(gpt2, s.pre = "", PI_EUNSUPPORTED, "tokenizer.ggml.pre");
    REFUSED(spm, s.n_tok = 0; s.n_scores = s.n_types = SIZE_MAX, PI_EFORMAT, "tokenizer.ggml.tokens");
    REFUSED(spm, s.n_scores = s.n_tok - 1, PI_EFORMAT, "tokenizer.ggml.scores");
    REFUSED(spm, s.n_scores = SIZE_MAX, PI_EFORMAT, "tokenizer.ggml.scores: missing");
    REFUSED(spm, s.tok[7].score = NAN, PI_EFORMAT, "tokenizer.ggml.scores[7]");
    REFUSED(spm, s.n_types = s.n_tok + 1, PI_EFORMAT, "tokenizer.ggml.token_type");
    REFUSED(spm, s.tok[265].text[0] = (char) 0xFF; s.tok[265].n = 1, PI_EFORMAT, "tokenizer.ggml.tokens[265]");
    REFUSED(gpt2, s.n_merge = 0, PI_EFORMAT, "tokenizer.ggml.merges: missing");
    REFUSED(gpt2, s.merge[3] = "hello", PI_EFORMAT, "tokenizer.ggml.merges[3]");
    REFUSED(gpt2, s.merge[3] = " hello", PI_EFORMAT, "tokenizer.ggml.merges[3]");
    REFUSED(gpt2, s.merge[3] = "hello ", PI_EFORMAT, "tokenizer.ggml.merges[3]");
    REFUSED(gpt2, s.merge[3] = "", PI_EFORMAT, "tokenizer.ggml.merges[3]");
    REFUSED(gemma4, s.merge[0] = "\xE2\x96 x", PI_EFORMAT, "tokenizer.ggml.merges[0]");
    REFUSED(spm, seed_extra(&s, "tokenizer.ggml.bos_token_id", PI__GGUF_I32, 100000), PI_EFORMAT, "bos_token_id");
    REFUSED(spm, seed_extra(&s, "tokenizer.ggml.eos_token_id", PI__GGUF_I32, -2), PI_EFORMAT, "eos_token_id");
    REFUSED(spm, seed_extra(&s, "tokenizer.ggml.eot_token_id", PI__GGUF_BOOL, 1), PI_EFORMAT, "eot_token_id");
    REFUSED(spm, seed_extra(&s, "tokenizer.ggml.fim_pad_token_id", PI__GGUF_I32, 4000), PI_EFORMAT, "fim_pad_token_id");
    REFUSED(spm, seed_extra(&s, "tokenizer.ggml.add_bos_token", PI__GGUF_I32, 7), PI_EFORMAT, "add_bos_token");
#undef REFUSED
    image m = {0}; /* arrays of the wrong type */
    put_bytes(&m, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24);
    put_kv_str(&m, "tokenizer.ggml.model", "llama");
    put_arr(&m, "tokenizer.ggml.tokens", PI__GGUF_F32, 1);
    put_u32(&m, 0);
    pi__gguf *g;
    pi__vocab *v;
    pi_error err;
    assert_int_equal(pi__gguf_open_memory(&g, m.b, m.n, &err), PI_OK);
    assert_int_equal(pi__vocab_load(&v, g, &err), PI_EFORMAT);
    assert_non_null(strstr(err.msg, "tokenizer.ggml.tokens: expected an array of strings"));
    pi__gguf_close(g);
    free(m.b);
}

/* Random byte changes to valid files: each file loads or is refused, and a loaded one can be used. */
static void test_mutated(void **state)
{
    (void) state;
    void (*const kinds[])(seed *) = {seed_spm, seed_gpt2, seed_gemma4, seed_wpm, seed_ugm, seed_plamo2};
    uint64_t r = 88172645463325252u;
    int n_loaded = 0, n_refused = 0;
    for (int i = 0; i < 1500; i++) {
        seed s;
        kinds[i % 6](&s);
        image m = seed_image(&s);
        for (int k = 0; k <= i / 6 % 4; k++) {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            m.b[24 + r % (m.n - 24)] = (uint8_t) (r >> 40 & (i & 64 ? 255 : 15));
        }
        pi__gguf *g;
        pi__vocab *v;
        pi__ids ids = {0};
        if (pi__gguf_open_memory(&g, m.b, m.n, NULL) == PI_OK) {
            pi_error err = {0};
            if (pi__vocab_load(&v, g, &err) == PI_OK) {
                n_loaded++;
                assert_int_equal(pi__tokenize(v, " hello <t>\n\xC3\xA9<|im_end|>", 21, true, true, &ids), PI_OK);
                for (size_t k = 0; k < ids.n; k++) pi__token_bytes(v, ids.p[k], true, NULL, 0);
                pi__vocab_free(v);
            } else {
                n_refused++;
                assert_true(err.msg[0] != 0);
            }
            pi__free(ids.p);
            pi__gguf_close(g);
        }
        free(m.b);
    }
    assert_true(n_loaded > 100 && n_refused > 100);
}

/* Unusual but valid files, which exist or could exist. */
static void test_tolerated(void **state)
{
    (void) state;
    seed s;
    seed_spm(&s);
    s.tok[280].n = 0;                                                 /* an empty token is never found */
    s.tok[281] = s.tok[259];                                          /* a duplicate text: the first one is found */
    seed_extra(&s, "tokenizer.ggml.bos_token_id", PI__GGUF_I32, -1);  /* no BOS */
    s.n_types = SIZE_MAX;
    pi__vocab *v = load(&s);
    expect(v, "a", ADD, SP " a");
    assert_int_equal(pi__vocab_find(v, SP, 3), 259);
    assert_int_equal(pi__vocab_bos(v), -1);
    assert_int_equal(pi__vocab_attr(v, 0), PI__TOK_NORMAL);
    pi__vocab_free(v);

    seed_gpt2(&s);
    s.merge[s.n_merge++] = "x y"; /* the merged text is not a token: its bytes come out */
    s.merge[s.n_merge++] = "xy z";
    s.merge[s.n_merge++] = "h e"; /* a duplicate merge */
    s.tok['q'].n = 0;             /* a byte without a token is dropped */
    v = load(&s);
    expect(v, "xyz.hello", 0, "x y z . hello");
    expect(v, "aqa", 0, "a a");
    assert_int_equal(pi__vocab_find(v, "xy", 2), -1);
    pi__vocab_free(v);
}

/* ----------------------------------------------------------------------------------------- large texts and threads */

static void test_long_texts(void **state)
{
    (void) state;
    static const char *const units[] = {"a", " ", "\n", "<", "<t>", "<|im_start|", "\xFF", "hello", "'",
                                        " \xE4\xBD\xA0", "e\xCC\x81"};
    void (*const kinds[])(seed *) = {seed_spm, seed_gpt2, seed_gemma4, seed_wpm, seed_ugm, seed_plamo2};
    enum { N = 100000 };
    char *text = malloc(N + 16);
    for (size_t k = 0; k < 7; k++) {
        seed s;
        kinds[k % 6](&s);
        if (k == 6) seed_gpt2(&s);
        if (k == 6) s.pre = "deepseek-llm";
        pi__vocab *v = load(&s);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t n = 0;
            for (size_t len = strlen(units[u]); n < N; n += len) memcpy(text + n, units[u], len);
            pi__ids ids = {0};
            assert_int_equal(pi__tokenize(v, text, n, true, true, &ids), PI_OK);
            assert_true(ids.n > 0 && ids.n <= 3 * n + 2);
            pi__free(ids.p);
        }
        pi__vocab_free(v);
    }
    free(text);
}

static void *tokenize_thread(void *arg)
{
    const pi__vocab *v = arg;
    static const char text[] = "hello <think> it's 123 hello\n\n <|im_end|> hello";
    pi__ids first = {0};
    intptr_t bad = pi__tokenize(v, text, sizeof text - 1, true, true, &first);
    for (int i = 0; !bad && i < 50; i++) {
        pi__ids ids = {0};
        bad = pi__tokenize(v, text, sizeof text - 1, true, true, &ids);
        bad |= ids.n != first.n || memcmp(ids.p, first.p, ids.n * sizeof *ids.p);
        pi__free(ids.p);
    }
    pi__free(first.p);
    return (void *) bad;
}

static void test_threads(void **state)
{
    (void) state;
    seed s;
    seed_gpt2(&s);
    pi__vocab *v = load(&s);
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, tokenize_thread, v), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    pi__vocab_free(v);
}

/* --------------------------------------------------------------------------------------------------- out of memory */

static struct {
    long left; /* allocations that still succeed; negative = all */
    long live; /* blocks not freed */
} heap;

static void *count_malloc(void *ud, size_t n)
{
    (void) ud;
    if (heap.left == 0) return NULL;
    if (heap.left > 0) heap.left--;
    heap.live++;
    return malloc(n);
}

static void *count_realloc(void *ud, void *p, size_t n)
{
    (void) ud;
    if (heap.left == 0) return NULL;
    if (heap.left > 0) heap.left--;
    if (!p) heap.live++;
    return realloc(p, n);
}

static void count_free(void *ud, void *p)
{
    (void) ud;
    if (p) heap.live--;
    free(p);
}

/* Loads, tokenizes and detokenizes; stops at the first PI_ENOMEM. */
static int whole_use(const pi__gguf *g)
{
    static const char text[] = " hello<t><think>123 \xFF\xED\xA0\x80 \xC3\xA9\n<|im_end|>hello";
    pi__vocab *v;
    pi__ids ids = {0};
    char *out = NULL;
    size_t len = 0;
    int rc = pi__vocab_load(&v, g, NULL);
    if (rc) {
        assert_null(v);
        return rc;
    }
    rc = pi__tokenize(v, text, 5, false, false, &ids);
    size_t before = ids.n;
    if (!rc) rc = pi__tokenize(v, text, sizeof text - 1, true, true, &ids);
    if (rc) assert_int_equal(ids.n, before);
    if (!rc) rc = pi__detokenize(v, ids.p, ids.n, true, &out, &len);
    pi__free(out);
    pi__free(ids.p);
    pi__vocab_free(v);
    return rc;
}

static void test_out_of_memory(void **state)
{
    (void) state;
    static const pi_allocator a = {sizeof a, NULL, count_malloc, count_realloc, count_free, NULL, NULL};
    void (*const kinds[])(seed *) = {seed_spm, seed_gpt2, seed_gemma4, seed_wpm, seed_ugm, seed_plamo2};
    heap.left = -1;
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    for (size_t k = 0; k < 6; k++) {
        seed s;
        kinds[k](&s);
        s.pre = s.pre ? "llama-bpe" : NULL;
        image m = seed_image(&s);
        pi__gguf *g;
        assert_int_equal(pi__gguf_open_memory(&g, m.b, m.n, NULL), PI_OK);
        long base = heap.live, n = 0;
        for (int rc = PI_ENOMEM; rc; n++) {
            heap.left = n;
            rc = whole_use(g);
            heap.left = -1;
            assert_int_equal(heap.live, base);
            if (rc) assert_int_equal(rc, PI_ENOMEM);
        }
        assert_true(n > 10);
        pi__gguf_close(g);
        free(m.b);
    }
    assert_int_equal(heap.live, 0);
    pi_set_allocator(NULL);
}

/* ----------------------------------------------------------------------------------------------------------- turns */

static void test_turns(void **state)
{
    (void) state;
    seed s;
    seed_gpt2(&s);
    seed_tok(&s, "<|sep|>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "<|USER_TOKEN|>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "<|end_user|>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "</user>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "<assistant>", PI__TOK_USER, 0);
    seed_tok(&s, "<|superuser|>", PI__TOK_CONTROL, 0);
    seed_tok(&s, "<user>", PI__TOK_NORMAL, 0);
    expect_turns(&s, NULL, "<|im_start|>");
    expect_turns(&s, "", "<|im_start|>");
    expect_turns(&s, "{{ '<|sep|>' + message['role'] + '\\n' }}", "<|sep|>");
    expect_turns(&s, "{{ \"<|sep|>\" ~ m.role }}<|sep|>{{ role }}", "<|sep|>");
    expect_turns(&s, "<|sep|>user\n", "<|sep|>");
    expect_turns(&s, "{{- '<|sep|>' }}{{ 'model' }}", "<|sep|>");
    expect_turns(&s, "<|sep|>{{ message.content }}user", "<|im_start|>"); /* the template says nothing: by name */
    expect_turns(&s, "<|sep|>users<|sep|>tool_calls<|sep|>user.name", "<|im_start|>");
    expect_turns(&s, "<|sep|><|im_end|>user", "<|im_start|>"); /* an end token does not begin a turn */
    expect_turns(&s, "<|sep|>{{ x }}<|im_start|>", "<|im_start|>");
    expect_turns(&s, "<|USER_TOKEN|>a<|end_user|>b</user>c<assistant>d<|superuser|>e<user>",
                 "<|USER_TOKEN|> <assistant>");
    expect_turns(&s, "<|sep|>", "<|im_start|>");
    expect_turns(&s, "<|sep|>{{ messag", "<|im_start|>");
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "<user %d>", i);
        seed_tok(&s, name, PI__TOK_CONTROL, 0);
    }
    char many[1024] = "";
    for (int i = 0; i < 40; i++) snprintf(many + strlen(many), sizeof many - strlen(many), "<user %d>", i);
    s.chat_template = many;
    pi__vocab *v = load(&s);
    int32_t ids[3] = {-7, -7, -7};
    assert_int_equal(pi__vocab_turn_starts(v, ids, 2), PI__MAX_TURNS);
    assert_int_equal(ids[1], pi__vocab_find(v, "<user 1>", 8));
    assert_int_equal(ids[2], -7); /* not written beyond cap */
    pi__vocab_free(v);
    seed_spm(&s);
    expect_turns(&s, NULL, "");
}

/* ------------------------------------------------------------------------------------------------ public interface */

static void test_public(void **state)
{
    (void) state;
    char path[] = "/tmp/pi-test-vocab-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    seed s;
    seed_spm(&s);
    image m = seed_image(&s);
    assert_int_equal(write(fd, m.b, m.n), (ssize_t) m.n);
    close(fd);
    free(m.b);
    pi_vocab *v;
    pi_error err;
    assert_int_equal(pi_vocab_open(&v, path, &err), PI_OK);
    unlink(path);
    assert_int_equal(err.code, PI_OK);
    int32_t ids[3] = {0, 0, 77};
    assert_int_equal(pi_vocab_tokenize(v, "hello</s>", 9, PI_TOK_BOS | PI_TOK_SPECIAL, ids, 2), 3);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[2], 77); /* not written beyond cap */
    assert_int_equal(pi_vocab_tokenize(v, "hello</s>", 9, PI_TOK_BOS, NULL, 0), 6);
    assert_int_equal(pi_vocab_tokenize(v, NULL, 0, 0, NULL, 0), 0);
    assert_int_equal(pi_vocab_tokenize(v, NULL, 1, 0, NULL, 0), PI_EINVAL);
    assert_int_equal(pi_vocab_tokenize(NULL, "", 0, 0, NULL, 0), PI_EINVAL);
    char text[3] = "..";
    assert_int_equal(pi_vocab_detokenize(v, ids, 2, 0, text, 2), 5);
    assert_string_equal(text, "he");
    assert_int_equal(pi_vocab_detokenize(v, ids, 1, PI_TOK_SPECIAL, NULL, 0), 3);
    assert_int_equal(pi_vocab_detokenize(v, NULL, 1, 0, NULL, 0), PI_EINVAL);
    for (int i = 0; i < 2; i++) {
        const int32_t outside[] = {ids[0], i ? -1 : INT32_MAX};
        assert_int_equal(pi_vocab_detokenize(v, outside, 2, 0, text, 2), PI_EINVAL);
    }
    pi_vocab_free(v);
    pi_vocab_free(NULL);
    assert_int_equal(pi_vocab_open(&v, path, &err), PI_ENOENT);
    assert_null(v);
    assert_int_equal(pi_vocab_open(&v, NULL, &err), PI_EINVAL);
    assert_int_equal(pi_vocab_open(NULL, path, NULL), PI_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_spm_special),
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_bpe_any_bytes),
        cmocka_unit_test(test_pretokenizers),
        cmocka_unit_test(test_pretokenizers_cover),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_wpm),
        cmocka_unit_test(test_ugm),
        cmocka_unit_test(test_plamo2),
        cmocka_unit_test(test_infill),
        cmocka_unit_test(test_end_of_message),
        cmocka_unit_test(test_utf8_hold),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_tolerated),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
