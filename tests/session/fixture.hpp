// SPDX-License-Identifier: Apache-2.0
// The fixture of the tests of collectives: a session for each test, and elements of every type.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "../support/elements.hpp"
#include "kolo/kolo.hpp"

namespace kolo::internal {

/// A session for each test, among all ranks.
class WithSession : public testing::Test {
 protected:
  Session session_;
  const int n_ = size();
  const int me_ = rank();
  const int rank_sum_ = n_ * (n_ - 1) / 2;
  const int last_ = n_ - 1;

  /// All ranks of the world.
  [[nodiscard]] std::vector<int> ranks() const {
    std::vector<int> all(static_cast<std::size_t>(n_));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  /// Fails unless a collective of all ranks works.
  void expect_usable() const {
    std::int64_t value = me_ + 1;
    allreduce(value, {.name = "is the session usable?", .op = ReduceOp::sum});
    EXPECT_EQ(value, rank_sum_ + n_);
  }
};

/// The exception that `function` throws. It is a failure if it throws nothing, or another type.
template <typename E, typename Function>
E thrown_by(Function function) {
  try {
    function();
  } catch (const E& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw something else: " << error.what();
    return E("something else");
  }
  ADD_FAILURE() << "threw nothing";
  return E("nothing");
}

/// The type in which tests store elements in a vector.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <typename T>
TensorView view_of(std::vector<Stored<T>>& elements, Shape shape) {
  return {static_cast<void*>(elements.data()), std::move(shape), dtype<T>()};
}
template <typename T>
TensorView view_of(std::vector<Stored<T>>& elements) {
  return view_of<T>(elements, Shape(elements.size()));
}
template <typename T>
ConstTensorView view_of(const std::vector<Stored<T>>& elements) {
  return {static_cast<const void*>(elements.data()), Shape(elements.size()), dtype<T>()};
}

/// Elements as numbers, to compare and print them.
template <typename S>
std::vector<double> values_of(const std::vector<S>& elements) {
  std::vector<double> values;
  for (const S element : elements) values.push_back(value_of(element));
  return values;
}

}  // namespace kolo::internal
