/* A model: hyperparameters, weights on the device, and the graph that runs a batch.
 *
 * Loading has two phases that share one list. declare() reads metadata and names every tensor with the shape it must
 * have; from the list follow the bytes of weights and scratch (the plan). load() allocates exactly those bytes and
 * fills them. A new architecture is one file with a pi__arch, made of blocks (blocks.h) or of a whole dense transformer
 * (dense.h), and one line in model.c.
 *
 * Memory: the model owns a weights region in each placement where it has any, and one scratch region. One thread. */
#ifndef PI__MODEL_H
#define PI__MODEL_H

#include "backend/device.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "gguf/gguf.h"
#include "model/classifier.h"
#include "model/placement.h"
#include "model/weights_image.h"

/* A tensor that the graph reads; exactly one of weight, scale, vec, host and order is set. */
typedef struct pi__want {
    const pi__tensor *tensor; /* in the file */
    pi__weight *weight;       /* a matrix, or a stack of them, in the backend's layout */
    pi__weight *scale;        /* the factors of its results; a single one in the file is that of all matrices */
    float **vec;              /* f32 values on the device */
    float factor;             /* of vec: multiplies what is in the file */
    float *host;              /* f32 values in ordinary memory, for loaded() */
    int32_t *order;           /* whole numbers in ordinary memory: a permutation of those below its length, or */
    int32_t **numbers;        /* whole numbers on the device, */
    int32_t below;            /* each below this; 0: not numbers like that */
    const int32_t *row;       /* of weight and vec: file row (value) of each of theirs, known before they are loaded; NULL: as
                               * in the file */
    bool turned;              /* of weight: those rows are a matrix's columns */
    size_t size;              /* bytes on the device */
    int32_t placement;        /* PI__AT_*: in which region */
    bool own;                 /* it has pages of its own there, */
    bool mapped;              /* and memory in them */
    size_t at;                /* first byte, from where such ones, or the others, begin (weights.c) */
} pi__want;

/* The weights of one placement (weights.c). */
typedef struct pi__region {
    char *base;               /* NULL: nothing lies there, or not yet */
    size_t page;              /* of the backend */
    size_t own;               /* bytes of tensors with pages of their own; multiple of the page */
    size_t shared;            /* bytes of those that lie together, behind */
    bool mapped;              /* those have memory; without pages all have, as soon as there is a base */
    int part;                 /* PI__PART_*: of a device's part of an image, mapped says it of all as one */
} pi__region;

typedef struct pi__arch {
    const char *name; /* general.architecture */
    size_t size;      /* bytes of its own struct, at model->arch_data */
    /* Reads metadata into *m and its own struct and wants all tensors; what is wrong sticks in m->error (declare.h). */
    void (*declare)(pi__model *m);
    /* All tensors are there: what follows from values, and refusing them, in the same way. NULL: nothing. */
    void (*loaded)(pi__model *m);
    /* Takes all scratch from the arena (which measures first), for lim. */
    void (*layout)(pi__model *m, const pi__limits *lim, pi__arena *a);
    /* Runs the batch through the first n_layer layers, n_trunk at most, up to its logits rows. */
    void (*forward)(pi__model *m, const pi__batch *b, int32_t n_layer);
    /* Logits of rows first..first+n of the last forward: out [n, n_vocab] on the device. NULL with both_ways. */
    void (*logits)(pi__model *m, int32_t first, int32_t n, float *out);
    /* The hidden states of the same rows, after the output norm: what logits multiplies. out [n, n_embd] on the device. */
    void (*hidden)(pi__model *m, int32_t first, int32_t n, float *out);
    /* Drafts what follows (a head of the model, or a small model beside it); NULL: it cannot. Token t of b, at its
     * position, with the hidden state of the token before it (after the output norm, or whatever the architecture's
     * drafters read): that of token b->hidden_row[t] of the target's last forward (of that row where the drafter has no
     * cache), -1: none is known, take zeros; or with chained that of that row of the last draft.
     * logits [b->n_rows, n_vocab] on the device; NULL: only the drafter's cache is filled. */
    void (*draft)(pi__model *m, const pi__batch *b, bool chained, float *logits);
    /* The drafter has a KV cache of its own, from position 1 on: it is run over all tokens. */
    bool draft_has_cache;
    /* Of a drafter of blocks: the keys and values of b's tokens, which it makes of what the target's last forward captured
     * in row row[t] for token t of b. forward is then given the blocks. */
    void (*inject)(pi__model *m, const pi__batch *b, const int32_t *row);
    /* Of such a drafter with n_select: the vectors before and after of b's tokens, of which nothing else is read. */
    void (*candidates)(pi__model *m, const pi__batch *b);
    bool captures;    /* its forward captures what such drafters read (pi__capture) */
    bool both_ways;   /* see pi__model */
    bool adapters;    /* its forward multiplies by pi__multiply what lies in its layers, on rows that the model knows (lora) */
    /* "270M", from the shape; NULL: count parameters. */
    const char *(*size_name)(const pi__model *m);
} pi__arch;

/* A matrix that adapters can change (adapter.h), and how it is used: as one, or a stack of them, that is multiplied with; as an
 * embedding, of which a token has a row; multiplied with where it is the embedding, too; or one of each head (op head_linear). */
enum { PI__LORA_MATRIX, PI__LORA_EMBEDDING, PI__LORA_TIED, PI__LORA_HEADS };
typedef struct pi__lora_target {
    char name[64];            /* of its tensor */
    int kind;                 /* PI__LORA_* */
    int64_t n_in, n_out;      /* columns, rows */
    int64_t n_mat;            /* matrices of a stack */
    const int32_t *row;       /* [n_out] the file's row of each of them; NULL: as in the file */
    /* of HEADS */
    char both[64];            /* a tensor that files have of two such matrices together, by head: of a pair of that */
    int32_t each, first;      /* a head has so many rows, and the target those from first on, */
    bool turned;              /* as its columns */
} pi__lora_target;

enum { PI__MAX_CAPTURE = 16, PI__MAX_SELECT = 64 };

/* What a drafter reads of its target: the residual stream before these layers, side by side. */
typedef struct pi__captured {
    int32_t n;                 /* layers; 0: nothing is captured */
    int32_t layer[PI__MAX_CAPTURE]; /* n_trunk: behind the last one */
    float *x;                  /* scratch: [T, n, n_embd] of the last forward */
} pi__captured;

/* A drafter of blocks: the last token and masks behind it give a token each, in one pass. */
typedef struct pi__draft_blocks {
    int32_t size;              /* most tokens of a block */
    int32_t mask;              /* id of the others than the first */
    int32_t n_out;             /* logits of a row */
    const int32_t *token;      /* [n_out] the id that each stands for; NULL: its index */
    bool anchor;               /* the first token gives one, too: the token behind it is the first's, not the first mask's */
    bool chained;              /* logits depend on the token before: draft gives those of row hidden_row[t] of the last forward
                                * behind token t */
    const float *sure;         /* of chained: [R] logit of how sure draft was of each row, on the device; NULL: its
                                * probability says that */
    float sure_bias;           /* is added to it */
    /* of a drafter whose tokens are chosen among the best of each row, by what goes with the token chosen before: */
    int32_t n_select;          /* the best of a row; 0: it is none, and the best one is taken */
    int32_t rank;              /* values of its vectors, on the device: */
    const float *gate;         /* [rows of the last logits, rank] */
    const float *before, *after; /* [T, rank] of the tokens last given to candidates */
    float logit_scale, softcap; /* of logits before they are compared; softcap 0: none */
} pi__draft_blocks;

struct pi__model {
    const pi__arch *arch;      /* its code */
    void *arch_data;           /* its struct */
    const pi__gguf *g;         /* the file; only during declare and load */
    pi__backend *be;           /* where it runs */
    const pi__placement *placement; /* of matrices and caches, only during declare; NULL: everything is with the device */
    pi__model *target;         /* the target that it drafts for, or NULL */
    pi_error error;            /* the first thing that was wrong while it was declared or loaded; code PI_OK: nothing */
    const char *blk;           /* what names of a layer's tensors begin with; NULL: "blk.N" */
    struct pi__owned *owned;   /* memory that lives as long as the model (pi__model_calloc) */
    bool no_draft;             /* the architecture can draft, but the file has not what that needs */
    int32_t n_draft;           /* most drafts a sequence gets in a step; 0: no drafting */
    bool with_head;            /* its draft head is wanted, too */
    int32_t n_vocab;           /* rows of the token embedding */
    int32_t n_ctx_train;       /* context_length */
    int32_t n_ctx;             /* longest request that the engine was asked for; else n_ctx_train */
    bool yarn_exact;           /* YaRN goes from fast to slow pairs between fractions of pairs, not whole ones */
    bool long_rope;            /* its rotation is that of long contexts */
    bool both_ways;            /* tokens see those behind them: a prompt is one step, takes nothing from others and leaves nothing
                                * to them, and gives vectors alone */
    int32_t n_embd;            /* embedding_length */
    int32_t n_layer;           /* block_count */
    int32_t n_trunk;           /* layers that forward runs at most: without a draft head's, and without those left out */
    int32_t n_exit;            /* layers that are computed instead of all; 0: all */
    int32_t n_used;            /* experts of a token instead of the file's number; 0: that */
    const struct pi__head *head; /* embedding and logits, which a drafter may borrow; NULL: none that it could */
    float sparsity;            /* of layers that attend to all tokens, in sparse prefill (pi__attention); 0: none */
    pi__captured captured;     /* what a drafter wants of it */
    pi__draft_blocks block;    /* of a drafter of blocks; size 0: it is none */
    int32_t n_groups;          /* cache groups */
    struct {
        const char *name;      /* "full", "window", "recurrent" */
        int32_t window;        /* 0: all tokens */
        int32_t keep;          /* see pi__group_spec; 0: window */
        int32_t block;         /* least tokens of a block; 0: any */
        int32_t n_layers;      /* layers that keep K,V or a state in it */
        bool recurrent;        /* states and snapshots of them instead of K,V */
        bool draft;            /* of a drafter of blocks beside the model: only sequences that use it have anything here */
    } group[PI__MAX_GROUPS];
    pi__kv_layer *kv;          /* [n_kv] in the order inside a block; the engine sets types, base and stride */
    int32_t n_kv;              /* layers that keep K,V */
    size_t cap_kv;             /* entries allocated */
    pi__state_layer *state;    /* [n_state] in the order inside a slot; the engine sets the memory */
    int32_t n_state;           /* layers that keep a recurrent state */
    size_t cap_state;          /* entries allocated */
    pi__lora_target *lora_target; /* [n_lora_target] number 1 is the first */
    int32_t n_lora_target;     /* matrices that adapters can change */
    size_t cap_lora_target;    /* entries allocated */
    int32_t lora_embd;         /* number of the embedding; 0: it is none */
    const pi__lora_rows *lora; /* of the rows that pi__multiply is called for; NULL: none has an adapter */
    pi__best_rows *best;       /* what is wanted of the rows that pi__head_logits is called for; NULL: all of them */
    pi__want *want;            /* tensors in the order of the file's layers */
    size_t n_want, cap_want;   /* entries */
    pi__limits lim;            /* widest matrix and heads; the engine adds tokens, sequences, rows */
    uint64_t n_params;         /* values in all tensors of the file */
    uint64_t file_bytes;       /* bytes of all tensors in the file */
    size_t weights_size[PI__N_REGIONS]; /* bytes of the regions of weights */
    pi__region weights[PI__N_REGIONS]; /* region of each placement */
    pi__weights_image image;   /* in which they lie where processes share them; its source is set before load */
    size_t scratch_size;       /* bytes of the region */
    char *scratch;             /* region on the device */
    bool want_digest;          /* load computes digest */
    bool check_tensors;        /* load refuses values that are no numbers */
    pi__progress *progress;    /* of load, while it runs; or NULL */
    pi__digest digest;         /* of the bytes of all tensors that were loaded */
    const char *pooling;       /* what its vectors are made of: "none", "mean", "cls", "last", "rank"; "": the file does not say */
    pi__classifier classifier; /* head that scores texts; n_labels 0: none */
    pi__dense_heads dense;     /* layers behind pooling; n_out 0: none */
    char desc[96];             /* "gemma3 270M Q4_K - Medium" */
    char name[64];             /* general.name */
};

/* What a file is. */
enum pi__kind { PI__KIND_MODEL, PI__KIND_WITH_HEAD /* and a draft head */, PI__KIND_DRAFTER, PI__KIND_VOCABULARY };
enum pi__kind pi__model_kind(const pi__gguf *g);

/* What a model is declared for. */
typedef struct pi__model_use {
    const pi__placement *placement; /* of the file, where the backend is two and not all lies with the first; or NULL */
    pi__model *target;         /* the model that the file is a drafter of, which must outlive it; or NULL */
    int32_t n_draft;           /* see pi__model */
    bool with_head;            /* the same */
    int32_t n_exit, n_used;    /* the same */
    int32_t n_ctx;             /* the same; 0: as it was trained for */
} pi__model_use;
/* Plans: metadata read, every tensor checked, sizes known, nothing loaded. g must outlive load. */
int pi__model_declare(pi__model **out, const pi__gguf *g, pi__backend *be, const pi__model_use *use, pi_error *err);
/* Bytes of scratch for lim, whose fields that depend on the model are raised to what it needs. */
size_t pi__model_scratch(pi__model *m, pi__limits *lim);
/* Bytes of the file that load reads. */
uint64_t pi__model_load_bytes(const pi__model *m);
/* Allocates and fills weights and scratch. p (or NULL) is told of the bytes as they are read. */
int pi__model_load(pi__model *m, const pi__limits *lim, pi__progress *p, pi_error *err);
void pi__model_free(pi__model *m);

/* weights.c: gives a tensor its bytes in its region; all regions their memory; the tensor's address, NULL for one without
 * bytes there; gives all memory back. */
int pi__weights_want(pi__model *m, pi__want *w, pi_error *err);
int pi__weights_alloc(pi__model *m, pi_error *err);
/* Keeps what lies in the host's memory there, after it was loaded. 0, or errno; *left: bytes that are not kept. */
int pi__weights_lock(const pi__model *m, size_t *left);
char *pi__weights_at(const pi__model *m, const pi__want *w);
void pi__weights_free(pi__model *m);

/* Largest allowed counts: metadata beyond them is refused, so that arithmetic on them is safe. */
enum { PI__MAX_LAYERS = 1024, PI__MAX_EMBD = 1 << 20, PI__MAX_HEADS = 4096, PI__MAX_HEAD_DIM = 4096 };

extern const pi__arch pi__arch_deepseek4;
extern const pi__arch pi__arch_dflash, pi__arch_dflash_qwen35, pi__arch_dflash_gemma4;
extern const pi__arch pi__arch_gemma2, pi__arch_gemma3, pi__arch_gemma_embedding;
extern const pi__arch pi__arch_gemma4_assistant, pi__arch_gemma4;
extern const pi__arch pi__arch_llama, pi__arch_mistral3;
extern const pi__arch pi__arch_qwen2, pi__arch_qwen3, pi__arch_qwen3moe, pi__arch_phi3;
extern const pi__arch pi__arch_bert, pi__arch_nomic_bert;
extern const pi__arch pi__arch_gpt_oss, pi__arch_glm4moe, pi__arch_minimax_m2, pi__arch_deepseek2;
extern const pi__arch pi__arch_granite, pi__arch_granitemoe;
extern const pi__arch pi__arch_qwen35;
extern const pi__arch pi__arch_qwen35moe, pi__arch_qwen3next;

#endif
