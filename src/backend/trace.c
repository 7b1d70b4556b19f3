/* Tracing and checking of ops by the table of operands, for those who look for a fault.
 *
 * With option trace-ops there is a line for each op: its name, and of each operand the field, what it is, [rows, width],
 * and where the host can read it a hash of its values, so that two runs can be compared op by op.
 *
 *     op add_gated: x r[5,640]=1f2e3d4c gate r[5,1]=0badcafe y u[5,640]=600df00d
 *
 * In checked builds an operand that does not lie in one buffer stops the process.
 *
 * No memory but the stack; the step thread. */
#include <stdio.h>

#include "backend/operands.h"
#include "base/assert.h"
#include "base/extent.h"
#include "base/hash.h"

/* Of the values that count, row by row. */
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
    const bool readable = !be->discrete && be->n_ranks < 2; /* and what was called is done */
    for (int32_t i = 0; i < o.n && n < (int) sizeof line; i++) {
        const pi__operand *p = &o.op[i];
        if (p->kind > PI__UPDATE) continue;
        n += snprintf(line + n, sizeof line - (size_t) n, " %s %c[%lld,%lld]", p->name, kinds[p->kind], (long long) p->n,
                      (long long) p->width);
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
