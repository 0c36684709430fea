#include "backend/hierarchical/direct_crossing.hpp"

namespace kolo::backend::hierarchical {

template <typename Use>
void DirectCrossing::for_each_other(Use use) const {
  for (int distance = 1; distance < owners_.size(); ++distance) {
    const int owner = (owners_.own + distance) % owners_.size();
    use(owner, owners_.rank(owner));
  }
}

DirectCrossing::DirectCrossing(mpi::Exchange& exchange, const Owners& owners, int lane,
                               std::int64_t elements, const reduction::Arithmetic& last, bool whole)
    : Crossing(exchange, owners, lane, elements, last),
      whole_(whole),
      versions_(exchange.take((owners.size() - 1) * combined_bytes(its(owners.own).elements))) {
  const std::int64_t bytes = combined_bytes(its(owners.own).elements);
  for_each_other([&](int owner, int rank) {
    exchange_.receive(rank, lane_, version(owner), bytes, receiving_);
    if (whole_) return;
    const Slice theirs = its(owner);
    exchange_.receive(rank, lane_ + 1, result_ + result_bytes(theirs.begin),
                      result_bytes(theirs.elements), under_way_);
  });
}

DirectCrossing::~DirectCrossing() { exchange_.give_back(versions_); }

void DirectCrossing::send() {
  for_each_other([&](int owner, int rank) {
    const Slice theirs = its(owner);
    exchange_.send(rank, lane_, combined_ + combined_bytes(theirs.begin),
                   combined_bytes(theirs.elements), under_way_);
  });
}

bool DirectCrossing::advance() {
  if (!reduced_ && receiving_ == 0) {
    reduce();
    if (!whole_) spread();
    reduced_ = true;
  }
  return reduced_ && under_way_ == 0;
}

void DirectCrossing::reduce() {
  const Slice own = its(owners_.own);
  std::vector<const std::byte*> inputs;
  for (int owner = 0; owner < owners_.size(); ++owner)
    inputs.push_back(owner == owners_.own ? combined_ + combined_bytes(own.begin) : version(owner));
  finish(inputs, own.elements, versions_, result_ + result_bytes(own.begin));
}

void DirectCrossing::spread() {
  const Slice own = its(owners_.own);
  for_each_other([&](int, int rank) {
    exchange_.send(rank, lane_ + 1, result_ + result_bytes(own.begin), result_bytes(own.elements),
                   under_way_);
  });
}

std::byte* DirectCrossing::version(int owner) const {
  const int before = owner < owners_.own ? owner : owner - 1;
  return versions_ + before * combined_bytes(its(owners_.own).elements);
}

}  // namespace kolo::backend::hierarchical
