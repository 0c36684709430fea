// SPDX-License-Identifier: Apache-2.0
// The memory of hooks: copies the elements of a bucket's tensors to consecutive f32 and back, and
// saves one such vector for each bucket as the state of a hook.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kolo/state_dict.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// True if all tensors are of a floating-point type.
[[nodiscard]] bool are_real(std::span<const TensorView> tensors) noexcept;

[[nodiscard]] std::int64_t elements_of(std::span<const TensorView> tensors) noexcept;

/// Writes the elements to `to` as f32: each times `factor`, plus the element of `more` unless it is
/// null.
void gather(std::span<const TensorView> tensors, double factor, const float* more, float* to);

/// Writes the elements to the tensors, rounded to their types.
void scatter(const float* from, std::span<const TensorView> tensors);

/// A vector of elements for each bucket, by the bucket's name.
using BucketVectors = std::map<std::string, std::vector<float>>;

/// Makes a state with a tensor for each bucket. `kind` names the hook and the format's version:
/// "kolo.int8.1".
[[nodiscard]] StateDict state_of(const std::string& kind, const BucketVectors& vectors);

/// Returns the vectors of a state. Throws InvalidArgument, naming `kind`, for a state that
/// `state_of` did not make for this kind.
[[nodiscard]] BucketVectors vectors_of(const std::string& kind, const StateDict& state);

}  // namespace kolo::internal
