// SPDX-License-Identifier: Apache-2.0
#include "session/job/fork_guard.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

std::atomic<bool> is_child{false};

}  // namespace

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { is_child = true; }); });
}

bool forked() noexcept { return is_child; }

void require_not_forked() {
  if (forked())
    throw InvalidArgument(
        "this process was forked from one that had started Kolo, whose connections do not survive "
        "that: "
        "fork before kolo::init, or leave Kolo to the parent");
}

}  // namespace kolo::internal::session
