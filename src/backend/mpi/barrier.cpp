#include <utility>

#include "backend/mpi/collective.hpp"
#include "backend/mpi/executions.hpp"

namespace kolo::backend::mpi {
namespace {

/// By dissemination (Hensgen, Finkel, Manber, 1988): in every round a rank tells the one at twice
/// the last round's distance that all it has heard of have entered.
class Barrier : public Collective {
 public:
  Barrier(Context& context, Batch given, int index)
      : Collective(context, std::move(given), index), messages_(exchange().take(2)) {
    messages_[0] = std::byte{0};
  }

  [[nodiscard]] Progress step() override {
    exchange().step();
    if (pending_ > 0) return Progress::waiting;
    if (distance_ >= size()) return Progress::done;
    const int to = rank_of((index() + distance_) % size());
    const int from = rank_of((index() + size() - distance_) % size());
    exchange().receive(from, 0, messages_ + 1, 1, pending_);
    exchange().send(to, 0, messages_, 1, pending_);
    distance_ *= 2;
    return Progress::moved;
  }

 private:
  int distance_ = 1;
  int pending_ = 0;
  std::byte* messages_;  // one sent, one received
};

}  // namespace

std::unique_ptr<Execution> make_barrier(Context& context, Batch batch, int index) {
  return std::make_unique<Barrier>(context, std::move(batch), index);
}

}  // namespace kolo::backend::mpi
