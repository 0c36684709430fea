// SPDX-License-Identifier: Apache-2.0
// The area under the ROC curve: how well scores separate two classes.
#pragma once

#include <cstdint>
#include <kolo/process_set.hpp>
#include <vector>

namespace xray {

/// Scores and labels of this rank's images, in the same order.
struct Scored {
  std::vector<float> scores{};         ///< Higher for a more likely label 1.
  std::vector<std::int64_t> labels{};  ///< 0 or 1.
};

/// The area under the receiver operating characteristic: the probability that an image of label 1
/// has a higher score than one of label 0; equal scores count half. NaN if a label does not occur.
[[nodiscard]] double area_under_curve(const Scored& scored);

/// The same area over the images of all ranks of the set; it differs from the mean of the ranks'
/// areas.
/// Collective.
[[nodiscard]] double area_over_ranks(const Scored& scored, const kolo::ProcessSet& set = {});

}  // namespace xray
