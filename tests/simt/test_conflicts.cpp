/* Main loops without bank conflicts: what a product's wavefronts of shared memory have more than they need is the same for
 * twice as many columns. Plain loads are seen in instrumented kernels alone (counters.h). */
#include "counters.h"
#include "simt_test.h"

extern "C" {
#include "backend/cuda/kernels.h"
#include "formats/formats.h"
}

using namespace simt_test;

namespace {

simt::launch_counts product(int32_t type, int64_t n_in, int32_t rows)
{
    pi__k_matrix w = {};
    assert_true(pi__cuda_shape_of(type, n_in, 64, &w.shape));
    buffer<uint8_t> data(w.shape.mat_bytes), prepared(pi__k_w16_prepared_bytes(rows, n_in));
    buffer<float> y((size_t) rows * 64);
    data.fill(0);
    prepared.fill(0);
    w.data = data.get(), w.type = type, w.n_in = n_in, w.n_out = 64;
    const pi__k_product one = {w, y.get(), 64};
    simt::counter c;
    simt::options.count = &c;
    must_run(pi__k_w16_linear(nullptr, &one, 1, prepared.get(), rows));
    simt::options.count = nullptr;
    assert_int_equal(c.launches.size(), 1);
    return c.launches[0];
}

void test_w16(void **)
{
    for (int32_t type : {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4}) {
        for (int32_t rows : {1, 16, 32, 64, 70}) {
            const simt::launch_counts some = product(type, 2048, rows), more = product(type, 4096, rows);
            const double mma = more.op[simt::DO_MMA_F16] + more.op[simt::DO_MMA_BF16];
            assert_true(mma > 0 && more.wavefronts > some.wavefronts);
            if (some.wavefronts - some.least != more.wavefronts - more.least) {
                fail_msg("%s, %d rows: 2048 columns more have %.0f wavefronts of shared memory for %.0f", pi__type_info_of(type)->name,
                         (int) rows, more.wavefronts - some.wavefronts, more.least - some.least);
            }
        }
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_w16)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
