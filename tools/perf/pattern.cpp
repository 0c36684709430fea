// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "elements.hpp"

namespace perf {
namespace {

using kolo::ReduceOp;

/// The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A number from 0 to `max_value`.
std::int64_t scatter(std::int64_t rank, std::int64_t index, std::int64_t max_value) {
  const std::uint64_t key = static_cast<std::uint64_t>(rank) * 0x9e3779b97f4a7c15U +
                            static_cast<std::uint64_t>(index) + 1;
  return static_cast<std::int64_t>(mix(key) % (static_cast<std::uint64_t>(max_value) + 1));
}

/// The summand of a rank. If the dtype cannot hold the sum of all ranks, some ranks contribute
/// zeros.
std::int64_t summand(std::int64_t limit, std::int64_t rank, std::int64_t index, std::int64_t size) {
  const std::int64_t contributors = std::min(size, limit);
  const bool contributes = (rank + index) % size < contributors;
  return contributes ? scatter(rank, index, std::min<std::int64_t>(15, limit / contributors)) : 0;
}

/// A value for averages. Ranks form pairs whose values lie equally far above and below the average,
/// so the average is an integer.
std::int64_t averaged(std::int64_t limit, std::int64_t rank, std::int64_t index,
                      std::int64_t size) {
  const std::int64_t average = 1 + scatter(-1, index, std::min<std::int64_t>(15, limit / size - 1));
  const std::int64_t place = (rank + index) % size;
  if (place == size - 1 && size % 2 == 1) return average;
  const std::int64_t deviation = scatter(place / 2, index, std::min(average, limit - average));
  return place % 2 == 0 ? average + deviation : average - deviation;
}

/// A factor for products: all ranks but one contribute a 1, unless the dtype holds only 0 and 1.
std::int64_t factor(std::int64_t limit, std::int64_t rank, std::int64_t index, std::int64_t size) {
  if (limit == 1) return scatter(rank, index, size) == 0 ? 0 : 1;
  return (rank + index) % size == 0 ? 1 + scatter(-1, index, 2) : 1;
}

std::int64_t input_value(std::int64_t limit, ReduceOp op, std::int64_t rank, std::int64_t index,
                         std::int64_t size) {
  switch (op) {
    case ReduceOp::sum: return summand(limit, rank, index, size);
    case ReduceOp::average: return averaged(limit, rank, index, size);
    case ReduceOp::product: return factor(limit, rank, index, size);
    default: return scatter(rank, index, std::min<std::int64_t>(100, limit));
  }
}

std::int64_t combine(ReduceOp op, std::int64_t left, std::int64_t right) {
  switch (op) {
    case ReduceOp::min: return std::min(left, right);
    case ReduceOp::max: return std::max(left, right);
    case ReduceOp::product: return left * right;
    default: return left + right;
  }
}

}  // namespace

PeriodicTable::PeriodicTable(kolo::DType dtype, std::span<const std::int64_t> values)
    : element_size_(static_cast<std::size_t>(size_of(dtype))),
      bytes_(2 * values.size() * element_size_) {
  for (std::size_t i = 0; i < 2 * values.size(); ++i)
    encode(dtype, values[i % values.size()], &bytes_[i * element_size_]);
}

const std::byte* PeriodicTable::start(std::int64_t phase) const {
  return bytes_.data() + static_cast<std::size_t>(phase % period) * element_size_;
}

void PeriodicTable::fill(std::span<std::byte> buffer, std::int64_t phase) const {
  const std::byte* const source = start(phase);
  const std::size_t block = bytes_.size() / 2;
  for (std::size_t done = 0; done < buffer.size(); done += block)
    std::memcpy(buffer.data() + done, source, std::min(block, buffer.size() - done));
}

std::int64_t PeriodicTable::count_wrong(std::span<const std::byte> buffer,
                                        std::int64_t phase) const {
  const std::byte* const wanted = start(phase);
  const std::size_t block = bytes_.size() / 2;
  std::int64_t wrong = 0;
  for (std::size_t done = 0; done < buffer.size(); done += block) {
    const std::byte* const found = buffer.data() + done;
    const std::size_t length = std::min(block, buffer.size() - done);
    if (std::memcmp(found, wanted, length) == 0) continue;
    for (std::size_t at = 0; at < length; at += element_size_)
      if (std::memcmp(found + at, wanted + at, element_size_) != 0) ++wrong;
  }
  return wrong;
}

std::vector<std::int64_t> input_values(kolo::DType dtype, ReduceOp op, int rank, int size) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(period));
  for (std::int64_t index = 0; index < period; ++index)
    values[static_cast<std::size_t>(index)] =
        input_value(exact_limit(dtype), op, rank, index, size);
  return values;
}

std::vector<std::int64_t> reduced_values(kolo::DType dtype, ReduceOp op, ReduceOp made_for,
                                         int size) {
  std::vector<std::int64_t> values = input_values(dtype, made_for, 0, size);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<std::int64_t> others = input_values(dtype, made_for, rank, size);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = combine(op, values[i], others[i]);
  }
  if (op == ReduceOp::average)
    for (std::int64_t& value : values) value /= size;
  return values;
}

void check_exactness(kolo::DType dtype, ReduceOp op, int size) {
  const std::string name(find_name(dtype_names, dtype));
  if (dtype == kolo::DType::boolean && (op == ReduceOp::sum || op == ReduceOp::average))
    throw UsageError("--dtype bool: booleans have --reduce-op min, max and product only");
  if (op == ReduceOp::average && size > exact_limit(dtype))
    throw UsageError("--dtype " + name + ": an average over " + std::to_string(size) +
                     " ranks cannot be verified, since " + name + " has integers up to " +
                     std::to_string(exact_limit(dtype)) + " only");
}

void spoil(std::span<std::byte> buffer) { std::ranges::fill(buffer, std::byte{0xa5}); }

}  // namespace perf
