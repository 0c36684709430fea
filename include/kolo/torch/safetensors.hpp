// SPDX-License-Identifier: Apache-2.0
// Safetensors files of LibTorch modules and tensors. No communication.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/types.h>

#include <filesystem>

#include "kolo/export.hpp"
#include "kolo/torch/state.hpp"
#include "kolo/training/safetensors.hpp"

namespace kolo {

/// A copy of the elements, on the CPU. Throws InvalidArgument for u16, u32 and u64, which LibTorch
/// lacks.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor to_tensor(const StoredTensor& stored);

/// Writes a module's parameters and buffers under PyTorch's names ("layers.0.weight"), or any named
/// tensors, from any device. `path` always names a complete file. Throws InvalidArgument for a
/// sparse or complex tensor, and CheckpointError if the system fails. Not collective.
KOLO_EXPORT void save_safetensors(const std::filesystem::path& path,
                                  const ::torch::nn::Module& module,
                                  const Metadata& metadata = {{"format", "pt"}});
KOLO_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedParameters& tensors,
                                  const Metadata& metadata = {{"format", "pt"}});

/// Reads a safetensors file, or the files of an index, into a module's existing parameters and
/// buffers, or into any named tensors, by name. Elements are converted to the dtype of the existing
/// tensor and copied to its device. Throws InvalidArgument for a tensor of another shape and, if
/// `strict`, for missing and unexpected names; then no tensor is changed. Throws CheckpointError
/// for a damaged file. Not collective: on several ranks, load on one and call
/// `broadcast_parameters`, or load the same file on all.
///
///     kolo::load_safetensors("resnet50.safetensors", *model);
///     kolo::load_safetensors("resnet50.safetensors", *backbone,
///                            {.strict = false, .prefix = "body."});
KOLO_EXPORT UnmatchedNames load_safetensors(const std::filesystem::path& path,
                                            ::torch::nn::Module& module,
                                            const SafetensorsOptions& options = {});
KOLO_EXPORT UnmatchedNames load_safetensors(const std::filesystem::path& path,
                                            const NamedParameters& into,
                                            const SafetensorsOptions& options = {});

}  // namespace kolo
