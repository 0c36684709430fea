// SPDX-License-Identifier: Apache-2.0
// Generated images in place of CIFAR-10: the same format, ten classes, learnable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataset.hpp"

namespace cifar10 {

/// Noisy stripes. Each class has a slope (falling or rising, so that a mirror image stays in its
/// class) and a tint. Equal seeds give equal images. `test` has a fifth as many images as `train`.
[[nodiscard]] Data make_stand_in(std::size_t train_images, std::uint64_t seed);

}  // namespace cifar10
