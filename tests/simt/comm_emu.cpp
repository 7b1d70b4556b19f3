/* The link of emulated devices: the exchange is queued like a kernel, and done when a rank's queue comes to it. */
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "backend/cuda/comm.h"
#include "runtime_emu.h"
#include "simt.h"

enum { LOST = 100 }; /* code of a queue whose exchange failed */

struct emu_link {
    pi__link link;                            /* first: the public face */
    pi__link *local;                          /* which does it */
    std::unique_ptr<pi__rt *[]> rt;           /* [n] */
    std::unique_ptr<std::atomic<bool>[]> lost; /* [n] an exchange of the rank failed */
};

static bool emu_gather(pi__link *link, int32_t rank, float *buf, size_t count)
{
    emu_link *l = reinterpret_cast<emu_link *>(link);
    simt::stream *queue = static_cast<simt::stream *>(pi__rt_stream(l->rt[rank]));
    simt::current_device = queue->device();
    return queue->take([=] {
        simt::watch.n_waiting++;
        const bool done = l->local->ops->gather(l->local, rank, buf, count);
        simt::watch.n_waiting--;
        if (done) return 0;
        l->lost[rank] = true;
        return (int) LOST;
    }) == 0;
}

static void emu_leave(pi__link *link, int32_t rank)
{
    emu_link *l = reinterpret_cast<emu_link *>(link);
    l->local->ops->leave(l->local, rank);
}

static int emu_wait(pi__link *link, int32_t rank)
{
    emu_link *l = reinterpret_cast<emu_link *>(link);
    int code = pi__rt_wait(l->rt[rank]);
    return l->lost[rank] ? PI__LINK_LEFT : code ? PI__LINK_FAILED : PI__LINK_DONE;
}

static void emu_destroy(pi__link *link)
{
    emu_link *l = reinterpret_cast<emu_link *>(link);
    l->local->ops->destroy(l->local);
    delete l;
}

/* Over that link, with the queues of ranks first..first + n_here of n. */
static int create(pi__link **out, pi__link *local, pi__rt *const *rt, int32_t n, int32_t first, int32_t n_here)
{
    static const pi__link_ops ops = {emu_destroy, emu_gather, emu_wait, emu_leave};
    emu_link *l = new emu_link{{&ops}, local, std::make_unique<pi__rt *[]>((size_t) n),
                               std::make_unique<std::atomic<bool>[]>((size_t) n)};
    for (int32_t i = 0; i < n; i++) l->lost[i] = false;
    for (int32_t i = 0; i < n_here; i++) l->rt[first + i] = rt[i];
    *out = &l->link;
    return PI_OK;
}

int pi__comm_create(pi__link **out, pi__rt *const *rt, int32_t n, pi_error *err)
{
    pi__link *local;
    *out = nullptr;
    int rc = pi__link_local(&local, n, err);
    return rc ? rc : create(out, local, rt, n, 0, n);
}

int pi__comm_id(char *id, pi_error *)
{
    memset(id, 1, PI__RANK_ID_BYTES);
    return PI_OK;
}

int pi__comm_create_rank(pi__link **out, pi__rt *rt, const pi__seat *seat, pi_error *err)
{
    pi__link *local;
    *out = nullptr;
    if (seat->id[0] != 1) abort(); /* not what rank 0 made */
    int rc = pi__link_ranks(&local, seat, err);
    return rc ? rc : create(out, local, &rt, seat->n, seat->rank, 1);
}
