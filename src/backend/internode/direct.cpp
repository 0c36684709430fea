// Every owner sends to every other at once.
#include "backend/internode/reduction.hpp"

#include <memory>
#include <vector>

namespace kolo::internal::backend::internode {
namespace {

/// Each owner reduces one section in the order of the hosts and sends the result to the others; or
/// all of the slice, which all have then without another message.
class DirectReduction : public InterNodeReduction {
 public:
  DirectReduction(const SliceTask& task, bool whole);
  ~DirectReduction() override;
  DirectReduction(const DirectReduction&) = delete;
  DirectReduction& operator=(const DirectReduction&) = delete;

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

template <typename Use>
void DirectReduction::for_each_other(Use use) const {
  for (int distance = 1; distance < owners_.size(); ++distance) {
    const int owner = (owners_.own + distance) % owners_.size();
    use(owner, owners_.rank(owner));
  }
}

DirectReduction::DirectReduction(const SliceTask& task, bool whole)
    : InterNodeReduction(task),
      whole_(whole),
      versions_(exchange_.take((owners_.size() - 1) * combined_bytes(its(owners_.own).elements))) {
  const std::int64_t bytes = combined_bytes(its(owners_.own).elements);
  for_each_other([&](int owner, int rank) {
    exchange_.receive(rank, lane_, version(owner), bytes, receiving_);
    if (whole_) return;
    const Slice theirs = its(owner);
    exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                      result_bytes(theirs.elements), under_way_);
  });
}

DirectReduction::~DirectReduction() { exchange_.give_back(versions_); }

void DirectReduction::send() {
  for_each_other([&](int owner, int rank) {
    const Slice theirs = its(owner);
    exchange_.send(rank, lane_, combined_ + combined_bytes(theirs.begin),
                   combined_bytes(theirs.elements), under_way_);
  });
}

bool DirectReduction::advance() {
  if (!reduced_ && receiving_ == 0) {
    reduce();
    if (!whole_) spread();
    reduced_ = true;
  }
  return reduced_ && under_way_ == 0;
}

void DirectReduction::reduce() {
  const Slice own = its(owners_.own);
  std::vector<const std::byte*> inputs;
  for (int owner = 0; owner < owners_.size(); ++owner)
    inputs.push_back(owner == owners_.own ? combined_ + combined_bytes(own.begin) : version(owner));
  finish(inputs, own.elements, versions_, result_ + result_bytes(own.begin));
}

void DirectReduction::spread() {
  const Slice own = its(owners_.own);
  for_each_other([&](int, int rank) {
    exchange_.send(rank, lane_ + 1, result_ + result_bytes(own.begin), result_bytes(own.elements),
                   under_way_);
  });
}

std::byte* DirectReduction::version(int owner) const {
  const int before = owner < owners_.own ? owner : owner - 1;
  return versions_ + before * combined_bytes(its(owners_.own).elements);
}

}  // namespace

std::unique_ptr<InterNodeReduction> make_direct(const SliceTask& task, bool whole) {
  return std::make_unique<DirectReduction>(task, whole);
}

}  // namespace kolo::internal::backend::internode
