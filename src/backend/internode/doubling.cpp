// Every owner exchanges all it has with one other at a time.
#include "backend/internode/reduction.hpp"

#include <array>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

namespace kolo::internal::backend::internode {
namespace {

/// Recursive doubling: after each step twice as many owners have combined the same. As many take
/// part as the largest power of two among them; each of the rest gives one of those what it has,
/// and gets the result.
class DoublingReduction : public InterNodeReduction {
 public:
  explicit DoublingReduction(const SliceTask& task);
  ~DoublingReduction() override;
  DoublingReduction(const DoublingReduction&) = delete;
  DoublingReduction& operator=(const DoublingReduction&) = delete;

  void send() override;
  [[nodiscard]] bool advance() override;

 private:
  /// Somebody with whom this owner exchanges.
  struct Step {
    int partner = 0;  // a place
    bool sends = true;
    int receiving = 0;
  };

  [[nodiscard]] bool is_one_of_the_rest() const { return owners_.own >= core_; }
  [[nodiscard]] std::byte* version(std::size_t step) const;
  void plan();
  void take(std::size_t step);
  void send_to(int owner, const std::byte* data, std::int64_t bytes);

  const int core_;  // so many take part
  std::vector<Step> steps_{};
  std::byte* versions_ = nullptr;  // what the others have, step by step
  std::size_t step_ = 0;
  int sending_ = 0;
};

DoublingReduction::DoublingReduction(const SliceTask& task)
    : InterNodeReduction(task),
      core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(owners_.size())))) {
  plan();
  versions_ = exchange_.take(static_cast<std::int64_t>(steps_.size()) * combined_bytes(elements_));
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    const int partner = owners_.rank(steps_[step].partner);
    int& pending = steps_[step].receiving;
    if (is_one_of_the_rest()) {
      exchange_.receive(partner, lane_ + 1, result_, result_bytes(elements_), pending);
    } else {
      exchange_.receive(partner, lane_, version(step), combined_bytes(elements_), pending);
    }
  }
}

DoublingReduction::~DoublingReduction() { exchange_.give_back(versions_); }

void DoublingReduction::plan() {
  if (is_one_of_the_rest()) {
    steps_.push_back({.partner = owners_.own - core_});
    return;
  }
  if (owners_.own + core_ < owners_.size())
    steps_.push_back({.partner = owners_.own + core_, .sends = false});
  for (int distance = 1; distance < core_; distance *= 2)
    steps_.push_back({.partner = owners_.own ^ distance});
}

std::byte* DoublingReduction::version(std::size_t step) const {
  return versions_ + static_cast<std::int64_t>(step) * combined_bytes(elements_);
}

void DoublingReduction::send_to(int owner, const std::byte* data, std::int64_t bytes) {
  exchange_.send(owners_.rank(owner), lane_, data, bytes, sending_);
}

void DoublingReduction::send() {
  if (steps_.front().sends) send_to(steps_.front().partner, combined_, combined_bytes(elements_));
}

bool DoublingReduction::advance() {
  // What is combined next takes the place of what is being sent.
  while (step_ < steps_.size() && steps_[step_].receiving == 0 && sending_ == 0) take(step_++);
  return step_ == steps_.size() && sending_ == 0;
}

void DoublingReduction::take(std::size_t step) {
  if (is_one_of_the_rest()) return;
  // Both partners combine in the same order.
  std::array<const std::byte*, 2> inputs{combined_, version(step)};
  if (steps_[step].partner < owners_.own) std::swap(inputs[0], inputs[1]);
  if (step + 1 < steps_.size()) {
    combine(inputs, elements_, combined_);
    send_to(steps_[step + 1].partner, combined_, combined_bytes(elements_));
    return;
  }
  finish(inputs, elements_, combined_, result_);
  if (const int rest = owners_.own + core_; rest < owners_.size())
    exchange_.send(owners_.rank(rest), lane_ + 1, result_, result_bytes(elements_), sending_);
}

}  // namespace

std::unique_ptr<InterNodeReduction> make_doubling(const SliceTask& task) {
  return std::make_unique<DoublingReduction>(task);
}

}  // namespace kolo::internal::backend::internode
