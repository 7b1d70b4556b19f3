/* The prefill part of a step, from measured times (see pace.h). */
#include "engine/pace.h"

enum { LEAST = 8 }; /* min prefill tokens of a step, even above the target time: a prompt always advances */

static double running_mean(double so_far, double now) { return so_far > 0 ? so_far + 0.25 * (now - so_far) : now; }

void pi__pace_measure(pi__pace *p, int32_t n_prefill, int32_t n_decode, double ms)
{
    if (!n_prefill && n_decode) p->decode_ms = running_mean(p->decode_ms, ms);
    if (!n_prefill) return;
    /* The time of decoding sequences was measured without prefill. Take at most half of this step for it: fewer
     * sequences may decode now. */
    double others = n_decode ? p->decode_ms : 0;
    if (others > ms / 2) others = ms / 2;
    p->token_ms = running_mean(p->token_ms, (ms - others) / n_prefill);
}

int32_t pi__pace_limit(const pi__pace *p, bool encodes)
{
    if (p->target_ms <= 0 || p->token_ms <= 0) return 0;
    const double n = (p->target_ms - p->decode_ms) / (encodes ? 2 : 1) / p->token_ms;
    return n < LEAST ? LEAST : n > INT32_MAX ? INT32_MAX : (int32_t) n;
}

void pi__pace_measure_image(pi__pace *p, double work, double ms)
{
    if (work > 0) p->image_ms = running_mean(p->image_ms, ms / work);
}

double pi__pace_image_limit(const pi__pace *p, double step_ms)
{
    if (p->target_ms <= 0) return 0;
    /* the first part is the smallest: it is the measurement */
    const double work = p->image_ms > 0 ? (p->target_ms - step_ms) / p->image_ms : 1;
    return work < 1 ? 1 : work;
}
