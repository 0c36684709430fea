#include "node/system_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "kolo/error.hpp"

namespace kolo::node {

void throw_system_error(const char* doing) {
  throw BackendError(fmt::format("{} failed: {}", doing, std::generic_category().message(errno)));
}

}  // namespace kolo::node
