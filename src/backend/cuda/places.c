/* Places for waiting blocks: see places.h. */
#include "backend/cuda/places.h"

#include <stdatomic.h>

#include "backend/cuda/runtime.h"

/* Min places of the first engine, where the device has as many multiprocessors. Half of the multiprocessors would be
 * fewer on small devices. */
enum { MIN_PLACES = 8 };

static _Atomic int32_t taken[PI__RT_MAX]; /* by device; an engine with one place takes none */

int32_t pi__places_take(int32_t device, int32_t n_sm)
{
    const int32_t half = n_sm / 2, least = n_sm < MIN_PLACES ? n_sm : MIN_PLACES, want = half > least ? half : least;
    int32_t before = atomic_load(&taken[device]), places;
    do {
        places = n_sm - before < want ? n_sm - before : want;
        if (places < 2) return 1;
    } while (!atomic_compare_exchange_weak(&taken[device], &before, before + places));
    return places;
}

void pi__places_return(int32_t device, int32_t places)
{
    if (places > 1) atomic_fetch_sub(&taken[device], places);
}
