/* A tower: a vision model of its own file (mmproj), which turns an image into rows of the text model's hidden size.
 *
 *     pixels -> resize -> patches -> layers over all patches -> merge -> projector -> rows [n_tokens, width]
 *
 * A tower is a pi__model (model.h) of architecture "clip": its tensors may have any weight type, and are placed, packed
 * and counted like the text model's. It has no tokens, no shared cache and no logits. Attention over an image's own
 * patches uses op attention with keys and values in a private pool inside the tower's scratch.
 *
 * Order of calls:
 *
 *     pi__tower_open        reads and checks the file; rules, frame and sizes are known
 *     pi__tower_scratch, then pi__model_load of pi__tower_model(t), as for any model
 *     pi__tower_begin, then pi__tower_step until done, for one image after the other
 *     pi__tower_free
 *
 * A result depends only on the pixels, the grid and the file: not on other images, on the number of calls of step, on
 * threads or on limits. Memory: the model's regions; host buffers are allocated by pi__tower_open. Threads: the
 * engine's step thread; rules, frame and width are constants that any thread may read. */
#ifndef PI__TOWER_H
#define PI__TOWER_H

#include "image/picture.h"
#include "model/model.h"

typedef struct pi__tower pi__tower;

/* The text model that a tower serves. pi__tower_open checks that both fit, and picks the frame for it. */
typedef struct pi__tower_text {
    const char *arch;     /* general.architecture, for example "gemma3" */
    int32_t n_embd;       /* embedding length */
    int32_t n_deepstack;  /* layers that add DeepStack rows (ARCH.n_deepstack_layers); 0 = none */
    bool per_layer_embd;  /* the model has per-layer embeddings (Gemma 4 E2B, E4B) */
    /* Returns the id of the vocabulary entry with exactly this text, -1 = the vocabulary has none. */
    int32_t (*token)(void *ud, const char *text);
    void *ud;             /* for token */
} pi__tower_text;

/* Attention among the tokens of one image in the text model. */
enum pi__span_attention {
    PI__SPAN_CAUSAL,  /* like text */
    PI__SPAN_SLIDING, /* tokens of an image see each other in sliding-window layers only; other layers are causal */
    PI__SPAN_ALL,     /* tokens of an image see each other in all layers (within the window of sliding layers) */
};

/* The tokens around an image in the prompt:
 *
 *     text_before  begin  soft soft ... soft  end  text_after
 *
 * Soft tokens have no meaning as ids: their hidden states are the tower's rows. */
typedef struct pi__image_frame {
    int32_t begin, end;       /* ids before and after the soft tokens; -1 = none */
    int32_t soft;             /* id of each soft token in the prompt; the rows replace its embedding */
    /* Plain text around the frame ("" = none). It joins the surrounding text before that is tokenized. */
    const char *text_before, *text_after;
    /* The chat template's own text for an image, which stands for begin, soft tokens and end together: for example
     * "<|vision_start|><|image_pad|><|vision_end|>". */
    const char *placeholder;
    int32_t attention;        /* enum pi__span_attention */
    /* Tokens of an image have 2-D positions (M-RoPE), and the next text continues at first + max(rows, cols). false =
     * one position per token. */
    bool mrope;
} pi__image_frame;

/* Options of a tower. */
typedef struct pi__tower_use {
    int load_mode;            /* enum pi__load_mode */
    /* Option image-max-tokens: raises or lowers the largest number of tokens of one image, and with it the scratch
     * memory. 0 = the model's default. */
    uint32_t max_tokens;
} pi__tower_use;

/* Opens a file, reads its metadata, and declares its tensors; loads nothing. *out is NULL after an error. Errors name
 * the key or tensor, and the remedy: for example a tower of another text model, an audio-only file, or a text model in
 * the place of a tower. */
int pi__tower_open(pi__tower **out, const char *path, pi__backend *be, const pi__tower_text *text,
                   const pi__tower_use *use, pi_error *err);
/* Frees the tower and its model. t may be NULL. */
void pi__tower_free(pi__tower *t);

/* Returns the tower as a model: weights_size, pi__model_load_bytes and pi__model_load work as for a text model. load
 * also allocates the pool (pi__tower_pool_bytes) and closes the file. The caller does not free the model. */
pi__model *pi__tower_model(pi__tower *t);
/* Like pi__model_scratch, which it calls: raises the fields of lim that the tower's ops need, and returns the bytes of
 * its activations. The limits passed to the backend's reserve must include them. lim->max_tokens is not raised: larger
 * images are computed in pieces of at most this many patches; at least 64 are required. */
size_t pi__tower_scratch(pi__tower *t, pi__limits *lim);
/* Returns the bytes of the pool of keys and values, which is memory besides weights and scratch. */
size_t pi__tower_pool_bytes(const pi__tower *t);

const pi__image_rules *pi__tower_rules(const pi__tower *t);
const pi__image_frame *pi__tower_frame(const pi__tower *t);
/* Returns the floats of one row: E of the text model, times 1 + n_deepstack. The first E floats are the token's
 * embedding; block k after it (from 1) is added to the hidden state after layer k - 1 of the text model. */
int32_t pi__tower_width(const pi__tower *t);
/* Returns the identity of the loaded tower for cache keys: its weights and its rules. Valid after load. */
const pi__digest *pi__tower_digest(const pi__tower *t);

/* Starts an image: takes a reference of p until its rows are done. An image that was started before and is not done is
 * dropped. */
void pi__tower_begin(pi__tower *t, pi__picture *p);
/* Computes the next part of the image, in steps of its own on the backend (begin to finish): no other step may be in
 * flight. p->max_work bounds the part, and so the delay of other streams; the smallest part has 16 patches, or one
 * window or token. p->done = true: rows [n_tokens, width] on the device (memory of the backend's alloc) are complete.
 * rows must be the same in all calls for an image. Returns PI_OK, or the device's error: the image is then dropped. */
int pi__tower_step(pi__tower *t, float *rows, pi__image_part *p, pi_error *err);
/* Drops the image that was started, if any. */
void pi__tower_cancel(pi__tower *t);

#endif
