// SPDX-License-Identifier: Apache-2.0
// Executes batches on CPUs over point-to-point messages.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "backend/mpi/exchange.hpp"

namespace kolo::internal::backend {

/// The collectives consist of messages between the ranks of the batch, so that any subset of ranks
/// can take part, and batches of different ranks run side by side. Batches are divided into pieces,
/// several of which are in progress at once. So a step stays short, arithmetic overlaps with
/// communication, and counts beyond 2^31 need no special case. All ranks get the same bits.
class MpiBackend : public Backend {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{1} << 18;

  /// `messenger` must meet the requirements of `Endpoint`. Batches use the messenger's rank
  /// numbers. `piece_bytes` is the same on all ranks, at least 8 and below 2^31.
  explicit MpiBackend(messenger::Messenger& messenger,
                      std::int64_t piece_bytes = default_piece_bytes);

  /// The backend must outlive its executions. Throws InvalidArgument for a batch that it cannot
  /// execute, such as a sum of booleans, or memory that is not on the CPU.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::uint64_t sequence_span() const override { return endpoint_.sequences; }

 private:
  mpi::Endpoint endpoint_;
};

}  // namespace kolo::internal::backend
