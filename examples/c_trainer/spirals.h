/* SPDX-License-Identifier: Apache-2.0 */
/* The data: points on three interleaved arms of a spiral. */
#ifndef SPIRALS_H
#define SPIRALS_H

enum { spiral_arms = 3 };

struct point {
  float x[2];
  int arm;
};

/* Point number `index` of an endless sequence, the same everywhere. */
struct point spiral_point(unsigned index);

#endif
