// SPDX-License-Identifier: Apache-2.0
// Helpers shared by the LibTorch tests.
#pragma once

#include <kolo/torch.hpp>  // before torch/torch.h, as clang 14 needs it

#include <torch/torch.h>

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace kolo::internal::testing_support {

inline constexpr auto f64 = ::torch::kFloat64;

// A session for each test.
class TorchTest : public testing::Test {
 protected:
  Session session_;
};

// A vector with one element per entry: a parameter.
inline ::torch::Tensor parameter(std::vector<double> values) {
  return ::torch::tensor(values, f64).set_requires_grad(true);
}

inline ::torch::Tensor values(std::vector<double> list) { return ::torch::tensor(list, f64); }

// Runs backward such that the gradient of each element grows by `factor`.
inline void backward(const ::torch::Tensor& tensor, double factor) {
  (tensor * factor).sum().backward();
}

// Rows of two elements, all of them `value`.
inline ::torch::Tensor full(std::int64_t rows, double value) {
  return ::torch::full({rows, 2}, value, f64);
}

// Rows of two elements, each a different multiple of `factor`, to detect mixed-up rows and columns.
inline ::torch::Tensor weights(std::int64_t rows, double factor) {
  return ::torch::arange(1, 2 * rows + 1, f64).reshape({rows, 2}) * factor;
}

// The mean of 1 .. size: the average of `rank() + 1`.
inline double mean_rank() { return (size() + 1) / 2.0; }

inline void expect_close(const ::torch::Tensor& actual, const ::torch::Tensor& expected,
                         double tolerance = 1e-12) {
  ASSERT_TRUE(actual.defined());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  if (actual.numel() == 0) return;
  const double error = (actual - expected).abs().max().item<double>();
  EXPECT_LE(error, tolerance) << "actual: " << actual << "\nexpected: " << expected;
}

inline bool same_bits(const ::torch::Tensor& a, const ::torch::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

inline void expect_same_bits(const std::vector<::torch::Tensor>& a,
                             const std::vector<::torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
}

// The concatenation of all tensors' elements.
inline ::torch::Tensor flat(const std::vector<::torch::Tensor>& tensors) {
  std::vector<::torch::Tensor> pieces;
  for (const auto& tensor : tensors) pieces.push_back(tensor.detach().reshape({-1}));
  return ::torch::cat(pieces);
}

// Collective.
inline void expect_same_bits_on_all_ranks(const std::vector<::torch::Tensor>& tensors) {
  const ::torch::Tensor mine = flat(tensors);
  ::torch::Tensor reference = mine.clone();
  broadcast_(reference, 0);
  EXPECT_TRUE(same_bits(mine, reference)) << "this rank's parameters are not those of rank 0";
}

// Returns the exception of `action`, which must be an `Expected`.
template <typename Expected, typename Action>
Expected error_of(const Action& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return Expected("");
  }
  ADD_FAILURE() << "no exception";
  return Expected("");
}

}  // namespace kolo::internal::testing_support
