// SPDX-License-Identifier: Apache-2.0
// Tensors and options of C as those of C++. All functions throw InvalidArgument for values that
// stand for nothing; the messages name the function of C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kolo/c/collectives.h"
#include "kolo/collective_options.hpp"
#include "kolo/tensor.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::c {

[[noreturn]] void refuse_value(const char* function, const char* what, int value);

/// The enumerator of this number, up to `last`.
template <typename Enumeration>
Enumeration enumerator(int value, Enumeration last, const char* function, const char* what) {
  if (value < 0 || value > static_cast<int>(last)) refuse_value(function, what, value);
  return static_cast<Enumeration>(value);
}

[[nodiscard]] TensorView tensor_of(const kolo_tensor* tensor, const char* function,
                                   const char* argument);
[[nodiscard]] std::vector<TensorView> tensors_of(const kolo_tensor* tensors, std::size_t count,
                                                 const char* function, const char* argument);
[[nodiscard]] std::vector<NamedTensor> named_tensors_of(const kolo_named_tensor* tensors,
                                                        std::size_t count, const char* function,
                                                        const char* argument);
/// Sets the options that all reductions have.
[[nodiscard]] AllreduceOptions allreduce_options(const kolo_reduce_options* given,
                                                 const char* function);
[[nodiscard]] GroupedAllreduceOptions grouped_options(const kolo_reduce_options* given,
                                                      const char* function);
[[nodiscard]] ReducescatterOptions reducescatter_options(const kolo_reduce_options* given,
                                                         const char* function);

/// `Options` has a name and a process set.
template <typename Options>
Options collective_options(const kolo_collective_options* given, const char* function);

/// The allocator of the program for the rows of `tensor`. `rows`, unless null, receives their
/// numbers.
[[nodiscard]] Allocator allocator_of(kolo_allocator allocate, void* user, const TensorView& tensor,
                                     std::int64_t* rows);

}  // namespace kolo::internal::c
