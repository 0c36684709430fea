// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "backend/batch.hpp"
#include "backend/internode/collectives.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {
namespace {

static_assert(InterNodeReduction::lanes * shm::slot_count <= mpi::Exchange::lanes);

/// Each owner reduces its slice within its host, then with the owners of the same slice on the
/// other hosts. A few pieces are in progress at once.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given, const Placement& placement,
            shm::LocalRanks given_ranks, const AlgorithmTable& algorithms)
      : SlicedAllreduce(arena, std::move(given), std::move(given_ranks),
                        {placement.owners(), arena.slot_bytes(), Scope::host}),
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
           outer_arithmetic(batch(), wire(number))});
      reduce_own(number, inner_arithmetic(batch(), wire(number), combined_type(wire(number))),
                 between_hosts->input());
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

  mpi::Exchange exchange_;
  std::optional<Owners> owners_;  // none if this rank owns nothing
  AlgorithmTable algorithms_;
  std::array<std::unique_ptr<InterNodeReduction>, shm::slot_count> reductions_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
                                          const Placement& placement, shm::LocalRanks local_ranks,
                                          const AlgorithmTable& algorithms) {
  return std::make_unique<Allreduce>(arena, endpoint, std::move(batch), placement,
                                     std::move(local_ranks), algorithms);
}

}  // namespace kolo::internal::backend::internode
