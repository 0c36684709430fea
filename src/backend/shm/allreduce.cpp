#include <memory>
#include <utility>

#include "backend/shm/executions.hpp"
#include "backend/shm/sliced_allreduce.hpp"

namespace kolo::backend::shm {
namespace {

/// Every rank is an owner.
class Allreduce : public SlicedAllreduce {
 public:
  Allreduce(Arena& arena, Batch given, int index, Hosts given_hosts)
      : SlicedAllreduce(arena, std::move(given), index, given_hosts,
                        {static_cast<int>(given_hosts.size()), arena.piece_bytes(), true}) {}

 private:
  Progress combine(std::size_t number) override {
    if (own_slice(number).elements == 0) return Progress::done;
    reduce_own(number, arithmetic_of(batch(), wire(number)), own_result(number));
    take_own_result(number);
    return Progress::done;
  }
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<Allreduce>(arena, std::move(batch), index, std::move(hosts));
}

}  // namespace kolo::backend::shm
