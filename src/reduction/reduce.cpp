// SPDX-License-Identifier: Apache-2.0
#include "reduction/reduce.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::reduction {
namespace {

/// The number of result bytes to compute at a time if there are several outputs. The results are
/// copied to the other outputs while they, and the inputs that they replace, are still in the
/// first-level cache.
constexpr std::int64_t block_bytes = 4096;

bool changes_nothing(const Arithmetic& arithmetic, Inputs inputs, DType result) {
  return inputs.size() == 1 && arithmetic.prescale == 1.0 && arithmetic.postscale == 1.0 &&
         arithmetic.divisor == 1 && result == arithmetic.dtype;
}

}  // namespace

void check_arithmetic(ReduceOp op, DType dtype) {
  if (op == ReduceOp::adasum && !is_floating(dtype))
    throw InvalidArgument("adasum is for floating-point tensors only");
  if (dtype == DType::boolean && (op == ReduceOp::sum || op == ReduceOp::average))
    throw InvalidArgument("booleans have no sum and no average; they have min, max and product");
}

void reduce(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements, std::byte* output) {
  check_arithmetic(arithmetic.op, arithmetic.dtype);
  if (arithmetic.op == ReduceOp::adasum)
    throw InvalidArgument("adasum does not combine element by element");
  if (elements == 0) return;
  const DType result = arithmetic.result.value_or(arithmetic.dtype);
  if (changes_nothing(arithmetic, inputs, result)) {
    if (inputs.front() != output)
      std::memcpy(output, inputs.front(),
                  static_cast<std::size_t>(elements) * size_of(arithmetic.dtype));
    return;
  }
  if (!reduce_vectors(arithmetic, inputs, elements, output))
    reduce_scalar(arithmetic, inputs, elements, output);
}

void reduce(const Arithmetic& arithmetic, Inputs inputs, std::int64_t elements, Outputs outputs) {
  if (outputs.size() == 1) return reduce(arithmetic, inputs, elements, outputs.front());
  const std::int64_t in_bytes = signed_size_of(arithmetic.dtype);
  const std::int64_t out_bytes = signed_size_of(arithmetic.result.value_or(arithmetic.dtype));
  const std::int64_t block = block_bytes / out_bytes;
  const auto reduce_block = [&](Inputs from, std::int64_t first, std::int64_t count) {
    std::byte* const results = outputs.front() + first * out_bytes;
    reduce(arithmetic, from, count, results);
    for (std::byte* const output : outputs.subspan(1))
      std::memcpy(output + first * out_bytes, results, static_cast<std::size_t>(count * out_bytes));
  };
  if (elements <= block) return reduce_block(inputs, 0, elements);
  // An output may be an input: all inputs of a block are read before any output of it is written.
  std::vector<const std::byte*> from(inputs.begin(), inputs.end());
  for (std::int64_t first = 0; first < elements; first += block) {
    reduce_block(from, first, std::min(block, elements - first));
    for (const std::byte*& input : from) input += block * in_bytes;
  }
}

}  // namespace kolo::internal::reduction
