/* Placement of a model's weights and caches: on a device or the CPU (options gpu-layers, cpu-moe, n-cpu-moe,
 * override-tensor and kv-offload), or on pipeline stages that each have some of the layers (split-mode layer). */
#ifndef PI__PLACEMENT_H
#define PI__PLACEMENT_H

#include "backend/device.h"
#include "gguf/gguf.h"

/* The options that determine the placement. */
typedef struct pi__placement_rules {
    bool limited;             /* gpu_layers applies; false = all layers are on the device */
    bool fit;                 /* gpu_layers is to be computed: as many layers as fit in the device's memory */
    bool asked;               /* gpu-layers was set explicitly, so a warning is logged if there is no device */
    /* number of layers on the device, counted from the last; the output counts as one more layer, after the last */
    int32_t gpu_layers;
    int32_t n_cpu_moe;        /* number of layers, counted from the first, with their experts on the CPU */
    /* not 0: the experts of these layers stay in host memory, but the device computes them. It keeps copies of this
     * many experts per layer */
    int32_t n_slot;
    bool kv_on_cpu;           /* all caches are on the CPU, and so is attention */
    /* [n_override] "REGEX=DEVICE,...": places tensors with a name that matches REGEX; the first match wins */
    const char *const *override;
    size_t n_override;        /* entries in override */
} pi__placement_rules;

typedef struct pi__placement pi__placement;

/* Computes the placement of the tensors of g, which must outlive it. device: name of the device other than the CPU,
 * as in override. Returns PI_EINVAL for an unknown device or a bad regex. */
int pi__placement_create(pi__placement **out, const pi__placement_rules *r, const char *device, const pi__gguf *g,
                         pi_error *err);
void pi__placement_free(pi__placement *p);
/* Changes p to a placement on n pipeline stages. A stage gets adjacent layers, in proportion to part[i], and at
 * least one. The output counts as one more layer, after the last. Returns PI_EINVAL if the file has fewer layers
 * than stages. */
int pi__placement_stages(pi__placement *p, const double *part, int32_t n, pi_error *err);
/* Returns the number of layers of stage i, and sets *first to the first of them. */
int32_t pi__placement_layers(const pi__placement *p, int32_t i, int32_t *first);
/* The first: true if both the device and the CPU have matrices or caches. The second: true if only the CPU has. */
bool pi__placement_both(const pi__placement *p);
bool pi__placement_cpu(const pi__placement *p);
/* Returns the number of copies of experts in device memory for a matrix of g (pi__weight.n_slot); 0 = the matrix is not
 * in host memory. */
int32_t pi__placement_slots(const pi__placement *p, const pi__tensor *t);
/* Return the placement (PI__AT_DEVICE, PI__AT_CPU, or the stage) of a matrix of g, and of a layer's cache or state.
 * If all are on one backend, the result is PI__AT_DEVICE. */
int32_t pi__placement_of_matrix(const pi__placement *p, const pi__tensor *t);
int32_t pi__placement_of_cache(const pi__placement *p, int32_t layer);

#endif
