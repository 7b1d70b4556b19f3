/* Tracing and checking of ops by the table of operands, for debugging.
 *
 * Option trace-ops logs one line per op: its name and, for each operand, the field's name, r/w/u for read, written or
 * updated, and [rows, width in floats]. If the host can read the values, a hash of them follows. So the logs of two
 * runs can be compared op by op.
 *
 *     op add_gated: x r[5,640]=1f2e3d4c gate r[5,1]=0badcafe y u[5,640]=600df00d
 *
 * In checked builds the process stops if an operand does not lie in one buffer.
 *
 * No memory except the stack; the step thread. */
#include <stdio.h>

#include "backend/operands.h"
#include "base/assert.h"
#include "base/extent.h"
#include "base/hash.h"

/* Returns a hash of the operand's used values at p, row by row. */
static uint32_t hash_of(const pi__operand *o, const void *p)
{
    uint64_t h = 0;
    for (int64_t r = 0; r < o->n; r++) h = pi__hash64((const char *) p + r * o->ld * 4, (size_t) o->width * 4, h);
    return (uint32_t) h;
}

static const char kinds[] = {[PI__READ] = 'r', [PI__WRITE] = 'w', [PI__UPDATE] = 'u'};

void pi__trace_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args)
{
    char line[1000];
    pi__operands o;
    pi__operands_of(id, b, args, &o);
    int n = snprintf(line, sizeof line, "op %s:", pi__op_name(id));
    /* if true, the op is also done, because the backend does not queue ops */
    const bool readable = !be->discrete && be->n_ranks < 2;
    for (int32_t i = 0; i < o.n && n < (int) sizeof line; i++) {
        const pi__operand *p = &o.op[i];
        if (p->kind > PI__UPDATE) continue;
        n += snprintf(line + n, sizeof line - (size_t) n, " %s %c[%lld,%lld]", p->name, kinds[p->kind],
                      (long long) p->n, (long long) p->width);
        if (readable && n < (int) sizeof line)
            n += snprintf(line + n, sizeof line - (size_t) n, "=%08x", hash_of(p, pi__operand_get(args, p)));
    }
    pi__logf(be->trace, PI_LOG_DEBUG, "%s", line);
}

#ifdef PI_CHECKED
void pi__check_op(pi__op_id id, const pi__batch *b, const void *args)
{
    pi__operands o;
    pi__operands_of(id, b, args, &o);
    for (int32_t i = 0; i < o.n; i++) {
        const pi__operand *p = &o.op[i];
        if (p->kind > PI__SCRATCH) continue;
        pi__assert(p->n >= 0 && p->width >= 0 && (p->n < 2 || p->kind == PI__READ || p->ld >= p->width));
        pi__assert(pi__extent_holds(pi__operand_get(args, p), pi__operand_bytes(p)));
    }
}
#endif
