// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/write_fence.hpp"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <thread>

#include "base/log.hpp"

namespace kolo::internal::backend::shm {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A writer that shares the processor of this thread needs it.
constexpr nanoseconds pause = std::chrono::microseconds(100);

/// Called by a rank that fails: there may be no memory for the text.
void report(LogLevel level, pid_t process, nanoseconds patience, const char* what) noexcept {
  try {
    log(level, fmt::format("process {} has not ended a write into this rank's shared tensors for "
                           "{} s: {}",
                           process, std::chrono::duration<double>(patience).count(), what));
  } catch (const std::exception&) {  // the failure is reported elsewhere
  }
}

/// False after `patience`.
template <typename Condition>
bool await_until(Condition met, nanoseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  while (!met()) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace

void WriteFence::close(nanoseconds patience) noexcept {
  peer(index_).gate->closed.store(1, std::memory_order_seq_cst);
  for (const Peer& other : peers_) {
    if (&other == &peer(index_)) continue;
    const std::uint64_t section = other.gate->sections.load(std::memory_order_seq_cst);
    if (section % 2 != 0) await(other, section, patience);
  }
}

void WriteFence::await(const Peer& peer, std::uint64_t section, nanoseconds patience) noexcept {
  // With acquire: what the section wrote comes before what the program does with its tensors.
  const auto over = [&] {
    return peer.gate->sections.load(std::memory_order_acquire) != section ||
           (peer.process != nullptr && peer.process->ended());
  };
  if (await_until(over, patience) || peer.process == nullptr) return;
  report(LogLevel::critical, peer.process->pid(), patience, "it is killed");
  peer.process->kill();
  if (!await_until(over, patience))
    report(LogLevel::critical, peer.process->pid(), patience,
           "it cannot be killed, and may still write. End this process");
}

}  // namespace kolo::internal::backend::shm
