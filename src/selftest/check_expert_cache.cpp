/* Checks the copies of experts (expert_cache): slots, tables and copied bytes after random steps, against a list that
 * is kept on the host. */
#include "selftest/check.h"

#include <algorithm>

#include "selftest/checks.h"

namespace selftest {
namespace {

enum { N_STACK = 2 };

/* A layer of n_expert experts with n_slot copies, and the expected state. */
struct layer {
    int32_t n_expert, n_slot;
    size_t bytes[N_STACK];
    buffer<uint8_t> data[N_STACK], slots[N_STACK];
    buffer<uint64_t> moved[N_STACK], counts;
    buffer<int32_t> owner, missing;
    buffer<uint32_t> used, step;
    std::vector<int32_t> want_owner; /* expert + 1 */
    std::vector<uint32_t> want_used;
    uint64_t hits = 0, misses = 0;

    layer(int32_t n_expert_, int32_t n_slot_)
        : n_expert(n_expert_), n_slot(n_slot_), bytes{48, 16 * 1025},
          data{buffer<uint8_t>((size_t) n_expert * bytes[0]), buffer<uint8_t>((size_t) n_expert * bytes[1])},
          slots{buffer<uint8_t>((size_t) n_slot * bytes[0]), buffer<uint8_t>((size_t) n_slot * bytes[1])},
          moved{buffer<uint64_t>((size_t) n_expert), buffer<uint64_t>((size_t) n_expert)}, counts(2),
          owner((size_t) n_slot), missing((size_t) (1 + 2 * n_slot)), used((size_t) n_slot), step(1),
          want_owner((size_t) n_slot), want_used((size_t) n_slot)
    {
        random r(5);
        for (int k = 0; k < N_STACK; k++) {
            for (size_t i = 0; i < data[k].size(); i++) data[k][i] = (uint8_t) r.below(256);
            std::fill_n(moved[k].get(), n_expert, 0);
        }
        std::fill_n(owner.get(), n_slot, 0);
        std::fill_n(used.get(), n_slot, 0u);
        step[0] = 0;
        counts[0] = counts[1] = 0;
    }

    /* The expected state after a step that uses these experts, which are in ascending order. */
    void expect(const std::vector<int32_t> &experts)
    {
        const uint32_t now_step = step[0];
        std::vector<int32_t> absent;
        for (int32_t e : experts) {
            const auto at = std::find(want_owner.begin(), want_owner.end(), e + 1);
            if (at == want_owner.end()) absent.push_back(e);
            else want_used[(size_t) (at - want_owner.begin())] = now_step;
        }
        hits += experts.size() - absent.size();
        misses += absent.size();
        for (int32_t e : absent) {
            const auto at = std::min_element(want_used.begin(), want_used.end());
            if (*at == now_step) break;
            *at = now_step;
            want_owner[(size_t) (at - want_used.begin())] = e + 1;
        }
    }

    void check()
    {
        expect_bytes(want_owner.data(), owner.get(), want_owner.size() * sizeof(int32_t));
        expect_bytes(want_used.data(), used.get(), want_used.size() * sizeof(uint32_t));
        expect_equal(counts[0], hits);
        expect_equal(counts[1], misses);
        for (int k = 0; k < N_STACK; k++)
            for (int32_t e = 0; e < n_expert; e++) {
                const uint8_t *at = data[k].get() + (size_t) e * bytes[k];
                const auto slot = std::find(want_owner.begin(), want_owner.end(), e + 1);
                const uint8_t *to = slots[k].get() + (size_t) (slot - want_owner.begin()) * bytes[k];
                if (slot == want_owner.end()) to = at;
                expect_equal(moved[k][(size_t) e], (uint64_t) to - (uint64_t) at);
                expect_bytes(at, to, bytes[k]);
            }
    }
};

void check_steps(int32_t n_expert, int32_t n_slot, int32_t max_used, int32_t n_sm)
{
    random r((uint64_t) (n_expert + n_slot));
    layer l(n_expert, n_slot);
    buffer<pi__k_tile> tile[3] = {buffer<pi__k_tile>((size_t) n_expert), buffer<pi__k_tile>((size_t) n_expert),
                                  buffer<pi__k_tile>((size_t) n_expert)};
    buffer<int32_t> n_tile(3);
    pi__k_expert_cache c = {};
    c.n_stack = N_STACK, c.n_expert = n_expert, c.n_slot = n_slot, c.n_tile = n_tile.get(), c.n_sm = n_sm;
    c.owner = l.owner.get(), c.used = l.used.get(), c.step = l.step.get();
    c.missing = l.missing.get(), c.counts = l.counts.get();
    for (int k = 0; k < N_STACK; k++)
        c.stack[k] = {l.data[k].get(), l.slots[k].get(), l.moved[k].get(), l.bytes[k]};
    for (int k = 0; k < 3; k++) c.tile[k] = tile[k].get();
    for (int n = 0; n < (slow() ? 4 : 12); n++) {
        std::vector<int32_t> experts;
        for (int k = 0; k < 3; k++) n_tile[(size_t) k] = 0;
        const uint32_t used = 1 + r.below((unsigned) max_used);
        for (uint32_t i = 0; i < used; i++) {
            const int32_t e = (int32_t) r.below((unsigned) n_expert);
            const size_t list = r.below(3);
            tile[list][(size_t) n_tile[list]++] = {e, 0, 1}; /* an expert may have several tiles */
            experts.push_back(e);
        }
        std::sort(experts.begin(), experts.end());
        experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
        must_run(pi__k_keep_experts(stream(), &c));
        expect_equal(l.step[0], n + 1);
        l.expect(experts);
        l.check();
    }
}

/* Fewer, as many and more slots than a step uses; few experts and many. */
void test_steps()
{
    if (now->stress) skip_check("each launch changes the state");
    const struct { int32_t experts, slots, used, n_sm;
    } cases[] = {{8, 1, 3, 1}, {8, 7, 8, 2}, {60, 12, 8, 3}, {130, 40, 20, 4}, {300, 256, 64, 1}};
    for (auto c : one_of(cases)) check_steps(c.experts, c.slots, c.used, c.n_sm);
    if (!slow()) in_all_modes([] { check_steps(40, 9, 12, 2); });
}

void test_refused()
{
    pi__k_expert_cache c = {};
    expect_equal(pi__k_keep_experts(stream(), &c), 1);
    c.n_expert = c.n_slot = c.n_stack = 1, c.stack[0].bytes = 24;
    expect_equal(pi__k_keep_experts(stream(), &c), 1);
}

const entry all[] = {{"steps", test_steps}, {"refused", test_refused}};

} // namespace

const family checks_of_expert_cache = {"expert_cache", "copies of experts in device memory", all,
                                       sizeof all / sizeof *all};

} // namespace selftest
