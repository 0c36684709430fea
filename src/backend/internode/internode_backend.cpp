// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/internode_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "backend/batch.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {

namespace internode {
namespace {

static_assert(InterNodeReduction::lanes * shm::slot_count <= mpi::Exchange::lanes);

/// Each owner reduces its slice within its host, then with the owners of the same slice on the
/// other hosts. A few pieces are in progress at once.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given, const Placement& placement,
            const AlgorithmTable& algorithms, shm::LocalRanks given_ranks)
      : SlicedAllreduce(arena, std::move(given), std::move(given_ranks),
                        {placement.owners(), arena.slot_bytes(), false}),
        exchange_(endpoint, batch().order()),
        owners_(owners_with(endpoint.rank, placement)),
        algorithms_(algorithms) {
    name_ranks(placement.hosts[static_cast<std::size_t>(placement.host_of(endpoint.rank))]);
  }

 private:
  bool step_transfers() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }

  Progress combine(std::size_t number) override {
    const Slice own = own_slice(number);
    if (own.elements == 0) return Progress::done;
    std::unique_ptr<InterNodeReduction>& between_hosts = reductions_[number];
    if (!between_hosts) {
      between_hosts = make_inter_node_reduction(
          algorithms_.select(owners_->size(), own.elements, wire(number)),
          {exchange_, *owners_, InterNodeReduction::lanes * static_cast<int>(number), own.elements,
           last(number)});
      reduce_own(number, first(number), between_hosts->input());
      between_hosts->send();
      return Progress::moved;
    }
    if (!between_hosts->advance()) return Progress::waiting;
    const std::int64_t bytes = own.elements * signed_size_of(wire(number));
    std::memcpy(own_result(number), between_hosts->result(), static_cast<std::size_t>(bytes));
    between_hosts.reset();
    take_own_result(number);
    worked(2 * bytes);
    return Progress::done;
  }

  /// Inside the host.
  [[nodiscard]] reduction::Arithmetic first(std::size_t number) const {
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), wire(number));
    arithmetic.postscale = 1.0;
    arithmetic.divisor = 1;
    arithmetic.result = InterNodeReduction::combined_type(wire(number));
    return arithmetic;
  }

  /// Between hosts.
  [[nodiscard]] reduction::Arithmetic last(std::size_t number) const {
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), wire(number));
    arithmetic.prescale = 1.0;
    return arithmetic;
  }

  mpi::Exchange exchange_;
  std::optional<Owners> owners_;  // none if this rank owns nothing
  AlgorithmTable algorithms_;
  std::array<std::unique_ptr<InterNodeReduction>, shm::slot_count> reductions_{};
};

}  // namespace
}  // namespace internode

InterNodeBackend::InterNodeBackend(messenger::Messenger& messenger, const std::vector<int>& node_of,
                                   shm::Arena& arena, std::int64_t message_bytes)
    : endpoint_(messenger, message_bytes), placements_(node_of), arena_(arena) {
  for (int rank = 0; rank < endpoint_.size; ++rank)
    if (node_of[static_cast<std::size_t>(rank)] ==
        node_of[static_cast<std::size_t>(endpoint_.rank)])
      ranks_of_host_.push_back(rank);
}

void InterNodeBackend::measure_algorithms(const std::function<void()>& while_waiting) {
  std::vector<int> ranks(static_cast<std::size_t>(endpoint_.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  algorithms_ = internode::measure_algorithms(endpoint_, placements_.of(ranks), while_waiting);
}

bool InterNodeBackend::can_execute(const Batch& batch) const {
  return batch.kind.type == OperationType::allreduce && batch.kind.op != ReduceOp::adasum &&
         placements_.of(batch.ranks).spans_hosts();
}

std::unique_ptr<Execution> InterNodeBackend::start(Batch batch) {
  if (!can_execute(batch))
    throw InvalidArgument(
        fmt::format("\"{}\" cannot be executed host by host", to_string(batch.kind)));
  check(batch);
  static_cast<void>(index_of(endpoint_.rank, batch));  // it must be one of them
  const internode::Placement& placement = placements_.of(batch.ranks);
  const auto own_host = static_cast<std::size_t>(placement.host_of(endpoint_.rank));
  shm::LocalRanks local_ranks;
  for (const int rank : placement.hosts[own_host]) {
    const auto found = std::ranges::find(ranks_of_host_, rank);
    local_ranks.push_back(static_cast<int>(found - ranks_of_host_.begin()));
  }
  return std::make_unique<internode::Allreduce>(arena_, endpoint_, std::move(batch), placement,
                                                algorithms_, std::move(local_ranks));
}

}  // namespace kolo::internal::backend
