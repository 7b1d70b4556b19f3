/* Copies of adapter runs with one backend's addresses (see lora_local.h). */
#include "backend/lora_local.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

int pi__lora_local_init(pi__lora_local *l, const pi__limits *lim, pi_error *err)
{
    pi__lora_local_destroy(l);
    l->most = lim->max_seqs * PI__MAX_LORA;
    l->run = pi__calloc((size_t) l->most, sizeof *l->run);
    return l->run ? PI_OK : pi__fail_mem(err, "adapters of a step");
}

void pi__lora_local_destroy(pi__lora_local *l)
{
    pi__free(l->run);
    *l = (pi__lora_local) {.most = 0};
}

const pi__lora_rows *pi__lora_local_of(pi__lora_local *l, const pi__lora_rows *rows,
                                       const void *(*at)(const void *ud, const void *p), const void *ud)
{
    if (!rows) return NULL;
    if (rows->no && l->rows.no == rows->no) return &l->rows;
    pi__assert(rows->n_runs <= l->most);
    l->rows = *rows;
    l->rows.run = l->run;
    for (int32_t i = 0; i < rows->n_runs; i++) {
        l->run[i] = rows->run[i];
        l->run[i].pair = at(ud, rows->run[i].pair);
    }
    return &l->rows;
}
