// SPDX-License-Identifier: Apache-2.0
#include "reduction/reduce.hpp"

#include <cstring>

#include "base/dtype.hpp"
#include "kolo/error.hpp"
#include "reduction/kernels.hpp"

namespace kolo::internal::reduction {
namespace {

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

}  // namespace kolo::internal::reduction
