/* Placement of a model's weights and caches on a device and the CPU: implements the options gpu-layers, cpu-moe,
 * n-cpu-moe, override-tensor and kv-offload. Also on several devices that each have a part of the layers: split-mode
 * layer (placement.c). */
#ifndef PI__PLACEMENT_H
#define PI__PLACEMENT_H

#include "backend/device.h"
#include "gguf/gguf.h"

typedef struct pi__placement_rules {
    bool limited;             /* gpu_layers applies: not all layers are on the device */
    bool fit;                 /* place all layers on the device, or as many as fit in memory */
    bool asked;               /* gpu-layers was set explicitly: a warning is logged if there is no device */
    int32_t gpu_layers;       /* number of last layers on the device; the output counts as one more, the very last */
    int32_t n_cpu_moe;        /* number of first layers with experts on the CPU */
    bool kv_on_cpu;           /* all caches, and so attention, are on the CPU */
    const char *const *override; /* "REGEX=DEVICE,...": places tensors by name; the first match wins */
    size_t n_override;        /* entries in override */
} pi__placement_rules;

typedef struct pi__placement pi__placement;

/* device: name of the non-CPU device. g must outlive the placement. PI_EINVAL: unknown device or bad regex. */
int pi__placement_create(pi__placement **out, const pi__placement_rules *r, const char *device, const pi__gguf *g,
                         pi_error *err);
void pi__placement_free(pi__placement *p);
/* Turns it into n pipeline stages. A stage gets layers in proportion to part[i], and at least one. The output counts
 * as one more layer, the very last. PI_EINVAL: the file has fewer layers than stages. */
int pi__placement_stages(pi__placement *p, const double *part, int32_t n, pi_error *err);
/* Returns the number of layers of stage i and sets *first. */
int32_t pi__placement_layers(const pi__placement *p, int32_t i, int32_t *first);
/* True if both the device and the CPU have matrices or caches; if only the CPU has. */
bool pi__placement_both(const pi__placement *p);
bool pi__placement_cpu(const pi__placement *p);
/* Returns PI__AT_DEVICE or PI__AT_CPU, or the stage, of a matrix of g, and of a layer's cache or state. With a single
 * backend the result is PI__AT_DEVICE. */
int32_t pi__placement_of_matrix(const pi__placement *p, const pi__tensor *t);
int32_t pi__placement_of_cache(const pi__placement *p, int32_t layer);

#endif
