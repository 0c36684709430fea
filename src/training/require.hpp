// SPDX-License-Identifier: Apache-2.0
// Checks of arguments.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

/// Throws InvalidArgument with the formatted message unless `valid`.
template <typename... Args>
void require(bool valid, fmt::format_string<Args...> message, Args&&... args) {
  if (!valid) throw InvalidArgument(fmt::format(message, std::forward<Args>(args)...));
}

/// Throws InvalidArgument for a tensor on a GPU.
inline void require_cpu(const std::string& name, const Device& device) {
  require(device.type == DeviceType::cpu, "tensor '{}' is on a GPU; copy it to the CPU's memory",
          name);
}

}  // namespace kolo::internal
