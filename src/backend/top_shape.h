/* The part of a captured step's shape that depends on op topk; shared by the graphs of one device and of pipeline
 * stages. */
#ifndef PI__TOP_SHAPE_H
#define PI__TOP_SHAPE_H

#include "backend/device.h"

/* Returns a number that is equal for steps that can share a graph: 16 * top->k + 8 if sums are requested + 4 if
 * a draw is from a full row + 2 if draws have penalties + 1 if tokens are drawn. 0 = topk is not requested. */
static inline int32_t pi__top_shape(const pi__step_top *top, const pi__draws *draw)
{
    return top->request ? 16 * top->k + 8 * top->sum + 4 * draw->rows + 2 * (draw->seen != NULL) + (draw->row != NULL)
                        : 0;
}

#endif
