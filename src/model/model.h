/* A model: hyperparameters, weights on the device, and the graph that runs a batch.
 *
 * Loading has two phases that share one list of tensors. `declare` reads metadata and names every tensor with its
 * required shape. The list determines the bytes of weights and scratch (the plan). `load` allocates exactly this
 * size and fills the tensors. To add an architecture, write one file with a `pi__arch`, built from blocks
 * (blocks.h) or from a complete dense transformer (dense.h), and add a row to archs.h.
 *
 * Memory: the model owns one weights region for each placement in use, and one scratch region. Threads: one. */
#ifndef PI__MODEL_H
#define PI__MODEL_H

#include "backend/device.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "gguf/gguf.h"
#include "model/archs.h"
#include "model/classifier.h"
#include "model/placement.h"
#include "model/weights_image.h"

/* A tensor that the graph reads, and the place to load it to: exactly one of `weight`, `scale`, `vec`, `host`,
 * `order` and `numbers` is set. */
typedef struct pi__declared {
    const pi__tensor *tensor; /* entry in the file; NULL with values */
    pi__weight *weight;       /* a matrix, or a stack of matrices, in the backend's layout */
    pi__weight *scale;        /* per-matrix output factors; a single factor in the file applies to all matrices */
    float **vec;              /* f32 values on the device */
    float factor;             /* with vec: factor of the file's values */
    const float *values;      /* with vec: its contents, instead of a tensor; NULL = none */
    float *host;              /* f32 values in host memory */
    int32_t *order;           /* integers in host memory: a permutation, or if `below` is set, values < below */
    int32_t **numbers;        /* integers on the device, each < below */
    /* with order or numbers: exclusive upper bound of the integers; 0 = `order` is a permutation */
    int32_t below;
    /* with weight and vec: file row (value) of each row (value); -1 = zeros. Its contents are valid when this tensor is
     * loaded. NULL = file order */
    const int32_t *row;
    int64_t n_row;            /* with vec: number of values in row; 0 = as many as in the file */
    const int32_t *col;       /* with weight: file column of each column; NULL = file order. Not with row or turned */
    bool turned;              /* with weight: `row` names file rows that become the matrix's columns (transposed) */
    size_t size;              /* bytes on the device */
    int32_t n_part;           /* with vec: the first of so many joined tables, all of this memory; 0 = not joined */
    /* not 0: a later one of joined tables. Its values are `part` bytes after those of m->want[first - 1] */
    size_t first, part;
    /* not 0: a stack of experts in host memory, of `size` bytes; then come so many bytes of device memory, for
     * copies */
    size_t slots;
    int32_t placement;        /* PI__AT_*: region that holds the tensor */
    bool own;                 /* the tensor has pages of its own */
    bool mapped;              /* these pages have physical memory */
    /* byte offset in the region's own pages, or with `own` false in its shared part (weights.c) */
    size_t at;
} pi__declared;

/* The weights of one placement (weights.c). */
typedef struct pi__region {
    char *base;               /* address of the region; NULL = empty, or not allocated yet */
    size_t page;              /* page size of the backend; 0 = no pages */
    size_t own;               /* bytes of tensors with pages of their own; a multiple of the page */
    size_t host;              /* part of these bytes: in host memory */
    size_t shared;            /* bytes of the other tensors, which follow these pages */
    /* the shared part has memory. Without pages this is not used: all memory exists as soon as base is set */
    bool mapped;
    int part;                 /* PI__PART_*. For a device's part of an image, `mapped` covers the entire region */
} pi__region;

/* An architecture: its name and the functions of its graph. */
typedef struct pi__arch {
    const char *name; /* value of general.architecture in files */
    size_t size;      /* bytes of the architecture's own struct, at model->arch_data */
    /* Reads metadata into *m and its own struct and declares all tensors. The first error is kept in m->error
     * (declare.h). */
    void (*declare)(pi__model *m);
    /* Called when all tensors are loaded: derives and checks values. Reports errors like declare. NULL = nothing to
     * do. */
    void (*loaded)(pi__model *m);
    /* Takes all scratch memory for steps within `lim` from the arena. A first call with an empty arena only
     * measures. */
    void (*layout)(pi__model *m, const pi__limits *lim, pi__arena *a);
    /* Runs the batch through the first n_layer layers (at most n_trunk). The state of the logits rows stays in
     * scratch for logits and hidden. */
    void (*forward)(pi__model *m, const pi__batch *b, int32_t n_layer);
    /* Computes the logits of logits rows first..first + n - 1 of the last forward: out [n, n_vocab] on the device.
     * NULL for bidirectional models. */
    void (*logits)(pi__model *m, int32_t first, int32_t n, float *out);
    /* Writes the hidden states of the same rows after the output norm (the LM head's input) to out [n, n_embd] on the
     * device. */
    void (*hidden)(pi__model *m, int32_t first, int32_t n, float *out);
    /* Drafts the next tokens, with a draft head of the model or as a small model of its own. NULL = the architecture
     * cannot draft. The input for token t of b is the token itself and a hidden state of the token before it. Hidden
     * states are taken after the output norm, or at the point that the architecture's drafters read.
     * b->hidden_row[t] is the row of the hidden state: a token row of the target's last forward, or a logits row if
     * the drafter has no cache; -1 = unknown, use zeros. With `chained` it is a row of the last draft instead.
     * logits [b->n_rows, n_vocab] on the device; NULL = only fill the drafter's cache. */
    void (*draft)(pi__model *m, const pi__batch *b, bool chained, float *logits);
    /* The drafter has a KV cache of its own, from position 1 on, so that `draft` must be called for all tokens. */
    bool draft_has_cache;
    /* For block drafters: computes the keys and values of b's tokens from the hidden states that the target
     * captured, and writes them to the drafter's cache. row[t]: row of token t in the target's last forward. The
     * blocks are then drafted by forward. */
    void (*inject)(pi__model *m, const pi__batch *b, const int32_t *row);
    /* For block drafters with n_select: computes only the vectors `before` and `after` (pi__draft_blocks) of b's
     * tokens. */
    void (*candidates)(pi__model *m, const pi__batch *b);
    bool captures;    /* forward captures the hidden states that block drafters read (pi__capture) */
    bool bidirectional;   /* see pi__model */
    /* adapters are supported: forward uses `pi__multiply` in its layers, with the rows in pi__model.lora */
    bool adapters;
    /* Returns the size name from the shape, for example "270M". NULL = derive it from the parameter count. */
    const char *(*size_name)(const pi__model *m);
} pi__arch;

/* A matrix that adapters can change (adapter.h). Kinds: a matrix or stack that is multiplied; an embedding, read by
 * token row; a tied embedding, as the LM head; or one matrix per head (op head_linear). */
enum { PI__LORA_MATRIX, PI__LORA_EMBEDDING, PI__LORA_TIED, PI__LORA_HEADS };
typedef struct pi__lora_target {
    char name[64];            /* name of the model's tensor */
    int kind;                 /* PI__LORA_* */
    int64_t n_in, n_out;      /* columns, rows */
    int64_t n_mat;            /* matrices in the stack */
    const int32_t *row;       /* [n_out] file row of each row, -1 = zeros; NULL = file order */
    int64_t n_rows;           /* rows in the file; 0 = n_out */
    /* only of PI__LORA_HEADS: */
    /* name of a tensor that stacks this matrix and another one by head (attn_kv_b); an adapter's pair may have that
     * name */
    char both[64];
    int32_t each, first;      /* rows of a head in `both`; index of the target's first row among them */
    bool turned;              /* the target holds these rows as columns (transposed) */
} pi__lora_target;

enum { PI__MAX_CAPTURE = 16, PI__MAX_SELECT = 64 };

/* Hidden states that a drafter reads from its target: the residual stream before these layers, concatenated. */
typedef struct pi__captured {
    int32_t n;                 /* number of layers; 0 = no capture */
    int32_t layer[PI__MAX_CAPTURE]; /* number of each layer; n_trunk = the output of the last layer */
    float *x;                  /* scratch: [T, n, n_embd] of the last forward */
} pi__captured;

/* A block drafter: drafts a token at each position of a block (last token, then mask tokens) in one pass. */
typedef struct pi__draft_blocks {
    int32_t size;              /* max tokens of a block, the first one included */
    int32_t mask;              /* token id of all positions except the first */
    int32_t n_out;             /* logits in a row of the drafter */
    const int32_t *token;      /* [n_out] token id of each logit; NULL = its index */
    /* true = the first position drafts, too: each row of logits predicts the token after its position. false = a row
     * predicts the token at its position, and the first row is not used */
    bool anchor;
    /* logits depend on the previous token: `draft` computes the logits of the row hidden_row[t] of the last
     * forward, given the previous token t */
    bool chained;
    /* with chained: [R] on the device, confidence logit of each row of the last draft; NULL = use the token's
     * probability */
    const float *sure;
    float sure_bias;           /* added to the confidence logits */
    /* DFlash2 selector: picks each token among the row's top candidates by its affinity to the token chosen before: */
    int32_t n_select;          /* candidates per row; 0 = no selector: each row's best token is taken */
    int32_t rank;              /* number of values of the selector's vectors, which are on the device: */
    const float *gate;         /* [rows of the last logits, rank] */
    /* [T, rank] vectors of the tokens that were last passed to candidates: as previous token, as candidate */
    const float *before, *after;
    float logit_scale, softcap; /* applied to logits before they are compared; softcap 0 = none */
} pi__draft_blocks;

struct pi__model {
    const pi__arch *arch;      /* the architecture's functions */
    void *arch_data;           /* the architecture's struct */
    const pi__gguf *g;         /* the model's file; set only during declare and load */
    pi__backend *be;           /* backend that runs the model */
    /* placement of matrices and caches, only during declare; NULL = all on the default placement */
    const pi__placement *placement;
    pi__model *target;         /* of a drafter: the model it drafts for; else NULL */
    pi_error error;            /* first error during declare or load; code PI_OK = no error */
    const char *blk;           /* prefix of a layer's tensor names; NULL = "blk.N" */
    bool encoder_names;        /* the prefix is "enc.blk.N" (T5); not with blk */
    struct pi__owned *owned;   /* allocations freed with the model (pi__model_calloc) */
    bool no_draft;             /* the architecture can draft, but the file lacks the draft head's tensors */
    int32_t n_draft;           /* max drafts of a sequence in a step; 0 = no drafting */
    bool with_head;            /* load the draft head, too */
    int32_t n_vocab;           /* rows of the token embedding */
    int32_t n_ctx_train;       /* context_length: training context in tokens */
    /* max context of a request in tokens, as the engine is configured; default n_ctx_train */
    int32_t n_ctx;
    bool yarn_exact;           /* YaRN's ramp has fractional ends, instead of ends rounded to whole pairs */
    bool long_rope;            /* RoPE uses the factors for long contexts (LongRoPE) */
    /* bidirectional attention: a prompt is computed in one step, does not use the prefix cache, and only produces
     * vectors */
    bool bidirectional;
    int32_t n_embd;            /* embedding_length */
    int32_t n_layer;           /* layers in the file (block_count), including a draft head's */
    int32_t n_trunk;           /* max layers that forward runs: excludes a draft head's and layers left out */
    int32_t n_exit;            /* layers to run instead of all (option n-layer-exit); 0 = all */
    int32_t n_used;            /* experts per token instead of the file's number; 0 = as in the file */
    const struct pi__head *head; /* embedding and LM head that a drafter may reuse; NULL = not available */
    /* [any, image_ld] rows of images, see op place_rows; set by the engine. A row is the token's embedding, then for
     * each of n_deepstack layers what is added to the residual stream after the layer. NULL = the engine reads no
     * images */
    const float *image_rows;
    int64_t image_ld;          /* floats between rows: n_embd * (1 + n_deepstack) */
    int32_t n_deepstack;       /* first layers with such an addition (n_deepstack_layers); 0 = none */
    bool per_layer_embd;       /* each layer adds an embedding of the token of its own (Gemma 4 E-series) */
    bool mrope;                /* RoPE has sections for time, row and column (M-RoPE) */
    /* layers in which tokens of an image see each other (pi__attention.spans): none, those with a window, all */
    enum { PI__SPANS_NONE, PI__SPANS_WINDOW, PI__SPANS_ALL } image_spans;
    float sparsity;            /* threshold of sparse prefill for full-attention layers (pi__attention); 0 = dense */
    pi__captured captured;     /* hidden states captured for a drafter */
    pi__draft_blocks block;    /* properties of a block drafter; size 0 = this model is not one */
    int32_t n_groups;          /* cache groups */
    struct {
        const char *name;      /* "full", "window", "recurrent" */
        int32_t window;        /* window in tokens; 0 = unlimited */
        int32_t keep;          /* max tokens that a token attends to, see pi__group_spec; 0 = window */
        int32_t block;         /* min tokens of a block; 0 = any */
        int32_t n_layers;      /* number of layers with K and V, rows or a state in the group */
        bool recurrent;        /* holds recurrent states and their snapshots instead of K,V */
        /* the group is of a block drafter: only sequences that use the drafter have blocks in it */
        bool draft;
    } group[PI__MAX_GROUPS];
    /* [n_kv] caches of layers in the order of a block; the engine sets types, base and stride */
    pi__kv_layer *kv;
    int32_t n_kv;              /* entries of kv in use: caches of K and V, or of rows */
    size_t cap_kv;             /* entries allocated */
    pi__state_layer *state;    /* [n_state] in slot order; the engine sets the memory */
    int32_t n_state;           /* layers with a recurrent state */
    size_t cap_state;          /* entries allocated */
    pi__lora_target *lora_target; /* [n_lora_target] adapter targets; target i has number i + 1 */
    int32_t n_lora_target;     /* matrices that adapters can change */
    size_t cap_lora_target;    /* entries allocated */
    int32_t lora_embd;         /* target number of the embedding; 0 = not a target */
    const pi__lora_rows *lora; /* adapters of the rows that `pi__multiply` is called for; NULL = no row has one */
    pi__best_rows *best;       /* values that `pi__head_logits` has to compute exactly; NULL = all values */
    pi__declared *want;            /* [n_want] declared tensors, in file layer order */
    size_t n_want, cap_want;   /* entries used, allocated */
    /* the model's part of the limits: matrices, heads, experts, ...; the engine adds tokens, sequences, rows */
    pi__limits lim;
    uint64_t n_params;         /* number of values in all tensors of the file */
    uint64_t file_bytes;       /* bytes of the data of all tensors in the file */
    size_t weights_size[PI__N_REGIONS]; /* by placement: bytes of the region of weights, without weights[i].host */
    pi__region weights[PI__N_REGIONS]; /* by placement: the region of weights */
    pi__weights_image image;   /* weights image shared by processes; its source is set before load */
    size_t scratch_size;       /* bytes of `scratch` */
    char *scratch;             /* scratch memory on the device */
    bool want_digest;          /* load computes `digest` */
    bool check_tensors;        /* load refuses values that are not finite */
    pi__progress *progress;    /* progress of a running load; NULL = not reported */
    pi__digest digest;         /* hash of the bytes of all loaded tensors, if want_digest */
    /* how vectors are pooled: "none", "mean", "cls", "last", "rank"; "" = not in the file */
    const char *pooling;
    pi__classifier classifier; /* head that scores texts; n_labels 0 = none */
    pi__dense_heads dense;     /* layers after pooling; n_out 0 = none */
    char desc[96];             /* "gemma3 270M Q4_K - Medium" */
    char name[64];             /* general.name */
};

/* Contents of a GGUF file: a model, a model with a draft head, a drafter, or only a vocabulary. */
enum pi__kind { PI__KIND_MODEL, PI__KIND_WITH_HEAD /* and a draft head */, PI__KIND_DRAFTER, PI__KIND_VOCABULARY };
enum pi__kind pi__model_kind(const pi__gguf *g);

/* The use of a model: options of pi__model_declare. */
typedef struct pi__model_use {
    /* placement of the file's tensors, for a device and the CPU, or pipeline stages; NULL = all on the default
     * placement */
    const pi__placement *placement;
    /* for a drafter: the model that it drafts for, which must be freed after it; else NULL */
    pi__model *target;
    int32_t n_draft;           /* see pi__model */
    bool with_head;            /* see pi__model */
    int32_t n_exit, n_used;    /* see pi__model */
    int32_t n_ctx;             /* see pi__model; 0 = training context */
} pi__model_use;
/* Creates a model: reads metadata, checks the shape of every tensor, and computes sizes; loads nothing. g must stay
 * open until load has ended. */
int pi__model_declare(pi__model **out, const pi__gguf *g, pi__backend *be, const pi__model_use *use, pi_error *err);
/* Raises the fields of lim that depend on the model to the values that this model needs. Returns the scratch bytes
 * for lim. */
size_t pi__model_scratch(pi__model *m, pi__limits *lim);
/* Returns the number of bytes that load reads from the file. */
uint64_t pi__model_load_bytes(const pi__model *m);
/* Allocates and fills in weights, and allocates scratch for lim. p receives the number of bytes read, while they
 * are read; NULL = not reported. */
int pi__model_load(pi__model *m, const pi__limits *lim, pi__progress *p, pi_error *err);
void pi__model_free(pi__model *m);

/* weights.c. `pi__weights_want` assigns a declared tensor its place in the region of its placement, and adds its
 * bytes to the region. `pi__weights_alloc` allocates all regions. */
int pi__weights_want(pi__model *m, pi__declared *w, pi_error *err);
int pi__weights_alloc(pi__model *m, pi_error *err);
/* Locks the loaded weights that are in host memory (mlock). Returns 0 or an errno; *left receives the bytes that
 * are not locked. */
int pi__weights_lock(const pi__model *m, size_t *left);
/* Returns the address of the tensor in its region; NULL = the tensor has no bytes in a region. */
char *pi__weights_at(const pi__model *m, const pi__declared *w);
/* Frees all regions. */
void pi__weights_free(pi__model *m);

/* Max counts that are accepted in metadata, so that arithmetic on them cannot overflow. */
enum { PI__MAX_LAYERS = 1024, PI__MAX_EMBD = 1 << 20, PI__MAX_HEADS = 4096, PI__MAX_HEAD_DIM = 4096 };

#define PI__DECLARE_ARCH(suffix, ...) extern const pi__arch pi__arch_##suffix;
PI__ARCHS(PI__DECLARE_ARCH)
#undef PI__DECLARE_ARCH
/* Returns architecture i of the list in archs.h, or NULL after the last; *name receives its name there. */
const pi__arch *pi__arch_at(size_t i, const char **name);

#endif
