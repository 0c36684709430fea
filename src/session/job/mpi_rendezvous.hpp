// SPDX-License-Identifier: Apache-2.0
// The ranks of an MPI communicator, as those of a session that starts.
#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "rendezvous/rendezvous.hpp"
#include "session/job/communicator.hpp"

namespace kolo::internal::session {

/// MPI notices no lost rank: a call waits for it.
class MpiRendezvous : public rendezvous::Rendezvous {
 public:
  /// Collective over `comm`; MPI_COMM_NULL: over all ranks. Throws InvalidArgument for an
  /// intercommunicator.
  explicit MpiRendezvous(MPI_Comm comm);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<rendezvous::Bytes> gather_all(std::span<const std::byte> mine) override;
  [[nodiscard]] std::vector<int> ranks_of_machine() override;
  /// Lets MPI send what others still wait for before they come to where this rank is.
  void check() override;
  void settle() override;

  /// A communicator of the same ranks that carries nothing else. Collective.
  [[nodiscard]] Communicator duplicate() const { return Communicator::duplicate(world_.get()); }

 private:
  Communicator world_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace kolo::internal::session
