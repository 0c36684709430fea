// Every owner sends to the next one only.
#pragma once

#include <vector>

#include "backend/hierarchical/crossing.hpp"

namespace kolo::backend::hierarchical {

/// Sections go round and are combined on the way; the one who completes a section sends its result
/// round. The network carries as much as on the direct way, but nobody is sent to by several at
/// once. That a step of one slice overlaps those of others is the matter of who has several.
class RingCrossing : public Crossing {
 public:
  RingCrossing(mpi::Exchange& exchange, const Owners& owners, int lane, std::int64_t elements,
               const reduction::Arithmetic& last);
  ~RingCrossing() override;
  RingCrossing(const RingCrossing&) = delete;
  RingCrossing& operator=(const RingCrossing&) = delete;

  void send() override;
  [[nodiscard]] bool advance() override;

 private:
  /// How often something arrives while sections are combined; as often again while results go
  /// round.
  [[nodiscard]] int rounds() const { return owners_.size() - 1; }
  /// What arrives in a step.
  [[nodiscard]] Slice arriving(int step) const;
  void combine_and_pass_on(int step);
  void pass_on_result(const Slice& slice);

  std::byte* const versions_;   // of each section, what those before have
  std::vector<int> receiving_;  // by step
  int step_ = 0;
  int sending_ = 0;
};

}  // namespace kolo::backend::hierarchical
