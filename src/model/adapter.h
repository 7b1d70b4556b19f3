/* LoRA adapters (Hu et al., arXiv 2106.09685). A pair of low-rank matrices changes a model matrix W into W + scale *
 * alpha / rank * B A. Files come from llama.cpp's convert_lora_to_gguf: general.type "adapter", adapter.type "lora",
 * adapter.lora.alpha, and tensors NAME.lora_a [n_in, rank], NAME.lora_b [rank, n_out] of the model's tensor NAME.
 * Pairs of stacked matrices have a third dimension. Pairs of the embedding are transposed: [rank, n_vocab], [rank,
 * n_embd].
 *
 * Latent attention has per-head matrices K[h] and V[h]. Training sees them as one matrix, attn_kv_b, with one pair A,
 * B. The reader splits that pair by the heads' rows of B (k_b and v_b: see block_mla.c):
 *
 *     v_b[h] = V[h]     becomes  V[h] + B_v[h] A                 its pair:  A, B_v[h]
 *     k_b[h] = K[h]^T   becomes  (K[h] + B_k[h] A)^T             its pair:  B_k[h]^T, A^T
 *
 * A pair of attn_k_b or attn_v_b may share one lora_a or lora_b among all heads; the image stores one for each head.
 *
 * Declaring a model records the matrices that an adapter can change (pi__lora_target): layer matrices used by ops
 * linear, moe and head_linear, the embedding and the output. If the file ties embedding and output, a pair applies to
 * both uses, as in merged weights. An adapter is read into one image, the layout of the device memory:
 *
 *     pi__lora_pair of each target | A, B of the first target with a pair | of the next | ...
 *
 * F32, F16 and BF16 keep their type; other types become F32. A keeps its rows. B has the model's row order, stored as
 * columns of PI__LORA_TILE. Pairs hold offsets from the start of the image, as its address differs between devices. The
 * adapter's id is a hash of the image, so it depends on the adapter's effect and not on the file name.
 *
 * Memory: the image is in host memory until it is placed, then on the device. Threads: reading, any thread (the model
 * is read-only); placing and freeing, the step thread, as they use the device. */
#ifndef PI__ADAPTER_H
#define PI__ADAPTER_H

#include "model/model.h"

/* An adapter that was read for one model. */
typedef struct pi__adapter {
    pi__digest id;         /* hash of the image */
    int32_t n_targets;     /* number of adapter targets of the model */
    int32_t *rank;         /* [n_targets + 1] rank by target number; 0 = no pair. rank[0] is n_targets */
    int32_t max_rank;      /* max of rank[1..] */
    int32_t n_pairs;       /* number of the model's matrices that have a pair; a tied embedding counts once */
    size_t size;           /* bytes of the image */
    char *image;           /* image in host memory; NULL after placing */
    pi__lora_pair *device; /* the image on the device; NULL before placing */
} pi__adapter;

/* Reads the adapter file at path for model m into host memory. Returns PI_ENOENT, PI_EIO, PI_EFORMAT (not an
 * adapter, or damaged), PI_EINVAL (made for another model), PI_EUNSUPPORTED or PI_ENOMEM on errors. */
int pi__adapter_read(pi__adapter **out, const pi__model *m, const char *path, pi_error *err);
/* Copies the image to memory of be's alloc, and frees it in host memory. After PI_ENOMEM or PI_EDEVICE the caller must
 * still free the adapter. */
int pi__adapter_place(pi__adapter *a, pi__backend *be, pi_error *err);
void pi__adapter_free(pi__adapter *a, pi__backend *be);

/* True if some adapter of these rows has a pair for the LM head, tied or not. */
bool pi__adapters_of_logits(const pi__model *m, const pi__lora_rows *rows);

/* Called while a model is declared: makes w an adapter target if adapters may change it, and sets w->target (for the
 * embedding m->lora_embd). full: the tensor's name. row: file row of each row of w, -1 = zeros; NULL = file order.
 * n_rows: rows in the file; 0 = those of w. */
void pi__adapter_target(pi__model *m, pi__weight *w, const char *full, const int32_t *row, int64_t n_rows);
/* Makes w, a stack of per-head matrices of a layer, an adapter target. name: the layer's tensor w; both: name of
 * the tensor that stacks w with another one by head. part: the fields each, first and turned of the target (see
 * pi__lora_target). */
void pi__adapter_heads(pi__model *m, pi__weight *w, int layer, const char *name, const char *both,
                       const pi__lora_target *part);
/* Makes the declared embedding a second target, as the tied LM head, and sets embd->target. */
void pi__adapter_tied(pi__model *m, pi__weight *embd);

#endif
