// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <signal.h>

#include <array>
#include <cstddef>
#include <set>
#include <string>

namespace kolo::internal::messenger {

/// Takes back the signal handlers that a library sets when it is loaded or first used. Providers of
/// libfabric do so for SIGSEGV, SIGTERM and others: theirs call `exit`, which waits for what the
/// interrupted thread has begun. What the program itself sets meanwhile stays.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < static_cast<int>(before_.size()); ++number)
      ::sigaction(number, nullptr, &at(number));
    ::dl_iterate_phdr(add, &libraries_);
  }
  ~KeptSignals() {
    for (int number = 1; number < static_cast<int>(before_.size()); ++number) {
      struct ::sigaction now {};
      if (::sigaction(number, nullptr, &now) != 0 || handler_of(now) == handler_of(at(number)))
        continue;
      Dl_info library{};
      if (::dladdr(handler_of(now), &library) != 0 && !libraries_.contains(library.dli_fname))
        ::sigaction(number, &at(number), nullptr);
    }
  }
  KeptSignals& operator=(KeptSignals&&) = delete;

 private:
  static void* handler_of(const struct ::sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 ? reinterpret_cast<void*>(action.sa_sigaction)
                                               : reinterpret_cast<void*>(action.sa_handler);
  }
  static int add(dl_phdr_info* library, std::size_t /*size*/, void* libraries) {
    static_cast<std::set<std::string>*>(libraries)->insert(library->dlpi_name);
    return 0;
  }
  struct ::sigaction& at(int number) {
    return before_[static_cast<std::size_t>(number)];
  }

  std::array<struct ::sigaction, 32> before_{};
  std::set<std::string> libraries_{};
};

}  // namespace kolo::internal::messenger
