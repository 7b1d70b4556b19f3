/* Products whose slices blocks of threads share (kernels/split.cuh): where these leave sums, as much as so many parts of each tile
 * take, and what is to be seen there. */
#ifndef PI__SELFTEST_SPLIT_REF_H
#define PI__SELFTEST_SPLIT_REF_H

#include "backend/cuda/kernels_split.h"
#include "selftest/check.h"

namespace selftest {

struct shared_slices {
    size_t tiles, entries, values; /* of the launch; of a tile; floats of an entry */
    buffer<float> sums;
    buffer<uint32_t> arrived;
    pi__k_split split;

    /* As many multiprocessors as parts of all tiles, and no room for more of them. */
    shared_slices(int parts, size_t tiles_, size_t values_)
        : tiles(tiles_), entries((size_t) (9 - 8 / parts)), values(values_), sums(tiles * entries * values),
          arrived(std::vector<uint32_t>(PI__K_SPLIT_TILES, 0)),
          split{(int32_t) tiles * parts, sums.get(), sums.size(), arrived.get()}
    {
        sums.fill(0xff);
    }
    /* So many parts there were: the first tile's first entry and its last one are there. Counters are 0 again. */
    void check() const
    {
        for (size_t entry : {(size_t) 0, entries - 1}) expect_true(!std::isnan(sums[entry * values]));
        for (size_t i = 0; i < arrived.size(); i++) expect_equal(arrived[i], 0u);
    }
};

} // namespace selftest

#endif
