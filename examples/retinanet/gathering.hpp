// Evaluation by all ranks: who looks at which picture, and what they found together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "detection.hpp"

namespace retinanet {

/// The places of this rank's pictures of an evaluation: each of `pictures` is one rank's.
[[nodiscard]] std::vector<std::int64_t> share_of(std::size_t pictures);

/// The detections of all ranks, in the order of their pictures, whoever found them; those of one
/// picture, which must be one rank's, keep their order. Collective.
[[nodiscard]] std::vector<Detection> gather(const std::vector<Detection>& mine);

}  // namespace retinanet
