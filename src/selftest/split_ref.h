/* For checks of products with slices split over thread blocks (kernels/split.cuh): a buffer of partial sums for a given
 * number of parts per tile, and a check of its contents. */
#ifndef PI__SELFTEST_SPLIT_REF_H
#define PI__SELFTEST_SPLIT_REF_H

#include "backend/cuda/kernels_split.h"
#include "selftest/check.h"

namespace selftest {

struct shared_slices {
    size_t tiles, entries, values; /* tiles of the launch; entries (partial sums) per tile; floats per entry */
    buffer<float> sums;
    buffer<uint32_t> arrived;
    pi__k_split split;

    /* Sets `split` to a multiprocessor count that splits each tile into `parts` parts, and to a buffer without room for
     * more parts. */
    shared_slices(int parts, size_t tiles_, size_t values_)
        : tiles(tiles_), entries((size_t) (9 - 8 / parts)), values(values_), sums(tiles * entries * values),
          arrived(std::vector<uint32_t>(PI__K_SPLIT_TILES, 0)),
          split{(int32_t) tiles * parts, sums.get(), sums.size(), arrived.get()}
    {
        sums.fill(0xff);
    }
    /* Checks that there were `parts` parts: the first tile's first and last entries were written. The counters must be
     * 0 again. */
    void check() const
    {
        for (size_t entry : {(size_t) 0, entries - 1}) expect_true(!std::isnan(sums[entry * values]));
        for (size_t i = 0; i < arrived.size(); i++) expect_equal(arrived[i], 0u);
    }
};

} // namespace selftest

#endif
