/* The share of prompts in a step, by measured cost (see pace.h). */
#include "engine/pace.h"

enum { LEAST = 8 }; /* tokens of prefill a step has, whatever it takes: a prompt always goes on */

static double mean(double so_far, double now) { return so_far > 0 ? so_far + 0.25 * (now - so_far) : now; }

void pi__pace_measure(pi__pace *p, int32_t n_prefill, int32_t n_decode, double ms)
{
    if (!n_prefill && n_decode) p->decode_ms = mean(p->decode_ms, ms);
    if (!n_prefill) return;
    /* What those who decode took was measured without prefill; at most half, should they be fewer now. */
    double others = n_decode ? p->decode_ms : 0;
    if (others > ms / 2) others = ms / 2;
    p->token_ms = mean(p->token_ms, (ms - others) / n_prefill);
}

int32_t pi__pace_limit(const pi__pace *p)
{
    if (p->target_ms <= 0 || p->token_ms <= 0) return 0;
    const double n = (p->target_ms - p->decode_ms) / p->token_ms;
    return n < LEAST ? LEAST : n > INT32_MAX ? INT32_MAX : (int32_t) n;
}
