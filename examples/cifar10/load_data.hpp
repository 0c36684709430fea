// SPDX-License-Identifier: Apache-2.0
// Loads the data to train on.
#pragma once

#include "dataset.hpp"
#include "options.hpp"

namespace cifar10 {

/// Loads CIFAR-10 from `--data-dir` or `--download`, else the generated stand-in, on every rank.
/// Collective. Throws kolo::Error on every rank if any rank cannot read it, or reads another number
/// of images than rank 0.
[[nodiscard]] Data load_data(const Options& options);

}  // namespace cifar10
