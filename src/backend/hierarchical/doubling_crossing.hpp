// Every owner exchanges all it has with one other at a time.
#pragma once

#include <vector>

#include "backend/hierarchical/crossing.hpp"

namespace kolo::backend::hierarchical {

/// Recursive doubling: after each step twice as many owners have combined the same. As many take
/// part as the largest power of two among them; each of the rest gives one of those what it has,
/// and gets the result.
class DoublingCrossing : public Crossing {
 public:
  DoublingCrossing(mpi::Exchange& exchange, const Owners& owners, int lane, std::int64_t elements,
                   const reduction::Arithmetic& last);
  ~DoublingCrossing() override;
  DoublingCrossing(const DoublingCrossing&) = delete;
  DoublingCrossing& operator=(const DoublingCrossing&) = delete;

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

}  // namespace kolo::backend::hierarchical
