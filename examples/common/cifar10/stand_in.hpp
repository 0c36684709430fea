// Generated images for whoever has no CIFAR-10 at hand: the same form, ten classes, learnable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataset.hpp"

namespace cifar10 {

/// Noisy stripes: a class has its steepness (falling and rising alike, so that a mirror image stays
/// in its class) and a tint. The same images for the same seed. `test` gets a fifth as many
/// images as `train`.
[[nodiscard]] Data make_stand_in(std::size_t train_images, std::uint64_t seed);

}  // namespace cifar10
