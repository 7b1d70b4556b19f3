/* The placement of weights and caches of a model that runs on a device and the CPU together, what the options gpu-layers,
 * cpu-moe, n-cpu-moe, override-tensor and kv-offload mean for a file; or on several devices that have a part of its layers
 * each, split-mode layer (placement.c). */
#ifndef PI__PLACEMENT_H
#define PI__PLACEMENT_H

#include "backend/device.h"
#include "gguf/gguf.h"

typedef struct pi__placement_rules {
    bool limited;             /* not all layers are with the device: */
    bool fit;                 /* all are, or as many as there is memory for */
    bool asked;               /* for layers with the device, by someone who is told where there is none */
    int32_t gpu_layers;       /* so many are, the last ones, where the output counts as one more, the very last */
    int32_t n_cpu_moe;        /* of the first so many layers the experts are with the CPU */
    bool kv_on_cpu;           /* all caches are with the CPU, and so is attention */
    const char *const *override; /* "REGEX=DEVICE,...": tensors whose name the expression finds; the first wins */
    size_t n_override;        /* texts in override */
} pi__placement_rules;

typedef struct pi__placement pi__placement;

/* device: the name of the one beside the CPU. g must outlive it. PI_EINVAL: no such device, not an expression. */
int pi__placement_create(pi__placement **out, const pi__placement_rules *r, const char *device, const pi__gguf *g, pi_error *err);
void pi__placement_free(pi__placement *p);
/* Makes it one of n stages instead: each gets layers by its part of the sum of parts, and one at least; the output counts as one
 * more layer, the very last. PI_EINVAL: the file has fewer layers. */
int pi__placement_stages(pi__placement *p, const double *part, int32_t n, pi_error *err);
/* Layers of stage i: *first, and how many. */
int32_t pi__placement_layers(const pi__placement *p, int32_t i, int32_t *first);
/* true: matrices or caches lie with both; with the CPU alone. */
bool pi__placement_both(const pi__placement *p);
bool pi__placement_cpu(const pi__placement *p);
/* PI__AT_DEVICE or PI__AT_CPU, or the stage, of a matrix of g, and of a layer's cache or state. Where all is on one backend,
 * that is PI__AT_DEVICE. */
int32_t pi__placement_of_matrix(const pi__placement *p, const pi__tensor *t);
int32_t pi__placement_of_cache(const pi__placement *p, int32_t layer);

#endif
