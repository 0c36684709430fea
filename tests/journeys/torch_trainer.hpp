// SPDX-License-Identifier: Apache-2.0
// Trainers with LibTorch's SGD.
#pragma once

#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <torch/types.h>
#include <torch/version.h>

#include <memory>
#include <span>
#include <vector>

#include "kolo/torch/amp.hpp"
#include "trainer.hpp"

namespace kolo::internal::journeys {

[[nodiscard]] Maker torch_maker();

/// A trainer whose parameters are divided among the ranks of the set. This rank must be in it.
[[nodiscard]] std::unique_ptr<Trainer> make_fully_sharding(const TrainerArguments& arguments);

/// LibTorch's scale; null without one.
[[nodiscard]] GradScaler* grad_scaler_of(Scaler* scaler);

/// The ranks whose hook throws. All ranks; or if the pass is one that reduces, so that the others
/// learn of it, sometimes the odd rank or every other rank, as far as they are in this rank's set.
[[nodiscard]] std::vector<int> throwers_of(const TrainerArguments& arguments, const Event& event);

inline std::span<float> elements_of(const ::torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// The key of a parameter in the state of an optimizer.
inline auto optimizer_key(const ::torch::Tensor& parameter) {
#if TORCH_VERSION_MAJOR >= 2
  return static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  return c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
}

}  // namespace kolo::internal::journeys
