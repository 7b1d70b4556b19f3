/* Special tokens at load time: their ids, the end-of-generation set, overrides by well-known spellings, and the trie
 * that finds them in text.
 *
 * Converters mark few special tokens, so GGUF loaders recognize them by spelling. The tables here follow llama.cpp,
 * because models are published for it. Runs once, before the vocabulary is shared. */
#include <ctype.h>
#include <string.h>

#include "tokenizer/vocab_impl.h"

#define KEY "tokenizer.ggml."

/* Tokens that end a generation. The first existing one of the first N_EOT also serves as "end of turn" if metadata has
 * none. */
static const char *const eog_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
    "[EOT]", ("<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"), "<end_of_utterance>",
    "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "<|eom_id|>", "[EOS]", "<eos>", "<turn|>",
    "<|tool_response>", "[e~[",
};
enum { N_EOG = sizeof eog_texts / sizeof *eog_texts, N_EOT = 11 };

/* Fill-in-the-middle tokens: always control tokens, regardless of the file's type; some end a generation. */
static const struct fim {
    const char *key;      /* metadata key with the id */
    const char *old_key;  /* former name of the key; NULL = none */
    bool eog;             /* ends a generation */
    const char *texts[8]; /* without metadata: the first spelling that exists */
} fims[PI__N_FIM] = {
    {KEY "fim_pre_token_id", KEY "prefix_token_id", false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\xEF\xBD\x9C" "fim\xE2\x96\x81" "begin\xEF\xBD\x9C>", "<PRE>",
      "\xE2\x96\x81<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {KEY "fim_suf_token_id", KEY "suffix_token_id", false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\xEF\xBD\x9C" "fim\xE2\x96\x81hole\xEF\xBD\x9C>", "<SUF>",
      "\xE2\x96\x81<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    {KEY "fim_mid_token_id", KEY "middle_token_id", false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\xEF\xBD\x9C" "fim\xE2\x96\x81" "end\xEF\xBD\x9C>", "<MID>",
      "\xE2\x96\x81<MID>", "<|code_middle|>", "<|middle|>"}},
    {KEY "fim_pad_token_id", NULL, true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {KEY "fim_rep_token_id", NULL, true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {KEY "fim_sep_token_id", NULL, true, {"<|file_sep|>"}},
};

static int32_t find(const pi__vocab *v, const char *text) { return pi__vocab_find(v, text, strlen(text)); }

/* Reads a token id from metadata; def if the key is missing. -1 in the file means no token. */
static int get_id(const pi__vocab *v, const pi__gguf *g, const char *key, int32_t def, int32_t *out, pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(g, key);
    *out = def < v->n_tok ? def : -1;
    if (!kv) return PI_OK;
    if (kv->type == PI__GGUF_STR || kv->type == PI__GGUF_ARR || kv->type == PI__GGUF_BOOL)
        return pi__fail(err, PI_EFORMAT, "%s: expected an integer", key);
    double id = pi__gguf_elem_f64(kv, 0);
    if (id == -1 || id == UINT32_MAX) {
        *out = -1;
        return PI_OK;
    }
    if (!(id >= 0 && id < v->n_tok && id == (int32_t) id))
        return pi__fail(err, PI_EFORMAT, "%s: %.0f is not one of the %d tokens", key, id, v->n_tok);
    *out = (int32_t) id;
    return PI_OK;
}

static void set_eog(pi__vocab *v, int32_t id)
{
    if (id >= 0) v->flags[id] |= PI__TOKF_EOG;
}

static bool is_eog(const pi__vocab *v, const char *text) { return pi__vocab_is_eog(v, find(v, text)); }

static int load_ids(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    bool spm = v->kind == PI__VOCAB_SPM || v->kind == PI__VOCAB_PLAMO2; /* the same default ids */
    bool wpm = v->kind == PI__VOCAB_WPM, ugm = v->kind == PI__VOCAB_UGM;
    const struct {
        const char *key;
        int32_t def, *out;
    } ids[] = {
        {KEY "bos_token_id", spm ? 1 : wpm ? 101 : -1, &v->bos}, {KEY "eos_token_id", spm ? 2 : ugm ? 1 : -1, &v->eos},
        {KEY "unknown_token_id", spm ? 0 : wpm ? 100 : ugm ? 2 : -1, &v->unk}, {KEY "eot_token_id", -1, &v->eot},
        /* the key is misspelled in files */
        {KEY "eom_token_id", -1, &v->eom}, {KEY "seperator_token_id", wpm ? 102 : -1, &v->sep},
    };
    int rc = PI_OK;
    for (size_t i = 0; !rc && i < sizeof ids / sizeof *ids; i++)
        rc = get_id(v, g, ids[i].key, ids[i].def, ids[i].out, err);
    /* texts begin with [CLS] and end with [SEP] */
    if (!rc && wpm) rc = get_id(v, g, KEY "cls_token_id", v->bos, &v->bos, err);
    if (!rc && wpm && v->sep >= 0) v->eos = v->sep;
    for (size_t i = 0; v->eot < 0 && i < N_EOT; i++) v->eot = find(v, eog_texts[i]);
    if (v->eom < 0) v->eom = find(v, "<|eom_id|>");
    return rc;
}

static int load_fim(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    for (size_t i = 0; i < PI__N_FIM; i++) {
        const struct fim *f = &fims[i];
        int32_t id;
        int rc = get_id(v, g, f->key, -1, &id, err);
        if (!rc && id < 0 && f->old_key) rc = get_id(v, g, f->old_key, -1, &id, err);
        if (rc) return rc;
        if (id < 0) {
            for (size_t k = 0; id < 0 && k < 8 && f->texts[k]; k++) id = find(v, f->texts[k]);
            if (id >= 0) v->attr[id] = PI__TOK_CONTROL;
        }
        if (f->eog) set_eog(v, id);
        v->fim[i] = id;
    }
    return PI_OK;
}

static void load_eog(pi__vocab *v)
{
    for (size_t i = 0; i < N_EOG; i++) {
        int32_t id = find(v, eog_texts[i]);
        if (id < 0) continue;
        /* In many vocabularies (Qwen, Gemma 3) </s> is HTML: matched like a control token, printed, and not an end. */
        bool html = !strcmp(eog_texts[i], "</s>") && v->attr[id] != PI__TOK_CONTROL && id != v->eos;
        v->flags[id] |= html ? PI__TOKF_PRINT : PI__TOKF_EOG;
        v->attr[id] = PI__TOK_CONTROL;
    }
    /* Harmony's message frames: printed, although files mark them as control tokens. */
    static const char *const shown[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        int32_t id = find(v, shown[i]);
        if (id >= 0) v->attr[id] = PI__TOK_USER;
    }
    set_eog(v, v->eos);
    set_eog(v, v->eot);
    set_eog(v, v->eom);
    /* If calls and returns end a generation, <|end|> only ends a message. */
    bool call = is_eog(v, "<|call|>") || is_eog(v, "<|calls|>");
    int32_t end = find(v, "<|end|>"), s = find(v, "</s>");
    if (pi__vocab_is_eog(v, end) && call && (is_eog(v, "<|return|>") || is_eog(v, "<|flush|>"))) {
        v->flags[end] &= (uint8_t) ~PI__TOKF_EOG;
        v->attr[end] = PI__TOK_USER;
    }
    if (s >= 0 && is_eog(v, "<|tool_response>")) { /* Gemma 4: </s> is HTML and not matched as a token at all */
        v->flags[s] &= (uint8_t) ~PI__TOKF_EOG;
        v->attr[s] = PI__TOK_NORMAL;
    }
}

static bool is_special(const pi__vocab *v, int32_t id)
{
    return v->attr[id] == PI__TOK_CONTROL || v->attr[id] == PI__TOK_USER || v->attr[id] == PI__TOK_UNKNOWN;
}

/* Phi-3 drops white space after its special tokens. GGUF has no field for that; general.name identifies the model. */
static int load_strip(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    pi__str name;
    int rc = pi__gguf_get_str(g, "general.name", &name, err);
    bool phi3 = false;
    for (size_t i = 0; !rc && name.p && i + 4 <= name.n; i++) {
        char s[6] = {0};
        for (size_t k = 0; k < 5 && i + k < name.n; k++) s[k] = (char) tolower((unsigned char) name.p[i + k]);
        phi3 |= !strcmp(s, "phi-3") || !strncmp(s, "phi3", 4);
    }
    if (rc || !phi3) return rc;
    for (int32_t i = 0; i < v->n_tok; i++)
        if (is_special(v, i)) v->flags[i] |= PI__TOKF_RSTRIP;
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < 3; i++) {
        int32_t id = find(v, keep[i]);
        if (id >= 0) v->flags[id] &= (uint8_t) ~PI__TOKF_RSTRIP;
    }
    return PI_OK;
}

static int32_t trie_child(pi__vocab *v, int32_t node, unsigned char byte)
{
    int32_t c = v->trie[node].child;
    while (c >= 0 && v->trie[c].byte != byte) c = v->trie[c].sibling;
    if (c >= 0) return c;
    if (v->n_trie >= INT32_MAX || !pi__grow(&v->trie, &v->trie_cap, v->n_trie + 1, sizeof *v->trie)) return -1;
    c = (int32_t) v->n_trie++;
    v->trie[c] = (pi__trie_node) {-1, v->trie[node].child, -1, byte};
    v->trie[node].child = c;
    return c;
}

static int load_trie(pi__vocab *v, pi_error *err)
{
    if (!pi__grow(&v->trie, &v->trie_cap, 1, sizeof *v->trie)) return pi__fail_mem(err, "the special tokens");
    v->trie[v->n_trie++] = (pi__trie_node) {-1, -1, -1, 0};
    for (int32_t i = 0; i < v->n_tok; i++) {
        pi__str s = pi__vocab_spelling(v, i);
        if (!s.n || !is_special(v, i)) continue;
        int32_t node = 0;
        for (size_t k = 0; k < s.n; k++) {
            node = trie_child(v, node, (unsigned char) s.p[k]);
            if (node < 0) return pi__fail_mem(err, "the special tokens");
        }
        if (v->trie[node].id < 0) v->trie[node].id = i;
        v->first_any[(unsigned char) s.p[0]] = true;
        if (v->attr[i] == PI__TOK_USER) v->first_user[(unsigned char) s.p[0]] = true;
    }
    return PI_OK;
}

int pi__vocab_load_special(pi__vocab *v, const pi__gguf *g, pi_error *err)
{
    int rc = load_ids(v, g, err);
    if (!rc) rc = load_fim(v, g, err);
    if (rc) return rc;
    load_eog(v);
    rc = load_strip(v, g, err);
    return rc ? rc : load_trie(v, err);
}
