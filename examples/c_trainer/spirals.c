/* SPDX-License-Identifier: Apache-2.0 */
#include "spirals.h"

#include <math.h>

/* The low-discrepancy sequence of the golden ratio: evenly spread from 0 to 1, in any range. */
static double spread(unsigned index) {
  const double x = (double)index * 0.6180339887498949;
  return x - floor(x);
}

struct point spiral_point(unsigned index) {
  struct point point;
  point.arm = (int)(index % spiral_arms);
  const double radius = 0.05 + 0.95 * spread(index / spiral_arms);
  const double angle = 4.0 * radius + 2.0944 * point.arm + 0.2 * (spread(7u * index) - 0.5);
  point.x[0] = (float)(radius * cos(angle));
  point.x[1] = (float)(radius * sin(angle));
  return point;
}
