/* What the shape of a captured step knows of its op topk: of a device's graphs and of those of several stages alike. */
#ifndef PI__TOP_SHAPE_H
#define PI__TOP_SHAPE_H

#include "backend/device.h"

/* Values of a row that it finds (8 times), whether sums are wanted (4), tokens drawn (1), some of them with penalties (2); 0: it
 * finds none. */
static inline int32_t pi__top_shape(const pi__step_top *top, const pi__draws *draw)
{
    return top->request ? 8 * top->k + 4 * top->sum + 2 * (draw->seen != NULL) + (draw->row != NULL) : 0;
}

#endif
