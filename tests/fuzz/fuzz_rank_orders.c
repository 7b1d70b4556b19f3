/* Fuzzes a worker rank: the bytes are commands (orders) and their payloads. A fixed prefix of commands first gives the
 * rank a device and some memory. For any input, the rank executes the command within its own memory, or ends.
 *
 * A command is its kind (1 byte), an offset, a size and a payload length (2 bytes each), then the payload. Bit 7 of
 * the kind selects the region that the offset is in. Bit 6 sets the size to the payload length. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/tensor_orders.h"
#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGION = 1 << 16, N_SETUP = 6, N_KINDS = PI__ORDER_RUN - PI__ORDER_PING + 1 };
static const uint64_t base[2] = {1 << 20, 1 << 21}; /* addresses of the regions in rank 0's messages */

typedef struct process {
    pi__ranks r; /* first member: the library sees only this */
    const uint8_t *p;
    size_t n;          /* bytes left */
    int n_setup;       /* setup commands already sent */
    bool follows;      /* a payload follows the last command */
    const void *bytes; /* the payload; NULL = payload from the input */
    pi__rank_device device;
    pi__limits lim;
    char id[PI__RANK_ID_BYTES];
} process;

static bool take(process *f, void *to, size_t n)
{
    if (n > f->n) return false;
    memcpy(to, f->p, n);
    f->p += n, f->n -= n;
    return true;
}

/* Returns the commands with which every session starts. */
static pi__order setup(process *f)
{
    switch (f->n_setup++) {
    case 0: f->bytes = &f->device; return (pi__order){.kind = PI__ORDER_OPEN, .n_bytes = sizeof f->device};
    case 1: f->bytes = f->id; return (pi__order){.kind = PI__ORDER_JOIN, .n_bytes = sizeof f->id};
    case 2: f->bytes = &f->lim; return (pi__order){.kind = PI__ORDER_RESERVE, .n_bytes = sizeof f->lim};
    case 3: return (pi__order){.kind = PI__ORDER_ALLOC, .at = base[0], .size = REGION};
    case 4: return (pi__order){.kind = PI__ORDER_ALLOC, .at = base[1], .size = REGION};
    default: return (pi__order){.kind = PI__ORDER_PING};
    }
}

static bool next_order(process *f, pi__order *o)
{
    uint8_t kind;
    uint16_t at, size, n;
    f->bytes = NULL;
    if (f->n_setup < N_SETUP) {
        *o = setup(f);
        return true;
    }
    if (!take(f, &kind, 1) || !take(f, &at, 2) || !take(f, &size, 2) || !take(f, &n, 2)) return false;
    *o = (pi__order){.kind = PI__ORDER_PING + kind % N_KINDS, .at = base[kind >> 7] + at, .size = size, .n_bytes = n};
    if (o->kind == PI__ORDER_OPEN || o->kind == PI__ORDER_JOIN || o->kind == PI__ORDER_RESERVE)
        o->n_bytes = 0; /* setup already sent their payload */
    if (o->kind == PI__ORDER_LOAD) o->n_bytes = sizeof(pi__rank_rows);
    if (kind & 0x40) o->size = o->n_bytes;
    return true;
}

static bool fuzz_bcast(pi__ranks *r, void *p, size_t n, double ms)
{
    process *f = (process *) r;
    (void) ms;
    if (n == sizeof(pi__order) && !f->follows) {
        pi__order o;
        if (!next_order(f, &o)) return false;
        f->follows = o.n_bytes > 0;
        memcpy(p, &o, sizeof o);
        return true;
    }
    f->follows = false;
    if (!f->bytes) return take(f, p, n);
    memcpy(p, f->bytes, n);
    f->bytes = NULL;
    return true;
}
static bool fuzz_gather(pi__ranks *r, void *buf, size_t n, double ms)
{
    (void) r, (void) buf, (void) n, (void) ms;
    return true;
}
static bool fuzz_send(pi__ranks *r, int32_t to, const void *p, size_t n, double ms)
{
    (void) r, (void) to, (void) p, (void) n, (void) ms;
    return false;
}
static bool fuzz_receive(pi__ranks *r, void *p, size_t n, double ms)
{
    (void) ms;
    return take((process *) r, p, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pi__ranks_fns fns = {fuzz_bcast, fuzz_gather, fuzz_send, fuzz_receive};
    const pi__log log = {0};
    pi_error err = {0};
    process f = {.r = {.fns = &fns, .rank = 1, .n = 2, .local = 0, .n_local = 1, .timeout_ms = 1000},
                 .p = data,
                 .n = size};
    f.device = (pi__rank_device){.name = "cpu", .isa = "generic", .params.cpu = {.n_threads = 1, .poll = 1}};
    pi__ranks_build(f.device.build);
    f.lim = (pi__limits){.max_tokens = 16,
                         .max_seqs = 4,
                         .max_rows = 4,
                         .max_ctx = 128,
                         .max_n_in = 256,
                         .max_n_out = 256,
                         .n_vocab = 256,
                         .max_n_head = 8,
                         .max_head_dim = 64,
                         .max_row = 64};
    if (pi__ranks_begin(&f.r, &err)) return 0;
    const int rc = pi__tensor_follow(&f.r, &log, &err);
    if (rc && !*err.msg) __builtin_trap();
    pi__ranks_end(&f.r);
    return 0;
}
