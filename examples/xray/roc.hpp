// How well scores tell two classes apart.
#pragma once

#include <cstdint>
#include <kolo/process_set.hpp>
#include <vector>

namespace xray {

/// Of this rank's images; equally many of both.
struct Scored {
  std::vector<float> scores{};         ///< The higher, the more likely the label is 1.
  std::vector<std::int64_t> labels{};  ///< 0 or 1.
};

/// The area under the receiver operating characteristic: how probable it is that an image of label
/// 1 has a higher score than one of label 0, where equal scores count half. NaN if a label does
/// not occur.
[[nodiscard]] double area_under_curve(const Scored& scored);

/// The same over the images of all ranks of the set, which is not the mean of the ranks' areas.
/// Collective.
[[nodiscard]] double area_over_ranks(const Scored& scored, const kolo::ProcessSet& set = {});

}  // namespace xray
