#include "backend/hierarchical/allreduce.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "backend/hierarchical/crossing.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::backend::hierarchical {
namespace {

static_assert(Crossing::lanes * shm::slot_count <= mpi::Exchange::lanes);

/// Each owner combines its slice of what its host has and takes it across to the owners of the same
/// slice on the other hosts. A few pieces cross at once.
class Allreduce : public shm::SlicedAllreduce {
 public:
  Allreduce(shm::Arena& arena, mpi::Context& context, Batch given, const Placement& placement,
            const Ways& ways, int index, shm::Hosts given_hosts)
      : SlicedAllreduce(arena, std::move(given), index, std::move(given_hosts),
                        {placement.owners(), arena.slot_bytes(), false}),
        exchange_(context, batch().order()),
        owners_(owners_with(context.rank, placement)),
        ways_(ways) {
    name_ranks(placement.hosts[static_cast<std::size_t>(placement.host_of(context.rank))]);
  }

 private:
  bool look() override { return exchange_.step(); }
  [[nodiscard]] Awaited combining_waits_for() const override {
    return {exchange_.peers(), "to exchange data over MPI"};
  }

  Progress combine(std::size_t number) override {
    const Slice own = own_slice(number);
    if (own.elements == 0) return Progress::done;
    std::unique_ptr<Crossing>& crossing = crossings_[number];
    if (!crossing) {
      crossing = make_crossing(ways_.choose(owners_->size(), own.elements, wire(number)), exchange_,
                               *owners_, Crossing::lanes * static_cast<int>(number), own.elements,
                               last(number));
      reduce_own(number, first(number), crossing->input());
      crossing->send();
      return Progress::moved;
    }
    if (!crossing->advance()) return Progress::waiting;
    const std::int64_t bytes = own.elements * signed_size_of(wire(number));
    std::memcpy(own_result(number), crossing->result(), static_cast<std::size_t>(bytes));
    crossing.reset();
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
  std::optional<Owners> owners_;  // none if this rank owns nothing
  Ways ways_;
  std::array<std::unique_ptr<Crossing>, shm::slot_count> crossings_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(shm::Arena& arena, mpi::Context& context, Batch batch,
                                          const Placement& placement, const Ways& ways, int index,
                                          shm::Hosts hosts) {
  return std::make_unique<Allreduce>(arena, context, std::move(batch), placement, ways, index,
                                     std::move(hosts));
}

}  // namespace kolo::backend::hierarchical
