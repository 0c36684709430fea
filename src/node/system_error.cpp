#include "node/system_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "kolo/error.hpp"

namespace kolo::node {

std::string error_text(int error) { return std::generic_category().message(error); }

void throw_system_error(const char* doing) {
  throw BackendError(fmt::format("{} failed: {}", doing, error_text(errno)));
}

}  // namespace kolo::node
