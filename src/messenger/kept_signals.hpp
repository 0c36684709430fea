// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

namespace kolo::internal::messenger {

/// Restores signal handlers that a library replaces when it is loaded or first used. Providers of
/// libfabric replace those of SIGSEGV, SIGTERM and others: their handlers call `exit`, which may
/// wait forever for something that the interrupted thread has begun. Handlers that the program
/// itself installs meanwhile remain: they lie in code that was loaded before.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < static_cast<int>(before_.size()); ++number)
      ::sigaction(number, nullptr, &at(number));
    ::dl_iterate_phdr(add, &loaded_);
  }
  ~KeptSignals() {
    for (int number = 1; number < static_cast<int>(before_.size()); ++number) {
      struct ::sigaction now {};
      if (::sigaction(number, nullptr, &now) != 0 || handler_of(now) == handler_of(at(number)))
        continue;
      Dl_info library{};
      if (::dladdr(handler_of(now), &library) != 0 &&
          !loaded_.contains(reinterpret_cast<std::uintptr_t>(library.dli_fbase)))
        ::sigaction(number, &at(number), nullptr);
    }
  }
  KeptSignals& operator=(KeptSignals&&) = delete;

 private:
  static void* handler_of(const struct ::sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                               : reinterpret_cast<void*>(action.sa_handler);
  }
  /// Adds the start address of the program or of a library, as `dladdr` reports it.
  static int add(dl_phdr_info* object, std::size_t /*size*/, void* loaded) {
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& segment = object->dlpi_phdr[i];  // the first PT_LOAD has the lowest address
      if (segment.p_type != PT_LOAD) continue;
      const std::uintptr_t start = segment.p_vaddr & ~(segment.p_align - 1);
      static_cast<std::set<std::uintptr_t>*>(loaded)->insert(object->dlpi_addr + start);
      break;
    }
    return 0;
  }
  struct ::sigaction& at(int number) {
    return before_[static_cast<std::size_t>(number)];
  }

  std::array<struct ::sigaction, 32> before_{};
  std::set<std::uintptr_t> loaded_{};  // start addresses of code loaded before
};

}  // namespace kolo::internal::messenger
