/* Internals of a vocabulary, shared by the files of this folder.
 *
 * A PIECE is a byte string with an id. Ids 0..n_tok-1 are the file's tokens; higher ids are strings that occur only in
 * merges (none in sane files). A merge therefore maps two ids to a third, and merging compares no strings. All strings
 * are in one pool, addressed by offset. Nothing is written after pi__vocab_load: any number of threads may read. */
#ifndef PI__VOCAB_IMPL_H
#define PI__VOCAB_IMPL_H

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/vocab.h"

enum pi__vocab_kind { PI__VOCAB_SPM, PI__VOCAB_BPE, PI__VOCAB_GEMMA4, PI__VOCAB_WPM, PI__VOCAB_UGM, PI__VOCAB_PLAMO2 };

enum { /* pi__vocab.flags[id] */
    PI__TOKF_EOG = 1,    /* ends a generation */
    PI__TOKF_RSTRIP = 2, /* white space that follows the token in the input text is dropped */
    PI__TOKF_PRINT = 4,  /* detokenizing prints the token although it is a control token */
};

typedef struct pi__piece {
    uint32_t off; /* offset in pi__vocab.pool */
    uint32_t n;   /* bytes */
} pi__piece;

typedef struct pi__piece_slot {
    uint32_t hash; /* hash of the string, so that most misses need no comparison */
    int32_t id;    /* piece; -1 = free */
} pi__piece_slot;

typedef struct pi__merge_slot {
    int32_t left, right; /* pieces; left -1 = free */
    uint32_t rank;       /* index in tokenizer.ggml.merges: lower ranks merge first */
    int32_t piece;       /* the merged piece */
} pi__merge_slot;

/* A node of the trie over the texts of special tokens. Children are a linked list, last added first. */
typedef struct pi__trie_node {
    int32_t child, sibling; /* nodes; -1 = none */
    int32_t id;             /* token that ends here; -1 = none */
    unsigned char byte;     /* byte that leads to this node */
} pi__trie_node;

typedef struct pi__pretok pi__pretok; /* compiled split expressions (pretok.c) */

enum { PI__FIM_PRE, PI__FIM_SUF, PI__FIM_MID, PI__FIM_PAD, PI__FIM_REP, PI__FIM_SEP, PI__N_FIM };

struct pi__vocab {
    int32_t kind;  /* enum pi__vocab_kind */
    int32_t n_tok; /* number of tokens in the file */
    bool add_space_prefix, add_bos, add_eos, add_sep, ignore_merges;
    bool lowercase, strip_accents; /* WPM: text normalization */
    bool merge_spaces;             /* UGM: collapse runs of spaces */
    int32_t bos, eos, sep, eot, eom, unk; /* -1 = no token */
    int32_t fim[PI__N_FIM];               /* tokens of fill-in-the-middle prompts; -1 = no token */

    char *pool; /* bytes of all pieces */
    size_t pool_n, pool_cap;
    pi__piece *piece; /* [n_piece] by id; the first n_tok are tokens */
    size_t n_piece, piece_cap;
    pi__piece_slot *slot; /* open addressing; n_slot is a power of two and at least 4/3 n_piece */
    size_t n_slot;
    uint32_t max_piece; /* length in bytes of the longest piece */

    uint8_t *attr;  /* [n_tok] enum pi__token_attr: the file's, corrected for well-known spellings */
    uint8_t *flags; /* [n_tok] PI__TOKF_* */
    float *score;   /* [n_tok] UGM and PLAMO2: log probability; SPM: merge score; otherwise NULL */
    float min_score; /* UGM: lowest score of normal tokens */

    pi__merge_slot *merge; /* open addressing; n_merge_slot is a power of two */
    size_t n_merge_slot;

    uint32_t *charsmap;    /* [n_charsmap] UGM: double array of the character map, see tokenize_ugm.c */
    char *replacement;     /* [n_replacement] bytes of the replacement texts, each ended by 0 */
    size_t n_charsmap, n_replacement;

    int32_t *sorted; /* [n_sorted] PLAMO2: tokens of text in the order of their bytes; otherwise NULL */
    size_t n_sorted;

    int32_t start_piece[256]; /* BPE: piece of a byte; GEMMA4: piece of an ASCII character; -1 = none */
    int32_t byte_id[256];     /* token of a byte that no other token covers; -1 = none */
    /* glue[b]: some piece has U+2581 (a space) right after a character with last byte b */
    bool glue[256];

    pi__trie_node *trie; /* node 0 is the root */
    size_t n_trie, trie_cap;
    bool first_any[256], first_user[256]; /* first bytes of all special tokens; of the user-defined ones */

    int32_t turn[PI__MAX_TURNS]; /* [n_turn] tokens that begin a turn */
    int32_t n_turn;

    pi__pretok *pretok; /* BPE only */
};

/* ---- pieces (vocab.c) */
static inline const char *pi__piece_text(const pi__vocab *v, int32_t id) { return v->pool + v->piece[id].off; }
/* Hashes of the bytes of a piece, and of a pair. */
uint32_t pi__piece_hash(const char *p, size_t n);
uint32_t pi__merge_hash(int32_t left, int32_t right);
/* Returns the slot that holds the piece with these n bytes, or the free slot where it would be inserted. hash:
 * pi__piece_hash of the bytes. */
pi__piece_slot *pi__piece_slot_of(const pi__vocab *v, const char *p, size_t n, uint32_t hash);
/* Returns the piece with exactly these bytes; -1 if there is none. */
int32_t pi__piece_find(const pi__vocab *v, const char *p, size_t n);
/* Returns the merge of pieces left and right; NULL if they do not merge. */
const pi__merge_slot *pi__merge_find(const pi__vocab *v, int32_t left, int32_t right);

/* ---- loading (load_special.c): special ids, end-of-generation set, attributes of well-known texts, trie */
int pi__vocab_load_special(pi__vocab *v, const pi__gguf *g, pi_error *err);

/* ---- sorting (tokenize_plamo2.c), after the scores and bytes: fills in v->sorted. PI_EFORMAT: a byte has no token */
int pi__vocab_sort(pi__vocab *v, pi_error *err);

/* ---- turns (turns.c), after load_special: tokens that begin a turn */
int pi__vocab_load_turns(pi__vocab *v, const pi__gguf *g, pi_error *err);

/* ---- pre-tokenizers (pretok.c) */
/* Settings that tokenizer.ggml.pre implies in addition to the expressions. */
typedef struct pi__pre_rules {
    bool ignore_merges; /* a word that is a token becomes that token, without merges */
    bool add_sep;       /* SEP separates two texts, unless the file says otherwise */
    bool add_bos;       /* default of add_bos_token */
} pi__pre_rules;
/* name NULL: "default". PI_EUNSUPPORTED: unknown name. */
int pi__pretok_new(pi__pretok **out, pi__str name, pi__pre_rules *rules, pi_error *err);
void pi__pretok_free(pi__pretok *p);
/* Receives one word, which is valid UTF-8. Any result except PI_OK ends the split, and pi__pretok_split returns it. */
typedef int (*pi__word_fn)(void *ud, const char *word, size_t n);
/* Splits the n bytes of text, which must be valid UTF-8, into words, and calls fn for each word in order. */
int pi__pretok_split(const pi__pretok *p, const char *text, size_t n, pi__word_fn fn, void *ud);

/* ---- byte alphabet of byte-level BPE (detok.c) */
/* Returns the code point that represents a byte; at most 0x143. */
uint32_t pi__byte_to_cp(unsigned char b);
/* Returns the byte that a code point represents; -1 if none. */
int pi__cp_to_byte(uint32_t cp);

/* ---- merging (merge.c, used by tokenize_*.c) */
typedef struct pi__sym {
    uint32_t pos, n;    /* offset and bytes in the text; n == 0: merged into the symbol to its left */
    int32_t prev, next; /* adjacent symbols; -1 = none */
    int32_t piece;      /* -1 = the bytes are not a piece */
} pi__sym;

typedef struct pi__pair {
    uint64_t key;  /* order (rank or inverted score) << 32 | left symbol: smallest merges first, leftmost on ties */
    uint32_t size; /* bytes of both symbols when the pair was pushed; the pair is stale if they differ now */
    int32_t piece; /* the merged piece */
} pi__pair;

/* UGM: the best tokenization up to a byte. PLAMO2: the best one from a byte to the end of the text. */
struct pi__best {
    double score;
    uint32_t at; /* UGM: start of its last token; PLAMO2: end of its first token */
    int32_t id;  /* that token; PLAMO2: -1 = one character as bytes */
};

typedef struct pi__tok { /* one call of pi__tokenize */
    const pi__vocab *v;
    pi__ids *out;
    pi__sym *sym;
    size_t n_sym, sym_cap;
    pi__pair *heap; /* binary min-heap by key */
    size_t n_heap, heap_cap;
    char *buf; /* [buf_cap] the text between two special tokens, with spaces replaced (pi__tok_escape) */
    size_t buf_cap;
    char *word; /* [word_cap] BPE: one word in the byte alphabet */
    size_t word_cap;
    struct pi__best *best; /* UGM, PLAMO2 */
    size_t best_cap;
    const char *raw, *subject; /* the fragment's bytes; the pre-tokenizer's copy of them (see tokenize_bpe.c) */
    const pi__trust *trust; /* NULL = all text is trusted */
} pi__tok;

static inline bool pi__trust_guards(const pi__vocab *v, const pi__trust *t, int32_t id)
{
    return v->attr[id] != PI__TOK_USER ? v->attr[id] == PI__TOK_CONTROL : t->markup[id / 8] >> (id % 8) & 1;
}

/* True if merging may give this piece: with trust, text must not become a control token. */
static inline bool pi__tok_may(const pi__tok *t, int32_t piece)
{
    return !t->trust || piece >= t->v->n_tok || !pi__trust_guards(t->v, t->trust, piece);
}

bool pi__tok_emit(pi__tok *t, int32_t id);
bool pi__tok_symbol(pi__tok *t, uint32_t pos, uint32_t n, int32_t piece);
/* Merges the symbols in t->sym, best pair first, until no pair merges. rank: stores the order of a pair (smallest
 * first) and its merged piece; false = the pair does not merge. Returns false if out of memory, or the work has
 * ended. */
typedef bool (*pi__pair_fn)(const pi__tok *t, const char *text, const pi__sym *l, const pi__sym *r, uint32_t *order,
                            int32_t *piece);
bool pi__tok_merge(pi__tok *t, const char *text, pi__pair_fn rank);
/* Push to and pop from a binary min-heap by key. tokenize.c keeps candidates of special tokens in one too. */
bool pi__heap_push(pi__pair **heap, size_t *n, size_t *cap, pi__pair p);
pi__pair pi__heap_pop(pi__pair *heap, size_t *n);
/* Copies text to t->buf with U+2581 for every space, and one in front if prefix. Returns the length; SIZE_MAX if out of
 * memory. */
size_t pi__tok_escape(pi__tok *t, bool prefix, const char *text, size_t n);

int pi__tokenize_spm(pi__tok *t, const char *text, size_t n, bool prefix);
int pi__tokenize_bpe(pi__tok *t, const char *text, size_t n);
int pi__tokenize_wpm(pi__tok *t, const char *text, size_t n);
int pi__tokenize_ugm(pi__tok *t, const char *text, size_t n);
int pi__tokenize_plamo2(pi__tok *t, const char *text, size_t n);

#endif
