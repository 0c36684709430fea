#include "backend/hierarchical/crossing.hpp"

#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::hierarchical {
namespace {

// Among more owners, sending a slice whole to all takes longer than sending it twice in sections.
constexpr int most_owners_whole = 8;

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

}  // namespace

DType Crossing::combined_type(DType wire) { return is_half(wire) ? DType::f32 : wire; }

std::byte* Crossing::begin(std::int64_t elements, const reduction::Arithmetic& last,
                           std::int64_t most_bytes_whole) {
  elements_ = elements;
  last_ = last;
  reduced_ = false;
  // Between two hosts the network carries as much either way, but half types are shorter as
  // results.
  whole_ = (owners_.size() == 2 && !is_half(last.dtype)) ||
           (owners_.size() <= most_owners_whole && combined_bytes(elements) <= most_bytes_whole);
  combined_ = exchange_.take(combined_bytes(elements));
  result_ = exchange_.take(result_bytes(elements));
  versions_ = exchange_.take((owners_.size() - 1) * combined_bytes(section(owners_.own).elements));
  receive();
  return combined_;
}

template <typename Use>
void Crossing::for_each_other(Use use) const {
  for (int distance = 1; distance < owners_.size(); ++distance) {
    const int owner = (owners_.own + distance) % owners_.size();
    use(owner, owners_.ranks[static_cast<std::size_t>(owner)]);
  }
}

void Crossing::receive() {
  const std::int64_t bytes = combined_bytes(section(owners_.own).elements);
  for_each_other([&](int owner, int rank) {
    exchange_.receive(rank, lane_, version(owner), bytes, receiving_);
    if (whole_) return;
    const Slice its = section(owner);
    exchange_.receive(rank, lane_ + 1, result_ + result_bytes(its.begin),
                      result_bytes(its.elements), under_way_);
  });
}

void Crossing::send() {
  for_each_other([&](int owner, int rank) {
    const Slice its = section(owner);
    exchange_.send(rank, lane_, combined_ + combined_bytes(its.begin), combined_bytes(its.elements),
                   under_way_);
  });
}

bool Crossing::advance() {
  if (!reduced_ && receiving_ == 0) {
    reduce();
    if (!whole_) spread();
    reduced_ = true;
  }
  return reduced_ && under_way_ == 0;
}

void Crossing::reduce() {
  const Slice own = section(owners_.own);
  if (own.elements == 0) return;
  inputs_.clear();
  for (int owner = 0; owner < owners_.size(); ++owner)
    inputs_.push_back(owner == owners_.own ? combined_ + combined_bytes(own.begin)
                                           : version(owner));
  std::byte* const result = result_ + result_bytes(own.begin);
  reduction::Arithmetic arithmetic = last_;
  arithmetic.dtype = combined_type(last_.dtype);
  if (arithmetic.dtype == last_.dtype) {
    reduction::reduce(arithmetic, inputs_, own.elements, result);
  } else {
    reduction::reduce(arithmetic, inputs_, own.elements, versions_);
    fusion::convert(versions_, arithmetic.dtype, own.elements, result, last_.dtype);
  }
}

void Crossing::spread() {
  const Slice own = section(owners_.own);
  for_each_other([&](int, int rank) {
    exchange_.send(rank, lane_ + 1, result_ + result_bytes(own.begin), result_bytes(own.elements),
                   under_way_);
  });
}

void Crossing::end() {
  exchange_.give_back(combined_);
  exchange_.give_back(versions_);
  exchange_.give_back(result_);
  combined_ = versions_ = result_ = nullptr;
}

Slice Crossing::section(int owner) const {
  return whole_ ? Slice{0, elements_} : slice_of(elements_, owner, owners_.size());
}

std::int64_t Crossing::combined_bytes(std::int64_t elements) const {
  return elements * bytes_of(combined_type(last_.dtype));
}

std::int64_t Crossing::result_bytes(std::int64_t elements) const {
  return elements * bytes_of(last_.dtype);
}

std::byte* Crossing::version(int owner) const {
  const int before = owner < owners_.own ? owner : owner - 1;
  return versions_ + before * combined_bytes(section(owners_.own).elements);
}

}  // namespace kolo::backend::hierarchical
