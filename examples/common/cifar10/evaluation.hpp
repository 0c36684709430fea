// SPDX-License-Identifier: Apache-2.0
// Loss and accuracy of the network, on each rank and over all ranks.
#pragma once

#include <kolo/kolo.hpp>

#include "batch.hpp"
#include "dataset.hpp"
#include "network.hpp"

namespace cifar10 {

struct Metrics {
  double loss = 0.0;      ///< Mean cross-entropy per image, in nats.
  double accuracy = 0.0;  ///< Fraction of the images, 0 to 1.
};

/// The metrics of a batch: loss and accuracy.
[[nodiscard]] kolo::MetricAverage make_score();

/// Adds a batch, whose mean loss is `loss`.
void count(kolo::MetricAverage& score, const torch::Tensor& logits, const torch::Tensor& labels,
           const torch::Tensor& loss);

/// The metrics over the images of all ranks. Collective.
[[nodiscard]] Metrics over_all_ranks(const kolo::MetricAverage& score);

/// Tests the network on its own device. Each rank evaluates its share, and every image counts once.
/// Collective.
[[nodiscard]] Metrics evaluate(Network& network, const Dataset& dataset);

}  // namespace cifar10
