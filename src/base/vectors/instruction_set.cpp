// SPDX-License-Identifier: Apache-2.0
#include "base/vectors/instruction_set.hpp"

#ifdef KOLO_HIGHWAY_LIBRARY
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/log.hpp"
#endif

namespace kolo::internal {

#ifdef KOLO_HIGHWAY_LIBRARY

std::int64_t supported_targets() {
  using Function = std::int64_t (*)();
  void* library = ::dlopen("libhwy.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) library = ::dlopen(KOLO_HIGHWAY_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* const found =
      library == nullptr ? nullptr : ::dlsym(library, "_ZN3hwy16SupportedTargetsEv");
  if (found != nullptr) return reinterpret_cast<Function>(found)();
  log(LogLevel::warning,
      fmt::format("Highway's library cannot be loaded, so reductions use no more than {}: {}",
                  hwy::TargetName(HWY_STATIC_TARGET), ::dlerror()));
  return HWY_STATIC_TARGET;
}

#else

std::int64_t supported_targets() { return hwy::SupportedTargets(); }

#endif

ChosenTarget& chosen_target() {
  static ChosenTarget chosen(supported_targets());
  return chosen;
}

}  // namespace kolo::internal
