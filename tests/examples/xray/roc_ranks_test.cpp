// SPDX-License-Identifier: Apache-2.0
// The area over all ranks equals that of one process with all images.
#include <gtest/gtest.h>

#include <cstdint>
#include <kolo/kolo.hpp>

#include "roc.hpp"

namespace {

using xray::Scored;

// Image i has the score (7 i) mod 11, and label 1 if i mod 3 is 0.
void add_image(Scored& scored, int i) {
  scored.scores.push_back(static_cast<float>(7 * i % 11));
  scored.labels.push_back(i % 3 == 0 ? 1 : 0);
}

TEST(AreaOverRanks, IsThatOfAllImagesTogether) {
  const kolo::Session session;
  // Rank r has r * 5 images, so rank 0 has none, unless it is alone.
  Scored mine, all;
  int next = 0;
  for (int rank = 0; rank < kolo::size(); ++rank) {
    const int count = kolo::size() == 1 ? 20 : rank * 5;
    for (int k = 0; k < count; ++k, ++next) {
      add_image(all, next);
      if (rank == kolo::rank()) add_image(mine, next);
    }
  }
  EXPECT_EQ(xray::area_over_ranks(mine), xray::area_under_curve(all));
}

TEST(AreaOverRanks, OfASetIsOfItsMembersOnly) {
  const kolo::Session session;
  const kolo::ProcessSet first = kolo::add_process_set({0});
  if (kolo::rank() != 0) return;
  EXPECT_EQ(xray::area_over_ranks({.scores = {1, 2}, .labels = {0, 1}}, first), 1.0);
}

}  // namespace
