// SPDX-License-Identifier: Apache-2.0
// Batches for tests: tensors of known elements, and checks of their results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "../support/elements.hpp"
#include "backend/backend.hpp"

namespace kolo::internal::backend {

/// The numbers of elements of a batch's tensors.
using Lengths = std::vector<std::int64_t>;

/// Allocates the arrays of this thread, if it is set; returns null for private memory.
using ArrayMemory = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;
inline ArrayMemory& array_memory() {
  thread_local ArrayMemory memory;
  return memory;
}

/// Elements of one type. A std::vector would store booleans as bits.
template <typename T>
struct Array {
  Array() = default;
  explicit Array(std::int64_t given_length) : length(given_length) {
    const auto count = static_cast<std::size_t>(given_length);
    std::shared_ptr<std::byte> block;
    if (array_memory()) block = array_memory()(count * sizeof(T));
    if (block == nullptr) {
      elements = std::make_shared<T[]>(count);
    } else {
      elements = std::shared_ptr<T[]>(block, reinterpret_cast<T*>(block.get()));
      std::fill_n(elements.get(), length, T{});
    }
  }

  T& operator[](std::int64_t index) { return elements[static_cast<std::ptrdiff_t>(index)]; }
  const T& operator[](std::int64_t index) const {
    return elements[static_cast<std::ptrdiff_t>(index)];
  }

  std::int64_t length = 0;
  std::shared_ptr<T[]> elements{};
};

/// The tensors of one batch, in place or, with outputs, out of place. The i-th has `lengths[i]`
/// elements, given by `value(i, k)`.
template <typename T>
class Tensors {
 public:
  template <typename Function>
  Tensors(const Lengths& lengths, bool in_place, Function value) : in_place_(in_place) {
    members_.reserve(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      Array<T> input(lengths[i]);
      for (std::int64_t k = 0; k < lengths[i]; ++k) input[k] = value(i, k);
      outputs_.emplace_back(in_place ? 0 : lengths[i]);
      inputs_.push_back(std::move(input));
      members_.push_back({.input = inputs_[i].elements.get(),
                          .output = output(i).elements.get(),
                          .dtype = dtype<T>(),
                          .rows = lengths[i]});
    }
  }

  [[nodiscard]] Array<T>& output(std::size_t i) { return in_place_ ? inputs_[i] : outputs_[i]; }
  [[nodiscard]] BatchTensor& member(std::size_t i) { return members_[i]; }

  void add_to(Batch& batch) const {
    for (const BatchTensor& member : members_) batch.tensors.push_back(&member);
  }

  /// Whether every output is `expected(i, k)`, and inputs that are not outputs are unchanged.
  template <typename Expected, typename Function>
  testing::AssertionResult hold(Expected expected, Function value) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (auto result = equal(i, output(i), expected); !result) return result;
      if (in_place_) continue;
      if (auto result = equal(i, inputs_[i], value); !result)
        return testing::AssertionFailure() << "the input was changed: " << result.message();
    }
    return testing::AssertionSuccess();
  }

 private:
  template <typename Function>
  static testing::AssertionResult equal(std::size_t i, const Array<T>& found, Function expected) {
    for (std::int64_t k = 0; k < found.length; ++k) {
      const double wanted = value_of(T(expected(i, k)));
      if (value_of(found[k]) != wanted)
        return testing::AssertionFailure() << "element " << k << " of tensor " << i << " is "
                                           << value_of(found[k]) << ", not " << wanted;
    }
    return testing::AssertionSuccess();
  }

  bool in_place_;
  std::vector<Array<T>> inputs_{};
  std::vector<Array<T>> outputs_{};
  std::vector<BatchTensor> members_{};
};

using Rows = std::vector<std::int64_t>;

/// A tensor of a batch whose result this object allocates.
template <typename T>
struct Gathered {
  BatchTensor member{};
  Array<T> input{};
  Array<T> output{};
  Rows rows{};

  explicit Gathered(std::int64_t input_rows, std::int64_t row_elements = 1)
      : input(input_rows * row_elements) {
    member.input = input.elements.get();
    member.dtype = dtype<T>();
    member.rows = input_rows;
    member.row_elements = row_elements;
    member.allocate = [this, row_elements](std::span<const std::int64_t> given) {
      rows.assign(given.begin(), given.end());
      std::int64_t total = 0;
      for (const std::int64_t from_one : given) total += from_one;
      output = Array<T>(total * row_elements);
      return output.elements.get();
    };
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;
};

inline Descriptor reduction_of(OperationType type, ReduceOp op,
                               Compression compression = Compression::none) {
  Descriptor kind;
  kind.type = type;
  kind.op = op;
  kind.compression = compression;
  return kind;
}

inline Descriptor allreduce_of(ReduceOp op, Compression compression = Compression::none) {
  return reduction_of(OperationType::allreduce, op, compression);
}

inline Descriptor operation_of(OperationType type, int root = -1) {
  Descriptor kind;
  kind.type = type;
  kind.root = root;
  return kind;
}

/// A small value, so that sums over four ranks fit every type. It differs between ranks and
/// tensors.
inline std::int64_t element(int rank, std::size_t tensor, std::int64_t index) {
  return (index + 3 * static_cast<std::int64_t>(tensor)) % 11 + rank;
}

/// The sum of `element` over ranks 0 .. size-1.
inline std::int64_t sum_of_elements(int size, std::size_t tensor, std::int64_t index) {
  return size * element(0, tensor, index) + size * (size - 1) / 2;
}

}  // namespace kolo::internal::backend
