// SPDX-License-Identifier: Apache-2.0
// Distributed evaluation: each rank's share of the images, and the gathering of all detections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "detection.hpp"

namespace retinanet {

/// Indices of this rank's images: each of the `pictures` images belongs to one rank.
[[nodiscard]] std::vector<std::int64_t> share_of(std::size_t pictures);

/// The detections of all ranks, ordered by image. Detections of one image must be on one rank, and
/// keep their order. Collective.
[[nodiscard]] std::vector<Detection> gather(const std::vector<Detection>& mine);

}  // namespace retinanet
