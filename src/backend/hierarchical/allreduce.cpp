#include "backend/hierarchical/allreduce.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/hierarchical/crossing.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::hierarchical {
namespace {

static_assert(2 * shm::slot_count <= mpi::Exchange::lanes);

constexpr std::int64_t most_bytes_whole = 4096;

/// Each owner combines its slice of what its host has and takes it across to the owners of the same
/// slice on the other hosts. A few pieces cross at once.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Context& context, Batch given, const Placement& placement,
            int index, shm::Hosts given_hosts)
      : SlicedAllreduce(arena, std::move(given), index, std::move(given_hosts),
                        {placement.owners(), arena.slot_bytes(), false}),
        exchange_(context, batch().order()),
        most_bytes_whole_(std::min(most_bytes_whole, arena.slot_bytes() / 4)) {
    name_ranks(placement.hosts[static_cast<std::size_t>(placement.host_of(context.rank))]);
    if (index >= placement.owners()) return;
    const auto place = static_cast<std::size_t>(index);
    for (const std::vector<int>& ranks : placement.hosts) owners_.ranks.push_back(ranks[place]);
    owners_.own = placement.host_of(context.rank);
    for (std::size_t slot = 0; slot < shm::slot_count; ++slot)
      crossings_.emplace_back(exchange_, owners_, 2 * static_cast<int>(slot));
  }

 private:
  bool look() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over MPI"};
  }

  Progress combine(std::size_t number) override {
    const Slice own = own_slice(number);
    if (own.elements == 0) return Progress::done;
    Crossing& crossing = crossings_[number];
    if (!crossing.begun()) {
      std::byte* const combined = crossing.begin(own.elements, last(number), most_bytes_whole_);
      reduce_own(number, first(number), combined);
      crossing.send();
      return Progress::moved;
    }
    if (!crossing.advance()) return Progress::waiting;
    const std::int64_t bytes = own.elements * static_cast<std::int64_t>(size_of(wire(number)));
    std::memcpy(own_result(number), crossing.result(), static_cast<std::size_t>(bytes));
    crossing.end();
    take_own_result(number);
    worked(2 * bytes);
    return Progress::done;
  }

  /// Inside the host.
  [[nodiscard]] reduction::Arithmetic first(std::size_t number) const {
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), wire(number));
    arithmetic.postscale = 1.0;
    arithmetic.divisor = 1;
    arithmetic.result = Crossing::combined_type(wire(number));
    return arithmetic;
  }

  /// Between hosts.
  [[nodiscard]] reduction::Arithmetic last(std::size_t number) const {
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), wire(number));
    arithmetic.prescale = 1.0;
    return arithmetic;
  }

  mpi::Exchange exchange_;
  std::int64_t most_bytes_whole_;
  Owners owners_{};
  std::vector<Crossing> crossings_{};  // one for each slot; none if this rank owns nothing
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(shm::Arena& arena, mpi::Context& context, Batch batch,
                                          const Placement& placement, int index, shm::Hosts hosts) {
  return std::make_unique<Allreduce>(arena, context, std::move(batch), placement, index,
                                     std::move(hosts));
}

}  // namespace kolo::backend::hierarchical
