// What all executions of the MPI backend have.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "backend/backend.hpp"
#include "backend/mpi/context.hpp"
#include "backend/mpi/exchange.hpp"

namespace kolo::backend::mpi {

/// The ranks that take part are known by their index in the batch's `ranks`.
class Collective : public Execution {
 public:
  /// `index` is this rank's.
  Collective(Context& context, Batch batch, int index)
      : context_(context),
        batch_(std::move(batch)),
        index_(index),
        exchange_(context, batch_.order()) {}

  [[nodiscard]] Awaited waits_for() const final {
    return {exchange_.peers(), "to exchange data over MPI"};
  }

 protected:
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] std::span<const Member* const> members() const { return batch_.members; }
  [[nodiscard]] std::int64_t piece_bytes() const { return context_.piece_bytes; }
  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(batch_.ranks.size()); }
  /// The rank in the communicator.
  [[nodiscard]] int rank_of(int index) const {
    return batch_.ranks[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Exchange& exchange() { return exchange_; }

 private:
  Context& context_;
  Batch batch_;
  int index_;
  Exchange exchange_;
};

}  // namespace kolo::backend::mpi
