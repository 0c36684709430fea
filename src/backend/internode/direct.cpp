// SPDX-License-Identifier: Apache-2.0
// The algorithms `whole` and `direct`, in which every owner sends to every other at once.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "backend/internode/algorithms.hpp"
#include "backend/internode/reduction.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// Each owner reduces one section and sends the result to the others. With `whole`, each owner
/// reduces the entire slice, so no second message is needed.
class DirectReduction : public InterNodeReduction {
 public:
  DirectReduction(const SliceTask& task, bool whole)
      : InterNodeReduction(task),
        whole_(whole),
        versions_(take((owners_.size() - 1) * combined_bytes(part_of(owners_.own).elements))) {
    const std::int64_t bytes = combined_bytes(part_of(owners_.own).elements);
    for_each_other([&](int owner, int rank) {
      exchange_.receive(rank, lane_, version(owner), bytes, receiving_);
      if (whole_) return;
      const Slice theirs = part_of(owner);
      exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                        result_bytes(theirs.elements), pending_);
    });
  }

  void send() override {
    for_each_other([&](int owner, int rank) {
      const Slice theirs = part_of(owner);
      exchange_.send(rank, lane_, combined_ + combined_bytes(theirs.begin),
                     combined_bytes(theirs.elements), pending_);
    });
  }

  [[nodiscard]] bool advance() override {
    if (!reduced_ && receiving_ == 0) {
      reduce();
      reduced_ = true;
    }
    return reduced_ && pending_ == 0;
  }

  [[nodiscard]] bool has_sent_all() const override { return whole_ || reduced_; }

 private:
  /// The part of the slice that the owner reduces.
  [[nodiscard]] Slice part_of(int owner) const {
    return whole_ ? Slice{0, elements_} : section(owner);
  }

  /// The memory for the version of another owner.
  [[nodiscard]] std::byte* version(int owner) const {
    const int before = owner < owners_.own ? owner : owner - 1;
    return versions_ + before * combined_bytes(part_of(owners_.own).elements);
  }

  void reduce() {
    const Slice own = part_of(owners_.own);
    std::vector<std::byte*> all;
    all.reserve(static_cast<std::size_t>(owners_.size()));
    for (int owner = 0; owner < owners_.size(); ++owner)
      all.push_back(owner == owners_.own ? combined_ + combined_bytes(own.begin) : version(owner));
    // The own version may still be in transmission, so it must not be overwritten.
    const std::byte* const kept = all[static_cast<std::size_t>(owners_.own)];
    const auto inputs = combine_groups(
        std::move(all), kept,
        [&](reduction::Inputs group, std::byte* output) { combine(group, own.elements, output); });
    std::byte* const result = result_ + result_bytes(own.begin);
    finish(inputs, own.elements, versions_, result);
    if (whole_) return;
    for_each_other([&](int, int rank) {
      exchange_.send(rank, lane_ + 1, result, result_bytes(own.elements), pending_);
    });
  }

  /// Calls `use(owner, rank)` for the other owners. Each owner starts with its successor, to spread
  /// the load.
  template <typename Use>
  void for_each_other(Use use) const {
    for (int distance = 1; distance < owners_.size(); ++distance) {
      const int owner = (owners_.own + distance) % owners_.size();
      use(owner, owners_.rank(owner));
    }
  }

  const bool whole_;
  std::byte* const versions_;  // the other owners' versions of this owner's part
  bool reduced_ = false;
  int pending_ = 0;    // all messages to send, and results to receive
  int receiving_ = 0;  // versions to receive
};

}  // namespace

std::unique_ptr<InterNodeReduction> make_direct(const SliceTask& task, bool whole) {
  return std::make_unique<DirectReduction>(task, whole);
}

}  // namespace kolo::internal::backend::internode
