// SPDX-License-Identifier: Apache-2.0
// The information about GPUs that ranks exchange before they use them together, and the path
// selected from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace kolo::internal::backend::gpu {

using UniqueId = std::array<char, 128>;

/// One rank's. A text ends with its first zero.
struct GpuInfo {
  std::array<char, 16> uuid{};
  std::array<char, 32> pci_bus_id{};
  std::array<char, 160> why_no_nccl{};  // "" if there is NCCL
  std::int32_t nccl_version = 0;
  std::int32_t device = 0;
  std::int32_t may_share_gpu = 0;  // 1 if its NCCL lets several ranks use one GPU
  UniqueId unique_id{};            // the first rank's counts
};
static_assert(std::is_trivially_copyable_v<GpuInfo>);  // travels as bytes

/// How the GPU tensors of a set of ranks are sent. The same on all of them.
struct GpuPath {
  bool nccl = false;
  std::string why_not{};  // in words, with the ranks concerned
};

/// `infos` are those of `ranks`, one for each.
[[nodiscard]] GpuPath select_path(std::span<const int> ranks, std::span<const GpuInfo> infos);

}  // namespace kolo::internal::backend::gpu
