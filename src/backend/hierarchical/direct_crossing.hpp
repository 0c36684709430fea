// Every owner sends to every other at once.
#pragma once

#include <vector>

#include "backend/hierarchical/crossing.hpp"

namespace kolo::backend::hierarchical {

/// Each owner reduces one section in the order of the hosts and sends the result to the others; or
/// all of the slice, which all have then without another message.
class DirectCrossing : public Crossing {
 public:
  DirectCrossing(mpi::Exchange& exchange, const Owners& owners, int lane, std::int64_t elements,
                 const reduction::Arithmetic& last, bool whole);
  ~DirectCrossing() override;
  DirectCrossing(const DirectCrossing&) = delete;
  DirectCrossing& operator=(const DirectCrossing&) = delete;

  void send() override;
  [[nodiscard]] bool advance() override;

 private:
  /// Of the slice, what the owner reduces.
  [[nodiscard]] Slice its(int owner) const { return whole_ ? Slice{0, elements_} : section(owner); }
  /// Where the version of another owner is put.
  [[nodiscard]] std::byte* version(int owner) const;
  void reduce();
  void spread();
  /// Calls `use(owner, rank)` for the others, each rank in another order, so that not all send to
  /// the same one first.
  template <typename Use>
  void for_each_other(Use use) const;

  const bool whole_;
  std::byte* const versions_;  // the others' of what this owner reduces
  bool reduced_ = false;
  int under_way_ = 0;  // what is sent, and results that are received
  int receiving_ = 0;  // versions
};

}  // namespace kolo::backend::hierarchical
