// SPDX-License-Identifier: Apache-2.0
// The information about GPUs that ranks exchange before they use them together, and the choice of a
// path from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace kolo::internal::backend::gpu {

using UniqueId = std::array<char, 128>;

/// The information of one rank. Texts are terminated by zero.
struct GpuInfo {
  std::array<char, 16> uuid{};
  std::array<char, 32> pci_bus_id{};
  std::array<char, 160> why_no_nccl{};  // "" if NCCL is available
  std::int32_t nccl_version = 0;
  std::int32_t device = 0;
  std::int32_t may_share_gpu = 0;  // 1 if NCCL allows several ranks on one GPU
  UniqueId unique_id{};            // that of the first rank is used
};
static_assert(std::is_trivially_copyable_v<GpuInfo>);  // travels as bytes

/// How a set of ranks exchanges GPU tensors. The same on all of these ranks.
struct GpuPath {
  bool nccl = false;
  std::string why_not{};  // the reason, with the ranks concerned
};

/// `infos` has one element for each of `ranks`.
[[nodiscard]] GpuPath select_path(std::span<const int> ranks, std::span<const GpuInfo> infos);

}  // namespace kolo::internal::backend::gpu
