// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.hpp"
#include "base/elements.hpp"
#include "support/random.hpp"

namespace kolo::internal::differential {
namespace {

bool reduces(const Operation& operation) {
  return operation.kind == Kind::allreduce || operation.kind == Kind::reducescatter;
}

std::uint64_t random_at(const Operation& operation, std::size_t tensor, int rank, std::uint64_t i) {
  return campaign::hash({operation.number, tensor, static_cast<std::uint64_t>(rank), i});
}

bool is_unsigned(DType dtype) {
  return dtype == DType::u8 || dtype == DType::u16 || dtype == DType::u32 || dtype == DType::u64;
}

/// The element of the rank's input. Small, so that every type holds all results of up to 4 ranks
/// exactly.
double element(const Operation& operation, std::size_t tensor, int rank, std::uint64_t i) {
  const DType dtype = operation.tensors[tensor].dtype;
  // adasum gets equal tensors
  const bool adasum = reduces(operation) && operation.op == ReduceOp::adasum;
  const std::uint64_t random = random_at(operation, tensor, adasum ? 0 : rank, i);
  if (dtype == DType::boolean) return static_cast<double>(random % 2);
  if (!reduces(operation)) return static_cast<double>(random % 100);
  const double value =
      is_unsigned(dtype) ? static_cast<double>(random % 3) : static_cast<double>(random % 5) - 2.0;
  const bool divided = operation.op == ReduceOp::average && is_floating(dtype);
  return divided ? value * static_cast<double>(operation.divisor()) : value;
}

void put(Buffer& buffer, std::int64_t i, double value) {
  std::byte* const to = buffer.bytes.data();
  if (buffer.dtype == DType::boolean) store<std::uint8_t>(to, i, value != 0.0 ? 1 : 0);
  visit_integer(buffer.dtype, [&](auto type) {
    using T = decltype(type);
    store<T>(to, i, static_cast<T>(static_cast<std::int64_t>(value)));  // wraps
  });
  visit_real(buffer.dtype, [&](auto type) {
    using T = decltype(type);
    store<T>(to, i, rounded<T>(value));
  });
}

/// The value after it is stored in the type.
double stored(DType dtype, double value) {
  visit_integer(dtype, [&](auto type) {
    using T = decltype(type);
    value = static_cast<double>(static_cast<T>(static_cast<std::int64_t>(value)));
  });
  return value;
}

/// Truncated, and the nearest value of an integer type.
double scaled(DType dtype, double value, double scale) {
  if (dtype == DType::boolean || scale == 1.0) return value;
  value *= scale;
  visit_integer(dtype, [&](auto type) {
    using Limits = std::numeric_limits<decltype(type)>;
    value = std::clamp(std::trunc(value), static_cast<double>(Limits::min()),
                       static_cast<double>(Limits::max()));
  });
  return value;
}

double combined(const Operation& operation, DType dtype, double a, double b) {
  switch (operation.op) {
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::product: return stored(dtype, a * b);
    case ReduceOp::adasum: return a;  // all inputs are equal
    default: return stored(dtype, a + b);
  }
}

/// An element of the reduction over the ranks that are present.
double reduced(const Operation& operation, std::size_t tensor, std::uint64_t i) {
  const DType dtype = operation.tensors[tensor].dtype;
  const auto value = [&](int rank) {
    return scaled(dtype, element(operation, tensor, rank, i), operation.prescale);
  };
  double result = value(operation.present.front());
  for (std::size_t k = 1; k < operation.present.size(); ++k)
    result = combined(operation, dtype, result, value(operation.present[k]));
  if (operation.op == ReduceOp::average) {
    result /= static_cast<double>(operation.divisor());
    if (!is_floating(dtype)) result = std::trunc(result);
  }
  return scaled(dtype, result, operation.postscale);
}

std::int64_t row_elements(const Tensor& tensor) {
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < tensor.shape.dimensions(); ++i) elements *= tensor.shape[i];
  return elements;
}

Shape with_rows(const Shape& shape, std::int64_t rows) {
  std::vector<std::int64_t> lengths(shape.lengths().begin(), shape.lengths().end());
  if (lengths.empty()) lengths.push_back(1);
  lengths.front() = rows;
  return Shape(lengths);
}

std::size_t place_of(const Operation& operation, int rank) {
  return static_cast<std::size_t>(std::ranges::find(operation.members, rank) -
                                  operation.members.begin());
}

bool is_present(const Operation& operation, int rank) {
  return std::ranges::binary_search(operation.present, rank);
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

Buffer reduction(const Operation& operation, std::size_t tensor, int rank) {
  const Tensor& of = operation.tensors[tensor];
  Shape shape = of.shape;
  std::int64_t first = 0;
  if (operation.kind == Kind::reducescatter) {
    const auto members = static_cast<int>(operation.members.size());
    const auto place = static_cast<int>(place_of(operation, rank));
    for (int i = 0; i < place; ++i) first += reducescatter_rows(of.shape[0], i, members);
    shape = with_rows(shape, reducescatter_rows(of.shape[0], place, members));
  }
  Buffer result = make_buffer(of.dtype, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    put(result, i,
        reduced(operation, tensor, static_cast<std::uint64_t>(first * row_elements(of) + i)));
  return result;
}

/// The rows for `rank` of each member's input, one after the other.
Buffer gathering(const Operation& operation, std::size_t tensor, int rank) {
  const Tensor& of = operation.tensors[tensor];
  const std::vector<std::int64_t> rows = received(operation, tensor, rank);
  Buffer result = make_buffer(of.dtype, with_rows(of.shape, sum(rows)));
  auto next = result.bytes.begin();
  for (std::size_t i = 0; i < operation.members.size(); ++i) {
    if (rows[i] == 0) continue;
    const int from = operation.members[i];
    const Buffer sent = input(operation, tensor, from);
    std::int64_t before = 0;
    if (operation.kind == Kind::alltoall) {
      const std::vector<std::int64_t> all = counts(operation, from);
      for (std::size_t k = 0; k < place_of(operation, rank); ++k) before += all[k];
    }
    const auto row_bytes = row_elements(of) * static_cast<std::int64_t>(size_of(of.dtype));
    next = std::copy_n(sent.bytes.begin() + before * row_bytes, rows[i] * row_bytes, next);
  }
  return result;
}

}  // namespace

Buffer make_buffer(DType dtype, const Shape& shape) {
  return {dtype, shape,
          std::vector<std::byte>(static_cast<std::size_t>(shape.elements()) * size_of(dtype))};
}

Shape shape_on(const Operation& operation, std::size_t tensor, int rank) {
  const Shape& shape = operation.tensors[tensor].shape;
  if (shape.dimensions() == 0) return shape;
  if (operation.kind == Kind::alltoall) return with_rows(shape, sum(counts(operation, rank)));
  if (operation.kind != Kind::allgather) return shape;
  const auto most = static_cast<std::uint64_t>(shape[0]) + 1;
  return with_rows(shape,
                   static_cast<std::int64_t>(random_at(operation, tensor, rank, ~0U) % most));
}

Buffer input(const Operation& operation, std::size_t tensor, int rank) {
  Buffer buffer = make_buffer(operation.tensors[tensor].dtype, shape_on(operation, tensor, rank));
  for (std::int64_t i = 0; i < buffer.shape.elements(); ++i)
    put(buffer, i, element(operation, tensor, rank, static_cast<std::uint64_t>(i)));
  return buffer;
}

std::string input_text(const Operation& operation, int rank) {
  std::string text(random_at(operation, 0, rank, 0) % 200, ' ');
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>(random_at(operation, 0, rank, i + 1) % 256);
  return text;
}

std::vector<std::int64_t> counts(const Operation& operation, int from) {
  const std::uint64_t most = static_cast<std::uint64_t>(operation.tensors[0].shape[0]) + 1;
  std::vector<std::int64_t> rows;
  for (const int to : operation.members)
    rows.push_back(static_cast<std::int64_t>(
        random_at(operation, 0, from, ~static_cast<std::uint64_t>(to)) % most));
  return rows;
}

Buffer output(const Operation& operation, std::size_t tensor, int rank) {
  switch (operation.kind) {
    case Kind::allreduce:
    case Kind::reducescatter: return reduction(operation, tensor, rank);
    case Kind::broadcast: return input(operation, tensor, operation.root);
    default: return gathering(operation, tensor, rank);
  }
}

std::vector<std::int64_t> received(const Operation& operation, std::size_t tensor, int rank) {
  std::vector<std::int64_t> rows;
  for (const int from : operation.members) {
    if (!is_present(operation, from)) {
      rows.push_back(0);
    } else if (operation.kind == Kind::alltoall) {
      rows.push_back(counts(operation, from)[place_of(operation, rank)]);
    } else {
      const Shape shape = shape_on(operation, tensor, from);
      rows.push_back(shape.dimensions() == 0 ? 1 : shape[0]);
    }
  }
  return rows;
}

bool succeeds(const Operation& operation) {
  if (operation.mistake) return false;
  switch (operation.kind) {
    case Kind::alltoall:
    case Kind::reducescatter: return operation.present == operation.members;
    case Kind::broadcast:
    case Kind::broadcast_string: return is_present(operation, operation.root);
    default: return true;
  }
}

}  // namespace kolo::internal::differential
