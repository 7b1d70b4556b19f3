/* Adapters (LoRA, Hu et al., arXiv 2106.09685): for some matrices W of a model two thin ones each, by which W becomes
 * W + scale * alpha / rank * B A. Files are those of llama.cpp's convert_lora_to_gguf: general.type "adapter", adapter.type
 * "lora", adapter.lora.alpha, and tensors NAME.lora_a [n_in, rank], NAME.lora_b [rank, n_out] of the model's tensor NAME. Those
 * of stacked matrices have a third dimension; those of the embedding are the other way round, [rank, n_vocab], [rank, n_embd].
 * Latent attention has matrices of heads, K[h] and V[h], which training knows as one, attn_kv_b, with a pair A, B. That is read
 * as what it is for them, rows of B by head (block_mla.c says what k_b and v_b are):
 *
 *     v_b[h] = V[h]     becomes  V[h] + B_v[h] A                 its pair:  A, B_v[h]
 *     k_b[h] = K[h]^T   becomes  (K[h] + B_k[h] A)^T             its pair:  B_k[h]^T, A^T
 *
 * A pair of attn_k_b or attn_v_b itself may have one lora_a, or lora_b, for all heads; in the image each has its own.
 *
 * Which matrices can have one is noted while a model is declared (pi__lora_target): those of its layers that ops linear, moe and
 * head_linear multiply, embedding and output. Where the file has one tensor for these two, what an adapter has for it goes for both, as it
 * does in merged weights. An adapter is read into one image, which is what lies on the device:
 *
 *     pi__lora_pair of each target | A, B of the first target that has any | of the next | ...
 *
 * F32, F16 and BF16 stay what they are, all else becomes F32; A keeps its rows, B has them in the order of the model's, as
 * columns of PI__LORA_TILE. Pairs say where theirs is from the image's beginning, which may lie at another address on each of
 * several devices. Its id is a hash of the image: what an adapter does, whatever its file is called.
 *
 * Memory: the image on the host until it is placed, then on the device. Reading: any thread, the model is only looked at.
 * Placing and freeing: the step thread, as the device is used. */
#ifndef PI__ADAPTER_H
#define PI__ADAPTER_H

#include "model/model.h"

typedef struct pi__adapter {
    pi__digest id;         /* of what it does */
    int32_t n_targets;     /* of the model */
    int32_t *rank;         /* [n_targets + 1] by target; 0: none. The first is n_targets */
    int32_t max_rank;      /* the largest */
    int32_t n_pairs;       /* matrices that it changes */
    size_t size;           /* bytes of the image */
    char *image;           /* on the host; NULL once it is placed */
    pi__lora_pair *device; /* the image there; NULL before */
} pi__adapter;

/* PI_ENOENT, PI_EIO, PI_EFORMAT (no adapter, or damaged), PI_EINVAL (of another model), PI_EUNSUPPORTED, PI_ENOMEM. */
int pi__adapter_read(pi__adapter **out, const pi__model *m, const char *path, pi_error *err);
/* Moves the image to the device. PI_ENOMEM, PI_EDEVICE: it is still to be freed. */
int pi__adapter_place(pi__adapter *a, pi__backend *be, pi_error *err);
void pi__adapter_free(pi__adapter *a, pi__backend *be);

/* Some run's adapter has something for what gives logits. */
bool pi__adapters_of_logits(const pi__model *m, const pi__lora_rows *rows);

/* While a model is declared: w is the tensor called full, whose rows are those of the file in this order (NULL: as there). */
void pi__adapter_target(pi__model *m, pi__weight *w, const char *full, const int32_t *row);
/* The same: w has a matrix of each head, tensor name of the layer, or part of tensor both, as a pi__lora_target says it with the
 * rest of part. */
void pi__adapter_heads(pi__model *m, pi__weight *w, int layer, const char *name, const char *both, const pi__lora_target *part);
/* The same: the embedding, which was declared, is multiplied with for logits. */
void pi__adapter_tied(pi__model *m, pi__weight *embd);

#endif
