// SPDX-License-Identifier: Apache-2.0
// Checks of arguments.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {

/// Throws InvalidArgument with the formatted message unless `valid`.
template <typename... Args>
void require(bool valid, fmt::format_string<Args...> message, Args&&... args) {
  if (!valid) throw InvalidArgument(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace kolo::internal
