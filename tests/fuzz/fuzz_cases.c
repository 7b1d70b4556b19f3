/* Fuzzes cases.json, which `pagedinfer eval --cases` reads. Any bytes are either refused with a message or give cases
 * that satisfy the contract in cases.h. */
#include <stdint.h>
#include <string.h>

#include "cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cases c;
    char msg[256];
    int rc = cases_parse(&c, (const char *) data, size, msg);
    if (rc) {
        if (!msg[0] || c.item || c.n) __builtin_trap();
        return 0;
    }
    for (size_t i = 0; i < c.n; i++) {
        const eval_case *k = &c.item[i];
        if (!k->name[0] || k->name[0] == '.' || strchr(k->name, '/') || strlen(k->name) > 200) __builtin_trap();
        if (!k->n_ids || k->n < 0) __builtin_trap();
        for (size_t j = 0; j < k->n_ids; j++) {
            if (k->ids[j] < 0) __builtin_trap();
        }
    }
    cases_free(&c);
    return 0;
}
