// SPDX-License-Identifier: Apache-2.0
// The resources of this machine for gpu-check: GPUs, the driver, CUDA and NCCL, each on its own
// line.
// Exits with 3 if there is no GPU that Kolo can use.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "backend/gpu/runtime/handles.hpp"
#include "kolo/session.hpp"
#include "session/engine/devices.hpp"

namespace {

constexpr int no_gpu = 3;

int refuse(std::string_view reason) {
  fmt::print("gpu_probe: there is no GPU here that Kolo can use: {}\n", reason);
  return no_gpu;
}

void print_version(std::string_view what, int version) {
  fmt::print("{}: {}.{}\n", what, version / 1000, version % 1000 / 10);
}

void print_nccl(const kolo::internal::session::GpuLibraries& libraries) {
  try {
    const auto nccl = libraries.find_nccl();
    if (nccl == nullptr) {
      fmt::print("NCCL: none\n");
      return;
    }
    const int version = nccl->version();
    fmt::print("NCCL: {}.{}.{}{}; ranks {} share a GPU\n", version / 10000, version % 10000 / 100,
               version % 100, nccl->can_derive() ? "" : ", which cannot derive communicators",
               nccl->allows_shared_gpus() ? "may" : "may not");
  } catch (const std::exception& error) {
    fmt::print("NCCL: {}\n", error.what());
  }
}

int probe(const kolo::internal::session::GpuLibraries& libraries) {
  const kolo::BuildInfo build = kolo::build_info();
  fmt::print("Kolo {}, built with CUDA {} and NCCL {}\n", build.version,
             build.cuda.empty() ? "none" : build.cuda, build.nccl.empty() ? "none" : build.nccl);
  if (libraries.cuda == nullptr) return refuse("this build is without CUDA");
  const auto versions = libraries.cuda->versions();
  print_nccl(libraries);
  if (versions.driver == 0) return refuse("there is no driver");
  print_version("driver, as CUDA", versions.driver);
  print_version("CUDA runtime", versions.runtime);
  const int count = libraries.cuda->device_count();
  for (int index = 0; index < count; ++index) {
    const auto properties = libraries.cuda->properties(index);
    fmt::print("cuda:{}: {}, PCI {}\n", index, properties.name, properties.pci_bus_id);
    const kolo::internal::backend::gpu::DeviceGuard guard(*libraries.cuda, index);
    libraries.cuda->check_kernels();
  }
  return count > 0 ? 0 : refuse("CUDA sees none");
}

}  // namespace

int main() {
  try {
    return probe({});
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}
