/* Random vision models (mmproj files), one row per kind of tower. tests/scripts/gen_towers.py computes the expected
 * rows of images with transformers, from files that tool_tiny_model writes. Values are F32 unless another type is
 * given, so that both compute with equal weights. */
#include "random_rows.h"

enum { F32 = PI__F32, M = TINY_OPEN, B = TINY_BIAS };

#define NUM(name, size) {"", name, PI__GGUF_U32, size, 0, NULL}
#define YES(name) {"", name, PI__GGUF_BOOL, "1", 0, NULL}
#define REAL(name, value) {"", name, PI__GGUF_F32, NULL, value, NULL}
#define TEXT(name, text) {"", name, PI__GGUF_STR, NULL, 0, text}
#define LIST(name, array) {"", name, PI__GGUF_F32, "3", 0, array}
#define T(name, type, shape) {"", name, type, shape, NULL}

static const float half[3] = {0.5f, 0.5f, 0.5f};
static const float clip_mean[3] = {0.48145466f, 0.4578275f, 0.40821073f},
                   clip_std[3] = {0.26862954f, 0.26130258f, 0.27577711f};

/* Keys of every kind. Activations and other bools have the type of real files: llama.cpp reads no other. */
#define SIZES_OF(eps)                                                                                                  \
    YES("has_vision_encoder"), NUM("vision.embedding_length", "E"), NUM("vision.feed_forward_length", "F"),            \
        NUM("vision.block_count", "L"), NUM("vision.projection_dim", "O"), NUM("vision.image_size", "I"),              \
        NUM("vision.patch_size", "P"), NUM("vision.attention.head_count", "H"),                                        \
        REAL("vision.attention.layer_norm_epsilon", eps)
#define SIZES SIZES_OF(1e-6f)

/* LayerNorms and biases everywhere */
#define NORM(name) T(name ".weight", F32, "E"), T(name ".bias", B, "E")
#define BLOCK                                                                                                          \
    NORM("ln1"), NORM("ln2"), T("attn_out.weight", M, "E E"), T("attn_out.bias", B, "E"),                            \
        T("ffn_up.weight", M, "E F"), T("ffn_up.bias", B, "F"), T("ffn_down.weight", M, "F E"),                    \
        T("ffn_down.bias", B, "E")

static const tiny_key gemma3_keys[] = {
    SIZES, TEXT("projector_type", "gemma3"), YES("use_gelu"), NUM("vision.projector.scale_factor", "K"),
    LIST("vision.image_mean", half), LIST("vision.image_std", half), {0}};
static const tiny_tensor gemma3_head[] = {T("v.patch_embd.weight", F32, "P P 3 E"), T("v.patch_embd.bias", B, "E"),
                                          T("v.position_embd.weight", F32, "E S"), NORM("v.post_ln"),
                                          {"x", "v.class_embd", F32, "E", NULL},
                                          {"y", "v.patch_embd.weight.1", F32, "P P 3 E", NULL},
                                          T("mm.soft_emb_norm.weight", F32, "E"),
                                          T("mm.input_projection.weight", M, "O E"), {0}};
static const tiny_tensor gemma3_layer[] = {
    BLOCK, T("attn_q.weight", M, "E E"), T("attn_q.bias", B, "E"), T("attn_k.weight", M, "E E"),
    T("attn_k.bias", B, "E"), T("attn_v.weight", M, "E E"), T("attn_v.bias", B, "E"), {0}};

static const tiny_key qwen3vl_keys[] = {
    SIZES, TEXT("projector_type", "qwen3vl_merger"), YES("use_gelu"), NUM("vision.spatial_merge_size", "K"),
    LIST("vision.image_mean", half), LIST("vision.image_std", half), {0}};
static const tiny_tensor qwen3vl_head[] = {
    T("v.patch_embd.weight", F32, "P P 3 E"), T("v.patch_embd.weight.1", F32, "P P 3 E"),
    T("v.patch_embd.bias", B, "E"), T("v.position_embd.weight", F32, "E S"), NORM("v.post_ln"),
    T("mm.0.weight", M, "KKE KKE"), T("mm.0.bias", B, "KKE"), T("mm.2.weight", M, "KKE O"), T("mm.2.bias", B, "O"),
    {0}};
static const tiny_tensor qwen3vl_layer[] = {BLOCK, T("attn_qkv.weight", M, "E 3E"), T("attn_qkv.bias", B, "3E"), {0}};
#define DEEP(n)                                                                                                        \
    T("v.deepstack." n ".norm.weight", F32, "KKE"), T("v.deepstack." n ".norm.bias", B, "KKE"),                        \
        T("v.deepstack." n ".fc1.weight", M, "KKE KKE"), T("v.deepstack." n ".fc1.bias", B, "KKE"),                  \
        T("v.deepstack." n ".fc2.weight", M, "KKE O"), T("v.deepstack." n ".fc2.bias", B, "O")
static const tiny_tensor qwen3vl_deep[] = {DEEP("0"), DEEP("2"), {0}};

/* RMSNorms around attention and feed-forward, norms of heads, gates */
#define GEMMA4_KEYS                                                                                                    \
    TEXT("vision.projector_type", "gemma4v"), NUM("vision.projector.scale_factor", "K"),                               \
        LIST("vision.image_mean", zero), LIST("vision.image_std", one)
static const float zero[3] = {0, 0, 0}, one[3] = {1, 1, 1};
static const tiny_key gemma4_keys[] = {SIZES, GEMMA4_KEYS, {0}};
static const tiny_tensor gemma4_head[] = {
    T("v.patch_embd.weight", F32, "P P 3 E"), T("v.position_embd.weight", F32, "E S 2"),
    T("mm.input_projection.weight", M, "E O"), {"s", "v.std_bias", B, "E", NULL},
    {"s", "v.std_scale", F32, "E", NULL}, {0}};

/* Clamps that cut some values of most matrices. */
static double below(const int64_t *v, uint64_t *rng, int64_t i) { return (void) v, (void) rng, (void) i, -0.6; }
static double above(const int64_t *v, uint64_t *rng, int64_t i) { return (void) v, (void) rng, (void) i, 0.7; }
#define CLIP(name)                                                                                                     \
    {"c", name ".input_min", F32, "1", below}, {"c", name ".input_max", F32, "1", above},                              \
        {"c", name ".output_min", F32, "1", below}, {"c", name ".output_max", F32, "1", above}
static const tiny_tensor gemma4_layer[] = {
    T("ln1.weight", F32, "E"), T("ln2.weight", F32, "E"), T("attn_post_norm.weight", F32, "E"),
    T("ffn_post_norm.weight", F32, "E"), T("attn_q_norm.weight", F32, "D"), T("attn_k_norm.weight", F32, "D"),
    T("attn_q.weight", M, "E E"), T("attn_k.weight", M, "E E"), T("attn_v.weight", M, "E E"),
    T("attn_out.weight", M, "E E"), T("ffn_gate.weight", M, "E F"), T("ffn_up.weight", M, "E F"),
    T("ffn_down.weight", M, "F E"), CLIP("attn_q"), CLIP("attn_k"), CLIP("attn_v"), CLIP("attn_out"),
    CLIP("ffn_gate"), CLIP("ffn_up"), CLIP("ffn_down"), {0}};

/* without layers; a patch of K * P pixels per side is a token */
static const tiny_key gemma4u_keys[] = {
    YES("has_vision_encoder"), NUM("vision.embedding_length", "E"), NUM("vision.block_count", "0"),
    NUM("vision.patch_size", "P"), REAL("vision.attention.layer_norm_epsilon", 1e-6f),
    TEXT("vision.projector_type", "gemma4uv"), NUM("vision.projector.scale_factor", "K"),
    LIST("vision.image_mean", zero), LIST("vision.image_std", one), {0}};
static const tiny_tensor gemma4u_head[] = {
    T("v.patch_embd.weight", F32, "3KKPP E"), T("v.patch_embd.bias", B, "E"), T("v.position_embd.weight", F32, "E S 2"),
    T("v.patch_norm.1.weight", F32, "3KKPP"), T("v.patch_norm.1.bias", B, "3KKPP"), NORM("v.patch_norm.2"),
    NORM("v.patch_norm.3"), T("mm.input_projection.weight", M, "E O"), {0}};
static const tiny_tensor gemma4u_layer[] = {{0}};

static const tiny_key pixtral_keys[] = {
    SIZES_OF(1e-5f), TEXT("projector_type", "pixtral"), NUM("vision.spatial_merge_size", "K"), YES("use_silu"),
    LIST("vision.image_mean", clip_mean), LIST("vision.image_std", clip_std), {0}};
static const tiny_tensor pixtral_head[] = {
    T("v.patch_embd.weight", F32, "P P 3 E"), T("v.pre_ln.weight", F32, "E"), T("mm.1.weight", M, "E O"),
    T("mm.2.weight", M, "O O"), {"b", "mm.1.bias", B, "O", NULL}, {"b", "mm.2.bias", B, "O", NULL},
    {"m", "mm.input_norm.weight", F32, "E", NULL}, {"m", "mm.patch_merger.weight", M, "KKE E", NULL},
    T("v.token_embd.img_break", F32, "O"), {0}};
static const tiny_tensor pixtral_layer[] = {
    T("ln1.weight", F32, "E"), T("ln2.weight", F32, "E"), T("attn_q.weight", M, "E E"), T("attn_k.weight", M, "E E"),
    T("attn_v.weight", M, "E E"), T("attn_out.weight", M, "E E"), T("ffn_gate.weight", M, "E F"),
    T("ffn_up.weight", M, "E F"), T("ffn_down.weight", M, "F E"), {0}};

#define QKV                                                                                                            \
    T("attn_q.weight", M, "E E"), T("attn_q.bias", B, "E"), T("attn_k.weight", M, "E E"), T("attn_k.bias", B, "E"),    \
        T("attn_v.weight", M, "E E"), T("attn_v.bias", B, "E")
#define QWEN_HEAD                                                                                                      \
    T("v.patch_embd.weight", F32, "P P 3 E"), T("v.patch_embd.weight.1", F32, "P P 3 E"),                              \
        T("mm.0.weight", M, "KKE KKE"), T("mm.0.bias", B, "KKE"), T("mm.2.weight", M, "KKE O"), T("mm.2.bias", B, "O")
static const tiny_key qwen25vl_keys[] = {
    SIZES, TEXT("projector_type", "qwen2.5vl_merger"), NUM("vision.spatial_merge_size", "K"), YES("use_silu"),
    NUM("vision.n_wa_pattern", "N"), NUM("vision.window_size", "W"), LIST("vision.image_mean", clip_mean),
    LIST("vision.image_std", clip_std), {0}};
static const tiny_tensor qwen25vl_head[] = {QWEN_HEAD, T("v.post_ln.weight", F32, "E"), {0}};
static const tiny_tensor qwen25vl_layer[] = {
    QKV, T("ln1.weight", F32, "E"), T("ln2.weight", F32, "E"), T("attn_out.weight", M, "E E"),
    T("attn_out.bias", B, "E"), T("ffn_gate.weight", M, "E F"), T("ffn_gate.bias", B, "F"),
    T("ffn_up.weight", M, "E F"), T("ffn_up.bias", B, "F"), T("ffn_down.weight", M, "F E"), T("ffn_down.bias", B, "E"),
    {0}};
static const tiny_key qwen2vl_keys[] = {
    SIZES, TEXT("projector_type", "qwen2vl_merger"), NUM("vision.spatial_merge_size", "K"),
    LIST("vision.image_mean", clip_mean), LIST("vision.image_std", clip_std), {0}};
static const tiny_tensor qwen2vl_head[] = {QWEN_HEAD, NORM("v.post_ln"), {0}};
/* as in older files, the names of up and down are exchanged */
static const tiny_tensor qwen2vl_layer[] = {
    QKV, NORM("ln1"), NORM("ln2"), T("attn_out.weight", M, "E E"), T("attn_out.bias", B, "E"),
    T("ffn_down.weight", M, "E F"), T("ffn_down.bias", B, "F"), T("ffn_up.weight", M, "F E"), T("ffn_up.bias", B, "E"),
    {0}};

#define ROW(kind) .arch = "clip", .keys = kind##_keys, .head = kind##_head, .layer = kind##_layer, .prefix = "v.blk."

const tiny_row tiny_towers[] = {
    {"vision-gemma3", ROW(gemma3), .rng = 41, .sizes = "L=2 E=36 H=2 F=48 O=64 P=4 K=2 I=24 S=36"},
    {"vision-qwen3vl", ROW(qwen3vl), .tail = qwen3vl_deep, .rng = 43,
     .sizes = "L=3 E=48 H=2 F=64 O=64 P=4 K=2 I=24 S=36"},
    {"vision-qwen35", ROW(qwen3vl), .rng = 47, .sizes = "L=2 E=40 H=2 F=64 O=64 P=4 K=2 I=24 S=25"},
    {"vision-gemma4", ROW(gemma4), .rng = 53, .sizes = "L=2 E=40 H=2 D=20 F=48 O=64 P=4 K=3 S=3400 c=1"},
    {"vision-gemma4-std", ROW(gemma4), .rng = 59, .sizes = "L=1 E=64 H=2 D=32 F=48 O=64 P=4 K=3 S=3400 s=1"},
    {"vision-gemma4u", ROW(gemma4u), .rng = 61, .sizes = "L=0 E=48 O=64 P=4 K=3 S=1120"},
    {"vision-pixtral", ROW(pixtral), .rng = 67, .sizes = "L=2 E=48 H=2 F=64 O=64 P=4 K=2 I=48 m=1"},
    {"vision-pixtral12", ROW(pixtral), .rng = 71, .sizes = "L=1 E=64 H=2 F=64 O=64 P=4 K=1 I=24 b=1"},
    {"vision-qwen25vl", ROW(qwen25vl), .rng = 73, .sizes = "L=3 E=48 H=2 F=64 O=64 P=4 K=2 I=24 W=16 N=3"},
    {"vision-qwen2vl", ROW(qwen2vl), .rng = 79, .sizes = "L=2 E=40 H=2 F=80 O=64 P=4 K=2 I=24"},
};
const size_t tiny_n_towers = sizeof tiny_towers / sizeof *tiny_towers;
