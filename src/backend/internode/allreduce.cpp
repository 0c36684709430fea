// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/collectives.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {
namespace {

static_assert(InterNodeReduction::lanes * shm::slot_count <= mpi::Exchange::lanes);

/// The owner of a slice reduces it within its host, then with the owners of the same slice on the
/// other hosts. A few pieces are in progress at once. On a smaller host a rank owns several slices
/// of a piece, and reduces one after the other: so messages have the same order on all hosts.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given, const Placement& placement,
            shm::LocalRanks given_ranks, std::optional<InterNodeAlgorithm> algorithm)
      : SlicedAllreduce(arena, std::move(given), std::move(given_ranks),
                        {placement.slices(), arena.slot_bytes(), Scope::host}),
        exchange_(endpoint, batch().order()),
        algorithm_(algorithm) {
    const int host = placement.host_of(endpoint.rank);
    name_ranks(placement.hosts[static_cast<std::size_t>(host)]);
    for (int place = index(); place < placement.slices(); place += size())
      owned_.push_back({place, owners_of(place, host, placement)});
  }

 private:
  struct OwnedSlice {
    int place;
    Owners owners;
  };
  struct PieceState {
    std::size_t next = 0;                                 // of the owned slices
    std::unique_ptr<InterNodeReduction> between_hosts{};  // of that one
  };

  bool step_transfers() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }

  Progress combine(std::size_t number) override {
    auto& [next, between_hosts] = pieces_[number];
    while (next < owned_.size() && slice(number, owned_[next].place).elements == 0) ++next;
    if (next == owned_.size()) {
      next = 0;
      return Progress::done;
    }
    const Slice own = slice(number, owned_[next].place);
    if (!between_hosts) {
      const Owners& owners = owned_[next].owners;
      between_hosts = make_inter_node_reduction(
          algorithm_.value_or(select_algorithm(owners.size(), own.elements, wire(number))),
          {exchange_, owners, InterNodeReduction::lanes * static_cast<int>(number), own.elements,
           outer_arithmetic(batch(), wire(number))});
      reduce_inside(number, own,
                    inner_arithmetic(batch(), wire(number), combined_type(wire(number))),
                    between_hosts->input());
      between_hosts->send();
      return Progress::moved;
    }
    if (!between_hosts->advance()) return Progress::waiting;
    const std::int64_t bytes = own.elements * signed_size_of(wire(number));
    std::memcpy(result_of(number, own), between_hosts->result(), static_cast<std::size_t>(bytes));
    between_hosts.reset();
    take_result(number, own);
    worked(2 * bytes);
    ++next;
    return Progress::moved;
  }

  mpi::Exchange exchange_;
  std::vector<OwnedSlice> owned_{};
  std::optional<InterNodeAlgorithm> algorithm_;
  std::array<PieceState, shm::slot_count> pieces_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch,
                                          const Placement& placement, shm::LocalRanks local_ranks,
                                          std::optional<InterNodeAlgorithm> algorithm) {
  return std::make_unique<Allreduce>(arena, endpoint, std::move(batch), placement,
                                     std::move(local_ranks), algorithm);
}

}  // namespace kolo::internal::backend::internode
