// SPDX-License-Identifier: Apache-2.0
#include "node/error_codes.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "kolo/error.hpp"

namespace kolo::internal::node {

std::string error_text(int error) { return std::generic_category().message(error); }

void throw_system_error(const char* doing) {
  throw BackendError(fmt::format("{} failed: {}", doing, error_text(errno)));
}

}  // namespace kolo::internal::node
