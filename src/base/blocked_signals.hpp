// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace kolo::internal {

/// Blocks all signals in this thread while it lives. Threads started meanwhile inherit the mask, so
/// the program's signals are left to the program's threads, whose handlers may expect them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals& operator=(BlockedSignals&&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace kolo::internal
