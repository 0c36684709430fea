// Training that can be stopped and gone on with.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>

#include "network.hpp"

namespace cifar10 {

/// How far training is.
struct Position {
  std::int64_t epochs = 0;
  std::int64_t steps = 0;
};

/// Writes network, optimizer and position. A reader finds the old file or the new one, never half a
/// file. Throws on failure.
void save_checkpoint(const std::filesystem::path& file, const Network& network,
                     const torch::optim::Optimizer& optimizer, const Position& position);

/// Reads what `save_checkpoint` wrote. Throws std::runtime_error, which names the file, if it is
/// missing, truncated, or not such a file; network and optimizer are then undefined.
[[nodiscard]] Position load_checkpoint(const std::filesystem::path& file, Network& network,
                                       torch::optim::Optimizer& optimizer);

/// Writes the network alone: `torch::load` reads it into a `Network`.
void save_network(const std::filesystem::path& file, const Network& network);

}  // namespace cifar10
