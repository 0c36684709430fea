// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/runtime/gpu_info.hpp"

#include <fmt/format.h>

namespace kolo::internal::backend::gpu {
namespace {

std::string nccl_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace

/// All ranks evaluate the same infos in the same order, so they select the same path and report the
/// same reason.
GpuPath select_path(std::span<const int> ranks, std::span<const GpuInfo> infos) {
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (infos[i].why_no_nccl.front() != '\0')
      return {false, fmt::format("rank {}: {}", ranks[i], infos[i].why_no_nccl.data())};
  for (std::size_t i = 1; i < infos.size(); ++i)
    if (infos[i].nccl_version != infos.front().nccl_version)
      return {false, fmt::format("rank {} has NCCL {}, rank {} has NCCL {}", ranks.front(),
                                 nccl_text(infos.front().nccl_version), ranks[i],
                                 nccl_text(infos[i].nccl_version))};
  for (std::size_t i = 0; i < infos.size(); ++i)
    for (std::size_t j = i + 1; j < infos.size(); ++j)
      if (infos[i].uuid == infos[j].uuid &&
          (infos[i].may_share_gpu == 0 || infos[j].may_share_gpu == 0))
        return {false,
                fmt::format("ranks {} and {} use the same GPU (cuda:{} and cuda:{}, PCI {}): "
                            "give each rank a GPU of its own",
                            ranks[i], ranks[j], infos[i].device, infos[j].device,
                            infos[i].pci_bus_id.data())};
  return {true, ""};
}

}  // namespace kolo::internal::backend::gpu
