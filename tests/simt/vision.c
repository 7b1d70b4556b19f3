/* C interface of test_vision.cpp to vision models. */
#include "tower_fixture.h"

double simt_vision_difference(int i);
/* Returns the largest difference of case i of tower_expected.h on the emulated device; -1 = there is no case i. Pieces
 * have 64 patches, so that images are computed in several. */
double simt_vision_difference(int i)
{
    fixture f;
    if (i >= N_CASES) return -1;
    make(&f, "emu", tower_cases[i].tower, 0, 1, 64);
    const double worst = difference(&f, &tower_cases[i]);
    print_message("%s %dx%d: largest difference %.2g\n", tower_cases[i].tower, tower_cases[i].width,
                  tower_cases[i].height, worst);
    drop(&f);
    return worst;
}
