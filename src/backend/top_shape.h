/* What the shape of a captured step knows of its op topk: of a device's graphs and of those of several stages alike. */
#ifndef PI__TOP_SHAPE_H
#define PI__TOP_SHAPE_H

#include "backend/device.h"

/* Values of a row that it finds (16 times), whether sums are wanted (8), tokens drawn (1), some of them with penalties (2), or from
 * whole rows (4); 0: it finds none. */
static inline int32_t pi__top_shape(const pi__step_top *top, const pi__draws *draw)
{
    return top->request ? 16 * top->k + 8 * top->sum + 4 * draw->rows + 2 * (draw->seen != NULL) + (draw->row != NULL) : 0;
}

#endif
