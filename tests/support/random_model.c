/* Writes the random models described in random_rows.c. */
#include "random_rows.h"

#include <ctype.h>
#include <math.h>

/* State of a model being written: one pass for the headers (data false), one for the data. */
typedef struct writer {
    pi__gguf_writer *w;
    const tiny_row *row;
    int64_t v[128]; /* value of each letter */
    int32_t type;   /* type of matrices with an open type */
    bool data;
    uint64_t rng;
    int rc; /* first error code; later writes do nothing */
    pi_error *err;
} writer;

static pi__str str(const char *s) { return (pi__str) {s, strlen(s)}; }

/* Evaluates a sum of products; stops at a space or at the end of the string. */
static int64_t size_of(const int64_t *v, const char *s)
{
    int64_t sum = 0, product = 1;
    for (; *s && *s != ' ';) {
        if (*s == '+') sum += product, product = 1, s++;
        else if (isalpha((unsigned char) *s)) product *= v[(unsigned char) *s++ & 127];
        else product *= strtol(s, (char **) &s, 10);
    }
    return sum + product;
}

static bool holds(const int64_t *v, const char *when)
{
    for (; *when; when++) {
        const bool zero = *when == '!';
        if (zero) when++;
        if ((v[*when & 127] == 0) != zero) return false;
    }
    return true;
}

/* Sets letters from text like "L=3 E=64". */
static void set_sizes(int64_t *v, const char *s)
{
    for (; s && *s; s += strcspn(s, " "), s += *s == ' ') v[*s & 127] = size_of(v, s + 2);
}

/* ---- metadata */

static void put_key(writer *b, const tiny_key *k)
{
    char key[96];
    const char *arch = b->row->arch ? b->row->arch : b->row->name;
    const bool whole = !strncmp(k->name, "general.", 8) || !strncmp(k->name, "tokenizer.", 10) ||
                       !strncmp(k->name, "xielu.", 6);
    snprintf(key, sizeof key, "%s%s%s", whole ? "" : arch, whole ? "" : ".", k->name);
    const uint32_t u = k->size ? (uint32_t) size_of(b->v, k->size) : 0;
    const pi__str text = str(k->type == PI__GGUF_STR ? k->array : "");
    if (k->array && k->size) pi__gguf_put_arr(b->w, key, k->type, u, k->array);
    else if (k->array) pi__gguf_put(b->w, key, k->type, &text);
    else pi__gguf_put(b->w, key, k->type, k->size ? (const void *) &u : (const void *) &k->real);
}

static void put_keys(writer *b, const tiny_key *list)
{
    for (; list && list->name; list++)
        if (holds(b->v, list->when)) put_key(b, list);
}

static void put_bool(writer *b, const char *key, uint8_t v) { pi__gguf_put(b->w, key, PI__GGUF_BOOL, &v); }
static void put_text(writer *b, const char *key, const char *s)
{
    pi__str text = str(s);
    pi__gguf_put(b->w, key, PI__GGUF_STR, &text);
}
static void put_u32(writer *b, const char *key, uint32_t v) { pi__gguf_put(b->w, key, PI__GGUF_U32, &v); }

/* Writes a SentencePiece vocabulary, or one of PLaMo (model "plamo2"). */
static void put_spm(writer *b, const char *model)
{
    static const char *const control[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    static const char *const pieces[TINY_N_PIECES] = {
        "\xE2\x96\x81", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
        "t", "u", "v", "w", "x", "y", "z", ".", ",", "th", "he", "the", "\xE2\x96\x81t", "\xE2\x96\x81the",
        "\xE2\x96\x81" "a", "an", "nd", "and", "\xE2\x96\x81" "and", "in", "ing", "on", "\xE2\x96\x81o",
        "\xE2\x96\x81on", "er", "ed", "ou", "you", "\xE2\x96\x81y", "\xE2\x96\x81you", "\xC3\xA9", "\xE6\x97\xA5",
        "\xF0\x9F\x98\x80"};
    char bytes[256][8];
    pi__str tokens[TINY_VOCAB];
    float scores[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    for (int i = 0; i < TINY_VOCAB; i++) {
        const bool byte = i >= TINY_BYTE0 && i < TINY_PIECE0;
        if (byte) snprintf(bytes[i - TINY_BYTE0], 8, "<0x%02X>", i - TINY_BYTE0);
        tokens[i] = str(byte ? bytes[i - TINY_BYTE0] : i < TINY_BYTE0 ? control[i] : pieces[i - TINY_PIECE0]);
        types[i] = i == TINY_UNK ? 2 : i < TINY_BYTE0 ? 3 : byte ? 6 : 1;
        scores[i] = i < TINY_PIECE0 ? 0 : (float) -(i - TINY_PIECE0);
    }
    put_text(b, "tokenizer.ggml.model", model);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.tokens", PI__GGUF_STR, TINY_VOCAB, tokens);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.scores", PI__GGUF_F32, TINY_VOCAB, scores);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.token_type", PI__GGUF_I32, TINY_VOCAB, types);
    put_u32(b, "tokenizer.ggml.bos_token_id", TINY_BOS);
    put_u32(b, "tokenizer.ggml.eos_token_id", TINY_EOS);
    put_u32(b, "tokenizer.ggml.unknown_token_id", TINY_UNK);
    put_bool(b, "tokenizer.ggml.add_bos_token", 1);
    put_bool(b, "tokenizer.ggml.add_space_prefix", 0);
}

/* Writes a WordPiece vocabulary, or one of T5 (unigram): 5 control tokens, the letters as word starts and as
 * continuations, digits and signs. Also words, and word parts that start with the first pieces. The last token of T5's
 * is a space; a longer token has a higher score. */
static void put_words(writer *b, bool unigram)
{
    static const char *const wpm[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    static const char *const t5[] = {"<pad>", "</s>", "<unk>", "<s>", "<mask>"};
    const char *const *control = unigram ? t5 : wpm;
    static const char signs[] = "0123456789.,;:!?'\"()-";
    static const char *const parts[] = {"the", "ing", "er", "quick", "brown", "fox", "ed"};
    enum { N_CONTROL = 5, N_SIGNS = sizeof signs - 1, N_PARTS = sizeof parts / sizeof *parts };
    char texts[TINY_VOCAB][24];
    pi__str tokens[TINY_VOCAB];
    float scores[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    for (int i = 0; i < TINY_VOCAB; i++) {
        const int k = i - N_CONTROL, sign = k - 52, part = sign - N_SIGNS, rest = part - N_PARTS;
        const char *space = k % 2 ? "" : "\xE2\x96\x81";
        if (k < 0) snprintf(texts[i], sizeof texts[i], "%s", control[i]);
        else if (k < 52) snprintf(texts[i], sizeof texts[i], "%s%c", space, 'a' + k / 2);
        else if (sign < N_SIGNS) snprintf(texts[i], sizeof texts[i], "\xE2\x96\x81%c", signs[sign]);
        else if (part < N_PARTS)
            snprintf(texts[i], sizeof texts[i], "%s%s", part ? space : "\xE2\x96\x81", parts[part]);
        else snprintf(texts[i], sizeof texts[i], "%s%c%c", space, 'a' + rest % 26, 'a' + rest / 26);
        if (unigram && i == TINY_VOCAB - 1) snprintf(texts[i], sizeof texts[i], "\xE2\x96\x81");
        tokens[i] = str(texts[i]);
        types[i] = k >= 0 ? 1 : unigram && i == 2 ? 2 : 3;
        scores[i] = k < 0 ? 0 : (float) strlen(texts[i]) - 16;
    }
    put_text(b, "tokenizer.ggml.model", unigram ? "t5" : "bert");
    pi__gguf_put_arr(b->w, "tokenizer.ggml.tokens", PI__GGUF_STR, TINY_VOCAB, tokens);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.token_type", PI__GGUF_I32, TINY_VOCAB, types);
    if (unigram) pi__gguf_put_arr(b->w, "tokenizer.ggml.scores", PI__GGUF_F32, TINY_VOCAB, scores);
    if (unigram) put_u32(b, "tokenizer.ggml.eos_token_id", 1);
    if (unigram) put_u32(b, "tokenizer.ggml.unknown_token_id", 2);
    if (unigram) return;
    put_u32(b, "tokenizer.ggml.unknown_token_id", 1);
    put_u32(b, "tokenizer.ggml.cls_token_id", 2);
    put_u32(b, "tokenizer.ggml.seperator_token_id", 3);
}

/* Spells a byte as byte-level BPE does: printable bytes unchanged, the others as characters from U+0100 in order. */
static void byte_text(char out[4], int byte)
{
    int n = 0, c = byte;
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    for (int i = 0; i < byte && !itself; i++) n += !((i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174);
    if (!itself) c = 256 + n;
    if (c < 128) snprintf(out, 4, "%c", c);
    else snprintf(out, 4, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 63));
}

/* Writes 256 bytes, TINY_N_PIECES merges and 4 control tokens. `pre` names the regex that splits texts. */
static void put_bpe(writer *b, const char *pre)
{
#define SP "\xC4\xA0" /* a space */
    static const char *const pairs[TINY_N_PIECES] = {
        SP " t", "h e", "i n", "r e", SP "t he", "o n", "e r", SP " a", "a n", "n d", SP "a nd", "in g", "o u", SP " y",
        SP "y ou", "e d", "e s", "o r", "t i", SP " s", SP " o", SP "o n", "a t", "a r", "i s", SP " w", SP " c", "l l",
        "o f", SP " of", "t o", SP "t o", "i t", "a l", SP " m", SP " b", SP " in", "e n", "en t", "m ent", "s t",
        "1 2", "12 3", "\xC3\x83 \xC2\xA9", SP " " SP, "\xC4\x8A \xC4\x8A", "v er", SP " h", SP "h e", "a s",
        "u r", "l y", "ti on"};
#undef SP
    static const char *const control[] = {"<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"};
    char bytes[256][4], joined[TINY_N_PIECES][16];
    pi__str tokens[TINY_VOCAB], merges[TINY_N_PIECES];
    int32_t types[TINY_VOCAB];
    for (int i = 0; i < TINY_VOCAB; i++) {
        const int k = i - 256, c = k - TINY_N_PIECES;
        if (i < 256) byte_text(bytes[i], i);
        if (i >= 256 && c < 0) {
            const char *space = strchr(pairs[k], ' ');
            snprintf(joined[k], sizeof joined[k], "%.*s%s", (int) (space - pairs[k]), pairs[k], space + 1);
            merges[k] = str(pairs[k]);
        }
        tokens[i] = str(i < 256 ? bytes[i] : c < 0 ? joined[k] : control[c]);
        types[i] = c < 0 ? 1 : 3;
    }
    put_text(b, "tokenizer.ggml.model", "gpt2");
    put_text(b, "tokenizer.ggml.pre", pre);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.tokens", PI__GGUF_STR, TINY_VOCAB, tokens);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.token_type", PI__GGUF_I32, TINY_VOCAB, types);
    pi__gguf_put_arr(b->w, "tokenizer.ggml.merges", PI__GGUF_STR, TINY_N_PIECES, merges);
    put_u32(b, "tokenizer.ggml.bos_token_id", TINY_VOCAB - 4);
    put_u32(b, "tokenizer.ggml.eos_token_id", TINY_VOCAB - 1);
    put_bool(b, "tokenizer.ggml.add_bos_token", !strcmp(pre, "llama-bpe"));
}

/* Writes a classifier head's metadata: labels of its rows, and the prompt format for text pairs. The format is a
 * template, or EOS after each text. */
static void put_classifier(writer *b)
{
    static const char *const names[] = {"yes", "no", "maybe"};
    enum { MOST = sizeof names / sizeof *names };
    const char *arch = b->row->arch ? b->row->arch : b->row->name;
    const uint32_t n = (uint32_t) b->v['j'];
    pi__str labels[MOST];
    char key[96];
    if (!n) return;
    for (uint32_t i = 0; i < MOST; i++) labels[i] = str(names[i]);
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    put_u32(b, key, 4);
    snprintf(key, sizeof key, "%s.classifier.output_labels", arch);
    if (n > 1 && n <= MOST) pi__gguf_put_arr(b->w, key, PI__GGUF_STR, n, labels);
    if (!strcmp(b->row->vocab, "spm") || !strcmp(b->row->vocab, "t5")) put_bool(b, "tokenizer.ggml.add_eos_token", 1);
    else if (strcmp(b->row->vocab, "wpm") != 0)
        put_text(b, "tokenizer.chat_template.rerank", "<|im_start|>q {query}\nd {document}<|im_end|>");
}

/* ---- tensors */

/* Writes the n values at p with the type of a row: F32, I32, I64, or a type that has a quantizer. */
static int put_row(writer *b, int32_t type, const double *p, int64_t n)
{
    const pi__type_info *t = pi__type_info_of(type);
    const size_t size = pi__row_size(t, n);
    char *out = malloc(size);
    float *row = malloc((size_t) n * sizeof *row);
    int rc = out && row ? PI_OK : PI_ENOMEM;
    for (int64_t i = 0; i < n && !rc; i++) {
        row[i] = (float) p[i];
        if (type == PI__I32) ((int32_t *) (void *) out)[i] = (int32_t) p[i];
        if (type == PI__I64) ((int64_t *) (void *) out)[i] = (int64_t) p[i];
    }
    if (!rc && type != PI__I32 && type != PI__I64) pi__quantize_row(type, row, out, n, NULL);
    if (!rc) rc = pi__gguf_writer_data(b->w, out, size, b->err);
    free(row);
    free(out);
    return rc;
}

static void put_data(writer *b, const tiny_tensor *t, int32_t type, int n_dims, const int64_t *ne)
{
    const int64_t n_rows = n_dims < 2 ? 1 : n_dims < 3 ? ne[1] : n_dims < 4 ? ne[1] * ne[2] : ne[1] * ne[2] * ne[3];
    const int64_t n_in = n_dims < 4 ? ne[0] : ne[0] * ne[1] * ne[2]; /* a convolution's rows have three dimensions */
    const double scale = n_dims > 1 ? 2.0 / sqrt((double) n_in) : t->type == TINY_BIAS ? 1.0 : 0.2;
    const double mean = n_dims > 1 || t->type == TINY_BIAS ? 0.0 : 1.0;
    double *row = malloc((size_t) ne[0] * sizeof *row);
    if (!row) b->rc = PI_ENOMEM;
    for (int64_t i = 0; i < n_rows && !b->rc; i++) {
        for (int64_t j = 0; j < ne[0]; j++)
            row[j] = t->value ? t->value(b->v, &b->rng, i * ne[0] + j)
                              : scale * (tiny_random(&b->rng) / 2147483648.0 - 0.5) + mean;
        b->rc = put_row(b, type, row, ne[0]);
    }
    free(row);
}

static void put_tensors(writer *b, const tiny_tensor *list, const char *prefix)
{
    for (; list && list->name && !b->rc; list++) {
        if (!holds(b->v, list->when)) continue;
        char name[64];
        int64_t ne[4] = {0};
        int n = 0;
        for (const char *s = list->shape; s; s = strchr(s, ' '), s += s != NULL) ne[n++] = size_of(b->v, s);
        const int32_t type = list->type == TINY_OPEN ? b->type : list->type;
        const int32_t stored = (n < 2 && !list->value) || type < 0 ? PI__F32 : type;
        snprintf(name, sizeof name, "%s%s", prefix, list->name);
        if (b->data) put_data(b, list, stored, n, ne);
        else pi__gguf_put_tensor(b->w, name, stored, n, ne);
    }
}

static void put_model(writer *b, bool data)
{
    const tiny_row *r = b->row;
    b->data = data;
    put_tensors(b, r->head, "");
    for (int32_t i = r->first; i < b->v['L'] && !b->rc; i++) {
        char prefix[32];
        const bool fixed = r->prefix && !strstr(r->prefix, "blk.");
        snprintf(prefix, sizeof prefix, "%s%d.", r->prefix ? r->prefix : "blk.", i);
        if (r->per_layer) r->per_layer(b->v, i);
        put_tensors(b, r->layer, fixed ? r->prefix : prefix);
    }
    put_tensors(b, r->tail, "");
    put_tensors(b, tiny_classifier, "");
}

static const tiny_row *find_row(const char *name)
{
    for (size_t i = 0; i < tiny_n_rows; i++)
        if (!strcmp(tiny_rows[i].name, name)) return &tiny_rows[i];
    for (size_t i = 0; i < tiny_n_towers; i++)
        if (!strcmp(tiny_towers[i].name, name)) return &tiny_towers[i];
    return NULL;
}

const char *tiny_row_name(size_t i) { return i < tiny_n_rows ? tiny_rows[i].name : NULL; }

int tiny_write(const char *path, const tiny_spec *s, pi_error *err)
{
    static const tiny_spec none = {0};
    if (!s) s = &none;
    const tiny_row *r = find_row(s->arch ? s->arch : "gemma3");
    if (!r) {
        if (err) snprintf(err->msg, sizeof err->msg, "there is no tiny %.40s", s->arch);
        return PI_EINVAL;
    }
    writer b = {.row = r, .type = s->type ? s->type : r->type, .err = err};
    b.rng = s->seed ? s->seed * UINT64_C(0x9E3779B97F4A7C15) + 1 : r->rng;
    b.v['V'] = TINY_VOCAB, b.v['C'] = s->ctx ? s->ctx : 512;
    set_sizes(b.v, r->sizes);
    set_sizes(b.v, s->sizes);
    int rc = pi__gguf_writer_open(&b.w, path, 0, err);
    if (rc) return rc;
    put_text(&b, "general.architecture", r->arch ? r->arch : r->name);
    put_keys(&b, r->keys);
    put_keys(&b, r->more_keys);
    if (!r->vocab) ; /* a vision model has no vocabulary */
    else if (!strcmp(r->vocab, "spm")) put_spm(&b, "llama");
    else if (!strcmp(r->vocab, "plamo2")) put_spm(&b, "plamo2");
    else if (!strcmp(r->vocab, "wpm") || !strcmp(r->vocab, "t5")) put_words(&b, *r->vocab == 't');
    else put_bpe(&b, r->vocab);
    put_classifier(&b);
    if (!s->vocab_only) put_model(&b, false);
    if (!b.rc) b.rc = pi__gguf_writer_begin(b.w, err);
    if (!b.rc && !s->vocab_only) put_model(&b, true);
    int end = pi__gguf_writer_close(b.w, b.rc == PI_OK, err);
    return b.rc ? b.rc : end;
}

const char *tiny_path(char buf[256], const char *what)
{
    const char *dir = getenv("TMPDIR");
    snprintf(buf, 256, "%s/pagedinfer-%s-%ld.gguf", dir && *dir ? dir : "/tmp", what, (long) getpid());
    return buf;
}
