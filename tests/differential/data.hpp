// SPDX-License-Identifier: Apache-2.0
// Inputs and expected results of operations, which every rank computes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace kolo::internal::differential {

/// A tensor in memory.
struct Buffer {
  DType dtype = DType::u8;
  Shape shape{};
  std::vector<std::byte> bytes{};

  [[nodiscard]] TensorView view() { return {bytes.data(), shape, dtype}; }
  [[nodiscard]] ConstTensorView const_view() const { return {bytes.data(), shape, dtype}; }

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// A buffer of zeros.
[[nodiscard]] Buffer make_buffer(DType dtype, const Shape& shape);

/// The shape of the tensor on the rank; the number of rows may differ between ranks.
[[nodiscard]] Shape shape_on(const Operation& operation, std::size_t tensor, int rank);

[[nodiscard]] Buffer input(const Operation& operation, std::size_t tensor, int rank);
[[nodiscard]] std::string input_text(const Operation& operation, int rank);
/// The rows that `from` sends to each member in an alltoall.
[[nodiscard]] std::vector<std::int64_t> counts(const Operation& operation, int from);

/// The rank's result if the operation succeeds.
[[nodiscard]] Buffer output(const Operation& operation, std::size_t tensor, int rank);
/// The rows from each member in an allgather or alltoall.
[[nodiscard]] std::vector<std::int64_t> received(const Operation& operation, std::size_t tensor,
                                                 int rank);

/// False if the ranks disagree, or the operation is undefined once ranks have joined.
[[nodiscard]] bool succeeds(const Operation& operation);

}  // namespace kolo::internal::differential
