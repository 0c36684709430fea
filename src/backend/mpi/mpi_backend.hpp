// SPDX-License-Identifier: Apache-2.0
// Executes batches on CPUs over MPI's point-to-point messages.
#pragma once

#include <cstdint>

#include "backend/backend.hpp"
#include "backend/mpi/exchange.hpp"

namespace kolo::internal::backend {

/// The collectives consist of messages between the ranks that a batch lists, so that any subset may
/// take part and batches of different ranks run side by side. Batches are cut into pieces, a few of
/// which are under way at once: so a step stays short, arithmetic overlaps the network, and counts
/// beyond 2^31 need no special case. All ranks get the same bits.
class MpiBackend : public Backend {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{1} << 18;

  /// `messenger` as for an Endpoint; its ranks are those of the batches. `piece_bytes`, the same on
  /// all ranks, is at least 8 and below 2^31.
  explicit MpiBackend(messenger::Messenger& messenger,
                      std::int64_t piece_bytes = default_piece_bytes);

  /// The executions must be gone before the backend. Throws InvalidArgument for a batch that it
  /// cannot execute, such as a sum of booleans or memory that is not on the CPU.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;
  [[nodiscard]] std::uint64_t sequence_span() const override { return endpoint_.sequences; }

 private:
  mpi::Endpoint endpoint_;
};

}  // namespace kolo::internal::backend
