// Chooses what to train on.
#pragma once

#include "dataset.hpp"
#include "options.hpp"

namespace cifar10 {

/// CIFAR-10 from `--data-dir`, or from `--download`, else the stand-in. Every rank gets all of it.
/// Collective. Throws kolo::Error on every rank if any rank cannot read it, or reads another
/// number of images than rank 0.
[[nodiscard]] Data load_data(const Options& options);

}  // namespace cifar10
