// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/write_fence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>

#include "base/log.hpp"
#include "node/other_process.hpp"

namespace kolo::internal::backend::shm {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Long enough for a writer on the same processor to run meanwhile.
constexpr nanoseconds pause = std::chrono::microseconds(100);

/// Must not throw: it is called by a rank that fails, possibly without memory for the text.
void report(LogLevel level, pid_t process, nanoseconds patience, const char* what) noexcept {
  try {
    log(level, fmt::format("process {} has been writing to this rank's shared tensors for {} s: {}",
                           process, std::chrono::duration<double>(patience).count(), what));
  } catch (const std::exception&) {  // the failure of the session is reported elsewhere
  }
}

/// Counts only time during which this thread runs. If the whole machine or container is stopped,
/// the writers are stopped too.
class Patience {
 public:
  explicit Patience(nanoseconds length) : left_(length) {}

  /// Sleeps briefly. False once the patience is exhausted.
  bool wait() {
    std::this_thread::sleep_for(pause);
    const auto now = steady_clock::now();
    left_ -= std::min<nanoseconds>(now - std::exchange(last_, now), max_wait);
    return left_ > nanoseconds(0);
  }

 private:
  static constexpr nanoseconds max_wait = std::chrono::milliseconds(20);

  nanoseconds left_;
  steady_clock::time_point last_ = steady_clock::now();
};

bool is_stopped(const node::OtherProcess& process) {
  const ProcessState state = node::process_state(process.pid());
  return state == ProcessState::stopped || state == ProcessState::traced;
}

}  // namespace

void WriteFence::close(nanoseconds patience) noexcept {
  peer(index_).gate->closed.store(1, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < peers_.size(); ++i)
    awaited_[i] = peers_[i].gate->sections.load(std::memory_order_seq_cst);
  awaited_[static_cast<std::size_t>(index_)] = 0;
  Patience first(patience);
  while (any_writes())
    if (!first.wait()) break;
  if (!any_writes()) return;
  // A stopped process would write after it continues, so it is killed. A process that is slow, or
  // dumps its memory, ends its section or itself in time.
  each_writer([&](const node::OtherProcess& process) {
    if (!is_stopped(process)) return;
    report(LogLevel::critical, process.pid(), patience, "it is stopped and will be killed");
    process.kill();
  });
  Patience second(patience);
  while (any_writes())
    if (!second.wait()) break;
  each_writer([&](const node::OtherProcess& process) {
    report(LogLevel::critical, process.pid(), 2 * patience, "it may still write; terminate it");
  });
}

bool WriteFence::any_writes() const noexcept {
  bool any = false;
  for (std::size_t i = 0; i < peers_.size(); ++i) any = any || writes(i);
  return any;
}

/// True if the peer is still in the section in which it was when the gate was closed.
bool WriteFence::writes(std::size_t index) const noexcept {
  const Peer& peer = peers_[index];
  // Acquire: the writes of the section precede the program's use of its tensors.
  return awaited_[index] % 2 != 0 &&
         peer.gate->sections.load(std::memory_order_acquire) == awaited_[index] &&
         (peer.process == nullptr || !peer.process->ended());
}

template <typename Visit>
void WriteFence::each_writer(Visit visit) const noexcept {
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (peers_[i].process != nullptr && writes(i)) visit(*peers_[i].process);
}

}  // namespace kolo::internal::backend::shm
