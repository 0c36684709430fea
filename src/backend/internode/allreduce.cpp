// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/internode_backend.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {
namespace {

static_assert(InterNodeReduction::lanes * shm::slot_count <= mpi::Exchange::lanes);

/// The owner of a slice reduces it within its host, then exchanges it with the owners of the same
/// slice on the other hosts. Several pieces are in progress at once. On a host with fewer ranks
/// than a piece has slices, a rank owns several of them.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Endpoint& endpoint, Batch given, const Placement& placement,
            shm::LocalRanks given_ranks, std::optional<InterNodeAlgorithm> algorithm)
      : SlicedAllreduce(arena, std::move(given), std::move(given_ranks),
                        {placement.host_sizes.first, placement.host_sizes.second,
                         arena.slot_bytes(), Scope::host}),
        exchange_(endpoint, batch().order()),
        algorithm_(algorithm) {
    const int host = placement.host_of(endpoint.rank);
    name_ranks(placement.hosts[static_cast<std::size_t>(host)]);
    for (int place = index(); place < placement.host_sizes.second; place += size())
      owners_.push_back(owners_of(place, host, placement));
  }

 private:
  struct Owned {
    Slice slice;
    std::unique_ptr<InterNodeReduction> between_hosts;  // null once done
  };
  struct PieceState {
    bool begun = false;
    std::vector<Owned> owned{};
  };

  bool step_transfers() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over the network"};
  }

  Progress combine(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!std::exchange(state.begun, true)) {
      begin_slices(number);
      if (!state.owned.empty()) return Progress::moved;
    }
    bool moved = false;
    bool done = true;
    for (Owned& owned : state.owned) {
      if (owned.between_hosts == nullptr) continue;
      if (owned.between_hosts->advance()) {
        finish_slice(number, owned);
        moved = true;
        continue;
      }
      done = false;
      // The next slice uses the same lanes, so it waits until this one has sent everything.
      if (!owned.between_hosts->has_sent_all()) break;
    }
    if (!done) return moved ? Progress::moved : Progress::waiting;
    state = {};
    return Progress::done;
  }

  void begin_slices(std::size_t number) {
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      const int place = index() + static_cast<int>(i) * size();
      if (place >= slices(number)) break;
      const Slice own = slice(number, place);
      if (own.elements == 0) break;
      const Owners& owners = owners_[i];
      auto between_hosts = make_inter_node_reduction(
          algorithm_.value_or(select_algorithm(owners.size(), own.elements, wire(number))),
          {exchange_, owners, InterNodeReduction::lanes * static_cast<int>(number), own.elements,
           outer_arithmetic(batch(), wire(number))});
      reduce_inside(number, own,
                    inner_arithmetic(batch(), wire(number), combined_type(wire(number))),
                    between_hosts->input());
      between_hosts->send();
      pieces_[number].owned.push_back({own, std::move(between_hosts)});
    }
  }

  void finish_slice(std::size_t number, Owned& owned) {
    const std::int64_t bytes = owned.slice.elements * signed_size_of(wire(number));
    const std::byte* results = owned.between_hosts->result();
    if (!takes_alone(number)) {
      std::memcpy(result_of(number, owned.slice), results, static_cast<std::size_t>(bytes));
      results = result_of(number, owned.slice);
    }
    take_result(number, owned.slice, results);
    owned.between_hosts->give_back();
    owned.between_hosts.reset();
    worked(2 * bytes);
  }

  mpi::Exchange exchange_;
  std::vector<Owners> owners_{};  // for each of this rank's slices
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
