/* The link between emulated devices. The exchange is queued like a kernel, and completes when a rank's queue reaches
 * it. Processes join by NCCL's calls, as on a GPU; here nccl_twin.c implements them. */
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "backend/cuda/comm.h"
#include "backend/cuda/nccl.h"
#include "runtime_emu.h"
#include "simt.h"

enum { LOST = 100 }; /* code of a queue with a failed exchange */

struct emu_link {
    pi__link link;                            /* first member: the public interface */
    pi__link *local;                          /* implements the exchange */
    std::unique_ptr<pi__rt *[]> rt;           /* [n] */
    std::unique_ptr<std::atomic<bool>[]> lost; /* [n] true after a failed exchange of the rank */
    pi__nccl nccl;                            /* between processes; empty otherwise */
    pi__nccl_comm comm;
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
    if (l->comm) l->nccl.destroy(l->comm);
    pi__nccl_unload(&l->nccl);
    delete l;
}

/* Creates a link over `local`; rt has the queues of ranks first .. first + n_here - 1, of n ranks. */
static void create(pi__link **out, pi__link *local, pi__rt *const *rt, int32_t n, int32_t first, int32_t n_here)
{
    static const pi__link_ops ops = {emu_destroy, emu_gather, emu_wait, emu_leave};
    emu_link *l = new emu_link{{&ops}, local, std::make_unique<pi__rt *[]>((size_t) n),
                               std::make_unique<std::atomic<bool>[]>((size_t) n), {}, nullptr};
    for (int32_t i = 0; i < n; i++) l->lost[i] = false;
    for (int32_t i = 0; i < n_here; i++) l->rt[first + i] = rt[i];
    *out = &l->link;
}

int pi__comm_create(pi__link **out, pi__rt *const *rt, int32_t n, pi_error *err)
{
    pi__link *local;
    *out = nullptr;
    int rc = pi__link_local(&local, n, err);
    if (!rc) create(out, local, rt, n, 0, n);
    return rc;
}

int pi__comm_id(char *id, pi_error *err) { return pi__nccl_make_id(id, err); }

static void use(int32_t device) { simt::current_device = device; }

int pi__comm_create_rank(pi__link **out, pi__rt *rt, const pi__seat *seat, pi_error *err)
{
    pi__link *local;
    pi__nccl nccl = {};
    pi__nccl_comm comm;
    *out = nullptr;
    int rc = pi__nccl_load(&nccl, err);
    if (!rc) rc = pi__nccl_join(&comm, seat, pi__rt_index(rt), use, err);
    if (!rc && (rc = pi__link_ranks(&local, seat, err))) nccl.give_up(comm);
    if (rc) {
        pi__nccl_unload(&nccl);
        return rc;
    }
    create(out, local, &rt, seat->n, seat->rank, 1);
    emu_link *l = reinterpret_cast<emu_link *>(*out);
    l->nccl = nccl, l->comm = comm;
    return PI_OK;
}
