/* pi_rank, pi_rank_follow: several processes that run one model (backend/ranks.h). */
#include "api/objects.h"
#include "api/options.h"
#include "backend/ranks.h"
#include "backend/tensor_orders.h"
#include "base/error.h"

int pi_rank(const pi_options *o, int *n, pi_error *err)
{
    pi__launch launch = {.n = 1};
    if (n) *n = 1;
    if (!o) return pi__fail(err, PI_EINVAL, "pi_rank: options must not be NULL");
    int rc = pi__opt_is(&o->set, PI__OPT_RANKS, "auto") ? pi__ranks_launched(&launch, err) : PI_OK;
    if (rc) return rc;
    if (n) *n = launch.n;
    return launch.rank;
}

int pi_rank_follow(const pi_options *o, pi_error *err)
{
    int n;
    const int rank = pi_rank(o, &n, err);
    if (rank < 0) return rank;
    if (rank == 0) return pi__fail(err, PI_EINVAL,
                                   "pi_rank_follow: this process is rank 0 of %d: call pi_engine_open()", n);
    const pi__log log = {o->log_fn, o->log_ud, (int) pi__opt_int(&o->set, PI__OPT_LOG_LEVEL)};
    pi__ranks *ranks;
    int rc = pi__ranks_of_process(&ranks, pi__opt_float(&o->set, PI__OPT_RANK_TIMEOUT) * 1e3,
                                  pi__opt_str(&o->set, PI__OPT_RANK_SECRET), &log, err);
    return rc ? rc : pi__tensor_follow(ranks, &log, err);
}
