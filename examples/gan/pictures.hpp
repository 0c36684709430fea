// SPDX-License-Identifier: Apache-2.0
// Generated images as one picture.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

#include <cstdint>
#include <filesystem>

namespace gan {

/// Writes images [n, 3, height, width] with pixels from -1 to 1, n a multiple of `columns`, as a
/// PPM file. Creates its directory. Throws std::runtime_error, naming the file, if that fails.
void write_picture(const std::filesystem::path& file, const torch::Tensor& images,
                   std::int64_t columns);

}  // namespace gan
